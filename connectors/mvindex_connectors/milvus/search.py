"""Search in Milvus: the candidates and the stored views of an index there, for the search loop of the core.

Milvus ranks views; its scores only choose the documents to look at. Beyond what one request may return, the search goes
on without the documents already seen. An approximate index proves nothing: only FLAT does, or a pass over all allowed
documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import StaleReader
from mvindex.kernels.score import Aggregate, Scoring, document_scores, view_sums
from mvindex.records import Doubles, Floats, Ints, sliced
from mvindex.search.ann import Hits, Rounds, search_in_rounds
from mvindex.search.exact import Best, rankings_of
from mvindex.search.ranking import Pairs, Ranking, ScoredPairs
from mvindex_connectors.milvus.connection import Connection, views_of
from mvindex_connectors.milvus.kinds import FLAT, search_parameters
from mvindex_connectors.milvus.layout import LIGHT_FIELDS, RECORD_FIELDS, SETTINGS_KEY, documents_of, none_of, one_of
from mvindex_connectors.milvus.reader import PASS_NUMBERS, Light, Reader, light

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
# Records that are kept, whole or light.
_KEPT_RECORDS, _KEPT_LIGHTS = 4_096, 16_384


class CandidateRequest(NamedTuple):
    """The options of each query of a batch. allowed: document numbers, rising; None for all."""

    top_k: int
    scoring: Scoring
    depth: int | None = None
    exact: bool = False
    allowed: Ints | None = None


class Changed(StaleReader):
    """Another client has rebuilt the index, replaced a document of a result, or stored longer or more views."""


class ScoredVersion(NamedTuple):
    """The version of a document that was scored for a query, and the scores of its views, (k,)."""

    version: int
    view_scores: Floats


class MilvusViews:
    """The ViewSource of an index in Milvus: views are read by key, and a document that is gone is left out.

    Attributes:
        records: Whole records met on the way, by number.
        lights: Records met on the way, whole or with what scoring needs.
        versions: What was scored, by query and document number: of documents that may still be among the best.

    """

    # Each document takes room in an answer of Milvus: the likeliest are read first.
    scored_together = 0
    # Of so few the texts come along, as some are likely to be shown, and are not read again.
    whole_records = 100

    def __init__(self, reader: Reader, settings: Any, allowed: Ints | None) -> None:
        self.reader, self._settings, self._allowed = reader, settings, allowed
        self._dim, max_views = int(settings["dim"]), max(int(settings["max_views"]), 1)
        self._step = max(1, min(PASS_NUMBERS, _VIEW_BYTES // (4 * self._dim * max_views)))
        self.records: dict[int, dict[str, Any]] = {}
        self.lights: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[int, int], ScoredVersion] = {}

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores, but for those that are gone; see ViewSource.

        Raises Changed when the settings no longer hold.
        """
        parts = [_NOTHING]
        numbers = np.unique(pairs.doc_rows).tolist()
        for begin in range(0, len(numbers), self._step):
            documents = self.reader.views(self._lights(numbers[begin : begin + self._step]), self._dim)
            for query in np.unique(pairs.which).tolist():
                mine = [documents[row] for row in pairs.doc_rows[pairs.which == query].tolist() if row in documents]
                parts.append(self._scored(query, queries[query], mine, scoring))
        return joined(parts)

    def score_all(self, queries: Floats, scoring: Scoring) -> Iterator[ScoredPairs]:
        """Yield all allowed documents with their scores for each query, some at a time."""
        for lights in self._all_lights():
            documents = list(self.reader.views(lights, self._dim).values())
            yield joined([self._scored(number, query, documents, scoring) for number, query in enumerate(queries)])

    def _all_lights(self) -> Iterator[list[Light]]:
        if self._allowed is None:
            for rows in self.reader.each(int(self._settings["next_document"]), LIGHT_FIELDS, self._step):
                yield [light(row) for row in rows]
            return
        for begin in range(0, len(self._allowed), self._step):
            yield list(self.reader.lights(self._allowed[begin : begin + self._step].tolist()).values())

    def keep(self, pairs: Pairs) -> None:
        """Forget the versions of all documents but these."""
        kept = zip(pairs.which.tolist(), pairs.doc_rows.tolist(), strict=True)
        self.versions = {pair: self.versions[pair] for pair in kept}

    def best_version(self, document: int, num_queries: int) -> tuple[int, ScoredVersion]:
        """Return which query of a group has the best view score of a document, and the version that this is of."""
        versions = [self.versions[query, document] for query in range(num_queries)]
        best = int(np.argmax([version.view_scores.max() for version in versions]))
        return best, versions[best]

    def _scored(
        self, number: int, query: Floats, documents: Sequence[tuple[Light, Floats]], scoring: Scoring
    ) -> ScoredPairs:
        """Return documents with their scores for one query, and note the versions that these are of."""
        if not documents:
            return _NOTHING
        starts = np.append(0, np.cumsum([len(rows) for _, rows in documents]))
        sums = view_sums(np.concatenate([rows for _, rows in documents]), query)
        found = document_scores(sums, starts, scoring)
        for place, (record, _) in enumerate(documents):
            scores = sums[starts[place] : starts[place + 1]].astype(np.float32)
            self.versions[number, record.document] = ScoredVersion(record.version, scores)
        rows, ordinals = np.array([(each.document, each.ordinal) for each, _ in documents], dtype=np.int64).T
        return ScoredPairs(np.full(len(rows), number), rows, found.scores, found.slots, ordinals)

    def _lights(self, documents: Sequence[int]) -> list[Light]:
        """Return the light records of the documents that exist; Changed when the settings no longer hold."""
        rows = self.known_records([SETTINGS_KEY, *documents])
        settings = rows.pop(SETTINGS_KEY, None)
        if settings is not None and int(settings["version"]) != self._settings["epoch"]:
            raise Changed(f"{self.reader.where}: the index was built again and again during the search; try later")
        return [light(row) for row in rows.values()]

    def known_records(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """Return the records that exist, those met before as they were; see LIGHT_FIELDS for what is in them."""
        known: dict[int, Mapping[str, Any]] = {
            number: self.lights[number] for number in numbers if number in self.lights
        }
        unknown = [number for number in numbers if number not in known]
        is_whole = len(unknown) <= self.whole_records
        rows = self.reader.records(unknown, RECORD_FIELDS if is_whole else LIGHT_FIELDS) if unknown else {}
        documents = {number: row for number, row in rows.items() if number >= 0}
        if is_whole and len(self.records) < _KEPT_RECORDS:
            self.records |= documents
        if len(self.lights) < _KEPT_LIGHTS:
            self.lights |= documents
        return {**known, **rows}


class _BestVersions(Best):
    """The best documents, of which the versions are remembered."""

    def __init__(self, views: MilvusViews, queries: Floats, request: CandidateRequest, top_k: int) -> None:
        super().__init__(views, queries, top_k, request.scoring)
        self._versions = views

    def take(self, found: ScoredPairs) -> None:
        """Keep the best, and forget the versions of all others."""
        super().take(found)
        self._versions.keep(Pairs(self._found.rows, self._found.which))


class MilvusSearch:
    """Searches of one state of the settings: the CandidateSource of an index in Milvus."""

    share = None
    hits_at_once = _HITS_AT_ONCE

    def __init__(self, connection: Connection, reader: Reader, settings: Any, request: CandidateRequest) -> None:
        self._connection, self._request = connection, request
        self._settings, self._dim = settings, int(settings["dim"])
        engine = settings["engine"] or {"kind": FLAT, "parameters": {}, "search": {}}
        self._kind, self._built, self._chosen = engine["kind"], engine["parameters"], engine.get("search") or {}
        self.is_exact = self._kind == FLAT
        self._collection = views_of(connection.address.collection)
        self.views = MilvusViews(reader, settings, request.allowed)
        allowed = request.allowed
        self._top_k = request.top_k if allowed is None else min(request.top_k, len(allowed))
        self._seen: list[set[int]] = []
        self._num_hits: Ints = np.zeros(0, dtype=np.int64)

    def run(self, vectors: Floats) -> list[Ranking]:
        """Return the rankings of the queries, (q, d) float32, by document numbers."""
        request, allowed, top_k = self._request, self._request.allowed, self._top_k
        if top_k == 0:
            return [Ranking(_NOTHING.rows, _NOTHING.scores, _NOTHING.slots, True, 0, 0, 0)] * len(vectors)
        self._seen, self._num_hits = [set() for _ in vectors], np.zeros(len(vectors), dtype=np.int64)
        best = _BestVersions(self.views, vectors, request, top_k)
        few = _FEW_DOCUMENTS if self.is_exact else _FEW_DOCUMENTS_OF_GRAPH
        if (request.exact and not self.is_exact) or (allowed is not None and len(allowed) <= max(few, top_k)):
            none = np.zeros(len(vectors), dtype=np.int64)
            found, is_left = Rounds(none, none == 0, none != 0), none == 0
        else:
            found = search_in_rounds(self, best, vectors, request.depth)
            # At a fixed depth only queries with too few documents are completed.
            needs_all = (best.counts() < top_k) | (self.is_exact and request.depth is None)
            is_left = ~found.is_proven & needs_all & (int(self._settings["views"]) <= SCAN_VIEWS)
        rankings = list(rankings_of(best, exact=False, rounds=0))
        if is_left.any():
            self._complete(best, vectors, np.flatnonzero(is_left), rankings)
        return [
            ranking._replace(rounds=ranking.rounds + rounds, exact=ranking.exact or exact)
            for ranking, rounds, exact in zip(rankings, found.rounds.tolist(), found.is_proven.tolist(), strict=True)
        ]

    def _complete(self, best: Best, vectors: Floats, left: Ints, rankings: list[Ranking]) -> None:
        """Replace the rankings of the queries that are left by those over every allowed document: exact."""
        kept, self.views.versions = self.views.versions, {}
        whole = _BestVersions(self.views, vectors[left], self._request, self._top_k)
        for scored in self.views.score_all(vectors[left], self._request.scoring):
            whole.take(scored)
        every = rankings_of(whole, exact=True, rounds=1)
        for query, ranking in zip(left.tolist(), every, strict=True):
            rankings[query] = ranking.after(rankings[query])
        again = {(int(left[query]), row): version for (query, row), version in self.views.versions.items()}
        self.views.versions = {pair: version for pair, version in kept.items() if pair[0] not in left} | again

    def error(self, queries: Floats) -> Doubles:
        """Return the largest error of Milvus' float32 score of any view, (q,).

        For any order of summation |fl(x . y) - x . y| <= d u / (1 - d u) |x| |y| (Higham 2002, eq. 3.5), u = 2^-24;
        terms below float32's normal range may vanish.
        """
        norms = np.linalg.norm(queries.astype(np.float64), axis=1)
        errors: Doubles = (self._dim + 16) * 2.0**-23 * norms * float(self._settings["max_norm"])
        return errors + self._dim * 2.0**-125

    def limits(self) -> Iterator[int]:
        """Yield growing limits, up to what one request may return."""
        limit = self._first_limit()
        for _ in range(_MAX_ROUNDS):
            yield limit
            limit = min(limit * _GROWTH, MAX_LIMIT)

    def _first_limit(self) -> int:
        """Return the first number of views: exact, (top_k - 1) k + 2 prove `top_k` documents; less where k varies."""
        depth, top_k = self._request.depth, self._top_k
        if depth is not None:
            return min(max(depth, top_k), MAX_LIMIT)
        mean = -(-int(self._settings["views"]) // max(int(self._settings["documents"]), 1))
        over = top_k * _OVER_FETCH * max(mean, 1) + 64
        max_views = max(int(self._settings["max_views"]), 1)
        limit = min((top_k - 1) * max_views + 2, over) if self.is_exact else max(over // 2, 64)
        if self._request.scoring.aggregate is not Aggregate.MAX:
            limit *= _GROWTH
        return max(1, min(limit, MAX_LIMIT))

    def hits(self, queries: Floats, tile: Ints, limit: int, turn: int) -> Hits:
        """Return the best views not seen before of each query, by document; see CandidateSource."""
        if self._request.allowed is None and not any(self._seen[query] for query in tile.tolist()):
            regions = [[found] for found in self._search_views(queries[tile], limit, "")]
        else:
            regions = [
                [self._search_views(queries[[query]], limit, each)[0] for each in self._regions(query)]
                for query in tile.tolist()
            ]
        taken = [self._taken(query, own, limit) for query, own in zip(tile.tolist(), regions, strict=True)]
        lowest = np.array([low for _, _, low in taken])
        is_spent = [len(self._seen[query]) > _MAX_EXCLUDED for query in tile.tolist()]
        return Hits(
            np.repeat(np.arange(len(tile)), [len(rows) for rows, _, _ in taken]),
            np.concatenate([rows for rows, _, _ in taken]),
            np.concatenate([scores for _, scores, _ in taken]),
            lowest,
            self._num_hits[tile],
            (lowest == -np.inf) | is_spent | (turn + 1 == _MAX_ROUNDS),
        )

    def _regions(self, query: int) -> Iterator[str]:
        """Yield expressions that together cover the allowed documents not seen."""
        allowed, seen = self._request.allowed, self._seen[query]
        if allowed is None or not self.is_exact:
            # A filtered graph loses rows, so a filter is applied to what comes.
            yield none_of("doc", sorted(seen)) if seen else ""
            return
        left = allowed[~np.isin(allowed, np.fromiter(seen, dtype=np.int64, count=len(seen)))]
        for region in sliced(left, _REGION):
            yield one_of("doc", region.tolist())

    def _taken(self, query: int, regions: Sequence[tuple[Ints, Floats]], limit: int) -> tuple[Ints, Doubles, float]:
        """Return the documents not seen before, rising, their best hits' scores, and the lowest score of all hits."""
        lowest, best = -np.inf, dict[int, float]()
        for keys, scores in regions:
            self._num_hits[query] += len(keys)
            # An exact ranking that ends early has shown all there is.
            if len(keys) >= limit or (not self.is_exact and len(keys)):
                lowest = max(lowest, float(scores.min()))
            # Falling scores: the first hit of a document is its best.
            documents, first = np.unique(documents_of(keys), return_index=True)
            for document, score in zip(documents.tolist(), scores[first].tolist(), strict=True):
                best.setdefault(document, score)
        rows = np.array(sorted(best.keys() - self._seen[query]), dtype=np.int64)
        self._seen[query].update(best)
        if self._request.allowed is not None and not self.is_exact:
            rows = rows[np.isin(rows, self._request.allowed)]
        return rows, np.array([best[row] for row in rows.tolist()], dtype=np.float64), lowest

    def _search_views(self, vectors: Floats, limit: int, expression: str) -> list[tuple[Ints, Floats]]:
        """Return the best views of each query: keys and Milvus' scores, falling."""
        parameters = search_parameters(self._kind, self._built, self._chosen, limit)

        found = self._connection.ask(
            "searching",
            "search",
            self._collection,
            data=list(vectors),
            anns_field="vec",
            limit=limit,
            filter=expression,
            output_fields=[],
            search_params={"metric_type": "IP", "params": parameters},
            consistency_level=self._connection.address.consistency,
        )
        return [_columns(hits) for hits in found]


def _columns(hits: Any) -> tuple[Ints, Floats]:
    keys = np.array(hits.ids, dtype=np.int64)
    scores: Floats = np.array(hits.distances, dtype=np.float32)
    order = np.argsort(-scores, kind="stable")
    return keys[order], scores[order]


def joined(parts: Sequence[ScoredPairs]) -> ScoredPairs:
    """Return the documents of all of them."""
    return ScoredPairs._make(np.concatenate(column) for column in zip(*parts, strict=True))


_NOTHING = ScoredPairs._make(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.float32, np.int64, np.int64))


class DenseList(NamedTuple):
    """The dense list of a query that is fused, the views that were scored for it, and the query's number there."""

    ranking: Ranking
    views: MilvusViews
    query: int


class CandidateViews(MilvusViews):
    """The views of the candidates of a search by terms, which are all there; those of its dense list are scored.

    Settings are not compared: such a search ends by reading them, and starts again where they have changed.
    """

    # The last request brings the texts of the documents that are shown.
    whole_records = 0

    def __init__(self, reader: Reader, settings: Any, allowed: Ints | None, dense: DenseList | None) -> None:
        super().__init__(reader, settings, allowed)
        self._dense = dense
        if dense is not None:
            self.records, self.lights = dense.views.records, dense.views.lights

    @property
    def dense_rows(self) -> Ints:
        """The documents of the dense list, by number; none of a search by terms only."""
        return np.empty(0, dtype=np.int64) if self._dense is None else self._dense.ranking.rows

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores; Changed where one is gone."""
        dense = self._dense
        if dense is None or len(queries) > 1:
            found = super().score(queries, pairs, scoring)
        else:
            is_known = np.isin(pairs.doc_rows, dense.ranking.rows)
            others = super().score(queries, Pairs(pairs.doc_rows[~is_known], pairs.which[~is_known]), scoring)
            found = joined([self._known(pairs.doc_rows[is_known], dense), others])
        if len(found.rows) < len(pairs.doc_rows):
            raise self._gone()
        return found

    def _known(self, rows: Ints, dense: DenseList) -> ScoredPairs:
        """Return documents of the dense list with the scores that it has given them."""
        numbers = rows.tolist()
        order = np.argsort(dense.ranking.rows)
        places = order[np.searchsorted(dense.ranking.rows, rows, sorter=order)]
        self.versions |= {(0, number): dense.views.versions[dense.query, number] for number in numbers}
        records = self.known_records(numbers)
        if len(records) < len(numbers):
            raise self._gone()
        ordinals = np.array([int(records[number]["ordinal"]) for number in numbers], dtype=np.int64)
        zeros = np.zeros(len(rows), dtype=np.int64)
        return ScoredPairs(zeros, rows, dense.ranking.scores[places], dense.ranking.slots[places], ordinals)

    def _lights(self, documents: Sequence[int]) -> list[Light]:
        return [light(row) for row in self.known_records(documents).values()]

    def _gone(self) -> Changed:
        return Changed(f"{self.reader.where}: candidates were deleted again and again; try later")
