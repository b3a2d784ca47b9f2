"""The common part of encoders of a checkpoint, whichever runtime computes the states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mvindex.encoder.arranged import Arranged, Inputs
from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.forward import add_document_share
from mvindex.encoder.function import join_views, slices
from mvindex.errors import EncoderError
from mvindex.records import Bools, CountCallback, Document, Floats, Ints, Views, no_progress


class CheckpointEncoder(ABC):
    """An encoder of a checkpoint: its description, and how its queries become vectors."""

    def __init__(self, checkpoint: Checkpoint, inputs: Inputs, width: int, pad_id: int) -> None:
        """Take what describes the encoder; width: dimensions of a token's state, pad_id: the token that pads."""
        self.checkpoint, self.width, self.pad_id = checkpoint, width, pad_id
        self._inputs = inputs

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        return self.checkpoint.dense[-1].outputs if self.checkpoint.dense else self.width

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets."""
        return self.checkpoint.settings.max_views

    @property
    def fingerprint(self) -> str:
        """Return family, number of views, and a hash of all that changes a vector but device and float type."""
        return self.checkpoint.fingerprint

    @property
    def spec(self) -> dict[str, Any]:
        """Return what an index stores to open the encoder again."""
        settings = self.checkpoint.settings
        label = {"label": settings.label} if settings.label else {}
        return {
            "kind": "checkpoint",
            "source": self.checkpoint.source,
            "family": settings.family.name,
            "max_views": settings.max_views,
            "splitter": settings.text_splitter.value,
            "fingerprint": self.fingerprint,
            "dim": self.dim,
            "similarity": settings.similarity.value,
            "temperature": settings.temperature,
            **label,
        }

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32: its tokens' states pooled as the checkpoint says, in fp32.

        A query longer than the window is covered by several: its vector is the mean over all of them.
        """
        rows = self._query_rows(self._inputs.arrange_queries(texts))
        self._finish(rows, lambda row: f"query {row + 1}")
        return rows

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents; a text longer than the window takes several, cut between sentences.

        A document without text is its title (span -1, -1), one without any token its special tokens: one view each
        (k of them in the families poly and viewers). They are encoded in slices, see base.slices().
        """
        begin, parts = 0, []
        for arranged, rows in self._encoded(self._arranged(documents), on_progress or no_progress):
            ids = [document.id for document in documents[begin : begin + len(arranged)]]
            parts.append(self._views(ids, arranged, rows))
            begin += len(arranged)
        return join_views(parts, self.dim)

    def encode_arranged(self, ids: Sequence[str], arranged: Arranged) -> Views:
        """Return the views of the documents of these ids, which another process has arranged."""
        [(_, rows)] = self._encoded([arranged], no_progress)
        return self._views(ids, arranged, rows)

    @property
    def inputs(self) -> Inputs:
        """Return what arranges the texts."""
        return self._inputs

    def _arranged(self, documents: Sequence[Document]) -> Iterator[Arranged]:
        """Yield the windows of each slice of the documents."""
        return map(self._inputs.arrange_documents, slices(documents))

    def _views(self, ids: Sequence[str], arranged: Arranged, rows: Floats) -> Views:
        """Return the rows as the views of the documents of these ids, checked and scaled."""
        starts = arranged.view_starts
        self._finish(rows, lambda row: _owner(ids, starts, row))
        if share := self.checkpoint.settings.document_share:
            add_document_share(rows, starts, share)
        return Views(rows, starts, arranged.spans)

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash of what the model reads for each view; none where every view depends on the whole document."""
        if self._needs_whole_documents():
            return [[] for _ in documents]
        found: list[list[bytes]] = []
        for arranged in self._arranged(documents):
            keys = arranged.row_keys()
            found += [keys[begin:end] for begin, end in pairwise(arranged.view_starts.tolist())]
        return found

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return the views; the model reads only the windows of views whose vector is not known."""
        if not known or self._needs_whole_documents():
            return self.encode_documents(documents, on_progress)
        arranged = list(self._arranged(documents))
        found = [[known.get(key) for key in one.row_keys()] for one in arranged]
        left = [one.windows_of(~_is_known(vectors)) for one, vectors in zip(arranged, found, strict=True)]
        on_progress(sum(int(np.count_nonzero(one.num_windows == 0)) for one in left))
        begin, parts = 0, []
        for (one, rows), vectors in zip(self._encoded(left, on_progress), found, strict=True):
            ids = [document.id for document in documents[begin : begin + len(one)]]
            parts.append(self._views_beside(vectors, ids, one, rows))
            begin += len(one)
        return join_views(parts, self.dim)

    def _views_beside(
        self, vectors: Sequence[Floats | None], ids: Sequence[str], arranged: Arranged, rows: Floats
    ) -> Views:
        """Return the known vectors as they are, and where there is none, the rows, checked and scaled."""
        starts, is_known = arranged.view_starts, _is_known(vectors)
        unknown = np.flatnonzero(~is_known)
        encoded = rows[unknown]
        self._finish(encoded, lambda row: _owner(ids, starts, int(unknown[row])))
        rows[unknown] = encoded
        for row in np.flatnonzero(is_known).tolist():
            rows[row] = vectors[row]
        return Views(rows, starts, arranged.spans, is_known)

    def _needs_whole_documents(self) -> bool:
        settings = self.checkpoint.settings
        return bool(settings.document_share) or settings.family.pools_tokens

    @abstractmethod
    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to; see TransformerEncoder."""

    @abstractmethod
    def _encoded(self, arranged: Iterable[Arranged], on_progress: CountCallback) -> Iterator[tuple[Arranged, Floats]]:
        """Yield each slice with the views of its documents after the Dense modules, (r, dim) float32."""

    @abstractmethod
    def _query_rows(self, arranged: Arranged) -> Floats:
        """Return the mean state of each query after the Dense modules, (q, dim) float32."""

    def _finish(self, rows: Floats, name_of_row: Callable[[int], str]) -> None:
        """Check that the rows are finite, and scale them to unit length unless the checkpoint says otherwise."""
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
        if len(bad):
            raise EncoderError(f"{name_of_row(int(bad[0]))}: the model gave a vector of norm {norms[bad[0], 0]}")
        if self.checkpoint.settings.normalise:
            rows /= norms


def _is_known(vectors: Sequence[Floats | None]) -> Bools:
    """Return which of the vectors there are, (r,)."""
    return np.array([vector is not None for vector in vectors], dtype=np.bool_)


def _owner(ids: Sequence[str], starts: Ints, row: int) -> str:
    return f"document {ids[int(np.searchsorted(starts, row, side='right')) - 1]!r}"
