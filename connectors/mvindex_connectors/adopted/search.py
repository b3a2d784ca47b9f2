"""Search of an adopted index: rows are fetched in growing rounds, or all are read where an exact result is demanded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from mvindex.errors import StoreError, Unsupported
from mvindex.kernels.score import BY_BEST_VIEW, Scoring, document_scores
from mvindex.records import ALL_FIELDS, Bools, Field, Floats, Ints, SearchResult
from mvindex.search.confidence import make_estimator
from mvindex.search.exact import ViewSource
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.hits import cites_of, hits_of
from mvindex.search.hybrid import Ranked, fuse_rankings, of_views, rank_terms
from mvindex.search.local import LocalSearch
from mvindex.search.parts import Parts
from mvindex.search.plan import Plan
from mvindex.search.ranking import Pairs, Ranking, ScoredPairs
from mvindex.search.request import Queries
from mvindex.search.terms import LexicalSearch, TermSearch
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.filters import Filter
from mvindex.store.reader import StoredDocument
from mvindex_connectors.adopted.sidecar import Sidecar
from mvindex_connectors.adopted.source import AdoptedDocument, RowSource, score_sums

# Rows of the first round for each document that is asked for, and how many times more each next round has.
_FIRST, _GROWTH = 4, 4
# So few allowed documents are read at once.
_FEW = 512
# Of no more rows all are read where rounds do not find enough documents.
_SCAN_ROWS = 2_000_000
# Documents that are read first after a scan, and best scores that one scan keeps.
_SETTLED, _SCORES_AT_ONCE = 64, 1 << 25


class Documents:
    """Documents of one search, numbered as they are met, all of them allowed."""

    def __init__(self, source: RowSource) -> None:
        self._where, self._source = source.where, source
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        self._keys: dict[int, Any] = {}

    @property
    def num_allowed(self) -> int:
        """How many documents the search allows; more where that is not known."""
        return self._source.num_rows

    def numbers(self, ids: Sequence[str]) -> Ints:
        """Return the number of each document, (m,)."""
        for doc_id in ids:
            if doc_id not in self._numbers:
                self._numbers[doc_id] = len(self._ids)
                self._ids.append(doc_id)
        return np.array([self._numbers[doc_id] for doc_id in ids], dtype=np.int64)

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the id of each document."""
        return [self._ids[row] for row in rows]

    def are_allowed(self, rows: Ints) -> Bools:
        """Return True for each document."""
        return np.ones(len(rows), dtype=bool)

    def few(self, most: int) -> Ints | None:
        """Return the allowed documents; None where they are all, or more than so many."""

    def note(self, rows: Sequence[int], keys: Sequence[int | str]) -> None:
        """Note the first key of each document."""
        self._keys.update(zip(rows, keys, strict=True))

    def ordinals(self, rows: Ints) -> Ints:
        """Return the rank of each document's first key among these, (m,)."""
        ranks: Ints = np.unique(np.array([self._keys[row] for row in rows.tolist()]), return_inverse=True)[1]
        return ranks

    def check_found(self, ids: Sequence[str], found: Collection[str]) -> None:
        """Raise StoreError unless each document was found."""
        gone = next((doc_id for doc_id in ids if doc_id not in found), None)
        if gone is not None:
            raise StoreError(f"{self._where}: document {gone!r:.80} was removed during the search; try again")

    def check(self, documents: Mapping[int, AdoptedDocument]) -> None:
        """Do nothing: they were not listed before."""

    def terms(self, fusion: Fusion, views: ViewSource) -> TermSearch:
        """Raise Unsupported: there are none."""
        raise Unsupported(f"{self._where}: it has no sidecar with terms")


class Catalog:
    """The sidecar of an adopted index: its documents with texts, terms and metadata, as of the last sync."""

    def __init__(self, source: RowSource, sidecar: Sidecar) -> None:
        self._source, self._sidecar = source, sidecar
        self._search = LocalSearch(sidecar.store)

    @property
    def store(self) -> EmbeddedStore:
        """The documents of the sidecar."""
        return self._sidecar.store

    def is_current(self) -> bool:
        """Return whether the collection has as many rows as at the last sync."""
        return self._sidecar.adopted.num_rows == self._source.count_rows()

    def matching(self, condition: Filter, after: str | None) -> Iterator[str]:
        """Yield the ids of the documents that match, in the order of their ordinals; StoreError as for opened()."""
        self._check_rows()
        return (document.id for document in self.store.scan(condition, after))

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Documents]:
        """Open the documents that a search allows; StoreError where the sidecar is behind."""
        self._check_rows()
        with self._search.opened(plan._replace(mode=Mode.LEXICAL)) as parts:
            yield _ListedDocuments(parts, self._fail)

    def _check_rows(self) -> None:
        # The collection is searched as it is now, and so is the sidecar.
        self.store.refresh()
        count, before = self._source.count_rows(), self._sidecar.adopted.num_rows
        if before is None:
            self._fail("the last sync did not come to its end")
        if count != before:
            self._fail(f"the collection has {count:,} rows, and had {before:,} then")

    def _fail(self, reason: str) -> NoReturn:
        raise StoreError(
            f"{self._source.where}: its sidecar is behind: {reason}. `mvindex adopt {self.store.where}` updates it; "
            "dense search without a filter does without it"
        )


