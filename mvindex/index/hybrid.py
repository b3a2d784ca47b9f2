"""Results of lexical and hybrid search, over the parts of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mvindex.errors import QueryError
from mvindex.index.options import Asked
from mvindex.index.results import hits_of
from mvindex.lexical.bm25 import LexicalSearch
from mvindex.records import Floats, SearchResult
from mvindex.scoring.fusion import Fusion
from mvindex.search import Ranking
from mvindex.search.hybrid import Hybrid, Mixed, candidates_of, hybrid_rankings, lexical_rankings
from mvindex.tuning.fusion import Judged

# Questions answered at once: bounds the memory of their candidates.
_BATCH = 256

Dense = Callable[[Floats], list[Ranking]]


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked: texts; their vectors, (q, d), where views count as well; and how both are fused."""

    texts: Sequence[str]
    vectors: Floats | None
    fusion: Fusion

    def batches(self) -> list[Questions]:
        """The same, some at a time."""
        begins = range(0, len(self.texts), _BATCH)
        return [
            Questions(
                self.texts[begin : begin + _BATCH],
                None if self.vectors is None else self.vectors[begin : begin + _BATCH],
                self.fusion,
            )
            for begin in begins
        ]


def mixed_results(
    search: LexicalSearch, dense: Dense | None, questions: Questions, wanted: Asked
) -> list[SearchResult]:
    """One for each of the questions. dense: the rankings of vectors by views, deep enough (see depth_of)."""
    results: list[SearchResult] = []
    for batch in questions.batches():
        if dense is None or batch.vectors is None:
            found = lexical_rankings(search, batch.texts, wanted.top_k)
        else:
            how = Hybrid(wanted.scoring, batch.fusion, wanted.top_k)
            found = hybrid_rankings(search, batch.texts, batch.vectors, dense(batch.vectors), how)
        pairs = zip(batch.texts, found, strict=True)
        results += [_result(search, text, mixed, dense is None) for text, mixed in pairs]
    return results


def judged_candidates(
    search: LexicalSearch, dense: Dense, questions: Questions, relevant: Sequence[Mapping[str, float]], wanted: Asked
) -> Iterator[Judged]:
    """Of each question what the fusion would order, and what that is worth. relevant: gains by id, of each question."""
    how = Hybrid(wanted.scoring, questions.fusion, wanted.top_k)
    worth = iter(relevant)
    for batch in questions.batches():
        if batch.vectors is None:
            raise QueryError("fusion is measured with the vectors of the questions")
        for text, vector, ranking in zip(batch.texts, batch.vectors, dense(batch.vectors), strict=True):
            gains = {doc_id: gain for doc_id, gain in next(worth).items() if gain > 0}
            found = candidates_of(search, text, vector, ranking, how)
            by_row = {row: gains[doc_id] for doc_id, row in search.rows_of(gains).items()}
            values = [by_row.get(row, 0.0) for row in found.rows.tolist()]
            yield Judged(found, np.array(values, dtype=np.float64), -np.sort(-np.array(list(gains.values()), float)))


def _result(search: LexicalSearch, text: str, mixed: Mixed, is_lexical: bool) -> SearchResult:
    """is_lexical: which snippet is shown is then said by words, too."""
    ranking = mixed.ranking
    stored = search.documents(ranking.rows)
    if is_lexical:
        slots = search.slots(text, [stored[row] for row in ranking.rows.tolist()])
        ranking = ranking._replace(slots=np.array(slots, dtype=np.int64))
    pairs = zip(hits_of(ranking, stored), mixed.components, strict=True)
    hits = tuple(replace(hit, components=components) for hit, components in pairs)
    return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)
