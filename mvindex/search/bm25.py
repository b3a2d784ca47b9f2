"""BM25 over documents: one ranking of all stores together, by counts of all their live documents.

A document's score is the sum over the question's terms, each as often as it occurs there, of
    ln(1 + (N - n + 1/2) / (n + 1/2)) * f (k1 + 1) / (f + k1 (1 - b + b l / m)),
N documents, n of them with the term, f times in this one, l terms in it, m on average (Robertson and Zaragoza 2009,
eq. 3.15, with the idf of Lucene's BM25Similarity, which is never negative). Terms are added in one fixed order in
float64, then rounded to float32: however documents are spread over stores, scores are the same to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import StoreError
from mvindex.records import Bools, Doubles, Field, Floats, Ints
from mvindex.search.maxscore import BestMatches, Saturation, WeightedTerm, is_compiled
from mvindex.store.lexical.cache import TermPostings
from mvindex.store.lexical.reader import LexicalReader
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_query
from mvindex.store.reader import SnapshotReader, StoredDocument
from mvindex.store.snapshot import Snapshot

# Where the next term is in more than one document of so many, it is checked whether the rest of the terms is needed.
_PAYS = 8
# Less than what sums in another order, and scores as float32, may differ by.
_ROUNDED = 1 - 1e-6


class LexicalShard(NamedTuple):
    """The lexical side of one store, and the documents allowed in it; inside errors(), an error names the store."""

    snapshot: Snapshot
    texts: SnapshotReader
    terms: LexicalReader
    allowed: Bools
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


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

    num_documents: live ones with the term; parts: its postings in each part, and how many of them are of its snapshot.
    """

    hash: int
    weight: float
    num_documents: int
    parts: Sequence[tuple[TermPostings, int]]


class LexicalRanking(NamedTuple):
    """The documents that match a question, best first, as rows through all parts, with their scores, (m,) each."""

    rows: Ints
    scores: Floats


