"""The NumPy reference scan: every document, block by block; the oracle for every other engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mvindex.engines.base import Candidates, rounding_slack, scaled_queries, sum_error, underflow_error
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import decode, row_norms

# Queries scored at once against a block: bounds the score matrix at 64 x 8,192 float32.
_QUERY_TILE = 64


class NumpyScan:
    """An exact scan in float32 with the max over a document's views taken block by block."""

    def candidates(self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools) -> Candidates:
        """See ScanEngine. Exact because of the float32 bound: see _Best."""
        parts = [
            self._scan(snapshot, queries[begin : begin + _QUERY_TILE], top_k, allowed)
            for begin in range(0, len(queries), _QUERY_TILE)
        ]
        rows = [row for part in parts for row in part]
        return Candidates(np.cumsum([0, *map(len, rows)]), np.concatenate(rows))

    def _scan(self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools) -> list[Ints]:
        scaled, norms = scaled_queries(queries)
        slack = rounding_slack(queries)
        best = _Best(len(queries), top_k)
        for begin, end in allowed_blocks(snapshot, allowed):
            packed, starts = snapshot.views.read_block(begin, end)
            rows = decode(packed)
            scores = np.maximum.reduceat(scaled @ rows.T, starts[:-1], axis=1)
            dim = rows.shape[1]
            # 2^-23: scores that round to the same float32 tie.
            errors = norms * row_norms(rows).max() * (sum_error(dim) + 2.0**-23) + underflow_error(dim) + slack
            best.add(scores.astype(np.float64), errors, begin + np.arange(end - begin), allowed[begin:end])
        return best.rows()


class _Best:
    """The documents of each query that can still be among its top_k.

    A document is out when its score plus its error lies below the top_k-th largest score minus error seen:
    then top_k documents truly score higher. Ties stay in; the scoring function and the ordinals settle them.
    """

    def __init__(self, num_queries: int, top_k: int) -> None:
        self._top_k = top_k
        self._lower = np.full((num_queries, top_k), -np.inf)
        self._upper: list[Doubles] = [np.empty(0)] * num_queries
        self._rows: list[Ints] = [np.empty(0, dtype=np.int64)] * num_queries

    def add(self, scores: Doubles, errors: Doubles, rows: Ints, allowed: Bools) -> None:
        """Nothing; documents (q, m) with errors (q,) are taken in, the allowed (m,) of them."""
        scores, rows = scores[:, allowed], rows[allowed]
        lower = np.concatenate([self._lower, scores - errors[:, None]], axis=1)
        self._lower = -np.partition(-lower, self._top_k - 1, axis=1)[:, : self._top_k]
        thresholds = self._lower.min(axis=1)
        for query, threshold in enumerate(thresholds):
            upper = np.concatenate([self._upper[query], scores[query] + errors[query]])
            kept = upper >= threshold
            self._upper[query] = upper[kept]
            self._rows[query] = np.concatenate([self._rows[query], rows])[kept]

    def rows(self) -> list[Ints]:
        """The rows left for each query, in rising order."""
        return self._rows


def allowed_blocks(snapshot: Snapshot, allowed: Bools) -> Iterator[tuple[int, int]]:
    """The document rows [begin, end) of the scan blocks in which something is allowed."""
    bounds = snapshot.views.block_bounds()
    counts = np.add.reduceat(allowed, bounds[:-1], dtype=np.int64)
    for block in np.flatnonzero(counts):
        yield int(bounds[block]), int(bounds[block + 1])
