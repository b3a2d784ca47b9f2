"""The search by terms: BM25, its compiled search for the best documents, and the bounds that it skips by.

A document's score is the sum over the question's terms, each as often as it occurs there, of
    ln(1 + (N - n + 1/2) / (n + 1/2)) * f (k1 + 1) / (f + k1 (1 - b + b l / m)),
N documents, n of them with the term, f times in this one, l terms in it, m on average (Robertson and Zaragoza 2009,
eq. 3.15, with the idf of Lucene's BM25Similarity, which is never negative). Terms are added in one fixed order in
float64, then rounded to float32: wherever documents are stored, scores are the same to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvindex.errors import StoreError
from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.search.fusion import Fusion
from mvindex.search.parts import Parts
from mvindex.store.lexical.reader import Lengths, LexicalReader, PostingsCache, Skips, TermPostings
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_query
from mvindex.store.reader import SnapshotReader, StoredDocument

if TYPE_CHECKING:
    from mvindex.search.exact import ViewSource

# Terms with this many documents in a window, on average, have bounds for each window.
_PER_WINDOW = 16
# Bounds are made again where the mean length is not of about this many times what it was.
_LEAST_MEAN, _MOST_MEAN = 0.9, 1.05
LOADING = Loading()


class Saturation(NamedTuple):
    """Parameters of the score of a term in a document: k1, b, and the mean length of all documents."""

    k1: float
    b: float
    mean: float


class WeightedTerm(NamedTuple):
    """A term of a query in one collection: hash, weight (a score is up to that), postings, how many of them count."""

    hash: int
    weight: float
    postings: TermPostings
    size: int


class BestMatches:
    """The best documents of several collections, looked for in one after the other."""

    def __init__(self, limit: int, saturation: Saturation) -> None:
        """Begin with none."""
        self._heap, self._rows, self._num_held = np.empty(limit), np.empty(limit, dtype=np.int64), 0
        self._saturation = saturation

    def find(self, terms: Sequence[WeightedTerm], cache: PostingsCache, allowed: Bools) -> tuple[Ints, Doubles]:
        """Return rows that may be among the best and those found before, with their scores up to rounding; in no order.

        allowed: (num_rows,), of the collection.
        """
        from mvindex.kernels.maxscore import Collection, TermLists, find_matches

        lengths, (k1, b, mean) = cache.lengths, self._saturation
        collection = Collection(
            lengths.ctypes.data, allowed.ctypes.data, len(allowed), float(k1 * (1 - b)), float(k1 * b / mean)
        )
        found = [(term, self._skips_of(term, cache, lengths)) for term in terms if term.size]
        integers = [
            (
                term.postings.rows_at,
                term.postings.counts_at,
                term.postings.counts.itemsize,
                term.size,
                skips.starts.ctypes.data if len(skips.bounds) else 0,
                skips.bounds.ctypes.data if len(skips.bounds) else 0,
            )
            for term, skips in found
        ]
        scales = [(term.weight, term.weight * max(1.0, mean / skips.mean)) for term, skips in found]
        rows_at, counts_at, count_bytes, sizes, starts_at, bounds_at = (
            np.array(integers, dtype=np.int64).reshape(-1, 6).T.copy()
        )
        weights, scaled = np.array(scales).reshape(-1, 2).T.copy()
        largest = scaled * np.array([skips.largest for _, skips in found])
        lists = TermLists(rows_at, counts_at, count_bytes, sizes, weights, starts_at, bounds_at, scaled, largest)
        rows, scores, self._num_held = find_matches(lists, collection, self._heap, self._rows, self._num_held)
        return rows, scores

    @property
    def lowest(self) -> float:
        """Somewhat less than the score of the last of the best; 0 where there are fewer than were looked for."""
        from mvindex.kernels.maxscore import ROUNDED_DOWN

        return float(self._heap[0] * ROUNDED_DOWN) if self._num_held == len(self._heap) else 0.0

    def _skips_of(self, term: WeightedTerm, cache: PostingsCache, lengths: Lengths) -> Skips:
        """Return bounds of the term's scores that hold once they are scaled by the mean lengths."""
        k1, b, mean = self._saturation
        skips = term.postings.skips
        if skips is None or skips[:2] != (k1, b) or not _LEAST_MEAN < mean / skips.mean < _MOST_MEAN:
            skips = _bounds_of(term.postings, lengths, self._saturation)
            cache.set_skips(term.hash, term.postings, skips)
        return skips


