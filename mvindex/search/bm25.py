"""BM25 over embedded stores: one ranking of all of them together, by counts of all their live documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter

import numpy as np

from mvindex.errors import StoreError
from mvindex.records import Doubles, Floats, Ints
from mvindex.search.fusion import Fusion
from mvindex.search.maxscore import BestMatches, Saturation, WeightedTerm, is_compiled
from mvindex.search.parts import Parts
from mvindex.search.term_scores import Bm25, LexicalRanking, QueryTerm, TermCounts, best_slots, count_terms
from mvindex.store.lexical.cache import TermPostings
from mvindex.store.lexical.reader import LexicalReader
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.reader import StoredDocument

# Where the next term is in more than one document of so many, it is checked whether the rest of the terms is needed.
_PAYS = 8
# Less than what sums in another order, and scores as float32, may differ by.
_ROUNDED = 1 - 1e-6


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
        self.parts = self.views = parts
        self._terms: list[LexicalReader] = []
        own, kinds = TermCounts(0, 0), set()
        for part in parts.all:
            with part.errors():
                terms = part.reader.lexical()
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

    @property
    def num_allowed(self) -> int:
        """The number of documents that the search allows, of all parts."""
        return self.parts.num_allowed

    def query_terms(self, question: str) -> list[QueryTerm]:
        """Return the terms of a question that some document has, by ascending hash: scores are added in this order."""
        terms = []
        for hashed, times in count_terms(question, self._kind):
            parts, num_documents, everywhere = self._find(hashed)
            if num_documents and everywhere:
                terms.append(QueryTerm(hashed, times * self._weights.idf(everywhere), num_documents, parts))
        return terms

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
        return best_slots(question, documents, self._kind, self._weights, lambda hashed: self._find(hashed)[2])

    @property
    def _kind(self) -> Lexical:
        return self._terms[0].kind

    def term_counts(self, questions: Iterable[str]) -> TermCounts:
        """Return the counts of these stores, for the terms of the questions."""
        hashes = {hashed for question in questions for hashed, _ in count_terms(question, self._kind)}
        found = ((hashed, self._find(hashed)[1]) for hashed in sorted(hashes))
        return TermCounts(self._weights.num_documents, self._weights.num_terms, tuple(found))

    def _find(self, hashed: int) -> tuple[list[tuple[TermPostings, int]], int, int]:
        """Return a term's postings in each part, how many are of its snapshot, and its documents: here, and of all.

        Both are numbers of live documents; of all it is 0 where the term is not counted.
        """
        parts, here = [], 0
        for part, terms in zip(self.parts.all, self._terms, strict=True):
            with part.errors():
                postings, size, num_live = terms.find(hashed)
            parts.append((postings, size))
            here += num_live
        return parts, here, here if self._documents_with is None else self._documents_with.get(hashed, 0)
