"""The views of the candidates of a hybrid search in Milvus: those of its dense list are not read and scored again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.score import Scoring
from mvindex.records import Floats, Ints
from mvindex.search.ranking import Pairs, Ranking, ScoredPairs
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.records import Light, light
from mvindex_connectors.milvus.search import Changed, MilvusViews, joined


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
