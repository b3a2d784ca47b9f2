"""The protocol of every encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mvindex.records import CountCallback, Document, Floats, Views

# A slice of documents is encoded at once, whatever it is a part of: the same documents, cut alike, have the same bits.
SLICE_DOCUMENTS = 1024
SLICE_CHARS = 1_000_000
# Slices that an ingest commits at once for a GPU, which would else wait for each commit.
DEVICE_CHUNKS = 16


class Encoder(Protocol):
    """Turns texts into vectors. Two encoders of equal fingerprint give the same vectors, up to rounding."""

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        ...

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets; None where nothing bounds them."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a name of everything that changes a vector."""
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """Return JSON that encoder_from_spec() opens the same encoder from; its "fingerprint" is the encoder's."""
        ...

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents, in order, at least one each; EncoderError names a document at fault."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        ...


@runtime_checkable
class PartialEncoder(Protocol):
    """An encoder some of whose views depend on a part of their document only, and can be kept when others change."""

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash for each view of each document: views of one hash have one vector.

        A document whose views all depend on the whole of it has an empty list.
        """
        ...

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return what encode_documents() does; vectors (dim,) known by the hash of their view are taken as they are."""
        ...


def slices(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Yield the documents in slices: SLICE_DOCUMENTS each, or fewer where their texts reach SLICE_CHARS."""
    begin = num_chars = 0
    for end, document in enumerate(documents, 1):
        num_chars += len(document.text) + len(document.title)
        if end - begin == SLICE_DOCUMENTS or num_chars >= SLICE_CHARS:
            yield documents[begin:end]
            begin, num_chars = end, 0
    if begin < len(documents):
        yield documents[begin:]


def join_views(parts: Sequence[Views], dim: int = 0) -> Views:
    """Return the views of all parts, one after the other; of no part, no views of this many dimensions."""
    if not parts:
        return Views(np.zeros((0, dim), np.float32), np.zeros(1, np.int64), np.zeros((0, 2), np.int64))
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    flags = [np.zeros(len(part.rows), dtype=bool) if part.is_reused is None else part.is_reused for part in parts]
    return Views(
        np.concatenate([part.rows for part in parts]),
        np.append(0, np.cumsum(counts)),
        np.concatenate([part.spans for part in parts]),
        None if all(part.is_reused is None for part in parts) else np.concatenate(flags),
    )


def join_text(document: Document) -> str:
    """Return title, newline, text; or the one of them that is not empty."""
    return f"{document.title}\n{document.text}" if document.title and document.text else document.title or document.text
