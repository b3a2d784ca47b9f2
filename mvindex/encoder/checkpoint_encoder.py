"""The common part of encoders of a checkpoint, whichever runtime computes the states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.batches import Batch, BatchShape, batches
from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.families import CONTEXT, Arrangement
from mvindex.encoder.families.windows import row_keys
from mvindex.encoder.inputs import Inputs
from mvindex.encoder.pooling import RowMeans, add_document_share
from mvindex.errors import EncoderError
from mvindex.kernels.threads import map_in_threads
from mvindex.records import Bools, CountCallback, Document, Floats, Ints, Views, no_progress

if TYPE_CHECKING:
    import torch


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
        (k of them in the families poly and viewers).
        """
        arranged = self._inputs.arrange_documents(documents)
        starts, spans = _bounds(arranged)
        rows = self._document_rows(arranged, on_progress or no_progress)
        self._finish(rows, lambda row: _owner(documents, starts, row))
        if share := self.checkpoint.settings.document_share:
            add_document_share(rows, starts, share)
        return Views(rows, starts, spans)

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash of what the model reads for each view; none where every view depends on the whole document."""
        if self._needs_whole_documents():
            return [[] for _ in documents]
        return [row_keys(one) for one in self._inputs.arrange_documents(documents)]

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return the views; the model reads only the windows of views whose vector is not known."""
        if not known or self._needs_whole_documents():
            return self.encode_documents(documents, on_progress)
        arranged = self._inputs.arrange_documents(documents)
        starts, spans = _bounds(arranged)
        found = [known.get(key) for one in arranged for key in row_keys(one)]
        is_known = np.array([vector is not None for vector in found])
        bounds = pairwise(starts.tolist())
        left = [_only(one, ~is_known[begin:end]) for one, (begin, end) in zip(arranged, bounds, strict=True)]
        on_progress(sum(not one.windows for one in left))
        rows, unknown = self._document_rows(left, on_progress), np.flatnonzero(~is_known)
        encoded = rows[unknown]
        self._finish(encoded, lambda row: _owner(documents, starts, int(unknown[row])))
        rows[unknown] = encoded
        for row in np.flatnonzero(is_known).tolist():
            rows[row] = found[row]
        return Views(rows, starts, spans, is_known)

    def _needs_whole_documents(self) -> bool:
        settings = self.checkpoint.settings
        return bool(settings.document_share) or settings.family.pools_tokens

    @abstractmethod
    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to; see TransformerEncoder."""

    @abstractmethod
    def _document_rows(self, arranged: Sequence[Arrangement], on_progress: CountCallback) -> Floats:
        """Return the views of the documents, one after the other, after the Dense modules, (r, dim) float32."""

    @abstractmethod
    def _query_rows(self, arranged: Sequence[Arrangement]) -> Floats:
        """Return the mean state of each query after the Dense modules, (q, dim) float32."""

    def _pooled(
        self,
        arranged: Sequence[Arrangement],
        states: Callable[[Batch], torch.Tensor | Floats],
        shape: BatchShape,
        on_progress: CountCallback,
        num_threads: int = 1,
    ) -> Floats:
        """Return the mean state of each row of the documents or queries, one after the other, float32.

        num_threads: in which states() is called at once.
        """
        starts = np.cumsum([0, *(one.num_rows for one in arranged)], dtype=np.int64)
        windows = [window for one in arranged for window in one.windows]
        num_windows = np.array([len(one.windows) for one in arranged], dtype=np.int64)
        owner = np.repeat(np.arange(len(arranged)), num_windows)
        means = RowMeans(int(starts[-1]), self.width)
        made = batches(windows, starts[owner], shape, self.pad_id)
        for batch, found in map_in_threads(lambda batch: (batch, states(batch)), made, num_threads):
            means.add(batch, found)
            on_progress(_count_finished(num_windows, owner[batch.places]))
        return means.means()

    def _finish(self, rows: Floats, name_of_row: Callable[[int], str]) -> None:
        """Check that the rows are finite, and scale them to unit length unless the checkpoint says otherwise."""
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
        if len(bad):
            raise EncoderError(f"{name_of_row(int(bad[0]))}: the model gave a vector of norm {norms[bad[0], 0]}")
        if self.checkpoint.settings.normalise:
            rows /= norms


def _bounds(arranged: Sequence[Arrangement]) -> tuple[Ints, Ints]:
    """Return where the views of each document start, (n + 1,), and the spans of all, (r, 2)."""
    starts = np.cumsum([0, *(len(one.spans) for one in arranged)], dtype=np.int64)
    return starts, np.array([span for one in arranged for span in one.spans], dtype=np.int64).reshape(-1, 2)


def _only(arrangement: Arrangement, is_needed: Bools) -> Arrangement:
    """Return the arrangement without windows that no needed row is averaged from; is_needed: (num_rows,)."""
    windows = [each for each in arrangement.windows if is_needed[each.slots[each.slots != CONTEXT]].any()]
    return replace(arrangement, windows=windows)


def _owner(documents: Sequence[Document], starts: Ints, row: int) -> str:
    return f"document {documents[int(np.searchsorted(starts, row, side='right')) - 1].id!r}"


def _count_finished(windows_left: Ints, owners: Ints) -> int:
    """Return how many documents have no window left after these windows of theirs."""
    np.subtract.at(windows_left, owners, 1)
    return int(np.count_nonzero((windows_left == 0) & (np.bincount(owners, minlength=len(windows_left)) > 0)))