def _bounds_of(postings: TermPostings, lengths: Lengths, saturation: Saturation) -> Skips:
    from mvindex.kernels.maxscore import WINDOW, Collection, bound_windows

    k1, b, mean = saturation
    num_windows = -(-postings.end // WINDOW)
    if len(postings.rows) < num_windows * _PER_WINDOW:
        num_windows = 0
    starts = np.empty(num_windows + 1 if num_windows else 0, dtype=np.uint32)
    bounds = np.empty(num_windows, dtype=np.float32)
    collection = Collection(lengths.ctypes.data, 0, len(lengths), float(k1 * (1 - b)), float(k1 * b / mean))
    largest = bound_windows(
        postings.rows_at,
        postings.counts_at,
        postings.counts.itemsize,
        len(postings.rows),
        collection,
        starts,
        bounds,
    )
    return Skips(k1, b, mean, largest, starts, bounds)


def load_loops() -> None:
    """Call the loops for one document, which loads or compiles them."""
    cache = PostingsCache()
    cache.lengths = np.ones(1, dtype=np.uint32)
    postings = TermPostings(np.zeros(1, dtype=np.uint32), np.ones(1, dtype=np.uint8), 1)
    BestMatches(1, Saturation(1.2, 0.75, 1.0)).find([WeightedTerm(0, 1.0, postings, 1)], cache, np.ones(1, dtype=bool))


# Where the next term is in more than one document of so many, it is checked whether the rest of the terms is needed.
_PAYS = 8
# Less than what sums in another order, and scores as float32, may differ by.
_ROUNDED = 1 - 1e-6
# What NumPy takes for a posting, in the elements that loading is counted in.
_ELEMENTS = 4


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Counts that BM25 needs of all documents, also of those in stores that are searched elsewhere.

    Attributes:
        num_documents: Live documents.
        num_terms: Terms in them, each as often as it occurs.
        documents_with: (hash, number of documents) of the terms of some questions, by ascending hash.

    """

    num_documents: int
    num_terms: int
    documents_with: tuple[tuple[int, int], ...] = ()

    @classmethod
    def total(cls, counts: Iterable[TermCounts]) -> TermCounts:
        """Return the counts of all of them together."""
        documents, terms, found = 0, 0, Counter[int]()
        for each in counts:
            documents, terms = documents + each.num_documents, terms + each.num_terms
            found.update(dict(each.documents_with))
        return cls(documents, terms, tuple(sorted(found.items())))


class QueryTerm(NamedTuple):
    """A term of a question: its hash, its weight (a document's score for it is up to k1 + 1 times that), its documents.

    num_documents: live ones with the term; parts: its postings in each embedded store, and how many of them are of its
    snapshot.
    """

    hash: int
    weight: float
    num_documents: int
    parts: Sequence[tuple[TermPostings, int]] = ()


class QueryTerms(NamedTuple):
    """The terms of a question that some document has, by ascending hash, and more than the score of any document.

    ceiling: the score of a document in which each term of the question counts in full, also those that none has.
    """

    known: list[QueryTerm]
    ceiling: float


class LexicalRanking(NamedTuple):
    """The documents that match a question, best first, as rows through all parts, with their scores, (m,) each."""

    rows: Ints
    scores: Floats


class TermSearch(Protocol):
    """Lexical search over one index, wherever it is stored."""

    @property
    def views(self) -> ViewSource:
        """The stored views of the same documents."""

    @property
    def num_allowed(self) -> int:
        """The number of documents that the search allows."""

    def query_terms(self, question: str) -> QueryTerms:
        """Return the terms of a question: scores are added in their order."""

    def scores(self, terms: Sequence[QueryTerm], rows: Ints) -> Floats:
        """Return the score of each row, rows ascending; 0 for documents without any of the terms."""

    def ranking(self, terms: Sequence[QueryTerm], limit: int) -> LexicalRanking:
        """Return the best allowed documents that match, up to the limit: by score descending, then ordinal."""

    def slots(self, question: str, documents: Sequence[StoredDocument]) -> Ints:
        """Return each document's view whose span matches the question best."""


@dataclass(frozen=True, slots=True)
class Bm25:
    """The weights of one search. k1, b: see Fusion; the rest: of all live documents."""

    k1: float
    b: float
    num_documents: int
    num_terms: int

    @property
    def mean_length(self) -> float:
        """The mean number of terms of a document."""
        return self.num_terms / self.num_documents if self.num_terms else 1.0

    def idf(self, documents_with: int) -> float:
        """Return the weight of a term that so many documents have."""
        return math.log1p((self.num_documents - documents_with + 0.5) / (documents_with + 0.5))

    def ceiling(self, weights: Iterable[float]) -> float:
        """Return more than the score of any document for terms of these weights."""
        return (self.k1 + 1) * sum(weights)

    def saturated(self, counts: npt.NDArray[Any], lengths: Doubles) -> Doubles:
        """Return BM25's saturation of term frequencies in documents of these lengths, as shares of the mean."""
        k1, b = self.k1, self.b
        saturated: Doubles = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths))
        return saturated


