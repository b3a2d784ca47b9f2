"""The documents that an analysis asks its questions over, read in blocks that bound memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mvindex.records import Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews, decode

# Views scored at once: against 512 questions 8 MB of scores.
_BLOCK_VIEWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive documents of a pool. first: the place of the first one; rows: (r, d) float32; starts: (m + 1,)."""

    first: int
    rows: Floats
    starts: Ints

    @property
    def slots(self) -> Ints:
        """The slot of each view, (r,)."""
        return np.arange(len(self.rows)) - np.repeat(self.starts[:-1], np.diff(self.starts))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Living documents of an index: all of them, or a sample. doc_rows: (n,) int64, rising; of: how many there are."""

    views: MappedViews
    doc_rows: Ints
    of: int

    def __len__(self) -> int:
        return len(self.doc_rows)

    @property
    def counts(self) -> Ints:
        """How many views each document has, (n,)."""
        return self.views.starts[self.doc_rows + 1] - self.views.starts[self.doc_rows]

    def places(self, doc_rows: Ints) -> Ints:
        """Where these document rows, which are in the pool, stand in it."""
        return np.searchsorted(self.doc_rows, doc_rows)

    def blocks(self) -> Iterator[Block]:
        """All documents, in the same blocks at every call; DamagedIndex where bytes do not match their checksum."""
        ends = np.cumsum(self.counts)
        begin = 0
        while begin < len(self):
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_VIEWS, side="right")))
            yield self.block(begin, end)
            begin = end

    def block(self, begin: int, end: int) -> Block:
        """The documents at places [begin, end)."""
        packed, starts = self.views.fetch(self.doc_rows[begin:end])
        return Block(begin, decode(packed), starts)


def choose_pool(snapshot: Snapshot, wanted: Ints, most: int, seed: int) -> Pool:
    """All living documents, or a sample of about `most`: the wanted rows, and others drawn evenly with this seed."""
    living = np.flatnonzero(snapshot.alive)
    if len(living) <= most:
        return Pool(snapshot.views, living, len(living))
    wanted = np.unique(wanted)
    # As many as are asked for, so that enough are left without the wanted ones; no array of all the others is made.
    drawn = living[np.random.default_rng(seed).choice(len(living), size=most, replace=False)]
    others = drawn[~np.isin(drawn, wanted)][: max(most - len(wanted), 0)]
    return Pool(snapshot.views, np.sort(np.concatenate([wanted, others])), len(living))
