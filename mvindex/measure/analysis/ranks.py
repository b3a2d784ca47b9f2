"""The rank at which each variant of the views finds a relevant document, by counting the documents ahead of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.kernels.score import Scoring
from mvindex.measure.analysis.pool import Pool, ViewBlock
from mvindex.measure.analysis.variants import Reduced, Variant
from mvindex.records import CountCallback, Floats, Ints

_QUERIES_AT_ONCE = 512
# Beyond every document: a variant that has no view of a relevant document does not find it.
NOT_FOUND = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class RelevantDocs:
    """Pairs of a question and a relevant document: question_rows (m,) int64, ascending, and positions in the pool."""

    question_rows: Ints
    positions: Ints


@dataclass(frozen=True, slots=True, eq=False)
class RankRequest:
    """Queries (q, d) float32, their relevant documents, and how documents are scored."""

    queries: Floats
    relevant: RelevantDocs
    scoring: Scoring


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """Ranks of q queries by v variants.

    Attributes:
        ranks: (q, v) int64 from 1, of the relevant document that the variant scores highest.
        positions: (q, v) int64, the position of that document in the pool; NOT_FOUND in both where there is none.
        vectors: (v,) int64, the number of vectors of the pool.

    """

    ranks: Ints
    positions: Ints
    vectors: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Targets:
    """The best relevant document so far by query and variant: scores (q, v) float32, and positions (q, v) int64."""

    scores: Floats
    positions: Ints

    def update(self, block: ViewBlock, batch: _Scored, relevant: RelevantDocs) -> None:
        """Take the relevant documents of this block where they score higher."""
        rows = relevant.question_rows
        is_here = (rows >= batch.rows.start) & (rows < batch.rows.stop)
        is_here &= relevant.positions >= block.first
        is_here &= relevant.positions < block.first + batch.scores.shape[1]
        rows, positions = rows[is_here], relevant.positions[is_here]
        scores = batch.scores[rows - batch.rows.start, positions - block.first]
        # The best comes last, of equals the first position: later assignments win.
        order = np.lexsort((-positions, scores))
        rows, positions, scores = rows[order], positions[order], scores[order]
        is_better = scores > self.scores[rows, batch.column]
        self.scores[rows[is_better], batch.column] = scores[is_better]
        self.positions[rows[is_better], batch.column] = positions[is_better]


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """Scores (q, m) of a block's documents for the queries in `rows`, by the variant number `column`."""

    rows: slice
    column: int
    scores: Floats


def count_ranks(pool: Pool, request: RankRequest, variants: Sequence[Variant], on_progress: CountCallback) -> RankTable:
    """Return the rank of each query's relevant document in the pool, by each variant; ties by position in the pool.

    Every document is scored twice, in the same blocks and so to the same bits: first to find the scores of the relevant
    documents, then to count the documents ahead of them. Memory: a block's scores, and q x v numbers. on_progress gets
    the documents done, in total twice the pool.
    """
    shape = (len(request.queries), len(variants))
    targets = _Targets(np.full(shape, -np.inf, dtype=np.float32), np.full(shape, NOT_FOUND, dtype=np.int64))
    vectors, ranks = np.zeros(len(variants), dtype=np.int64), np.ones(shape, dtype=np.int64)
    for block in pool.blocks():
        for batch in _score(block, [Reduced(block, variant) for variant in variants], request):
            targets.update(block, batch, request.relevant)
        on_progress(len(block.starts) - 1)
    for block in pool.blocks():
        reduced = [Reduced(block, variant) for variant in variants]
        vectors += [one.num_vectors for one in reduced]
        here = block.first + np.arange(len(block.starts) - 1)
        for batch in _score(block, reduced, request):
            at = (batch.rows, batch.column)
            target, position = targets.scores[at][:, None], targets.positions[at][:, None]
            is_ahead = (batch.scores > target) | ((batch.scores == target) & (here < position))
            ranks[at] += np.count_nonzero(is_ahead, axis=1)
        on_progress(len(block.starts) - 1)
    ranks[np.isneginf(targets.scores)] = NOT_FOUND
    return RankTable(ranks, targets.positions, vectors)


def _score(block: ViewBlock, reduced: Sequence[Reduced], request: RankRequest) -> Iterator[_Scored]:
    """Yield the scores of the block's documents for all queries, a batch at a time, by every variant."""
    for begin in range(0, len(request.queries), _QUERIES_AT_ONCE):
        queries = request.queries[begin : begin + _QUERIES_AT_ONCE]
        view_scores = queries @ block.rows.T
        for column, one in enumerate(reduced):
            scores = one.scores(queries, view_scores, request.scoring)
            yield _Scored(slice(begin, begin + len(queries)), column, scores)