class _ListedDocuments(Documents):
    """Documents as the sidecar lists them, by its rows."""

    def __init__(self, parts: Parts, fail: Any) -> None:
        self._parts, self._fail = parts, fail
        [part] = parts.all
        self._allowed, self._are_all = part.request.allowed, parts.num_allowed == part.snapshot.num_documents
        self._numbers: dict[str, int] = {}

    @property
    def num_allowed(self) -> int:
        """How many documents the search allows."""
        return self._parts.num_allowed

    def numbers(self, ids: Sequence[str]) -> Ints:
        """Return the row of each document, (m,)."""
        unknown = [doc_id for doc_id in dict.fromkeys(ids) if doc_id not in self._numbers]
        self._numbers |= self._parts.rows_of(unknown)
        for doc_id in unknown:
            if doc_id not in self._numbers:
                self._fail(f"it lacks document {doc_id!r:.80}")
        return np.array([self._numbers[doc_id] for doc_id in ids], dtype=np.int64)

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the id of each document."""
        found = self._parts.documents(np.array(rows, dtype=np.int64), frozenset())
        self._numbers |= {stored.id: row for row, stored in found.items()}
        return [found[row].id for row in rows]

    def are_allowed(self, rows: Ints) -> Bools:
        """Return whether the filter and the operators of the search allow each document, (m,)."""
        allowed: Bools = self._allowed[rows]
        return allowed

    def few(self, most: int) -> Ints | None:
        """Return the allowed documents; None where they are all, or more than so many."""
        return None if self._are_all or self.num_allowed > most else np.flatnonzero(self._allowed)

    def note(self, rows: Sequence[int], keys: Sequence[int | str]) -> None:
        """Do nothing: documents have ordinals here."""

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each document, (m,)."""
        return self._parts.ordinals(rows)

    def check_found(self, ids: Sequence[str], found: Collection[str]) -> None:
        """Raise StoreError unless each document was found."""
        gone = next((doc_id for doc_id in ids if doc_id not in found), None)
        if gone is not None:
            self._fail(f"document {gone!r:.80} is not in the collection any more")

    def check(self, documents: Mapping[int, AdoptedDocument]) -> None:
        """Raise StoreError unless the documents, by row, are as they are listed."""
        listed = self._parts.documents(np.array(list(documents), dtype=np.int64), ALL_FIELDS) if documents else {}
        for row, document in documents.items():
            if listed[row] != document.whole():
                self._fail(f"document {document.id!r:.80} has changed")

    def terms(self, fusion: Fusion, views: ViewSource) -> TermSearch:
        """Return the search by terms, beside these views."""
        search = LexicalSearch(self._parts, fusion)
        search.views = views
        return search


