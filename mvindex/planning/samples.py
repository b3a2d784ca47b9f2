"""Small indexes of made-up views, to measure a machine on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mvindex.index import Index
from mvindex.index.factory import create
from mvindex.planning.sizes import Collection
from mvindex.records import Document, Floats
from mvindex.store.snapshot import Snapshot

_SEED, _QUERIES, _MOST_VIEWS = 1, 64, 64
_DOCUMENTS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A snapshot of so many views' elements (views times dimensions), and queries near some of them, (q, d)."""

    snapshot: Snapshot
    queries: Floats

    @property
    def elements(self) -> int:
        """Views times dimensions."""
        return self.snapshot.views.num_views * self.snapshot.views.dim

    def some(self, count: int) -> Floats:
        """So many of the queries, (count, d)."""
        return self.queries[:count]


def make_sample(path: Path, held: Collection, num_views: int) -> Sample:
    """An index of about so many views of unit norm at path: each document's lie about a place of its own."""
    drawn, per_document = np.random.default_rng(_SEED), max(1, min(round(held.views), _MOST_VIEWS))
    with create(path, dim=held.dim, dtype=held.view_type.value) as index:
        for begin in range(0, max(1, num_views // per_document), _DOCUMENTS_AT_ONCE):
            count = min(_DOCUMENTS_AT_ONCE, max(1, num_views // per_document) - begin)
            views: Floats = drawn.standard_normal((count, 1, held.dim), dtype=np.float32)
            views = views + drawn.standard_normal((count, per_document, held.dim), dtype=np.float32) * np.float32(0.5)
            views /= np.linalg.norm(views, axis=2, keepdims=True)
            index.add_views([Document(str(begin + row), "a") for row in range(count)], views)
        return Sample(snapshot=index.store.snapshot, queries=_queries(index, drawn))


def _queries(index: Index, drawn: np.random.Generator) -> Floats:
    views = index.store.snapshot.views
    rows = drawn.integers(0, views.num_views, _QUERIES)
    near: Floats = views.matrix[rows].astype(np.float32)
    near = near + drawn.standard_normal(near.shape, dtype=np.float32) * np.float32(0.3 / np.sqrt(near.shape[1]))
    return near
