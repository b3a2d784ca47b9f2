"""Scores of documents in Milvus for a query group; the search itself is that of an index in a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mvindex.kernels.score import document_scores, view_sums
from mvindex.records import Combine, Floats, Ints
from mvindex.search import Ranking
from mvindex.search.group import Scored, combine_scores
from mvindex_connectors.milvus.records import Light
from mvindex_connectors.milvus.search import Answer, MilvusSearch

_NO_ROWS = np.empty(0, dtype=np.int64)


class ScoredVersion(NamedTuple):
    """The version of a document that was scored, and its view scores, (k,), for the query that has the best of them."""

    version: int
    query: int
    view_scores: Floats


class MilvusScorer:
    """The scores of one group, (m, d) float32, for one state of the settings.

    Attributes:
        versions: What was scored, by document number: of the documents that may still be among the best.

    """

    def __init__(
        self, search: Callable[[int], MilvusSearch], num_allowed: int, queries: Floats, combine: Combine
    ) -> None:
        self._search, self._num_allowed = search, num_allowed
        self._queries, self._combine = queries, combine
        self.versions: dict[int, ScoredVersion] = {}

    def count(self) -> int:
        """Return the number of allowed documents."""
        return self._num_allowed

    def search(self, top_k: int) -> list[Ranking]:
        """Return the ranking of each vector for a number of documents."""
        return [_ranking(answer) for answer in self._search(top_k).run(self._queries)]

    def score(self, rows: Ints) -> Scored:
        """Return these documents, those that still exist, with their combined scores."""
        self.versions = {}
        best = self._scored([])
        for documents in self._search(1).documents(rows.tolist()):
            best = best.joined(self._scored(documents))
        return best

    def score_all(self, top_k: int) -> tuple[Scored, int]:
        """Return the top_k of all allowed documents, each of them scored, and their number."""
        self.versions = {}
        best, num_scored = self._scored([]), 0
        for documents in self._search(1).all_documents():
            best = best.joined(self._scored(documents)).top(top_k)
            self.versions = {number: self.versions[number] for number in best.rows.tolist()}
            num_scored += len(documents)
        return best, num_scored

    def _scored(self, documents: Sequence[tuple[Light, Floats]]) -> Scored:
        """Score documents with their views by every query of the group."""
        if not documents:
            return Scored(_NO_ROWS, np.empty(0, dtype=np.float32), _NO_ROWS, _NO_ROWS)
        packed = np.concatenate([rows for _, rows in documents])
        starts = np.append(0, np.cumsum([len(rows) for _, rows in documents]))
        sums = np.stack([view_sums(packed, query) for query in self._queries])
        scoring = self._search(1).scoring
        found = [document_scores(own, starts, scoring) for own in sums]
        scores = np.stack([each.scores for each in found])
        slots = np.stack([each.slots for each in found])
        winners = scores.argmax(axis=0)
        best_views = np.maximum.reduceat(sums, starts[:-1], axis=1).argmax(axis=0)
        numbers = [light.document for light, _ in documents]
        for place, (light, _) in enumerate(documents):
            query = int(best_views[place])
            own = sums[query, starts[place] : starts[place + 1]].astype(np.float32)
            self.versions[light.document] = ScoredVersion(light.version, query, own)
        return Scored(
            np.array(numbers, dtype=np.int64),
            combine_scores(scores, self._combine),
            slots[winners, np.arange(len(documents))],
            np.array([light.ordinal for light, _ in documents], dtype=np.int64),
        )


def _ranking(answer: Answer) -> Ranking:
    best = answer.best
    return Ranking(best.documents, best.scores, best.slots, answer.exact, 0, answer.rounds, best.num_scored)
