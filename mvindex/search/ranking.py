"""A ranking of documents, the engines that serve it, and the exact scores of candidates."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mvindex.engines.protocol import Engine, ScanEngine
from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, DocumentScores, Scoring, document_scores, for_loops, view_sums
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.views import MappedViews

# A shard has more of the best than their mean and so many standard deviations once in 700 times.
_DEVIATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The scan that is always there, and the ranking that is active (None: the scan answers)."""

    scan: ScanEngine
    ranking: Engine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part that one of num_shards shards has in a search for the top_k documents of all.

    An approximate engine looks at as many view hits as one engine of all views would, in all shards together. See
    find_cut_short() for what is done where a shard has more than its share of the best.
    """

    num_shards: int
    top_k: int

    def of(self, count: int, bunch: int = 1) -> int:
        """Return how many of the best `count` of all shards one looks at, where documents are spread by chance.

        The mean and some standard deviations of a binomial distribution. bunch: so many come together, at most, as
        the views of a document do.
        """
        mean = count / self.num_shards
        deviation = math.sqrt(bunch * mean * (1 - 1 / self.num_shards))
        return min(count, math.ceil(mean + _DEVIATIONS * deviation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request that all queries of a batch share.

    top_k of the num_allowed documents that are allowed, (num_rows,) bool, live ones only; depth: None, or how many view
    hits are looked at before aggregation, as in DRPQ section 3.3. share: given where an approximate engine may look at
    less than all that top_k documents need, since other shards are searched as well.
    """

    top_k: int
    allowed: Bools
    num_allowed: int
    scoring: Scoring = Scoring()
    depth: int | None = None
    share: Share | None = None


class ViewHits(NamedTuple):
    """The view hits of one query that a shard has looked at for its share.

    scores: (m,) float32, the engine's, falling. lowest: documents without a view hit above it were not scored; -inf
    where the engine found no more. limit: view hits that one engine of all shards would look at.
    """

    scores: Floats
    lowest: float
    limit: int


class Ranking(NamedTuple):
    """The documents of one query in order: rows, scores and winning slots, (m,) each; see SearchResult for the rest.

    num_scored: documents that the one scoring function looked at. view_hits: of a shard that was searched for its
    share; None where it was searched in full.
    """

    rows: Ints
    scores: Floats
    slots: Ints
    exact: bool
    short_by: int
    rounds: int
    num_scored: int
    view_hits: ViewHits | None = None

    def page(self, offset: int) -> Ranking:
        """Return the ranking without its first documents, not short of more than its page could have."""
        rows = self.rows[offset:]
        short_by = max(0, min(self.short_by, len(self.rows) + self.short_by - offset))
        return self._replace(rows=rows, scores=self.scores[offset:], slots=self.slots[offset:], short_by=short_by)

    def after(self, before: Ranking) -> Ranking:
        """Return the ranking with the work of a search before it counted as well."""
        return self._replace(rounds=self.rounds + before.rounds, num_scored=self.num_scored + before.num_scored)


# Views scored at once: bounds the memory of their sums.
_CHUNK_VIEWS = 1 << 19
# Documents gathered at once where there is no compiled loop: bounds their float64 copies.
_GATHERED_DOCUMENTS = 2048
# Views from which on another thread pays.
_VIEWS_PER_THREAD = 8192
# A thread takes one part after the other, so that all threads end together.
_PARTS_PER_THREAD = 4
# Where the seconds of a stage are added up.
_WATCHED: ContextVar[dict[str, float] | None] = ContextVar("stages", default=None)


class Pairs(NamedTuple):
    """Documents to be scored: document rows (m,), and for each the number of its query, (m,)."""

    doc_rows: Ints
    which: Ints


