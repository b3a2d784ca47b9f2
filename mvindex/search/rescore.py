"""Exact scores of candidate documents, straight from the store, for a whole batch of queries."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from mvindex.kernels import SUM_LANES, has_numba
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.scoring.aggregate import DocumentScores, Scoring, document_scores, view_sums
from mvindex.search.profiling import stage
from mvindex.store.views import MappedViews

# Views scored at once: bounds the memory of their sums.
_CHUNK_VIEWS = 1 << 19
# Documents gathered at once where there is no compiled loop: bounds their float64 copies.
_GATHERED_DOCUMENTS = 2048
# Views from which on another thread pays.
_VIEWS_PER_THREAD = 8192


class Pairs(NamedTuple):
    """Documents to be scored: document rows (m,), and for each the number of its query, (m,)."""

    doc_rows: Ints
    which: Ints


def score_pairs(views: MappedViews, queries: Floats, pairs: Pairs, scoring: Scoring) -> DocumentScores:
    """Return the score and winning slot of each pair, (m,) each. queries: (q, d) float32.

    DamagedIndex when a document's views do not match their checksum.
    """
    ends = np.cumsum(views.starts[pairs.doc_rows + 1] - views.starts[pairs.doc_rows])
    num_views = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_CHUNK_VIEWS, num_views, _CHUNK_VIEWS))
    bounds = np.unique([0, *cuts, len(ends)])
    parts = [DocumentScores(np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64))]
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        chunk = Pairs(pairs.doc_rows[begin:end], pairs.which[begin:end])
        parts.append(_score_chunk(views, queries, chunk, scoring))
    return DocumentScores(
        np.concatenate([part.scores for part in parts]), np.concatenate([part.slots for part in parts])
    )


def _score_chunk(views: MappedViews, queries: Floats, pairs: Pairs, scoring: Scoring) -> DocumentScores:
    starts = np.append(0, np.cumsum(views.starts[pairs.doc_rows + 1] - views.starts[pairs.doc_rows]))
    return document_scores(_view_sums(views, queries, pairs, starts), starts, scoring)


def _view_sums(views: MappedViews, queries: Floats, pairs: Pairs, starts: Ints) -> Doubles:
    """Return the sums of all views of the pairs, (starts[-1],); DamagedIndex as for score_pairs."""
    return (_compiled_sums if has_numba() else _gathered_sums)(views, queries, pairs, starts)


def _compiled_sums(views: MappedViews, queries: Floats, pairs: Pairs, starts: Ints) -> Doubles:
    """Sum by compiled loops, which read the views where they lie."""
    from mvindex.kernels.prefetch import call_for_documents
    from mvindex.kernels.sums import sums_of_documents

    wide = np.zeros((len(queries), -(-views.dim // SUM_LANES) * SUM_LANES))
    wide[:, : views.dim] = queries
    stored = views.matrix.view(np.int16) if views.matrix.dtype == np.float16 else views.matrix
    call_for_documents(stored, views.starts[pairs.doc_rows], views.starts[pairs.doc_rows + 1])
    views.check_documents(pairs.doc_rows)
    sums = np.empty(starts[-1])
    num_threads = max(1, min(default_threads(), int(starts[-1]) // _VIEWS_PER_THREAD))
    bounds = np.linspace(0, len(pairs.which), num_threads + 1).astype(np.int64).tolist()
    parts = deque(zip(bounds[:-1], bounds[1:], strict=True))

    def score() -> None:
        for begin, end in taken_from(parts):
            at = slice(begin, end)
            part = (views.starts[pairs.doc_rows[at]], starts[begin : end + 1], wide, pairs.which[at])
            sums_of_documents(stored, *part, sums)

    run_in_threads(score, num_threads)
    return sums


def _gathered_sums(views: MappedViews, queries: Floats, pairs: Pairs, starts: Ints) -> Doubles:
    """Sum without compiled loops: a few documents' views are copied at a time, query by query."""
    views.check_documents(pairs.doc_rows)
    sums = np.empty(starts[-1])
    changes = np.flatnonzero(np.diff(pairs.which)) + 1
    bounds = np.unique([0, *changes, *range(0, len(pairs.which), _GATHERED_DOCUMENTS), len(pairs.which)])
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        packed, _ = views.gather(pairs.doc_rows[begin:end])
        sums[starts[begin] : starts[end]] = view_sums(packed, queries[pairs.which[begin]])
    return sums


