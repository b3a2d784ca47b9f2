"""The NumPy reference scan, the oracle for every other engine, and a scan that it stands in for while loops compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mvindex.engines.protocol import (
    Candidates,
    ScanEngine,
    ScanRequest,
    aggregate_error,
    lipschitz_constants_up_to,
    query_exponents,
    rounding_slack,
    scaled_queries,
    scaled_temperatures,
    sum_error,
    underflow_error,
)
from mvindex.kernels import pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, Scoring, decode
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms

# Queries scored at once against a block: bounds the score matrix at 64 x 8,192 float32.
_QUERY_TILE = 64
# Of rows that one thread multiplies by a query within two milliseconds.
_FEW_ELEMENTS = 1 << 22


class NumpyScan:
    """An exact scan in float32 with the max, or DRPQ's aggregate, over a document's views taken block by block."""

    at_once = 0

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine. Exact because of the float32 bound: see _Best."""
        request = ScanRequest(top_k, allowed, scoring)
        tiles = range(0, len(queries), _QUERY_TILE)
        return Candidates.joined([self._scan(snapshot, queries[at : at + _QUERY_TILE], request) for at in tiles])

    def copy_bytes(self) -> int:
        """See ScanEngine. Blocks are read where they are stored."""
        return 0

    def mapped_bytes(self) -> int:
        """See ScanEngine."""
        return 0

    def _scan(self, snapshot: Snapshot, queries: Floats, request: ScanRequest) -> Candidates:
        top_k, allowed, scoring = request
        exponents = query_exponents(queries)
        scaled, norms = scaled_queries(queries, exponents)
        slack, temperatures = rounding_slack(exponents), scaled_temperatures(scoring, exponents)
        best = _Best(len(queries), top_k)
        for begin, end in allowed_blocks(snapshot, allowed):
            packed, starts = snapshot.views.read_block(begin, end)
            rows = decode(packed)
            scores, dim = _products(scaled, rows), rows.shape[1]
            sizes = norms * row_norms(rows).max()
            # 2^-23: scores that round to the same float32 tie.
            errors = sizes * (sum_error(dim) + 2.0**-23) + underflow_error(dim) + slack
            kept = allowed[begin:end]
            if scoring.aggregate is Aggregate.DRPQ:
                bounds = _drpq_bounds(scores, starts, errors, sizes, temperatures)
            else:
                found = np.maximum.reduceat(scores, starts[:-1], axis=1).astype(np.float64)
                bounds = (found - errors[:, None], found + errors[:, None])
            best.add(bounds[0][:, kept], bounds[1][:, kept], begin + np.flatnonzero(kept))
        return best.candidates(exponents)


def _products(queries: Floats, rows: Floats) -> Floats:
    """Return the inner products, (q, r) float32.

    One query against few rows is multiplied in this thread: the threads of BLAS wait for one another, on a busy machine
    a hundred times as long as the product takes.
    """
    if len(queries) == 1 and rows.size <= _FEW_ELEMENTS:
        found: Floats = np.einsum("qd,rd->qr", queries, rows)
        return found
    return queries @ rows.T


def _drpq_bounds(
    scores: Floats, starts: Ints, errors: Doubles, sizes: Doubles, temperatures: Doubles
) -> tuple[Doubles, Doubles]:
    """Return bounds of DRPQ's aggregate (eq. 4-6), (q, n) each. scores: (q, r), off by at most errors (q,)."""
    counts = np.diff(starts)
    best = np.maximum.reduceat(scores, starts[:-1], axis=1)
    gaps = np.repeat(best, counts, axis=1) - scores
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(-gaps / temperatures[:, None].astype(np.float64)).astype(np.float32)
        means = np.add.reduceat(weights * gaps, starts[:-1], axis=1) / np.add.reduceat(weights, starts[:-1], axis=1)
    highest = best.astype(np.float64)
    values = highest - means
    slack = lipschitz_constants_up_to(int(counts.max()))[counts] * errors[:, None] + aggregate_error(
        counts, sizes[:, None]
    )
    return values - slack, np.minimum(values + slack, highest + errors[:, None])


class _Best:
    """The documents of each query that can still be among its top_k.

    A document is out when its upper bound lies below the top_k-th largest lower bound seen: then top_k documents
    truly score higher. Ties stay in; the scoring function and the ordinals settle them.
    """

    def __init__(self, num_queries: int, top_k: int) -> None:
        self._top_k = top_k
        self._lower = np.full((num_queries, top_k), -np.inf)
        self._upper: list[Doubles] = [np.empty(0)] * num_queries
        self._rows: list[Ints] = [np.empty(0, dtype=np.int64)] * num_queries

    def add(self, lower: Doubles, upper: Doubles, rows: Ints) -> None:
        """Add documents (m,) with bounds (q, m)."""
        both = np.concatenate([self._lower, lower], axis=1)
        self._lower = -np.partition(-both, self._top_k - 1, axis=1)[:, : self._top_k]
        thresholds = self._lower.min(axis=1)
        for query, threshold in enumerate(thresholds):
            highest = np.concatenate([self._upper[query], upper[query]])
            kept = highest >= threshold
            self._upper[query] = highest[kept]
            self._rows[query] = np.concatenate([self._rows[query], rows])[kept]

    def candidates(self, exponents: Ints) -> Candidates:
        """Return the remaining candidates of each query, rows ascending; bounds are divided by 2^exponents (q,)."""
        counts = np.array([len(rows) for rows in self._rows])
        upper = np.ldexp(np.concatenate(self._upper), -np.repeat(exponents, counts))
        return Candidates(np.append(0, np.cumsum(counts)), np.concatenate(self._rows), upper)


def blocks_with(snapshot: Snapshot, allowed: Bools) -> Ints:
    """Return the numbers of the scan blocks in which something is allowed."""
    bounds = snapshot.views.block_bounds()
    return np.flatnonzero(np.logical_or.reduceat(allowed, bounds[:-1]))


def allowed_blocks(snapshot: Snapshot, allowed: Bools) -> Iterator[tuple[int, int]]:
    """Yield the document rows [begin, end) of the scan blocks in which something is allowed."""
    bounds = snapshot.views.block_bounds()
    for block in blocks_with(snapshot, allowed):
        yield int(bounds[block]), int(bounds[block + 1])


class PlainFirstScan:
    """Scans by NumPy, and by a faster engine once there is work enough to load it. Thread-safe."""

    at_once = 0

    def __init__(self, open_fast: Callable[[Snapshot], ScanEngine]) -> None:
        """Take what opens the faster engine for such a snapshot; it may import torch, or compile."""
        self._open_fast = open_fast
        self._fast: ScanEngine | None = None
        self._plain, self._loading = NumpyScan(), Loading()

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine."""
        views = snapshot.views
        elements = len(queries) * int(views.starts[-1]) * views.dim
        if self._fast is None and pays_to_load(elements):
            self._loading.is_done(lambda: self._load(snapshot), waits=pays_to_wait(elements))
        engine = self._fast or self._plain
        return engine.candidates(snapshot, queries, top_k, allowed, scoring)

    def copy_bytes(self) -> int:
        """See ScanEngine."""
        return 0 if self._fast is None else self._fast.copy_bytes()

    def mapped_bytes(self) -> int:
        """See ScanEngine."""
        return 0 if self._fast is None else self._fast.mapped_bytes()

    def _load(self, snapshot: Snapshot) -> None:
        self._fast = self._open_fast(snapshot)
