"""The documents that an analysis searches, read in blocks that bound memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mvindex.kernels.score import decode
from mvindex.records import Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

# Views scored at once: 8 MB of scores for 512 questions.
_BLOCK_VIEWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ViewBlock:
    """Consecutive documents of a pool: position of the first, rows (r, d) float32, starts (m + 1,)."""

    first: int
    rows: Floats
    starts: Ints

    @property
    def slots(self) -> Ints:
        """Return the slot of each view, (r,)."""
        return np.arange(len(self.rows)) - np.repeat(self.starts[:-1], np.diff(self.starts))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Live documents of an index, all or a sample: doc_rows (n,) int64, ascending; `of` is how many the index has."""

    views: MappedViews
    doc_rows: Ints
    of: int

    def __len__(self) -> int:
        return len(self.doc_rows)

    @property
    def counts(self) -> Ints:
        """Return the number of views of each document, (n,)."""
        return self.views.starts[self.doc_rows + 1] - self.views.starts[self.doc_rows]

    def positions(self, doc_rows: Ints) -> Ints:
        """Return the positions in the pool of these document rows, all of which are in it."""
        return np.searchsorted(self.doc_rows, doc_rows)

    def blocks(self) -> Iterator[ViewBlock]:
        """Yield all documents, in the same blocks at every call; raise DamagedIndex where a checksum does not match."""
        ends = np.cumsum(self.counts)
        begin = 0
        while begin < len(self):
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_VIEWS, side="right")))
            yield self.block(begin, end)
            begin = end

    def block(self, begin: int, end: int) -> ViewBlock:
        """Return the documents at positions [begin, end)."""
        packed, starts = self.views.fetch(self.doc_rows[begin:end])
        return ViewBlock(begin, decode(packed), starts)


def choose_pool(snapshot: Snapshot, relevant: Ints, most: int, seed: int) -> Pool:
    """Return all live documents, or a sample of about `most`: the relevant rows, and others drawn uniformly."""
    live = np.flatnonzero(snapshot.alive)
    if len(live) <= most:
        return Pool(snapshot.views, live, len(live))
    relevant = np.unique(relevant)
    # `most` are drawn, so that enough are left without the relevant ones; no array of all the others is made.
    drawn = live[np.random.default_rng(seed).choice(len(live), size=most, replace=False)]
    others = drawn[~np.isin(drawn, relevant)][: max(most - len(relevant), 0)]
    return Pool(snapshot.views, np.sort(np.concatenate([relevant, others])), len(live))