def documents_of_best_views(
    views: MappedViews, query: Floats, doc_rows: Ints, depth: int, top_k: int
) -> tuple[Ints, float]:
    """Return the documents of the `depth` best views, at least top_k, and the highest score of other views.

    query: (d,) float32; doc_rows: the min(depth, allowed) documents of the best views at least. Views of equal score
    come in the order of the store.
    """
    starts = np.append(0, np.cumsum(views.starts[doc_rows + 1] - views.starts[doc_rows]))
    pairs = Pairs(doc_rows, np.zeros(len(doc_rows), dtype=np.int64))
    scores = _view_sums(views, query[None], pairs, starts).astype(np.float32)
    owners = np.repeat(np.arange(len(doc_rows)), np.diff(starts))
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(owners[order], return_index=True)
    needed = int(np.sort(first)[top_k - 1]) + 1
    kept = order[: max(depth, needed)]
    # A document that is not among doc_rows has no better view than the depth-th best of those that are.
    best = np.sort(np.maximum.reduceat(scores, starts[:-1]))
    elsewhere = best[-depth] if depth <= len(best) else -np.inf
    unseen = max(elsewhere, scores[order[len(kept) :]].max(initial=-np.inf))
    return doc_rows[np.unique(owners[kept])], float(unseen)


class Best:
    """The best documents found so far of each query of a batch, by the one scoring function and the total order.

    thresholds: (q,) float32, the score of the top_k-th best, -inf where there are fewer. num_scored: (q,) int64.
    """

    def __init__(self, views: MappedViews, queries: Floats, top_k: int, scoring: Scoring) -> None:
        self._views = views
        self._queries = queries
        self._top_k = top_k
        self._scoring = scoring
        self._found = _Scored._make(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.float32, np.int64))
        self.thresholds: Floats = np.full(len(queries), -np.inf, dtype=np.float32)
        self.num_scored: Ints = np.zeros(len(queries), dtype=np.int64)

    def add(self, pairs: Pairs) -> None:
        """Score the documents, and keep the best of each query. No pair may come twice."""
        with stage("rescore"):
            scores, slots = score_pairs(self._views, self._queries, pairs, self._scoring)
        fresh = _Scored(pairs.which, pairs.doc_rows, scores, slots)
        joined = _Scored._make(np.concatenate([old, new]) for old, new in zip(self._found, fresh, strict=True))
        order = np.lexsort((self._views.ordinals(joined.rows), -joined.scores, joined.which))
        ranks = _ranks(joined.which[order], len(self._queries))
        self._found = _Scored._make(column[order[ranks < self._top_k]] for column in joined)
        last = order[ranks == self._top_k - 1]
        self.thresholds[joined.which[last]] = joined.scores[last]
        self.num_scored += np.bincount(pairs.which, minlength=len(self._queries))

    def settle(self, pairs: Pairs, upper: Doubles, growth: int) -> None:
        """Score those of the documents (m,) whose upper bound (m,) reaches the threshold.

        The top_k of the highest bounds come first, then growth times as many, and so on: the threshold rises before
        the doubtful ones are looked at.
        """
        # Rounding keeps order: a score, rounded to float32, is at most its rounded bound.
        pending = _Pending(pairs.doc_rows, pairs.which, upper.astype(np.float32))
        step = self._top_k
        while True:
            pending = _Pending._make(column[pending.upper >= self.thresholds[pending.which]] for column in pending)
            if not len(pending.which):
                return
            is_next = self._highest(pending, step)
            self.add(Pairs(pending.rows[is_next], pending.which[is_next]))
            pending = _Pending._make(column[~is_next] for column in pending)
            step *= growth

    def _highest(self, pending: _Pending, step: int) -> Bools:
        """Return which entries have one of their query's `step` highest bounds, (m,)."""
        starts = np.searchsorted(pending.which, np.arange(len(self._queries) + 1)).tolist()
        is_high = np.ones(len(pending.which), dtype=bool)
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            if end - begin > step:
                lowest = np.argpartition(pending.upper[begin:end], end - begin - step)[: end - begin - step]
                is_high[begin + lowest] = False
        return is_high

    def of(self, query: int) -> tuple[Ints, Floats, Ints]:
        """Return the rows, scores and winning slots of a query's documents, best first."""
        begin, end = np.searchsorted(self._found.which, [query, query + 1])
        return self._found.rows[begin:end], self._found.scores[begin:end], self._found.slots[begin:end]

    def counts(self) -> Ints:
        """Return how many documents each query has, (q,)."""
        return np.bincount(self._found.which, minlength=len(self._queries))


class _Scored(NamedTuple):
    which: Ints
    rows: Ints
    scores: Floats
    slots: Ints


class _Pending(NamedTuple):
    rows: Ints
    which: Ints
    upper: Floats


def _ranks(which: Ints, num_queries: int) -> Ints:
    """Return the position of each entry among those of its query; `which` is ascending."""
    starts = np.searchsorted(which, np.arange(num_queries))
    return np.arange(len(which)) - starts[which]
