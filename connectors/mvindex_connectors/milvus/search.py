"""Search in Milvus: over-fetch views, deduplicate, grow, score stored views, and certify what is proven.

Milvus ranks views; its scores only choose the documents to look at. Beyond what one request may return, the search goes
on without the documents already seen. An approximate index proves nothing: only FLAT does, or a pass over all allowed
documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.score import Aggregate, Scoring
from mvindex.records import Floats, Ints
from mvindex_connectors.milvus.connection import Connection, views_of
from mvindex_connectors.milvus.kinds import FLAT, search_parameters
from mvindex_connectors.milvus.layout import (
    LIGHT_FIELDS,
    RECORD_FIELDS,
    SETTINGS_KEY,
    documents_of,
    none_of,
    one_of,
)
from mvindex_connectors.milvus.reader import PASS_NUMBERS, Reader
from mvindex_connectors.milvus.records import Light, light
from mvindex_connectors.milvus.rescore import Best

MAX_LIMIT = 16_384
_GROWTH, _OVER_FETCH = 4, 4
# View hits of one request: bounds its answer.
_HITS_AT_ONCE = 1 << 18
# Documents that a search leaves out by their numbers; beyond, the expression takes longer than a pass.
_MAX_EXCLUDED = 50_000
_MAX_ROUNDS = 64
# Allowed numbers in one expression.
_REGION = 8_192
# So few allowed documents are read and scored at once; so few views in all are, where nothing else completes an answer.
_FEW_DOCUMENTS, _FEW_DOCUMENTS_OF_GRAPH, SCAN_VIEWS = 256, 20_000, 2_000_000
# Bytes of views in memory at once.
_VIEW_BYTES = 64 << 20
# Records read whole at once, and kept.
_WHOLE_RECORDS, _KEPT_RECORDS = 256, 4_096


class CandidateRequest(NamedTuple):
    """The options of each query of a batch. allowed: document numbers, rising; None for all."""

    top_k: int
    scoring: Scoring
    depth: int | None = None
    exact: bool = False
    allowed: Ints | None = None


class SettingsChanged(Exception):
    """Another client has rebuilt the index, or stored longer or more views per document than were known here."""


class Answer(NamedTuple):
    """The best documents of a query; exact: proven; rounds: searches it took."""

    best: Best
    exact: bool
    rounds: int


@dataclass(slots=True, eq=False)
class _Query:
    """One query in progress.

    Attributes:
        pending: Documents seen and not scored, with upper bounds of their scores.
        lowest: The upper bound of the documents not seen.

    """

    vector: Floats
    error: float
    best: Best
    seen: set[int] = field(default_factory=set)
    pending: dict[int, float] = field(default_factory=dict)
    lowest: float = np.inf
    rounds: int = 0
    num_hits: int = 0
    is_open: bool = True
    is_proven: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether no unseen document can reach the last of the best scores."""
        return self.lowest == -np.inf or bool(np.float32(self.lowest + self.error) < self.best.threshold)


