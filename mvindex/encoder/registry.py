"""Encoders by name, and again from what an index keeps of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mvindex.checkpoint import read_checkpoint
from mvindex.checkpoint.hub import PACKAGED, PACKAGED_ADAPTER
from mvindex.checkpoint.load import check_can_load
from mvindex.checkpoint.settings import parse_family
from mvindex.encoder.base import Encoder
from mvindex.errors import CheckpointError, ConfigError


def load_encoder(
    source: str | os.PathLike[str] = PACKAGED,
    *,
    family: str | None = None,
    max_views: int | None = None,
    device: str | None = None,
) -> Encoder:
    """The encoder of a checkpoint: "minilm" or "minilm-snippets" (packaged), a directory, or a hub id.

    A hub id is `org/name` or `org/name@revision`.
    family: "snippets", "single", "first-k", "kmeans", "sentences" or "splits" fit any weights, "poly", "viewers" and
    "context-viewers" only those trained so; max_views: the most views a document gets; both default to what the
    checkpoint says, else to snippets and 8. device: "cpu", "cuda", "cuda:N"; by default CUDA where there is one.
    Raises ConfigError, ExtraMissing (packages to install) or CheckpointError.
    """
    check_can_load("minilm" if source in (PACKAGED, PACKAGED_ADAPTER) else "encode")
    checkpoint = read_checkpoint(source, None if family is None else parse_family(family), max_views)
    # Imported late: the encoder needs torch only from here on.
    from mvindex.encoder.transformer import TransformerEncoder

    return TransformerEncoder(checkpoint, device)


def encoder_from_spec(spec: Mapping[str, Any], device: str | None = None) -> Encoder:
    """The encoder that an index was made with, opened again on the device.

    Raises ConfigError for a callable, which must be given again, CheckpointError when it now gives other vectors.
    """
    if spec.get("kind") == "callable":
        raise ConfigError(
            f"this index was made with the callable {spec.get('name')!r}, which only your program has; "
            "open the index with encoder=..."
        )
    if spec.get("kind") != "checkpoint":
        raise ConfigError(f"this index was made with an encoder of kind {spec.get('kind')!r}; wanted checkpoint")
    encoder = load_encoder(spec["source"], family=spec["family"], max_views=spec["max_views"], device=device)
    if encoder.fingerprint != spec["fingerprint"]:
        raise CheckpointError(
            f"encoder {spec['source']!r}: has changed since the index was made: fingerprint {encoder.fingerprint}, "
            f"wanted {spec['fingerprint']}. Bring back the old one, or ingest again with this one"
        )
    return encoder