@dataclass(frozen=True, slots=True)
class AdoptedSearch:
    """Search of an adopted index by views; with a catalog of its documents also by terms, and with filters.

    neighbors: how many rows before and behind the one that scored best a hit shows.
    """

    source: RowSource
    catalog: Catalog | None = None
    neighbors: int = 0

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a result for each query."""
        where, source = self.source.where, self.source
        if queries.combine is not None:
            raise Unsupported(f"{where}: an adopted index searches no query groups; search each query")
        if plan.shard is not None:
            raise Unsupported(f"{where}: an adopted index is no shard")
        num_queries = len(queries.texts or ()) if plan.mode is Mode.LEXICAL else len(queries.vectors)
        if not num_queries:
            return []
        with self._opened(plan) as documents:
            views = _Views(source, documents)
            dense = [] if plan.mode is Mode.LEXICAL else self._dense(queries.vectors, plan, views)
            terms = documents.terms(plan.fusion, views) if plan.mode is not Mode.DENSE else None
            if plan.mode is Mode.LEXICAL and terms is not None:
                ranked = rank_terms(terms, queries.texts or (), plan.top_k)
            elif terms is not None:
                ranked = fuse_rankings(terms, queries, dense, plan)
            else:
                ranked = [of_views(ranking) for ranking in dense]
            texts: Sequence[str | None] = queries.texts or [None] * num_queries
            pages = [each.page(plan.offset) for each in ranked]
            return [self._result(each, views, terms, text, plan) for each, text in zip(pages, texts, strict=True)]

    def close(self) -> None:
        """Do nothing: the store closes what is open."""

    def copy_bytes(self) -> None:
        """Return None: there are no copies of views."""

    def mapped_bytes(self) -> None:
        """Return None: there are no copies of views."""

    @contextmanager
    def _opened(self, plan: Plan) -> Iterator[Documents]:
        if plan.mode is Mode.DENSE and plan.filter is None and plan.operators is None:
            yield Documents(self.source)
            return
        if self.catalog is None:
            raise Unsupported(
                f"{self.source.where}: filters and terms need a sidecar, which `mvindex adopt` makes of a collection "
                f"in Milvus, or a copy: {self.source.copied_by}"
            )
        with self.catalog.opened(plan) as documents:
            yield documents

    def _dense(self, vectors: Floats, plan: Plan, views: _Views) -> list[Ranking]:
        """Return the best documents of each query by views, plan.depth of them where there are so many."""
        few = views.documents.few(_FEW)
        if few is not None:
            return [views.best(query, few, plan)._replace(exact=True, rounds=1) for query in vectors]
        if plan.exact and not self.source.is_exact:
            return self._scanned(vectors, plan, views)
        return [self._in_rounds(query, plan, views) for query in vectors]

    def _in_rounds(self, query: Floats, plan: Plan, views: _Views) -> Ranking:
        source, documents, rounds = self.source, views.documents, 0
        limit = first = _FIRST * plan.depth if plan.candidates is None else plan.candidates
        most = min(source.max_limit, source.num_rows)
        while True:
            limit = max(min(limit, most), 1)
            ranked = source.rank(query, limit)
            rounds += 1
            # There may be more rows than before.
            most = min(source.max_limit, source.num_rows, plan.candidates or source.num_rows)
            top_k = min(plan.depth, documents.num_allowed)
            rows = documents.numbers(list(dict.fromkeys(ranked.documents)))
            best = views.best(query, rows[documents.are_allowed(rows)], plan)
            is_certain = ranked.is_all or self._is_certain(query, ranked.scores, best, top_k)
            if is_certain or limit >= most or (len(best.rows) >= top_k and not source.is_exact):
                break
            limit = max(limit * _GROWTH, first)
        if len(best.rows) < top_k and not ranked.is_all and plan.candidates is None and source.num_rows <= _SCAN_ROWS:
            [scanned] = self._scanned(query[None], plan, views)
            return scanned.after(best._replace(rounds=rounds))
        short_by = 0 if ranked.is_all else max(0, top_k - len(best.rows))
        return best._replace(exact=source.is_exact and is_certain, short_by=short_by, rounds=rounds)

    def _is_certain(self, query: Floats, scores: Floats, best: Ranking, top_k: int) -> bool:
        """Return whether no row that was not seen can change the result: a document scores at most its best view."""
        if not self.source.is_exact or len(best.rows) < top_k or not len(scores):
            return False
        return bool(best.scores[top_k - 1] > scores[-1] + 2 * self.source.error(query))

    def _scanned(self, vectors: Floats, plan: Plan, views: _Views) -> list[Ranking]:
        """Return the exact rankings: all rows are scored. Not exact where rows were written meanwhile."""
        size = max(1, _SCORES_AT_ONCE // max(self.source.num_rows, 1))
        return [
            ranking
            for begin in range(0, len(vectors), size)
            for ranking in self._scanned_together(vectors[begin : begin + size], plan, views)
        ]

    def _scanned_together(self, vectors: Floats, plan: Plan, views: _Views) -> list[Ranking]:
        source, documents = self.source, views.documents
        highest = np.full((len(vectors), 0), -np.inf, dtype=np.float32)
        num_rows = 0
        for ids, own in source.scan():
            num_rows += len(ids)
            rows = documents.numbers(ids)
            if (lacking := int(rows.max(initial=-1)) + 1 - highest.shape[1]) > 0:
                more = max(lacking, highest.shape[1])
                highest = np.pad(highest, ((0, 0), (0, more)), constant_values=-np.inf)
            for number, query in enumerate(vectors):
                np.maximum.at(highest[number], rows, score_sums(source.metric, own, query).astype(np.float32))
        is_whole = num_rows == source.count_rows()
        return [
            self._settled(query, highest[number], plan, views, is_whole=is_whole)
            for number, query in enumerate(vectors)
        ]

    def _settled(self, query: Floats, highest: Floats, plan: Plan, views: _Views, *, is_whole: bool) -> Ranking:
        """Return the ranking from each document's best view score, (n,): no document scores more than that."""
        rows = np.flatnonzero(highest > -np.inf)
        rows = rows[views.documents.are_allowed(rows)]
        rows = rows[np.argsort(-highest[rows], kind="stable")]
        size = max(_SETTLED, plan.depth)
        while True:
            best = views.best(query, rows[:size], plan)
            is_done = size >= len(rows)
            if is_done or (len(best.rows) >= plan.depth and best.scores[plan.depth - 1] > highest[rows[size]]):
                break
            size *= _GROWTH
        is_same = np.array_equal(views.best_views(query, best.rows), highest[best.rows])
        return best._replace(exact=is_whole and is_same, rounds=1)

    def _result(
        self, ranked: Ranked, views: _Views, terms: TermSearch | None, text: str | None, plan: Plan
    ) -> SearchResult:
        ranking = ranked.ranking
        rows = ranking.rows.tolist()
        own = views.whole(rows) if rows and (plan.fields or plan.mode is Mode.LEXICAL) else {}
        views.documents.check(own)
        if plan.mode is Mode.LEXICAL and terms is not None and text is not None:
            ranking = ranking._replace(slots=terms.slots(text, [own[row].whole() for row in rows]))
        slots = zip(rows, ranking.slots.tolist(), strict=True)
        stored = {row: self._shown(views, row, slot, own).only(plan.fields) for row, slot in slots}
        cites = None
        if text is not None and Field.TEXT in plan.fields:
            cites = cites_of(text, rows, stored, None, plan.quoting)
        estimate = make_estimator(plan.mode, plan.model, ranked.evidence)
        hits = hits_of(ranking, stored, plan.fields, ranked.components, cites, estimate)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds, mode=plan.mode.value)

    def _shown(self, views: _Views, row: int, slot: int, own: Mapping[int, AdoptedDocument]) -> StoredDocument:
        if row in own:
            return own[row].of_view(slot, self.neighbors)
        return StoredDocument(views.documents.ids([row])[0], "", "", "{}", None)