@contextmanager
def watched_stages(seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of each stage of this thread's searches to `seconds` inside the context."""
    before = _WATCHED.set(seconds)
    try:
        yield
    finally:
        _WATCHED.reset(before)


def score_pairs(views: MappedViews, queries: Floats, pairs: Pairs, scoring: Scoring) -> DocumentScores:
    """Return the score and winning slot of each pair, (m,) each. queries: (q, d) float32.

    DamagedIndex when a document's views do not match their checksum.
    """
    begun = time.perf_counter()
    try:
        return _scored(views, queries, pairs, scoring)
    finally:
        seconds = _WATCHED.get()
        if seconds is not None:
            seconds["rescore"] = seconds.get("rescore", 0.0) + time.perf_counter() - begun


def _scored(views: MappedViews, queries: Floats, pairs: Pairs, scoring: Scoring) -> DocumentScores:
    if not len(pairs.doc_rows):
        return DocumentScores(np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64))
    has_loops = _has_loops(views, len(pairs.doc_rows))
    if has_loops and scoring.aggregate is Aggregate.MAX and (best := _best_views(views, queries, pairs)) is not None:
        return best
    ranges = _ranges_of(views, pairs)
    num_views = int(ranges.starts[-1])
    if num_views <= _CHUNK_VIEWS:
        return document_scores(_view_sums(views, queries, ranges, has_loops), ranges.starts, scoring)
    cuts = np.searchsorted(ranges.starts[1:], np.arange(_CHUNK_VIEWS, num_views, _CHUNK_VIEWS))
    ends = pairwise(sorted({0, *cuts.tolist(), len(pairs.doc_rows)}))
    chunks = [ranges.part(begin, end) for begin, end in ends]
    parts = [document_scores(_view_sums(views, queries, one, has_loops), one.starts, scoring) for one in chunks]
    return DocumentScores(
        np.concatenate([part.scores for part in parts]), np.concatenate([part.slots for part in parts])
    )


def scores_of_views(views: MappedViews, queries: Floats, pairs: Pairs) -> list[Floats]:
    """Return the scores of all views of each pair's document, (k,) float32 each. queries: (q, d) float32."""
    if not len(pairs.doc_rows):
        return []
    ranges = _ranges_of(views, pairs)
    sums = _view_sums(views, queries, ranges, _has_loops(views, len(pairs.doc_rows)))
    scores = sums.astype(np.float32)
    return [scores[begin:end] for begin, end in pairwise(ranges.starts.tolist())]


class ScoredPairs(NamedTuple):
    """Documents with their scores, (m,) each: which query, document row, score, winning slot and ordinal."""

    which: Ints
    rows: Ints
    scores: Floats
    slots: Ints
    ordinals: Ints


class _Ranges(NamedTuple):
    """Pairs with the view rows of each: [begins[i], ends[i]), of which the sums are written from starts[i] on."""

    pairs: Pairs
    begins: Ints
    ends: Ints
    starts: Ints

    def part(self, begin: int, end: int) -> _Ranges:
        """Return the pairs [begin, end)."""
        at = slice(begin, end)
        pairs = Pairs(self.pairs.doc_rows[at], self.pairs.which[at])
        return _Ranges(pairs, self.begins[at], self.ends[at], self.starts[begin : end + 1] - self.starts[begin])


def _ranges_of(views: MappedViews, pairs: Pairs) -> _Ranges:
    begins, ends = views.starts[pairs.doc_rows], views.starts[pairs.doc_rows + 1]
    starts = np.zeros(len(begins) + 1, dtype=np.int64)
    (ends - begins).cumsum(out=starts[1:])
    return _Ranges(pairs, begins, ends, starts)


def _view_sums(views: MappedViews, queries: Floats, ranges: _Ranges, has_loops: bool) -> Doubles:
    """Return the sums of all views of the pairs, (starts[-1],); DamagedIndex as for score_pairs."""
    if has_loops:
        return _compiled_sums(views, queries, ranges)
    # Else a few documents' views are copied at a time, query by query.
    (doc_rows, which), starts = ranges.pairs, ranges.starts
    views.check_documents(doc_rows)
    sums = np.empty(starts[-1])
    changes = np.flatnonzero(np.diff(which)) + 1
    steps = range(0, len(which), _GATHERED_DOCUMENTS)
    for begin, end in pairwise(sorted({0, *changes.tolist(), *steps, len(which)})):
        packed, _ = views.gather(doc_rows[begin:end])
        sums[starts[begin] : starts[end]] = view_sums(packed, queries[which[begin]])
    return sums


