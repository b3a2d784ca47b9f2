"""Open encoders by name, or from the spec that an index stores."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mvindex.checkpoint import parse_family, read_checkpoint
from mvindex.checkpoint.families import AUTO_VIEWS, SENTENCES, SNIPPETS
from mvindex.checkpoint.hub import DEFAULT, PACKAGED_NAMES
from mvindex.checkpoint.load import check_can_load
from mvindex.encoder.base import Encoder
from mvindex.encoder.onnx_cache import FormState, OnnxForm, Refused, find_form, form_folder
from mvindex.encoder.onnx_encoder import OnnxEncoder
from mvindex.errors import CheckpointError, ConfigError, ExtraMissing, MvindexError
from mvindex.text.parts import Splitter, parse_splitter

logger = logging.getLogger(__name__)

_MAKING = "making the ONNX form of the encoder, once: later queries then start without torch"
_KEEPS_TORCH = "queries go on loading torch"


def load_encoder(
    source: str | os.PathLike[str] = DEFAULT,
    *,
    family: str | None = None,
    max_views: int | Literal["auto"] | None = None,
    splitter: str | None = None,
    device: str | None = None,
) -> Encoder:
    """Return the encoder of a checkpoint: "minilm-views" (default) or "minilm" (packaged), a directory, or a hub id.

    A hub id is `org/name` or `org/name@revision`.
    family: "snippets", "single", "first-k", "kmeans", "sentences" or "splits" fit any weights, "poly", "viewers" and
    "context-viewers" only those trained so; max_views: the most views a document gets; both default to what the
    checkpoint says, else to snippets and 8. "auto" is one view a part of the text, up to 256: of the families snippets
    and sentences. splitter: "parts-1" (sentences, items of lists, lines, clauses) or "sentences-1"; by default the
    family's, parts for snippets. device: "cpu", "cuda", "cuda:N"; by default CUDA where there is one.
    Raises ConfigError, ExtraMissing (packages to install) or CheckpointError.
    """
    most = AUTO_VIEWS if max_views == "auto" else max_views
    cut = None if splitter is None else parse_splitter(splitter)
    checkpoint = read_checkpoint(source, None if family is None else parse_family(family), most, cut)
    if max_views == "auto" and checkpoint.settings.family not in (SNIPPETS, SENTENCES):
        raise ConfigError(
            f"max_views: expected a number for the family {checkpoint.settings.family.name!r}, got 'auto', which is "
            "for views that each stand for a part of the text (snippets, sentences)"
        )
    if device in (None, "cpu") and isinstance(form := find_form(checkpoint.fingerprint), OnnxForm):
        return OnnxEncoder(checkpoint, form, device)
    try:
        check_can_load("minilm" if source in PACKAGED_NAMES else "encode")
    except ExtraMissing as err:
        raise ExtraMissing(f"{err}{_way_without_torch(checkpoint.fingerprint)}") from None
    # Imported late: the encoder needs torch only from here on.
    from mvindex.encoder.transformer import TransformerEncoder

    return TransformerEncoder(checkpoint, device)


def leave_form(encoder: Encoder | None, on_note: Callable[[str], None]) -> None:
    """Make the ONNX form of the encoder's queries where it lacks one, for whatever makes or first uses an encoder.

    What fails becomes a note: queries then go on loading torch. A refusal is kept in the cache, so that it is noted
    once; see prepare_queries(). None is an encoder that was never loaded.
    """
    if encoder is None:
        return
    try:
        logger.info("queries are encoded by %s", prepare_queries(encoder, on_note))
    except MvindexError as err:
        on_note(f"{_KEEPS_TORCH}: {err}")


def prepare_queries(encoder: Encoder, on_note: Callable[[str], None] = lambda text: None) -> str:
    """Make the ONNX form of the encoder's queries where there is none yet, and return how queries are encoded.

    The form lies in the user's cache: load_encoder() then answers queries without loading torch. Makes nothing for
    encoders of other kinds, and those whose form was refused before. on_note is called with a line before it takes
    seconds, and with the reason if the form is refused.

    Raises:
        ExtraMissing: When a package that makes the form is not installed.
        StoreError: When the cache cannot be written.

    """
    if isinstance(encoder, OnnxEncoder):
        return _description(encoder.form)
    from mvindex.encoder.transformer import TransformerEncoder

    if not isinstance(encoder, TransformerEncoder):
        return describe_queries(encoder.spec)
    from mvindex.encoder.onnx_export import make_form, needs_form

    state = find_form(encoder.fingerprint)
    if needs_form(state):
        on_note(_MAKING)
        state = make_form(encoder)
        if isinstance(state, Refused):
            on_note(f"{_KEEPS_TORCH}: {state.reason}")
    return _description(state)


def _way_without_torch(fingerprint: str) -> str:
    """Return what lets this machine encode queries, but no documents, as the end of a message."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ""
    return f"; for queries alone, copy the ONNX form from a machine that has it, to {form_folder(fingerprint)}"


def describe_queries(spec: Mapping[str, Any]) -> str:
    """Return how the queries of an encoder of this spec are encoded on this machine, for people."""
    if spec.get("kind") != "checkpoint":
        return str(spec.get("kind"))
    return _description(find_form(str(spec["fingerprint"])))


def _description(state: FormState) -> str:
    if isinstance(state, OnnxForm):
        return f"ONNX Runtime, {state.difference:.1g} from torch ({state.folder})"
    return "torch" if state is None else f"torch; no ONNX form: {state.reason}"


def encoder_from_spec(spec: Mapping[str, Any], device: str | None = None) -> Encoder:
    """Open the encoder that an index was made with, on the device.

    Raises ConfigError for a callable, which must be given again, CheckpointError when it now gives other vectors.
    """
    if spec.get("kind") == "callable":
        raise ConfigError(
            f"this index was made with the callable {spec.get('name')!r}, which only your program has; "
            "open the index with encoder=..."
        )
    if spec.get("kind") != "checkpoint":
        raise ConfigError(f"this index was made with an encoder of kind {spec.get('kind')!r}; expected checkpoint")
    encoder = load_encoder(
        spec["source"], family=spec["family"], max_views=spec["max_views"], splitter=splitter_of(spec), device=device
    )
    if encoder.fingerprint != spec["fingerprint"]:
        raise CheckpointError(
            f"encoder {spec['source']!r}: has changed since the index was made: fingerprint {encoder.fingerprint}, "
            f"expected {spec['fingerprint']}. Bring back the old one, or ingest again with this one"
        )
    return encoder


def splitter_of(spec: Mapping[str, Any]) -> str:
    """Return the splitter that an index's encoder cut texts with; one that records none is of the first."""
    return str(spec.get("splitter", Splitter.SENTENCES.value))