@dataclass(frozen=True, slots=True)
class _Views:
    """The stored views of one search, each document read once: the ViewSource of the core over an adopted index."""

    source: RowSource
    documents: Documents
    scored_together: int = 0
    _read: dict[int, AdoptedDocument] = field(default_factory=dict)

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores; see ViewSource."""
        self.load(pairs.doc_rows)
        scores, slots = np.empty(len(pairs.which), np.float32), np.empty(len(pairs.which), np.int64)
        for query in np.unique(pairs.which).tolist():
            places = np.flatnonzero(pairs.which == query)
            found = self._scores(queries[query], pairs.doc_rows[places], scoring)
            scores[places], slots[places] = found
        return ScoredPairs(*pairs[::-1], scores, slots, self.documents.ordinals(pairs.doc_rows))

    def best(self, query: Floats, rows: Ints, plan: Plan) -> Ranking:
        """Return the best of these documents: by falling scores of their stored views, then by rising ordinals."""
        self.load(rows)
        scores, slots = self._scores(query, rows, plan.scoring)
        ordinals = self.documents.ordinals(rows) if len(rows) else rows
        order = np.lexsort((ordinals, -scores))[: plan.depth]
        return Ranking(rows[order], scores[order], slots[order], False, 0, 0, len(rows))

    def best_views(self, query: Floats, rows: Ints) -> Floats:
        """Return the best view score of each document."""
        return self._scores(query, rows, BY_BEST_VIEW)[0]

    def load(self, rows: Ints) -> None:
        """Read the documents that were not read before; StoreError where one is gone."""
        unknown = [row for row in np.unique(rows).tolist() if row not in self._read]
        ids = self.documents.ids(unknown)
        found = self.source.read(ids, with_text=False)
        self.documents.check_found(ids, found)
        self._read.update({row: found[doc_id] for row, doc_id in zip(unknown, ids, strict=True)})
        self.documents.note(unknown, [found[doc_id].ordinal for doc_id in ids])

    def whole(self, rows: Sequence[int]) -> dict[int, AdoptedDocument]:
        """Return the documents with their texts; StoreError where the views of one are others than were scored."""
        ids = self.documents.ids(rows)
        found = self.source.read(ids, with_text=True)
        self.documents.check_found(ids, found)
        own = {row: found[doc_id] for row, doc_id in zip(rows, ids, strict=True)}
        for row, document in own.items():
            if row in self._read and not np.array_equal(self._read[row].views, document.views):
                where = f"{self.source.where}: document {document.id!r:.80}"
                raise StoreError(f"{where}: it was replaced during the search; try again")
        return own

    def _scores(self, query: Floats, rows: Ints, scoring: Scoring) -> tuple[Floats, Ints]:
        own = [self._read[row].views for row in rows.tolist()]
        if not own:
            return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
        starts = np.cumsum([0, *map(len, own)])
        return document_scores(score_sums(self.source.metric, np.concatenate(own), query), starts, scoring)
