"""Encode documents on several devices at once: a process for each, which gets the next slice when it is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.encoder.arranging import Arranging
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.function import DEVICE_CHUNKS, join_views, slices
from mvindex.encoder.workers import Workers
from mvindex.errors import ConfigError
from mvindex.kernels.threads import default_threads
from mvindex.records import CountCallback, Document, Floats, Views, no_progress, shown

_SEPARATOR = ","


def names_several(device: str | None) -> bool:
    """Return whether the name is of several devices, such as "cuda:0,cuda:1"; ConfigError for what is no text."""
    if device is not None and not isinstance(device, str):
        raise ConfigError(f"device: expected a name such as 'cuda:0', got {shown(device)}")
    return device is not None and _SEPARATOR in device


def first_device(device: str | None) -> str | None:
    """Return the first of the devices that a name is of, for what runs on one only."""
    return None if device is None else device.partition(_SEPARATOR)[0]


def parse_devices(text: str) -> list[str]:
    """Return the names of devices; "0,1" are "cuda:0" and "cuda:1". ConfigError for another text."""
    names = [f"cuda:{name}" if name.isdecimal() else name for name in map(str.strip, text.split(_SEPARATOR))]
    for name in names:
        if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
            raise ConfigError(
                f"devices: expected numbers of GPUs, such as 0,1, or cpu, cuda:N between commas, got {text!r:.80}"
            )
    return names


class DevicesEncoder:
    """An encoder whose documents are encoded by a process on each device; queries by the encoder that it is made of.

    The views are those of one device of the same kind: documents are encoded in the same slices. It is no
    PartialEncoder: documents that are replaced are encoded whole, unless their title and text are stored already.
    """

    chunks_at_once = DEVICE_CHUNKS

    def __init__(self, encoder: CheckpointEncoder, devices: Sequence[str]) -> None:
        """Take the encoder, loaded on a CPU, and the names of the devices."""
        self._encoder, self._devices = encoder, list(devices)

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        return self._encoder.dim

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets."""
        return self._encoder.max_views

    @property
    def fingerprint(self) -> str:
        """Return a name of everything that changes a vector."""
        return self._encoder.fingerprint

    @property
    def spec(self) -> dict[str, Any]:
        """Return the spec of the encoder on one device."""
        return self._encoder.spec

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        return self._encoder.encode_queries(texts)

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents, in order; each slice is encoded on the next free device."""
        progress, parts = on_progress or no_progress, []
        for answer in self._workers.map(self._requests(documents)):
            parts.append(_views(answer, self.dim))
            progress(len(parts[-1]))
        return join_views(parts, self.dim)

    def close(self) -> None:
        """End the processes."""
        self._workers.close()
        self._arranging.close()

    def _requests(self, documents: Sequence[Document]) -> Iterator[tuple[list[str], dict[str, bytes | None]]]:
        begin = 0
        for arranged in self._arranging.arrange(slices(documents)):
            yield [each.id for each in documents[begin : begin + len(arranged)]], arranged.as_bytes()
            begin += len(arranged)

    @cached_property
    def _arranging(self) -> Arranging:
        return Arranging(self._encoder.inputs, len(self._devices))

    @cached_property
    def _workers(self) -> Workers:
        setups = [{"spec": self.spec, "device": device} for device in self._devices]
        return Workers("mvindex.encoder.devices:serve", setups, max(1, default_threads() // len(setups)))


def serve(setup: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return what encodes arranged documents in another process; see workers.Handler."""
    from mvindex.encoder.registry import encoder_from_spec

    encoder = cast(CheckpointEncoder, encoder_from_spec(setup["spec"], setup["device"]))

    def encode(request: tuple[list[str], dict[str, bytes | None]]) -> list[bytes]:
        ids, arranged = request
        views = encoder.encode_arranged(ids, Arranged.from_bytes(arranged))
        arrays = (views.rows.astype("<f4", copy=False), views.starts.astype("<i8"), views.spans.astype("<i8"))
        return [array.tobytes() for array in arrays]

    return encode


def _views(answer: list[bytes], dim: int) -> Views:
    rows, starts, spans = answer
    return Views(
        np.frombuffer(rows, "<f4").reshape(-1, dim),
        np.frombuffer(starts, "<i8"),
        np.frombuffer(spans, "<i8").reshape(-1, 2),
    )
