"""MilvusEngine: the engine slot of an index in Milvus, with the results of an index in a directory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from mvindex.errors import StaleReader, Unsupported
from mvindex.records import Cite, Combine, Field, Floats, SearchResult
from mvindex.search import Ranking
from mvindex.search.citation import cites_of
from mvindex.search.group import GroupSearch
from mvindex.search.options import SearchOptions
from mvindex.search.queries import QUERY_BATCH, TextQueries
from mvindex.search.results import hits_of
from mvindex.store.reader import StoredDocument
from mvindex_connectors.milvus.group import MilvusScorer, ScoredVersion
from mvindex_connectors.milvus.records import stored_document
from mvindex_connectors.milvus.rescore import Best
from mvindex_connectors.milvus.search import Answer, CandidateRequest, MilvusSearch, SettingsChanged
from mvindex_connectors.milvus.store import RETRIES, MilvusStore

# Documents of the answers of queries that are searched together: their candidates are in memory at once.
_PAIRS_AT_ONCE = 4_096
_T = TypeVar("_T")


class MilvusEngine:
    """Dense search over a store in Milvus, without snapshots: reads see the current state."""

    def __init__(self, store: MilvusStore) -> None:
        self._store = store

    def close(self) -> None:
        """Do nothing: there are no files to let go of."""

    def copy_bytes(self) -> None:
        """Return None: Milvus scans in its own memory."""

    def mapped_bytes(self) -> None:
        """Return None: Milvus scans in its own memory."""

    def search_text(self, queries: TextQueries, options: SearchOptions) -> list[SearchResult]:
        """Raise Unsupported: an index in Milvus has no lexical side."""
        raise Unsupported(f"{self._store.where}: lexical search needs an index in a directory; mode='dense' works here")

    def search_group(
        self, queries: Floats, combine: Combine, options: SearchOptions, texts: Sequence[str] | None
    ) -> SearchResult:
        """Return the dense result of one group of query vectors, (m, d) float32; see SearchEngine."""
        if not self._store.has_views:
            return SearchResult((), True, 0, 0)
        allowed = None if options.filter is None else self._store.matching(options.filter)
        num_allowed = self._store.count() if allowed is None else len(allowed)
        request = CandidateRequest(options.top_k, options.scoring, options.candidates, options.exact, allowed)

        def attempt(settings: Mapping[str, Any]) -> SearchResult | None:
            def search(top_k: int) -> MilvusSearch:
                deeper = request._replace(top_k=top_k)
                return MilvusSearch(self._store.connection, self._store.reader, settings, deeper)

            scorer = MilvusScorer(search, num_allowed, queries, combine)
            ranking = GroupSearch(scorer, queries, combine, options.top_k).run()
            return self._group_result(ranking, scorer.versions, options.fields, texts)

        for _ in range(RETRIES):
            result = self._with_settings(attempt, self._store.settings)
            if result is not None:
                return result
        raise self._replaced()

    def search(self, queries: Floats, options: SearchOptions, texts: Sequence[str] | None = None) -> list[SearchResult]:
        """Return a dense result for each query, (q, d) float32; texts: those that citations are chosen for."""
        if not self._store.has_views:
            return [SearchResult((), True, 0, 0) for _ in queries]
        allowed = None if options.filter is None else self._store.matching(options.filter)
        request = CandidateRequest(options.top_k, options.scoring, options.candidates, options.exact, allowed)
        size = max(1, min(QUERY_BATCH, _PAIRS_AT_ONCE // options.top_k))
        batches = (slice(at, at + size) for at in range(0, len(queries), size))
        return [
            one
            for at in batches
            for one in self._batch(queries[at], request, options.fields, None if texts is None else texts[at])
        ]

    def _batch(
        self, queries: Floats, request: CandidateRequest, fields: Collection[Field], texts: Sequence[str] | None
    ) -> list[SearchResult]:
        """Return the results of a few queries; one whose documents change meanwhile is searched again."""
        results: dict[int, SearchResult] = {}
        for _ in range(RETRIES):
            left = [number for number in range(len(queries)) if number not in results]
            if not left:
                break
            answers, records = self._searched(queries[left], request, self._store.settings)
            stored = self._documents([answer.best for answer in answers], records)
            for number, answer in zip(left, answers, strict=True):
                if all((pair in stored) for pair in _pairs(answer.best)):
                    results[number] = self._result(answer, stored, fields, None if texts is None else texts[number])
        if len(results) < len(queries):
            raise self._replaced()
        return [results[number] for number in range(len(queries))]

    def answers(
        self, queries: Floats, request: CandidateRequest, search: Mapping[str, int] | None = None
    ) -> list[Answer]:
        """Return the best documents of each query, by number; search: search parameters instead of those as tuned."""
        settings = self._store.settings
        if search is not None:
            settings = {**settings, "engine": {**settings["engine"], "search": dict(search)}}
        return self._searched(queries, request, settings)[0]

    def _searched(
        self, queries: Floats, request: CandidateRequest, settings: Mapping[str, Any]
    ) -> tuple[list[Answer], dict[int, dict[str, Any]]]:
        """Return the answers, and the records that were read on the way."""

        def run(settings: Mapping[str, Any]) -> tuple[list[Answer], dict[int, dict[str, Any]]]:
            search = MilvusSearch(self._store.connection, self._store.reader, settings, request)
            return search.run(queries), search.records

        return self._with_settings(run, settings)

    def _with_settings(self, run: Callable[[Mapping[str, Any]], _T], settings: Mapping[str, Any]) -> _T:
        """Return what a search under the settings returns; search again where they no longer hold."""
        for _ in range(RETRIES):
            try:
                return run(settings)
            except SettingsChanged:
                self._store.refresh()
                settings = self._store.settings
        raise StaleReader(f"{self._store.where}: the index was built again and again during the search; try later")

    def _replaced(self) -> StaleReader:
        return StaleReader(f"{self._store.where}: the documents of a result were replaced again and again; try later")

    def _documents(
        self, found: Sequence[Best], records: Mapping[int, Mapping[str, Any]]
    ) -> dict[tuple[int, int], StoredDocument]:
        """Return the documents by number and version of their views; records: those that need not be read."""
        return self._stored({pair for best in found for pair in _pairs(best)}, records)

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
        fields: Collection[Field],
        text: str | None,
    ) -> SearchResult:
        best = answer.best
        by_number = {number: stored[number, version].only(fields) for number, version in _pairs(best)}
        short_by = 0
        if not best.is_full and not answer.exact:
            short_by = min(best.top_k, self._store.count()) - len(best.documents)
        ranking = Ranking(
            best.documents, best.scores, best.slots, answer.exact, max(short_by, 0), answer.rounds, best.num_scored
        )
        cites = None
        if text is not None and Field.TEXT in fields:
            numbers = best.documents.tolist()
            cites = cites_of(text, numbers, by_number, [best.view_scores[number] for number in numbers])
        hits = hits_of(ranking, by_number, fields, cites=cites)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)

    def _group_result(
        self,
        ranking: Ranking,
        versions: Mapping[int, ScoredVersion],
        fields: Collection[Field],
        texts: Sequence[str] | None,
    ) -> SearchResult | None:
        """Return the result of a group; None where a document was replaced meanwhile."""
        numbers = ranking.rows.tolist()
        pairs = [(number, versions[number].version) for number in numbers]
        stored = self._stored(pairs, {})
        if not all(pair in stored for pair in pairs):
            return None
        by_number = {number: stored[number, version].only(fields) for number, version in pairs}
        cites = None
        if texts is not None and Field.TEXT in fields:
            cites = [_group_cite(number, by_number, versions[number], texts) for number in numbers]
        hits = hits_of(ranking, by_number, fields, cites=cites)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)


def _group_cite(number: int, stored: Mapping[int, StoredDocument], scored: ScoredVersion, texts: Sequence[str]) -> Cite:
    """Return what chooses the citation of a hit: the vector that has the best view score, and its text."""
    text = texts[scored.query if len(texts) > 1 else 0]
    return cites_of(text, [number], stored, [scored.view_scores])[0]


def _pairs(best: Best) -> Iterator[tuple[int, int]]:
    return zip(best.documents.tolist(), best.versions.tolist(), strict=True)