def _has_loops(views: MappedViews, num_documents: int) -> bool:
    """Return whether compiled loops are loaded, after beginning with it where it pays for so many documents.

    What is asked for counts towards later calls: ask once for each piece of work.
    """
    elements = _mean_views(views, num_documents) * views.dim
    return (
        has_numba()
        and pays_to_load(elements)
        and _SUMS[views.words.dtype.itemsize].is_done(lambda: _load_sums(views.words), waits=pays_to_wait(elements))
    )


def _mean_views(views: MappedViews, num_documents: int) -> int:
    """Return how many views so many documents of mean length have."""
    return num_documents * views.num_views // views.num_rows


# By the bytes of a stored number: other types are other compiled code.
_SUMS = defaultdict[int, Loading](Loading)


def _load_sums(stored: Any) -> None:
    """Call the loops for no document, which loads or compiles them."""
    from mvindex.kernels.llvm import call_for_documents
    from mvindex.kernels.sums import best_of_documents, sums_of_documents

    none, starts = np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    query, scores = np.zeros((1, stored.shape[1]), dtype=np.float32), np.empty(0, dtype=np.float32)
    call_for_documents(stored, none, none)
    sums_of_documents(stored, none, starts, query, none, np.empty(0))
    best_of_documents(stored, none, none, query, none, scores, none)


def _compiled_sums(views: MappedViews, queries: Floats, ranges: _Ranges) -> Doubles:
    """Sum by compiled loops, which read the views where they lie."""
    from mvindex.kernels.llvm import call_for_documents
    from mvindex.kernels.sums import sums_of_documents

    (doc_rows, which), begins, ends, starts = ranges
    queries = for_loops(queries)
    call_for_documents(views.words, begins, ends)
    views.check_documents(doc_rows)
    sums = np.empty(starts[-1])

    def add_up(begin: int, end: int) -> None:
        at = slice(begin, end)
        sums_of_documents(views.words, begins[at], starts[begin : end + 1], queries, which[at], sums)

    _in_parts(add_up, len(which), len(sums))
    return sums


def _best_views(views: MappedViews, queries: Floats, pairs: Pairs) -> DocumentScores | None:
    """Return the scores by the best view by a compiled loop; None where a sum is not finite."""
    from mvindex.kernels.llvm import call_for_documents
    from mvindex.kernels.sums import best_of_documents

    doc_rows, which = pairs
    begins, ends, queries = views.starts[doc_rows], views.starts[doc_rows + 1], for_loops(queries)
    call_for_documents(views.words, begins, ends)
    views.check_documents(doc_rows)
    scores, slots = np.empty(len(which), dtype=np.float32), np.empty(len(which), dtype=np.int64)
    are_finite = []

    def score(begin: int, end: int) -> None:
        at = slice(begin, end)
        found = best_of_documents(views.words, begins[at], ends[at], queries, which[at], scores[at], slots[at])
        are_finite.append(found)

    _in_parts(score, len(which), _mean_views(views, len(which)))
    return DocumentScores(scores, slots) if all(are_finite) else None


def _in_parts(work: Callable[[int, int], None], num_pairs: int, num_views: int) -> None:
    """Call for parts [begin, end) of the pairs, in threads where they have views for several."""
    num_threads = min(default_threads(), num_views // _VIEWS_PER_THREAD) if num_views >= 2 * _VIEWS_PER_THREAD else 1
    if num_threads == 1:
        work(0, num_pairs)
        return
    cuts = np.linspace(0, num_pairs, _PARTS_PER_THREAD * num_threads + 1).astype(np.int64)
    parts = deque(pairwise(cuts.tolist()))

    def work_parts() -> None:
        for begin, end in taken_from(parts):
            work(begin, end)

    run_in_threads(work_parts, num_threads)


def documents_of_best_views(
    views: MappedViews, query: Floats, doc_rows: Ints, depth: int, top_k: int
) -> tuple[Ints, float]:
    """Return the documents of the `depth` best views, at least top_k, and the highest score of other views.

    query: (d,) float32; doc_rows: the min(depth, allowed) documents of the best views at least. Views of equal score
    come in the order of the store.
    """
    ranges = _ranges_of(views, Pairs(doc_rows, np.zeros(len(doc_rows), dtype=np.int64)))
    sums, starts = _view_sums(views, query[None], ranges, _has_loops(views, len(doc_rows))), ranges.starts
    scores = sums.astype(np.float32)
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
