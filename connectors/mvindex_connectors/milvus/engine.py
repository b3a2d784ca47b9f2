"""MilvusEngine: the engine slot of an index in Milvus, with the results of an index in a directory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mvindex.errors import StoreError
from mvindex.records import Combine, Field, Floats, Ints, SearchResult
from mvindex.retries import Retries
from mvindex.search.confidence import Evidence, make_estimator
from mvindex.search.exact import GroupSearch, pairs_of
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.hits import cites_of, hits_of
from mvindex.search.hybrid import (
    JudgedQuestion,
    Ranked,
    candidates_of,
    fuse_rankings,
    judge,
    of_views,
    rank_terms,
)
from mvindex.search.plan import Plan
from mvindex.search.ranking import Ranking
from mvindex.search.request import QUERY_BATCH, Queries
from mvindex.store.reader import StoredDocument
from mvindex_connectors.milvus.reader import stored_document
from mvindex_connectors.milvus.search import (
    CandidateRequest,
    CandidateViews,
    Changed,
    DenseList,
    MilvusSearch,
    MilvusViews,
    ScoredVersion,
)
from mvindex_connectors.milvus.store import TRIES, MilvusStore
from mvindex_connectors.milvus.term_counts import ChangedTerms
from mvindex_connectors.milvus.term_search import LexicalState, MilvusTerms

# Documents of the answers of queries that are searched together: their candidates are in memory at once.
_PAIRS_AT_ONCE = 4_096
# A search by terms during which others write is tried so often again; then its result is not exact.
_MOVING_TRIES = 2
# Records that the last request of a search by terms may bring.
_LAST_RECORDS = 1_000
_T = TypeVar("_T")


class Answer(NamedTuple):
    """The ranking of a query by document numbers, and which version of each document it has scored.

    evidence: what the confidence of each is estimated from, beside its score.
    """

    ranking: Ranking
    versions: Sequence[ScoredVersion]
    evidence: Evidence | None

    def pairs(self) -> list[tuple[int, int]]:
        """Return the number and the version of each document."""
        rows = self.ranking.rows.tolist()
        return [(row, version.version) for row, version in zip(rows, self.versions, strict=True)]


class MilvusEngine:
    """Dense, lexical and hybrid search over a store in Milvus, without snapshots: reads see the current state."""

    def __init__(self, store: MilvusStore) -> None:
        self._store = store
        self._last_state: LexicalState | None = None

    def close(self) -> None:
        """Do nothing: there are no files to let go of."""

    def copy_bytes(self) -> None:
        """Return None: Milvus scans in its own memory."""

    def mapped_bytes(self) -> None:
        """Return None: Milvus scans in its own memory."""

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a result for each query."""
        if not self._store.has_views:
            return [SearchResult((), True, 0, 0, mode=plan.mode.value)] * len(queries)
        if plan.mode is not Mode.DENSE:
            return [result for batch in _batches(queries, plan) for result in self._by_terms(batch, plan)]
        allowed = None if plan.filter is None else self._store.matching(plan.filter)
        request = CandidateRequest(plan.top_k, plan.scoring, plan.candidates, plan.exact, allowed)
        if queries.combine is not None:
            return [self._group(queries, queries.combine, request, plan)]
        return [result for batch in _batches(queries, plan) for result in self._batch(batch, request, plan)]

    def _group(self, queries: Queries, combine: Combine, request: CandidateRequest, plan: Plan) -> SearchResult:
        """Return the result of one group of query vectors."""
        vectors, texts = queries.vectors, queries.texts
        num_allowed = self._store.count() if request.allowed is None else len(request.allowed)

        def searched() -> SearchResult:
            views = MilvusViews(self._store.reader, self._store.settings, request.allowed)
            ranking = self._group_ranking(vectors, combine, request, views, num_allowed).page(plan.offset)
            versions = {row: views.best_version(row, len(vectors)) for row in ranking.rows.tolist()}
            return self._group_result(ranking, versions, plan, texts)

        return self._unchanged(searched)

    def _group_ranking(
        self, vectors: Floats, combine: Combine, request: CandidateRequest, views: MilvusViews, num_allowed: int
    ) -> Ranking:
        settings = self._store.settings
        return GroupSearch(
            queries=vectors,
            combine=combine,
            scoring=request.scoring,
            top_k=request.top_k,
            num_allowed=num_allowed,
            rank=lambda top_k: self._search(request._replace(top_k=top_k), settings).run(vectors),
            views=views,
            score_all=lambda: views.score_all(vectors, request.scoring),
            keep=lambda rows: views.keep(pairs_of(rows, len(vectors))),
        ).run()

    def _by_terms(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return the lexical or hybrid results of a few queries, or of one group.

        Where another client writes all the while, documents and counts may be of different moments: not exact.
        """
        tries = count()

        def searched() -> list[SearchResult]:
            results, are_of_now = self._searched_by_terms(queries, plan, self._store.lexical_state())
            if not are_of_now:
                if next(tries) < _MOVING_TRIES:
                    raise ChangedTerms(f"{self._store.where}: was written to again and again during the search")
                results = [replace(result, exact=False) for result in results]
            return results

        # Most often nothing was written since the last search; whatever is wrong with its state, one of now decides.
        if (last := self._last_state) is not None:
            with suppress(StoreError):
                results, are_of_now = self._searched_by_terms(queries, plan, last)
                if are_of_now:
                    return results
        return self._unchanged(searched)

    def _searched_by_terms(self, queries: Queries, plan: Plan, state: LexicalState) -> tuple[list[SearchResult], bool]:
        """Return the results by this state, and whether it is still that of now."""
        self._last_state = None
        if state.epoch != self._store.settings["epoch"]:
            raise Changed(f"{self._store.where}: the index was built again and again during the search; try later")
        allowed = self._allowed(plan, state)
        request = CandidateRequest(plan.depth, plan.scoring, plan.candidates, plan.exact, allowed)
        dense = [] if plan.mode is Mode.LEXICAL else self._dense(queries, request, state)
        found: list[tuple[Ranked, MilvusTerms, Queries]] = []
        for number in range(len(queries) if queries.combine is None else 1):
            terms = self._terms(state, plan.fusion, allowed, dense[number] if dense else None)
            one = queries if queries.combine is not None else queries[number : number + 1]
            if plan.mode is Mode.LEXICAL:
                [ranked] = rank_terms(terms, list(one.texts or ())[:1], plan.top_k)
            else:
                [ranked] = fuse_rankings(terms, one, [dense[number].ranking], plan)
            found.append((ranked.page(plan.offset), terms, one))
        records, now = self._last_read({row for ranked, _, _ in found for row in ranked.ranking.rows.tolist()})
        result = self._lexical_result if plan.mode is Mode.LEXICAL else self._hybrid_result
        results = [result(ranked, terms, one, records, plan) for ranked, terms, one in found]
        self._last_state = now
        return results, now.is_same(state)

    def _last_read(self, numbers: Collection[int]) -> tuple[dict[int, dict[str, Any]], LexicalState]:
        """Return the records of these documents, and the state after everything else was read."""
        left = sorted(numbers)
        records = self._store.reader.records(left[_LAST_RECORDS:])
        now, others = self._store.state_and_records(left[:_LAST_RECORDS])
        return {**records, **others}, now

    def _dense(self, queries: Queries, request: CandidateRequest, state: LexicalState) -> list[DenseList]:
        """Return the dense lists that are fused."""
        settings, allowed = self._store.settings, request.allowed
        if queries.combine is None:
            search = self._search(request, settings)
            rankings = search.run(queries.vectors)
            return [DenseList(ranking, search.views, number) for number, ranking in enumerate(rankings)]
        views = MilvusViews(self._store.reader, settings, allowed)
        num_allowed = state.num_documents if allowed is None else len(allowed)
        return [DenseList(self._group_ranking(queries.vectors, queries.combine, request, views, num_allowed), views, 0)]

    def _terms(
        self, state: LexicalState, fusion: Fusion, allowed: Ints | None, dense: DenseList | None = None
    ) -> MilvusTerms:
        views = CandidateViews(self._store.reader, self._store.settings, allowed, dense)
        return MilvusTerms(self._store.connection, state, fusion, views, allowed)

    def _allowed(self, plan: Plan, state: LexicalState) -> Ints | None:
        """Return the numbers of the documents that filter and operators allow, rising; None for all."""
        allowed = None if plan.filter is None else self._store.matching(plan.filter)
        if plan.operators is None:
            return allowed
        source = self._terms(state, plan.fusion, None)
        found = np.flatnonzero(plan.operators.matching(source))
        if allowed is None and not plan.operators.required:
            allowed = source.live()
        return found if allowed is None else found[np.isin(found, allowed)]

    def _lexical_result(
        self, ranked: Ranked, terms: MilvusTerms, queries: Queries, records: Mapping[int, Mapping[str, Any]], plan: Plan
    ) -> SearchResult:
        rows, text = ranked.ranking.rows.tolist(), (queries.texts or ("",))[0]
        stored = self._whole([(row, terms.versions[row]) for row in rows], records)
        ranking = ranked.ranking._replace(slots=terms.slots(text, [stored[row] for row in rows]))
        by_number = {row: document.only(plan.fields) for row, document in stored.items()}
        cites = cites_of(text, rows, by_number, None, plan.quoting) if Field.TEXT in plan.fields else None
        estimate = make_estimator(plan.mode, plan.model, ranked.evidence)
        hits = hits_of(ranking, by_number, plan.fields, ranked.components, cites, estimate)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds, mode=plan.mode.value)

    def _hybrid_result(
        self, ranked: Ranked, terms: MilvusTerms, queries: Queries, records: Mapping[int, Mapping[str, Any]], plan: Plan
    ) -> SearchResult:
        """Return the result of one query, or group, whose views and terms are of the same versions of documents."""
        ranking, texts = ranked.ranking, queries.texts or ()
        versions = {row: terms.views.best_version(row, len(queries.vectors)) for row in ranking.rows.tolist()}
        if any(terms.versions[row] != version.version for row, (_, version) in versions.items()):
            raise self._replaced()
        stored = self._whole([(row, version.version) for row, (_, version) in versions.items()], records)
        by_number = {row: document.only(plan.fields) for row, document in stored.items()}
        cites = None
        if Field.TEXT in plan.fields:
            cites = [
                cites_of(texts[query], [row], by_number, [version.view_scores], plan.quoting)[0]
                for row, (query, version) in versions.items()
            ]
        estimate = make_estimator(plan.mode, plan.model, ranked.evidence)
        hits = hits_of(ranking, by_number, plan.fields, ranked.components, cites, estimate)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds, mode=plan.mode.value)

    def _whole(
        self, pairs: Sequence[tuple[int, int]], records: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, StoredDocument]:
        """Return the documents of these numbers and versions; Changed where one was replaced meanwhile."""
        if any(number not in records or int(records[number]["version"]) != version for number, version in pairs):
            raise self._replaced()
        return {number: stored_document(records[number], self._store.where) for number, _ in pairs}

    def judged(
        self, queries: Queries, relevant: Sequence[Mapping[str, float]], plan: Plan, fusions: Sequence[Fusion]
    ) -> Iterator[list[JudgedQuestion]]:
        """Yield for each question what each fusion would order, and the gains of that; see LocalSearch.judged()."""
        plans = [plan._replace(fusion=fusion) for fusion in fusions]
        deepest = max(plan.depth for plan in plans)
        request = CandidateRequest(deepest, plan.scoring)
        for number, text in enumerate(queries.texts or ()):
            gains = {doc_id: gain for doc_id, gain in relevant[number].items() if gain > 0}
            rows = {
                doc_id: int(row["pk"]) for doc_id, row in self._store.reader.find(list(gains), ("pk", "id")).items()
            }

            def candidates(number: int = number, text: str = text) -> list[Any]:
                state, own = self._store.lexical_state(), queries.vectors[number : number + 1]
                [dense] = self._dense(queries[number : number + 1], request, state)
                return [
                    candidates_of(self._terms(state, each.fusion, None, dense), text, own, dense.ranking, each)
                    for each in plans
                ]

            by_row = {row: gains[doc_id] for doc_id, row in rows.items()}
            yield [judge(found, by_row, list(gains.values())) for found in self._unchanged(candidates)]

    def _batch(self, queries: Queries, request: CandidateRequest, plan: Plan) -> list[SearchResult]:
        """Return the results of a few queries; one whose documents change meanwhile is searched again."""
        results: dict[int, SearchResult] = {}
        vectors, texts = queries.vectors, queries.texts

        def search_left() -> list[SearchResult]:
            left = [number for number in range(len(queries)) if number not in results]
            search = self._search(request, self._store.settings)
            ranked = [of_views(ranking).page(plan.offset) for ranking in search.run(vectors[left])]
            answers = [
                Answer(ranking, [search.views.versions[place, row] for row in ranking.rows.tolist()], evidence)
                for place, (ranking, _, evidence) in enumerate(ranked)
            ]
            stored = self._stored({pair for answer in answers for pair in answer.pairs()}, search.views.records)
            for number, answer in zip(left, answers, strict=True):
                if all(pair in stored for pair in answer.pairs()):
                    results[number] = self._result(answer, stored, plan, None if texts is None else texts[number])
            if len(results) < len(queries):
                raise self._replaced()
            return [results[number] for number in range(len(queries))]

        return self._unchanged(search_left)

    def answers(
        self, queries: Floats, request: CandidateRequest, engine: Mapping[str, Any] | None = None
    ) -> list[Ranking]:
        """Return the best documents of each query, by number; engine: the setting to search by, instead of its own."""

        def searched() -> list[Ranking]:
            settings = self._store.settings
            return self._search(request, settings if engine is None else {**settings, "engine": engine}).run(queries)

        return self._unchanged(searched)

    def _search(self, request: CandidateRequest, settings: Mapping[str, Any]) -> MilvusSearch:
        return MilvusSearch(self._store.connection, self._store.reader, settings, request)

    def _unchanged(self, search: Callable[[], _T]) -> _T:
        """Return what a search returns during which nothing of it has changed."""

        def again(err: Exception) -> bool:
            is_passing = isinstance(err, Changed | ChangedTerms)
            if is_passing:
                self._store.refresh()
            return is_passing

        return Retries(again, tries=TRIES).run(search)

    def _replaced(self) -> Changed:
        return Changed(f"{self._store.where}: the documents of a result were replaced again and again; try later")

    def _stored(
        self, pairs: Collection[tuple[int, int]], records: Mapping[int, Mapping[str, Any]]
    ) -> dict[tuple[int, int], StoredDocument]:
        kept = {number: row for number, row in records.items() if (number, int(row["version"])) in pairs}
        numbers = sorted({number for number, _ in pairs} - kept.keys())
        rows = {**kept, **self._store.reader.records(numbers)}
        where = self._store.where
        return {(number, int(row["version"])): stored_document(row, where) for number, row in rows.items()}

    def _result(
        self,
        answer: Answer,
        stored: Mapping[tuple[int, int], StoredDocument],
        plan: Plan,
        text: str | None,
    ) -> SearchResult:
        ranking, fields = answer.ranking, plan.fields
        numbers = ranking.rows.tolist()
        by_number = {number: stored[number, version].only(fields) for number, version in answer.pairs()}
        if ranking.exact:
            ranking = ranking._replace(short_by=0)
        elif ranking.short_by:
            # No more than there are: top_k is what these and those that it is short of make.
            most = min(len(numbers) + ranking.short_by, self._store.count() - plan.offset)
            ranking = ranking._replace(short_by=max(most - len(numbers), 0))
        cites = None
        if text is not None and Field.TEXT in fields:
            cites = cites_of(
                text, numbers, by_number, [version.view_scores for version in answer.versions], plan.quoting
            )
        hits = hits_of(ranking, by_number, fields, None, cites, make_estimator(plan.mode, plan.model, answer.evidence))
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)

    def _group_result(
        self,
        ranking: Ranking,
        versions: Mapping[int, tuple[int, ScoredVersion]],
        plan: Plan,
        texts: Sequence[str] | None,
    ) -> SearchResult:
        """Return the result of a group; Changed where a document was replaced meanwhile.

        versions: which query has the best view score of each document, by number, and the version that this is of.
        """
        fields = plan.fields
        pairs = [(number, version.version) for number, (_, version) in versions.items()]
        stored = self._stored(pairs, {})
        if not all(pair in stored for pair in pairs):
            raise self._replaced()
        by_number = {number: stored[number, version].only(fields) for number, version in pairs}
        cites = None
        if texts is not None and Field.TEXT in fields:
            # Of the vector that has the best view score, and its text.
            cites = [
                cites_of(texts[query], [number], by_number, [version.view_scores], plan.quoting)[0]
                for number, (query, version) in versions.items()
            ]
        hits = hits_of(ranking, by_number, fields, cites=cites)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)


def _batches(queries: Queries, plan: Plan) -> Iterator[Queries]:
    """Yield queries that are searched together; a group is not parted."""
    size = max(1, min(QUERY_BATCH, _PAIRS_AT_ONCE // plan.depth))
    if queries.combine is not None:
        yield queries
        return
    for begin in range(0, len(queries), size):
        yield queries[begin : begin + size]