def count_terms(question: str, kind: Lexical) -> list[tuple[int, int]]:
    """Return the hashes of a question's terms, ascending, and how often each occurs."""
    tokens = tokenize_query(question, kind)
    return list(zip(tokens.hashes.tolist(), tokens.counts.tolist(), strict=True))


class LexicalSearch:
    """Lexical search in the parts of a search as in one store."""

    def __init__(self, parts: Parts, fusion: Fusion, counts: TermCounts | None = None) -> None:
        """Open the terms of all parts.

        Args:
            parts: The stores.
            fusion: For k1 and b of BM25.
            counts: Those of all documents, where these parts do not hold all of them; a term without a count is
                ignored.

        Raises:
            StoreError: If they tokenize differently: an unfinished build reached some only.

        """
        self.parts = parts
        self.views: ViewSource = parts
        self.num_allowed = parts.num_allowed
        self._terms: list[LexicalReader] = []
        own, kinds = TermCounts(0, 0), set()
        for part in parts.all:
            with part.errors():
                terms = LexicalReader(part.reader)
                own = TermCounts(own.num_documents + terms.num_documents, own.num_terms + terms.num_terms)
            self._terms.append(terms)
            kinds.add(terms.kind)
        if len(kinds) > 1:
            [directory, *_] = [part.snapshot.directory for part in parts.all]
            raise StoreError(
                f"{directory.parents[1]}: its shards tokenize differently; `mvindex build --lexical` makes them alike"
            )
        self._documents_with = None if counts is None else dict(counts.documents_with)
        counts = counts or own
        self._weights = Bm25(fusion.k1, fusion.b, counts.num_documents, counts.num_terms)
        self._mean_length = self._weights.mean_length

    def query_terms(self, question: str) -> QueryTerms:
        """Return the terms of a question: scores are added in their order."""
        terms, weights, counted = [], [], count_terms(question, self._kind)
        found = self._find([hashed for hashed, _ in counted])
        for (hashed, times), (parts, num_documents, everywhere) in zip(counted, found, strict=True):
            weights.append(times * self._weights.idf(everywhere))
            if num_documents and everywhere:
                terms.append(QueryTerm(hashed, weights[-1], num_documents, parts))
        return QueryTerms(terms, self._weights.ceiling(weights))

    def scores(self, terms: Sequence[QueryTerm], rows: Ints) -> Floats:
        """Return the score of each row, rows ascending; 0 for documents without any of the terms."""
        total, shares = np.zeros(len(rows)), np.empty(len(rows))
        firsts = self.parts.firsts.tolist()
        bounds = pairwise(np.searchsorted(rows, [*firsts, self.parts.num_rows]).tolist())
        own = []
        for number, (begin, end) in enumerate(bounds):
            if begin < end:
                inside = (rows[begin:end] - firsts[number]).astype(np.uint32)
                shares[begin:end] = self._terms[number].lengths[inside] / self._mean_length
                own.append((number, begin, inside))
        for term in terms:
            for number, begin, inside in own:
                postings, size = term.parts[number]
                if size:
                    places = np.minimum(np.searchsorted(postings.rows[:size], inside), size - 1)
                    has_it = postings.rows[places] == inside
                    some = begin + np.flatnonzero(has_it)
                    counts = postings.counts[places[has_it]].astype(np.int64)
                    total[some] += term.weight * self._weights.saturated(counts, shares[some])
        return total.astype(np.float32)

    def ranking(self, terms: Sequence[QueryTerm], limit: int) -> LexicalRanking:
        """Return the best allowed documents that match, up to the limit: by score descending, then ordinal.

        Rare terms come first. Once no document can be among the best by common terms only, these are looked up for the
        documents that still can (Turtle and Flood 1995, "maxscore").
        """
        is_fast = is_compiled(sum([size for term in terms for _, size in term.parts]))
        rows = (self._compiled_candidates if is_fast else self._candidates)(terms, min(limit, self.parts.num_rows))
        scores = self.scores(terms, rows)
        if len(rows) > limit:
            lowest = np.partition(scores, len(rows) - limit)[len(rows) - limit]
            rows, scores = rows[scores >= lowest], scores[scores >= lowest]
        order = np.lexsort((self.parts.ordinals(rows), -scores))[:limit]
        return LexicalRanking(rows[order], scores[order])

    def _compiled_candidates(self, terms: Sequence[QueryTerm], limit: int) -> Ints:
        """Return what _candidates() does, or fewer documents."""
        best = BestMatches(limit, Saturation(self._weights.k1, self._weights.b, self._mean_length))
        found = []
        for number, (part, own) in enumerate(zip(self.parts.all, self._terms, strict=True)):
            weighted = [
                WeightedTerm(term.hash, term.weight * (self._weights.k1 + 1), *term.parts[number]) for term in terms
            ]
            rows, scores = best.find(weighted, own.cache, part.request.allowed)
            found.append((rows + self.parts.firsts[number], scores))
        rows = np.concatenate([rows for rows, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        return np.sort(rows[scores >= best.lowest])

    def _candidates(self, terms: Sequence[QueryTerm], limit: int) -> Ints:
        """Return allowed documents that may be among the best, rows ascending: all matches if there are no more."""
        total = np.zeros(self.parts.num_rows)
        rarest_first = sorted(terms, key=attrgetter("num_documents"))
        weights = [term.weight for term in rarest_first]
        # More than what any document's score for the terms from each on is.
        bounds = np.cumsum([0.0, *reversed(weights)])[::-1] * (self._weights.k1 + 1)
        for number, term in enumerate(rarest_first):
            if number and term.num_documents * _PAYS > self._weights.num_documents:
                rows, lowest = self._best(total, limit)
                if lowest > bounds[number]:
                    rest = float(bounds[number])
                    break
            for own, first, (postings, size) in zip(self._terms, self.parts.firsts, term.parts, strict=True):
                having, counts = postings.rows[:size], postings.counts[:size].astype(np.int64)
                shares = own.lengths[having] / self._mean_length
                total[first : first + own.num_rows][having] += term.weight * self._weights.saturated(counts, shares)
        else:
            (rows, lowest), rest = self._best(total, limit), 0.0
        if len(rows) <= limit:
            return rows
        enough: Ints = rows[total[rows] + rest >= lowest]
        return enough

    def _best(self, total: Doubles | Floats, limit: int) -> tuple[Ints, float]:
        """Return the allowed rows that match, and somewhat less than the score of the last of the best; 0 for fewer."""
        found = []
        for part, first in zip(self.parts.all, self.parts.firsts, strict=True):
            allowed = part.request.allowed
            found.append(first + np.flatnonzero(allowed & (total[first : first + len(allowed)] > 0)))
        rows = np.concatenate(found)
        if len(rows) < limit:
            return rows, 0.0
        lowest = np.partition(total[rows], len(rows) - limit)[len(rows) - limit]
        return rows, float(lowest * _ROUNDED)

    def slots(self, question: str, documents: Sequence[StoredDocument]) -> Ints:
        """Return each document's view whose span matches the question best; see best_slots()."""
        return best_slots(question, documents, self._kind, self._weights, lambda hashed: self._find([hashed])[0][2])

    @property
    def _kind(self) -> Lexical:
        return self._terms[0].kind

    def term_counts(self, questions: Iterable[str]) -> TermCounts:
        """Return the counts of these stores, for the terms of the questions."""
        hashes = sorted({hashed for question in questions for hashed, _ in count_terms(question, self._kind)})
        found = ((hashed, here) for hashed, (_, here, _) in zip(hashes, self._find(hashes), strict=True))
        return TermCounts(self._weights.num_documents, self._weights.num_terms, tuple(found))

    def _find(self, hashes: Sequence[int]) -> list[tuple[list[tuple[TermPostings, int]], int, int]]:
        """Return each term's postings in each part, how many are of its snapshot, and its documents: here, and of all.

        Both are numbers of live documents; of all it is 0 where the term is not counted.
        """
        of_parts = []
        for part, terms in zip(self.parts.all, self._terms, strict=True):
            with part.errors():
                of_parts.append(terms.find(hashes))
        found = []
        for hashed, matches in zip(hashes, zip(*of_parts, strict=True), strict=True):
            here = sum([each.num_live for each in matches])
            everywhere = here if self._documents_with is None else self._documents_with.get(hashed, 0)
            found.append(([(each.postings, each.size) for each in matches], here, everywhere))
        return found


class SnapshotTerms:
    """The TermRows of a snapshot of an embedded store."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader, self._lexical = reader, LexicalReader(reader)
        self.kind, self.num_rows = self._lexical.kind, self._lexical.num_rows

    def rows_with(self, term: int) -> npt.NDArray[Any]:
        """Return the rows of the documents that have the term of this hash."""
        [matches] = self._lexical.find([term])
        return matches.postings.rows[: matches.size]

    def texts(self, rows: list[int]) -> list[str]:
        """Return what lexical search indexes of these documents."""
        stored = self._reader.stored(rows)
        return [stored[row].lexical_text for row in rows]


def is_compiled(num_postings: int) -> bool:
    """Return whether the best of the documents of so many postings are found by compiled loops."""
    elements = num_postings * _ELEMENTS
    return has_numba() and pays_to_load(elements) and LOADING.is_done(load_loops, waits=pays_to_wait(elements))


def ceiling_of(question: str, kind: Lexical, counts: TermCounts, *, k1: float, b: float) -> float:
    """Return more than the score of any document for a question, by the counts of all documents; see QueryTerms."""
    weights, known = Bm25(k1, b, counts.num_documents, counts.num_terms), dict(counts.documents_with)
    return weights.ceiling(times * weights.idf(known.get(hashed, 0)) for hashed, times in count_terms(question, kind))


def best_slots(
    question: str,
    documents: Sequence[StoredDocument],
    kind: Lexical,
    weights: Bm25,
    documents_with: Callable[[int], int],
) -> Ints:
    """Return each document's view whose span matches the question best: the highest sum of idf f / (f + k1).

    documents_with: returns the number of live documents that have the term of a hash.
    """
    spans = [document.spans.tolist() for document in documents]
    owners = [number for number, own in enumerate(spans) for _ in own]
    pairs = zip(documents, spans, strict=True)
    texts = [document.text[begin:end] for document, own in pairs for begin, end in own]
    total = np.zeros(len(texts))
    found = tokenize(texts, kind)
    places = {hashed: place for place, hashed in enumerate(found.hashes.tolist())}
    for hashed, _ in count_terms(question, kind):
        if hashed in places:
            at = slice(found.starts[places[hashed]], found.starts[places[hashed] + 1])
            idf = weights.idf(documents_with(hashed))
            total[found.texts[at]] += idf * found.counts[at] / (found.counts[at] + weights.k1)
    starts = np.searchsorted(owners, np.arange(len(documents) + 1)).tolist()
    bounds = zip(starts[:-1], starts[1:], strict=True)
    slots = [int(np.argmax(total[begin:end])) if end > begin else 0 for begin, end in bounds]
    return np.array(slots, dtype=np.int64)