class LexicalSearch:
    """Lexical search in several stores as in one; rows are numbered through all of them: see owners()."""

    def __init__(self, parts: Sequence[LexicalShard], k1: float, b: float, counts: TermCounts | None = None) -> None:
        """Combine the shards; raise StoreError if they tokenize differently: an unfinished build reached some only.

        counts: those of all documents, where these shards do not hold all of them; a term without a count is ignored.
        """
        self._parts, self._k1, self._b = parts, k1, b
        if len({part.terms.kind for part in parts}) > 1:
            raise StoreError(
                f"{parts[0].snapshot.directory.parents[1]}: its shards tokenize differently; "
                "`mvindex build --lexical` makes them alike"
            )
        sizes = [max(part.snapshot.num_rows, 1) for part in parts]
        self._firsts: list[int] = np.cumsum([0, *sizes[:-1]]).tolist()
        self._num_rows = sum(sizes)
        if counts is None:
            own = [self._named_counts(part) for part in parts]
            counts = TermCounts(sum(documents for documents, _ in own), sum(terms for _, terms in own))
            self._documents_with: Mapping[int, int] | None = None
        else:
            self._documents_with = dict(counts.documents_with)
        self._num_documents, self._num_terms = counts.num_documents, counts.num_terms
        self._mean_length = counts.num_terms / counts.num_documents if counts.num_terms else 1.0

    @property
    def num_allowed(self) -> int:
        """The number of allowed documents."""
        return sum(part.snapshot.count(part.allowed) for part in self._parts)

    def query_terms(self, question: str) -> list[QueryTerm]:
        """Return the terms of a question that some document has, by ascending hash: scores are added in this order."""
        terms = []
        for hashed, times in count_terms(question, self._kind):
            parts, num_documents = self._postings(hashed)
            if num_documents and (everywhere := self._everywhere(hashed, num_documents)):
                terms.append(QueryTerm(hashed, times * self._idf(everywhere), num_documents, parts))
        return terms

    def scores(self, terms: Sequence[QueryTerm], rows: Ints) -> Floats:
        """Return the score of each row, rows ascending; 0 for documents without any of the terms."""
        total = np.zeros(len(rows))
        shares = self._length_shares(rows)
        own = [
            (number, slice(begin, end), (rows[begin:end] - self._firsts[number]).astype(np.uint32))
            for number, (begin, end) in enumerate(
                pairwise(np.searchsorted(rows, [*self._firsts, self._num_rows]).tolist())
            )
            if begin < end
        ]
        for term in terms:
            for number, at, inside in own:
                postings, size = term.parts[number]
                if size:
                    places = np.minimum(np.searchsorted(postings.rows[:size], inside), size - 1)
                    has_it = postings.rows[places] == inside
                    some = at.start + np.flatnonzero(has_it)
                    counts = postings.counts[places[has_it]].astype(np.int64)
                    total[some] += term.weight * self._saturated(counts, shares[some])
        return total.astype(np.float32)

    def ranking(self, terms: Sequence[QueryTerm], limit: int) -> LexicalRanking:
        """Return the best allowed documents that match, up to the limit: by score descending, then ordinal.

        Rare terms come first. Once no document can be among the best by common terms only, these are looked up for the
        documents that still can (Turtle and Flood 1995, "maxscore").
        """
        is_fast = is_compiled(sum(size for term in terms for _, size in term.parts))
        rows = (self._compiled_candidates if is_fast else self._candidates)(terms, min(limit, self._num_rows))
        scores = self.scores(terms, rows)
        if len(rows) > limit:
            lowest = np.partition(scores, len(rows) - limit)[len(rows) - limit]
            rows, scores = rows[scores >= lowest], scores[scores >= lowest]
        order = np.lexsort((self.ordinals(rows), -scores))[:limit]
        return LexicalRanking(rows[order], scores[order])

    def _compiled_candidates(self, terms: Sequence[QueryTerm], limit: int) -> Ints:
        """Return what _candidates() does, or fewer documents."""
        best = BestMatches(limit, Saturation(self._k1, self._b, self._mean_length))
        found = []
        for number, part in enumerate(self._parts):
            weighted = [WeightedTerm(term.hash, term.weight * (self._k1 + 1), *term.parts[number]) for term in terms]
            rows, scores = best.find(weighted, part.terms.cache, part.allowed)
            found.append((rows + self._firsts[number], scores))
        rows = np.concatenate([rows for rows, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        return np.sort(rows[scores >= best.lowest])

    def _candidates(self, terms: Sequence[QueryTerm], limit: int) -> Ints:
        """Return allowed documents that may be among the best, rows ascending: all matches if there are no more."""
        total = np.zeros(self._num_rows)
        rest = sorted(terms, key=lambda term: term.num_documents)
        while rest:
            if rest[0].num_documents * _PAYS > self._num_documents:
                rows, lowest = self._best(total, limit)
                if lowest > self._bound(rest):
                    break
            term = rest.pop(0)
            for part, first, (postings, size) in zip(self._parts, self._firsts, term.parts, strict=True):
                having, counts = postings.rows[:size], postings.counts[:size].astype(np.int64)
                shares = part.terms.lengths[having] / self._mean_length
                total[first : first + part.terms.num_rows][having] += term.weight * self._saturated(counts, shares)
        rows, lowest = self._best(total, limit)
        if len(rows) <= limit:
            return rows
        enough: Ints = rows[total[rows] + self._bound(rest) >= lowest]
        return enough

    def _bound(self, terms: Sequence[QueryTerm]) -> float:
        """Return more than what any document's score for these terms is."""
        return sum(term.weight for term in terms) * (self._k1 + 1)

    def _best(self, total: Doubles | Floats, limit: int) -> tuple[Ints, float]:
        """Return the allowed rows that match, and somewhat less than the score of the last of the best; 0 for fewer."""
        rows = np.concatenate(
            [
                first + np.flatnonzero(part.allowed & (total[first : first + len(part.allowed)] > 0))
                for part, first in zip(self._parts, self._firsts, strict=True)
            ]
        )
        if len(rows) < limit:
            return rows, 0.0
        lowest = np.partition(total[rows], len(rows) - limit)[len(rows) - limit]
        return rows, float(lowest * _ROUNDED)

    def _length_shares(self, rows: Ints) -> Doubles:
        """Return each document's length as a share of the mean."""
        lengths = np.empty(len(rows), dtype=np.uint32)
        for part, places, local in self.split(rows):
            lengths[places] = part.terms.lengths[local]
        shares: Doubles = lengths / self._mean_length
        return shares

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each row."""
        ordinals = np.empty(len(rows), dtype=np.int64)
        for part, places, local in self.split(rows):
            ordinals[places] = part.snapshot.views.ordinals(local)
        return ordinals

    def split(self, rows: Ints) -> list[tuple[LexicalShard, Ints, Ints]]:
        """Return each shard that has some of the rows, their places among the rows, and the shard's own row numbers."""
        if len(self._parts) == 1:
            return [(self._parts[0], np.arange(len(rows)), rows)] if len(rows) else []
        which = np.searchsorted(self._firsts, rows, side="right") - 1
        found = []
        for number, (part, first) in enumerate(zip(self._parts, self._firsts, strict=True)):
            places = np.flatnonzero(which == number)
            if len(places):
                found.append((part, places, rows[places] - first))
        return found

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the row of each of these documents that there is."""
        found: dict[str, int] = {}
        for part, first in zip(self._parts, self._firsts, strict=True):
            with part.errors():
                rows = {doc_id: part.texts.find(doc_id) for doc_id in ids}
            found |= {doc_id: first + row for doc_id, row in rows.items() if row is not None}
        return found

    def documents(self, rows: Ints, fields: Collection[Field]) -> dict[int, StoredDocument]:
        """Return the documents of these rows, with these fields, by row."""
        found: dict[int, StoredDocument] = {}
        for part, places, local in self.split(rows):
            with part.errors():
                stored = part.texts.hit_documents(local.tolist(), fields)
            pairs = zip(rows[places].tolist(), local.tolist(), strict=True)
            found |= {row: stored[number] for row, number in pairs}
        return found

    def slots(self, question: str, documents: Sequence[StoredDocument]) -> list[int]:
        """Return each document's view whose span matches the question best: the highest sum of idf f / (f + k1)."""
        spans = [document.spans.tolist() for document in documents]
        owners = [number for number, own in enumerate(spans) for _ in own]
        pairs = zip(documents, spans, strict=True)
        texts = [document.text[begin:end] for document, own in pairs for begin, end in own]
        total = np.zeros(len(texts))
        found = tokenize(texts, self._kind)
        places = {hashed: place for place, hashed in enumerate(found.hashes.tolist())}
        for hashed, _ in count_terms(question, self._kind):
            if hashed in places:
                at = slice(found.starts[places[hashed]], found.starts[places[hashed] + 1])
                _, documents_with = self._postings(hashed)
                idf = self._idf(self._everywhere(hashed, documents_with))
                total[found.texts[at]] += idf * found.counts[at] / (found.counts[at] + self._k1)
        starts = np.searchsorted(owners, np.arange(len(documents) + 1)).tolist()
        bounds = zip(starts[:-1], starts[1:], strict=True)
        return [int(np.argmax(total[begin:end])) if end > begin else 0 for begin, end in bounds]

    def _saturated(self, counts: npt.NDArray[Any], lengths: Doubles) -> Doubles:
        """Return BM25's saturation of term frequencies in documents of these lengths, as shares of the mean."""
        k1, b = self._k1, self._b
        saturated: Doubles = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths))
        return saturated

    @property
    def _kind(self) -> Lexical:
        return self._parts[0].terms.kind

    def term_counts(self, questions: Iterable[str]) -> TermCounts:
        """Return the counts of these stores, for the terms of the questions."""
        hashes = {hashed for question in questions for hashed, _ in count_terms(question, self._kind)}
        found = ((hashed, self._postings(hashed)[1]) for hashed in sorted(hashes))
        return TermCounts(self._num_documents, self._num_terms, tuple(found))

    def _everywhere(self, hashed: int, here: int) -> int:
        """Return the number of all documents with a term, of which so many are here; 0 where it is not counted."""
        return here if self._documents_with is None else self._documents_with.get(hashed, 0)

    def _idf(self, documents_with: int) -> float:
        return math.log1p((self._num_documents - documents_with + 0.5) / (documents_with + 0.5))

    def _postings(self, hashed: int) -> tuple[list[tuple[TermPostings, int]], int]:
        """Return a term's postings in each part, how many are of its snapshot, and the number of all live documents."""
        parts, num_documents = [], 0
        for part in self._parts:
            with part.errors():
                postings = part.terms.postings(hashed)
                parts.append((postings, postings.size_in(part.terms.num_rows)))
                num_documents += part.terms.num_live(hashed, postings)
        return parts, num_documents

    def _named_counts(self, part: LexicalShard) -> tuple[int, int]:
        with part.errors():
            return part.terms.num_documents, part.terms.num_terms


def count_terms(question: str, kind: Lexical) -> list[tuple[int, int]]:
    """Return the hashes of a question's terms, ascending, and how often each occurs."""
    tokens = tokenize_query(question, kind)
    return list(zip(tokens.hashes.tolist(), tokens.counts.tolist(), strict=True))
