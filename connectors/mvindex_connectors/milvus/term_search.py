"""Lexical search in Milvus: sparse inner products propose documents, BM25 is computed here from their stored counts.

A document's score is at most its inner product times a ratio, see bound_ratio(). So the best are proven once the last
document that Milvus has returned cannot be among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import StaleReader, StoreError
from mvindex.records import Floats, Ints
from mvindex.search.fusion import Fusion
from mvindex.search.terms import Bm25, LexicalRanking, QueryTerm, QueryTerms, best_slots, count_terms
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import lexical_text
from mvindex_connectors.milvus.collections import parse_settings
from mvindex_connectors.milvus.connection import Connection, terms_of
from mvindex_connectors.milvus.layout import INTENT_KEY, RECORD_FIELDS, SETTINGS_KEY, State, documents_of, one_of
from mvindex_connectors.milvus.reader import PASS_NUMBERS, Reader
from mvindex_connectors.milvus.search import MAX_LIMIT, CandidateViews
from mvindex_connectors.milvus.term_counts import (
    TERMS_KEY,
    CountChange,
    TermState,
    TermTable,
    check_counted,
    first_keys,
)
from mvindex_connectors.milvus.term_rows import BatchTerms, bound_ratio, bounding_vector, dimensions_of
from mvindex_connectors.milvus.term_writer import pending_change, read_intent
from mvindex_connectors.milvus.writes import unpacked_vector

_OVER_FETCH, _GROWTH, _LEAST = 1.25, 4, 64
# Of the float32 products and sums of an inner product: far more than they may be wrong by.
_ROUNDED = 1 + 1e-5
# Allowed numbers in one expression; of more, what Milvus proposes is checked here.
_REGION = 8_192
# Documents whose counts are read at once.
_SCORED_AT_ONCE = 1_024


class LexicalState(NamedTuple):
    """The counts that lexical searches use: one state of the index.

    Attributes:
        collection: The one that the documents are in.
        version, epoch: Those of the settings.
        kind: How texts are split into terms.
        next_document: No document has this number or a higher one.
        counts: What is counted of all documents.
        pending: What the counts lack of a commit that has not come to its end.

    """

    collection: str
    index_id: str
    version: int
    epoch: int
    kind: Lexical
    next_document: int
    counts: TermState
    pending: CountChange

    @classmethod
    def read(
        cls, connection: Connection, reader: Reader, others: Sequence[int] = ()
    ) -> tuple[LexicalState, dict[int, dict[str, Any]]]:
        """Return the state as of now, and the records of the documents of these numbers that exist.

        Raises:
            StaleReader: The lexical side was removed.
            StoreError: Another version of mvindex has written its terms, or documents without their terms.

        """
        where = connection.address.shown
        fields = RECORD_FIELDS if others else ("pk", "text")
        rows = reader.records([SETTINGS_KEY, INTENT_KEY, *others], fields)
        if SETTINGS_KEY not in rows:
            raise StoreError(f"{where}: the index has no settings: it was removed")
        settings, first = parse_settings(rows.pop(SETTINGS_KEY)["text"], where), rows.pop(INTENT_KEY, None)
        stored, version = State(settings).lexical, int(settings["version"])
        if stored is None:
            raise StaleReader(f"{where}: its lexical side was removed, or is being built; refresh() or open it again")
        stored.check_version(where)
        check_counted(settings, where)
        counts = TermState.parse(settings[TERMS_KEY], where)
        intent = read_intent(reader, version, first) if first is not None else None
        pending, next_document = CountChange(), int(settings["next_document"])
        if intent is not None:
            pending = pending_change(reader, TermTable(connection, reader), intent)
            counts = replace(counts, longest=intent.longest, means=intent.means)
            next_document = max(next_document, int(intent.documents[:, 0].max(initial=-1)) + 1)
        name, epoch = connection.address.collection, int(settings["epoch"])
        return cls(name, str(settings["index_id"]), version, epoch, stored.kind, next_document, counts, pending), rows

    @property
    def num_documents(self) -> int:
        """The number of documents, those of a commit that has not come to its end included."""
        return self.counts.num_documents + self.pending.num_documents

    def is_same(self, other: LexicalState) -> bool:
        """Return whether nothing was written between the two."""
        own, others = ((each.collection, each.index_id, each.version) for each in (self, other))
        return own == others and self.pending.is_same(other.pending)

    def weights(self, fusion: Fusion) -> Bm25:
        """Return the weights of a search with these parameters."""
        num_terms = self.counts.num_terms + self.pending.num_terms
        return Bm25(fusion.k1, fusion.b, self.num_documents, num_terms)


class MilvusTerms:
    """The TermSearch of an index in Milvus, and its TermRows, for one question.

    Attributes:
        views: The stored views of the same documents.
        num_allowed: The number of documents that the search allows.

    """

    def __init__(
        self, connection: Connection, state: LexicalState, fusion: Fusion, views: CandidateViews, allowed: Ints | None
    ) -> None:
        self.views, self.kind, self.num_rows = views, state.kind, state.next_document
        self._connection, self._state, self._allowed = connection, state, allowed
        self._reader = views.reader
        self._table = TermTable(connection, self._reader)
        self._weights = state.weights(fusion)
        self.num_allowed = self._weights.num_documents if allowed is None else len(allowed)
        self._ratio = bound_ratio(self._weights, state.counts.means, state.counts.longest) * _ROUNDED
        self._documents_with: dict[int, int] = {}
        # Version and ordinal of each document that was scored; those that are gone have none.
        self.versions: dict[int, int] = {}
        self._ordinals: dict[int, int] = {}
        # The terms of the last ranking, and by them the scores of its documents and of those of the dense list.
        self._ranked: tuple[Sequence[QueryTerm], dict[int, float]] = ((), {})

    def query_terms(self, question: str) -> QueryTerms:
        """Return the terms of a question; see TermSearch."""
        counted = count_terms(question, self.kind)
        self._count([hashed for hashed, _ in counted])
        terms, weights = [], []
        for hashed, times in counted:
            found = self._documents_with[hashed]
            weights.append(times * self._weights.idf(found))
            if found > 0:
                terms.append(QueryTerm(hashed, weights[-1], found))
        return QueryTerms(terms, self._weights.ceiling(weights))

    def scores(self, terms: Sequence[QueryTerm], rows: Ints) -> Floats:
        """Return the score of each document, 0 for those without any of the terms and those that are gone."""
        ranked, known = self._ranked
        if terms == ranked and known.keys() >= set(rows.tolist()):
            return np.array([known[row] for row in rows.tolist()], dtype=np.float32)
        scores = [np.empty(0, dtype=np.float32)]
        for begin in range(0, len(rows), _SCORED_AT_ONCE):
            numbers = rows[begin : begin + _SCORED_AT_ONCE]
            self._note(numbers.tolist())
            versions = np.array([self.versions.get(number, -1) for number in numbers.tolist()], dtype=np.int64)
            found = self._table.documents(first_keys(numbers[versions >= 0], versions[versions >= 0]))
            own = np.zeros(len(numbers), dtype=np.float32)
            own[versions >= 0] = self._scored(terms, found)
            scores.append(own)
        return np.concatenate(scores)

    def ranking(self, terms: Sequence[QueryTerm], limit: int) -> LexicalRanking:
        """Return the best allowed documents that match, up to the limit: by score descending, then ordinal."""
        best = _BestMatches(limit)
        if not terms or not limit or not self.num_allowed:
            return best.ranking(self._ordinals)
        hashes = [term.hash for term in terms]
        vector = bounding_vector(dimensions_of(hashes), np.array([term.weight for term in terms]))
        first = max(_LEAST, int(_OVER_FETCH * limit))
        seen: set[int] = set()
        dense, known = self.views.dense_rows, dict[int, float]()

        def take(documents: Ints) -> None:
            new = np.setdiff1d(documents, np.fromiter(seen, np.int64, len(seen)))
            seen.update(new.tolist())
            if self._allowed is not None:
                new = new[np.isin(new, self._allowed)]
            # Those of the dense list come along with the first ones: fusion needs their scores too.
            read = new if known else np.union1d(new, dense)
            scores = self.scores(terms, read)
            best.add(new, scores[np.isin(read, new)])
            if not known:
                known.update(zip(read.tolist(), scores.tolist(), strict=True))

        def is_done(bound: float) -> bool:
            return bound * self._ratio < best.lowest

        for region in self._regions():
            self._propose(vector, region, first, take, is_done)
        found = best.ranking(self._ordinals)
        known.update(zip(found.rows.tolist(), found.scores.tolist(), strict=True))
        self._ranked = (terms, known)
        return found

    def slots(self, question: str, documents: Sequence[StoredDocument]) -> Ints:
        """Return each document's view whose span matches the question best; see best_slots()."""
        return best_slots(question, documents, self.kind, self._weights, lambda hashed: self._documents_with[hashed])

    def rows_with(self, term: int) -> Ints:
        """Return the numbers of the documents that have the term of this hash."""
        self._count([term])
        found: set[int] = set()
        vector = bounding_vector(dimensions_of([term]), np.ones(1))
        self._propose(vector, "", MAX_LIMIT, lambda documents: found.update(documents.tolist()), lambda bound: False)
        numbers = np.array(sorted(found), dtype=np.int64)
        if len(numbers) != self._documents_with[term]:
            # Another term of the same dimension, or rows that dead writers have left.
            one = [QueryTerm(term, 1.0, 1)]
            numbers = numbers[self.scores(one, numbers) > 0]
        return numbers

    def texts(self, rows: list[int]) -> list[str]:
        """Return what lexical search indexes of these documents; an empty text for one that is gone."""
        found = self._reader.records(rows, ("pk", "title", "text"))
        return [lexical_text(found[row]["title"], found[row]["text"]) if row in found else "" for row in rows]

    def live(self) -> Ints:
        """Return the numbers of all documents, rising."""
        fields, numbers = ("pk",), [np.empty(0, dtype=np.int64)]
        for rows in self._reader.each(self.num_rows, fields, 16 * PASS_NUMBERS):
            numbers.append(np.array([int(row["pk"]) for row in rows], dtype=np.int64))
        return np.concatenate(numbers)

    def _count(self, hashes: Sequence[int]) -> None:
        """Look up how many documents have each of these terms."""
        unknown = [hashed for hashed in hashes if hashed not in self._documents_with]
        found = self._table.documents_with(self._state.counts, unknown) if unknown else {}
        self._documents_with |= {
            hashed: found[hashed] + self._state.pending.documents_with(hashed) for hashed in unknown
        }

    def _note(self, numbers: Sequence[int]) -> None:
        """Note version and ordinal of each of these documents."""
        unknown = [number for number in numbers if number not in self.versions]
        records: Mapping[int, Mapping[str, Any]] = self.views.known_records(unknown)
        for number, row in records.items():
            self.versions[number], self._ordinals[number] = int(row["version"]), int(row["ordinal"])

    def _scored(self, terms: Sequence[QueryTerm], documents: BatchTerms) -> Floats:
        owners, shares = documents.owners, documents.lengths / self._weights.mean_length
        total = np.zeros(len(documents.lengths))
        for term in terms:
            places = np.flatnonzero(documents.hashes == np.uint64(term.hash))
            some = owners[places]
            total[some] += term.weight * self._weights.saturated(documents.counts[places], shares[some])
        return total.astype(np.float32)

    def _regions(self) -> Iterator[str]:
        """Yield expressions that together cover the allowed documents."""
        allowed = self._allowed
        if allowed is None or len(allowed) > _REGION:
            yield ""
        else:
            yield one_of("doc", allowed.tolist())

    def _propose(
        self, vector: bytes, region: str, first: int, take: Callable[[Ints], None], is_done: Callable[[float], bool]
    ) -> None:
        """Take the documents with the highest inner products in a region, until it is done or there are no more."""
        limit = min(first, MAX_LIMIT)
        while True:
            documents, lowest = self._search(vector, region, limit)
            take(documents)
            if lowest is None or is_done(lowest):
                return
            if limit == MAX_LIMIT:
                break
            limit = min(limit * _GROWTH, MAX_LIMIT)
        # More than one request returns: smaller and smaller ranges of documents.
        ranges = [(0, self.num_rows)]
        while ranges:
            begin, end = ranges.pop()
            inside = f"doc >= {begin} and doc < {end}" + f" and {region}" * bool(region)
            documents, lowest = self._search(vector, inside, MAX_LIMIT)
            take(documents)
            if lowest is not None and not is_done(lowest) and end - begin > 1:
                middle = (begin + end) // 2
                ranges += [(middle, end), (begin, middle)]

    def _search(self, vector: bytes, expression: str, limit: int) -> tuple[Ints, float | None]:
        """Return the documents with the highest inner products, rising, and the lowest of these; None for all."""
        name, query = terms_of(self._connection.address.collection), [unpacked_vector(vector)]

        [hits] = self._connection.ask(
            "searching terms",
            "search",
            name,
            data=query,
            anns_field="vec",
            limit=limit,
            filter=expression,
            output_fields=[],
            search_params={"metric_type": "IP", "params": {"drop_ratio_search": 0.0}},
            consistency_level=self._connection.address.consistency,
        )
        documents: Ints = np.unique(documents_of(np.array(hits.ids, dtype=np.int64)))
        # Of a later write, or left by a dead writer: no document of this state has such a number.
        documents = documents[documents < self.num_rows]
        return documents, float(min(hits.distances)) if len(hits.ids) >= limit else None


class _BestMatches:
    """The best documents so far, up to a limit, with those that tie with the last. lowest: its score; 0 for fewer."""

    def __init__(self, limit: int) -> None:
        self._limit, self.lowest = limit, 0.0
        self._rows, self._scores = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)

    def add(self, rows: Ints, scores: Floats) -> None:
        """Add documents; those with a score of 0 do not match."""
        self._rows = np.concatenate([self._rows, rows[scores > 0]])
        self._scores = np.concatenate([self._scores, scores[scores > 0]])
        if len(self._rows) >= max(self._limit, 1):
            lowest = np.partition(self._scores, len(self._scores) - self._limit)[len(self._scores) - self._limit]
            kept = self._scores >= lowest
            self._rows, self._scores, self.lowest = self._rows[kept], self._scores[kept], float(lowest)

    def ranking(self, ordinals: Mapping[int, int]) -> LexicalRanking:
        """Return them in order."""
        order = np.lexsort((np.array([ordinals[row] for row in self._rows.tolist()]), -self._scores))[: self._limit]
        return LexicalRanking(self._rows[order], self._scores[order])