class MilvusSearch:
    """Searches of one state of the settings."""

    def __init__(self, connection: Connection, reader: Reader, settings: Any, request: CandidateRequest) -> None:
        self._connection, self._reader, self._request = connection, reader, request
        self._settings, self._dim = settings, int(settings["dim"])
        engine = settings["engine"] or {"kind": FLAT, "parameters": {}, "search": {}}
        self._kind, self._built, self._chosen = engine["kind"], engine["parameters"], engine.get("search") or {}
        self._is_exact = self._kind == FLAT
        self._views = views_of(connection.address.collection)
        self._max_views = max(int(settings["max_views"]), 1)
        # Whole records met on the way, by number.
        self.records: dict[int, dict[str, Any]] = {}

    def run(self, vectors: Floats) -> list[Answer]:
        """Return the answers to the queries, (q, d) float32."""
        request, allowed = self._request, self._request.allowed
        top_k = request.top_k if allowed is None else min(request.top_k, len(allowed))
        queries = [_Query(vector, self._error(vector), Best(top_k)) for vector in vectors]
        if top_k == 0:
            return [Answer(query.best, True, 0) for query in queries]
        few = _FEW_DOCUMENTS if self._is_exact else _FEW_DOCUMENTS_OF_GRAPH
        if (request.exact and not self._is_exact) or (allowed is not None and len(allowed) <= max(few, top_k)):
            self._scan(queries)
        else:
            self._search(queries)
            self._complete(queries)
        return [Answer(query.best, query.is_proven, query.rounds) for query in queries]

    @property
    def scoring(self) -> Scoring:
        """How the scores of a document's views make its own."""
        return self._request.scoring

    def documents(self, numbers: Sequence[int]) -> Iterator[list[tuple[Light, Floats]]]:
        """Yield the documents that exist with their views, (k, d) float32 each, so many at once as memory allows.

        Raises SettingsChanged when the settings no longer hold.
        """
        step = self._documents_at_once()
        for begin in range(0, len(numbers), step):
            yield list(self._reader.views(self._lights(numbers[begin : begin + step]), self._dim).values())

    def all_documents(self) -> Iterator[list[tuple[Light, Floats]]]:
        """Yield all allowed documents with their views, otherwise as documents()."""
        for lights in self._all_lights():
            yield list(self._reader.views(lights, self._dim).values())

    def _error(self, vector: Floats) -> float:
        """Return the largest error of Milvus' float32 score of any view.

        For any order of summation |fl(x . y) - x . y| <= d u / (1 - d u) |x| |y| (Higham 2002, eq. 3.5), u = 2^-24;
        terms below float32's normal range may vanish.
        """
        norm = float(np.linalg.norm(vector.astype(np.float64)))
        return (self._dim + 16) * 2.0**-23 * norm * float(self._settings["max_norm"]) + self._dim * 2.0**-125

    def _search(self, queries: Sequence[_Query]) -> None:
        limit = self._first_limit(queries[0].best.top_k)
        for turn in range(_MAX_ROUNDS):
            open_ones = [query for query in queries if query.is_open]
            if not open_ones:
                return
            self._round(open_ones, limit)
            self._score(open_ones)
            for query in open_ones:
                self._judge(query, is_last=turn + 1 == _MAX_ROUNDS)
            limit = min(limit * _GROWTH, MAX_LIMIT)

    def _first_limit(self, top_k: int) -> int:
        """Return the first number of views: exact, (top_k - 1) k + 2 prove `top_k` documents; less where k varies."""
        depth = self._request.depth
        if depth is not None:
            return min(max(depth, top_k), MAX_LIMIT)
        mean = -(-int(self._settings["views"]) // max(int(self._settings["documents"]), 1))
        over = top_k * _OVER_FETCH * max(mean, 1) + 64
        limit = min((top_k - 1) * self._max_views + 2, over) if self._is_exact else max(over // 2, 64)
        if self._request.scoring.aggregate is not Aggregate.MAX:
            limit *= _GROWTH
        return max(1, min(limit, MAX_LIMIT))

    def _round(self, queries: Sequence[_Query], limit: int) -> None:
        """Fetch the best views not seen before of each query."""
        if self._request.allowed is None and not any(query.seen for query in queries):
            size = max(1, _HITS_AT_ONCE // limit)
            for begin in range(0, len(queries), size):
                part = queries[begin : begin + size]
                for query, hits in zip(part, self._search_views(part, limit, ""), strict=True):
                    self._take(query, [hits], limit)
            return
        for query in queries:
            self._take(query, [self._search_views([query], limit, each)[0] for each in self._regions(query)], limit)

    def _regions(self, query: _Query) -> Iterator[str]:
        """Yield expressions that together cover the allowed documents not seen."""
        allowed = self._request.allowed
        if allowed is None or not self._is_exact:
            # A filtered graph loses rows, so a filter is applied to what comes.
            yield none_of("doc", sorted(query.seen)) if query.seen else ""
            return
        left = allowed[~np.isin(allowed, np.fromiter(query.seen, dtype=np.int64, count=len(query.seen)))]
        for begin in range(0, len(left), _REGION):
            yield one_of("doc", left[begin : begin + _REGION].tolist())

    def _take(self, query: _Query, regions: Sequence[tuple[Ints, Floats]], limit: int) -> None:
        query.rounds += 1
        lowest = -np.inf
        allowed = self._request.allowed
        for keys, scores in regions:
            query.num_hits += len(keys)
            # An exact ranking that ends early has shown all there is.
            if len(keys) >= limit or (not self._is_exact and len(keys)):
                lowest = max(lowest, float(scores.min()))
            # Falling scores: the first hit of a document is its best.
            documents, first = np.unique(documents_of(keys), return_index=True)
            for document, score in zip(documents.tolist(), scores[first].tolist(), strict=True):
                if document in query.seen:
                    continue
                query.seen.add(document)
                if allowed is None or self._is_exact or _contains(allowed, document):
                    query.pending[document] = score + query.error
        query.lowest = lowest

    def _judge(self, query: _Query, is_last: bool) -> None:
        """Close the query when its answer is complete, or searching finds nothing more."""
        request, is_full = self._request, query.best.is_full
        has_all = query.lowest == -np.inf
        is_settled = query.is_settled
        if self._is_exact:
            query.is_proven = (is_full and is_settled) or has_all
            is_deep = request.depth is not None and query.num_hits >= request.depth and is_full
            query.is_open = not (query.is_proven or is_deep)
        else:
            takes = request.scoring.aggregate is Aggregate.MAX or request.depth is not None or is_settled
            query.is_open = not ((is_full and takes) or has_all)
        if is_last or len(query.seen) > _MAX_EXCLUDED:
            query.is_open = False

    def _score(self, queries: Sequence[_Query]) -> None:
        """Score the documents of each query that can be among the best, the likeliest first."""
        is_bound = self._is_exact and self._request.depth is None
        turns = {id(query): query.best.top_k for query in queries}
        while True:
            picked = [self._picked(query, turns[id(query)] if is_bound else len(query.pending)) for query in queries]
            if not any(picked):
                return
            for query in queries:
                turns[id(query)] *= 2
            self._add(queries, picked)

    def _picked(self, query: _Query, count: int) -> list[int]:
        """Return the next documents to score; forget those that can no longer be among the best."""
        if self._is_exact and self._request.depth is None:
            threshold = query.best.threshold
            # Rounding keeps order: a score, rounded to float32, is at most its rounded bound.
            query.pending = {each: upper for each, upper in query.pending.items() if np.float32(upper) >= threshold}
        likeliest = sorted(query.pending, key=lambda each: -query.pending[each])[:count]
        for document in likeliest:
            del query.pending[document]
        return likeliest

    def _add(self, queries: Sequence[_Query], picked: Sequence[Sequence[int]]) -> None:
        union = sorted({document for each in picked for document in each})
        sets = [set(each) for each in picked]
        for found in self.documents(union):
            for query, mine in zip(queries, sets, strict=True):
                known = [one for one in found if one[0].document in mine]
                query.best.add(query.vector, known, self._request.scoring)

    def _lights(self, documents: Sequence[int]) -> list[Light]:
        """Return the light records of the documents that exist; SettingsChanged when the settings no longer hold."""
        # A few are likely to be shown: then their texts come along, and are not read again.
        is_whole = len(documents) <= _WHOLE_RECORDS
        rows = self._reader.records([SETTINGS_KEY, *documents], RECORD_FIELDS if is_whole else LIGHT_FIELDS)
        settings = rows.pop(SETTINGS_KEY, None)
        if is_whole and len(self.records) < _KEPT_RECORDS:
            self.records |= rows
        if settings is not None and int(settings["version"]) != self._settings["epoch"]:
            raise SettingsChanged
        return [light(row) for row in rows.values()]

    def _documents_at_once(self) -> int:
        return max(1, min(PASS_NUMBERS, _VIEW_BYTES // (4 * self._dim * self._max_views)))

    def _complete(self, queries: Sequence[_Query]) -> None:
        """Settle open queries by a pass over all documents, where there are few enough views.

        At a fixed depth only queries with too few documents are completed.
        """
        left = [query for query in queries if not query.is_proven and self._needs_scan(query)]
        if left and int(self._settings["views"]) <= SCAN_VIEWS:
            self._scan(left)

    def _needs_scan(self, query: _Query) -> bool:
        return not query.best.is_full or (self._is_exact and self._request.depth is None)

    def _scan(self, queries: Sequence[_Query]) -> None:
        """Score every allowed document: exact, whatever the index."""
        for query in queries:
            query.best = Best(query.best.top_k, num_scored=query.best.num_scored)
            query.rounds, query.is_proven, query.is_open = query.rounds + 1, True, False
        for found in self.all_documents():
            for query in queries:
                query.best.add(query.vector, found, self._request.scoring)

    def _all_lights(self) -> Iterator[list[Light]]:
        step, allowed = self._documents_at_once(), self._request.allowed
        if allowed is None:
            for rows in self._reader.each(int(self._settings["next_document"]), LIGHT_FIELDS, step):
                yield [light(row) for row in rows]
            return
        for begin in range(0, len(allowed), step):
            yield list(self._reader.lights(allowed[begin : begin + step].tolist()).values())

    def _search_views(self, queries: Sequence[_Query], limit: int, expression: str) -> list[tuple[Ints, Floats]]:
        """Return the best views of each query: keys and Milvus' scores, falling."""
        parameters = search_parameters(self._kind, self._built, self._chosen, limit)
        data = [query.vector for query in queries]

        def search(client: Any, **options: Any) -> Any:
            return client.search(
                self._views,
                data=data,
                anns_field="vec",
                limit=limit,
                filter=expression,
                output_fields=[],
                search_params={"metric_type": "IP", "params": parameters},
                consistency_level=self._connection.address.consistency,
                **options,
            )

        return [_columns(hits) for hits in self._connection.call("searching", search)]


def _columns(hits: Any) -> tuple[Ints, Floats]:
    keys = np.array(hits.ids, dtype=np.int64)
    scores: Floats = np.array(hits.distances, dtype=np.float32)
    order = np.argsort(-scores, kind="stable")
    return keys[order], scores[order]


def _contains(numbers: Ints, number: int) -> bool:
    at = int(np.searchsorted(numbers, number))
    return at < len(numbers) and int(numbers[at]) == number
