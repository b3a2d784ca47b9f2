"""Queries for tuning: those of the caller, or views of the index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.records import Floats
from mvindex.search.parts import Parts
from mvindex.store.snapshot import Snapshot

# The number of queries that are measured at most.
_MAX_QUERIES = 256
_SEED = 7


def sample_queries(parts: Parts, queries: Floats | None) -> Floats:
    """Return up to 256 of the queries, (q, d) float32, at random; of the parts' views for None."""
    if queries is None:
        queries = sample_own_views([part.snapshot for part in parts.all], _MAX_QUERIES)
    return sample_rows(queries, _MAX_QUERIES)


def sample_own_views(snapshots: Sequence[Snapshot], count: int) -> Floats:
    """Return so many random views of live documents, (n, d) float32, with a fixed seed.

    They lie among the documents' views, as questions of people do not: measure with real ones where there are any.
    """
    total = sum(snapshot.num_documents for snapshot in snapshots)
    filled = [snapshot for snapshot in snapshots if snapshot.num_documents]
    drawn = [_sample_views(each, -(-count * each.num_documents // total)) for each in filled]
    return np.concatenate(drawn) if drawn else np.empty((0, snapshots[0].views.dim), dtype=np.float32)


def _sample_views(snapshot: Snapshot, count: int) -> Floats:
    """Return a view of each of so many live documents."""
    live = np.flatnonzero(snapshot.alive)
    drawn = np.random.default_rng(_SEED)
    rows = drawn.choice(live, size=min(count, len(live)), replace=False)
    packed, starts = snapshot.views.fetch(np.sort(rows))
    picked = starts[:-1] + drawn.integers(0, np.diff(starts))
    chosen: Floats = packed[picked].astype(np.float32)
    return chosen


def sample_rows(queries: Floats, count: int) -> Floats:
    """Return so many random rows, (n, d), with a fixed seed; all if there are no more."""
    if len(queries) <= count:
        return queries
    return queries[np.sort(np.random.default_rng(_SEED).choice(len(queries), size=count, replace=False))]
