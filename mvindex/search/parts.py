"""Parts: the stores of one search, opened, as one, and the exact scores of their documents.

Rows are numbered through all parts. Every view of a document is in one store, so that a document's score is the same
there as anywhere.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import StaleReader
from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, DocumentScores, Scoring, document_scores, for_loops, view_sums
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Doubles, Field, Floats, Ints
from mvindex.search.ranking import Engines, Pairs, Request, ScoredPairs
from mvindex.store.reader import SnapshotReader, StoredDocument
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

# So few documents are scored together: to leave some out takes longer than to score them.
_SCORED_TOGETHER = 64
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
_NO_SCORES = np.empty(0, dtype=np.float32)


class Part(NamedTuple):
    """One store of a search.

    Attributes:
        snapshot: What is searched.
        engines: Those that rank views.
        request: The same for all parts but for what is allowed.
        reader: The reader of documents and terms.
        errors: A context that names the store in errors.

    """

    snapshot: Snapshot
    engines: Engines
    request: Request
    reader: SnapshotReader
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


class Parts:
    """All parts of a search: the ViewSource of their documents.

    Attributes:
        all: Each of them, in order.
        num_rows: Of all parts together.
        num_allowed: The number of allowed documents.

    """

    scored_together = _SCORED_TOGETHER

    def __init__(self, parts: Sequence[Part]) -> None:
        self.all = parts
        # An empty store has a row, which no document is in: no two stores begin with the same row.
        self._sizes = [max(part.snapshot.num_rows, 1) for part in parts]
        self.num_rows = sum(self._sizes)
        self.num_allowed = sum([part.request.num_allowed for part in parts])

    @cached_property
    def firsts(self) -> Ints:
        """The number of the first row of each part, (parts,)."""
        return np.array([0, *accumulate(self._sizes[:-1])])

    def check_dim(self, queries: Floats) -> None:
        """Raise StaleReader for query vectors of other dimensions than the views: compiled loops would not notice.

        The index has moved on to views of another encoder since the queries were encoded.
        """
        for part in self.all:
            if part.snapshot.dim not in (None, queries.shape[1]):
                raise StaleReader(
                    f"{part.snapshot.directory.parent}: its views have {part.snapshot.dim} dimensions now, and the "
                    f"query has {queries.shape[1]}: it was re-embedded during the search; search again"
                )

    def split(self, rows: Ints) -> list[tuple[Part, Ints, Ints]]:
        """Return each part that has some of the rows, their places among the rows, and the part's own row numbers."""
        if len(self.all) == 1:
            return [(self.all[0], np.arange(len(rows)), rows)] if len(rows) else []
        which = np.searchsorted(self.firsts, rows, side="right") - 1
        found = []
        for number, (part, first) in enumerate(zip(self.all, self.firsts.tolist(), strict=True)):
            places = np.flatnonzero(which == number)
            if len(places):
                found.append((part, places, rows[places] - first))
        return found

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each row."""
        ordinals = np.empty(len(rows), dtype=np.int64)
        for part, places, own in self.split(rows):
            ordinals[places] = part.snapshot.views.ordinals(own)
        return ordinals

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the row of each of these documents that there is."""
        found: dict[str, int] = {}
        for part, first in zip(self.all, self.firsts.tolist(), strict=True):
            with part.errors():
                rows = {doc_id: part.reader.find(doc_id) for doc_id in ids}
            found |= {doc_id: first + row for doc_id, row in rows.items() if row is not None}
        return found

    def documents(self, rows: Ints, fields: Collection[Field]) -> dict[int, StoredDocument]:
        """Return the documents of these rows, with these fields, by row; rows may come more than once."""
        if len(self.all) == 1:
            [part] = self.all
            with part.errors():
                return part.reader.hit_documents(set(rows.tolist()), fields)
        found: dict[int, StoredDocument] = {}
        each = np.unique(rows)
        for part, places, own in self.split(each):
            with part.errors():
                stored = part.reader.hit_documents(own.tolist(), fields)
            found |= {row: stored[number] for row, number in zip(each[places].tolist(), own.tolist(), strict=True)}
        return found

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores; see ViewSource."""
        scores, (slots, ordinals) = np.empty(len(pairs.which), np.float32), np.empty((2, len(pairs.which)), np.int64)
        for part, places, own in self.split(pairs.doc_rows):
            with part.errors():
                own_pairs = Pairs(own, pairs.which[places])
                scores[places], slots[places] = score_pairs(part.snapshot.views, queries, own_pairs, scoring)
            ordinals[places] = part.snapshot.views.ordinals(own)
        return ScoredPairs(*pairs[::-1], scores, slots, ordinals)

    def view_scores(self, queries: Floats, pairs: Pairs) -> list[Floats]:
        """Return the scores of all views of each pair's document, (k,) float32 each. queries: (q, d) float32."""
        found = [_NO_SCORES] * len(pairs.which)
        for part, places, own in self.split(pairs.doc_rows):
            with part.errors():
                scored = scores_of_views(part.snapshot.views, queries, Pairs(own, pairs.which[places]))
            for place, scores in zip(places.tolist(), scored, strict=True):
                found[place] = scores
        return found


class StoredViews:
    """The ViewSource of a snapshot: views in files of this machine."""

    scored_together = _SCORED_TOGETHER

    def __init__(self, views: MappedViews) -> None:
        self._views = views

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the pairs with their scores; see ViewSource.score()."""
        scores, slots = score_pairs(self._views, queries, pairs, scoring)
        return ScoredPairs(pairs.which, pairs.doc_rows, scores, slots, self._views.ordinals(pairs.doc_rows))


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
    loading = _SUMS[views.words.dtype.itemsize]
    if not has_numba() or loading.has_loaded:
        return has_numba()
    elements = _mean_views(views, num_documents) * views.dim
    return pays_to_load(elements) and loading.is_done(lambda: _load_sums(views.words), waits=pays_to_wait(elements))


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
