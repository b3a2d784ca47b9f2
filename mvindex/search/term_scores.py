"""BM25: the score of a term in a document, and the counts of all documents that it needs.

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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvindex.records import Doubles, Floats, Ints
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_query

if TYPE_CHECKING:
    from mvindex.search.exact import ViewSource
    from mvindex.store.lexical.cache import TermPostings
    from mvindex.store.reader import StoredDocument


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

    def query_terms(self, question: str) -> list[QueryTerm]:
        """Return the terms of a question that some document has, by ascending hash: scores are added in this order."""

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

    def saturated(self, counts: npt.NDArray[Any], lengths: Doubles) -> Doubles:
        """Return BM25's saturation of term frequencies in documents of these lengths, as shares of the mean."""
        k1, b = self.k1, self.b
        saturated: Doubles = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths))
        return saturated


def count_terms(question: str, kind: Lexical) -> list[tuple[int, int]]:
    """Return the hashes of a question's terms, ascending, and how often each occurs."""
    tokens = tokenize_query(question, kind)
    return list(zip(tokens.hashes.tolist(), tokens.counts.tolist(), strict=True))


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
