"""Search of an adopted index: rows are fetched in growing rounds until top_k distinct documents are certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.errors import Unsupported
from mvindex.kernels.score import document_scores
from mvindex.records import Field, Floats, Hit, SearchResult
from mvindex.search.confidence import judge_of
from mvindex.search.hits import cites_of, hits_of
from mvindex.search.hybrid import of_views
from mvindex.search.plan import Plan
from mvindex.search.ranking import Ranking
from mvindex.search.request import Queries
from mvindex_connectors.adopted.source import AdoptedDocument, ViewSource, score_sums

# Rows of the first round for each document that is asked for, and how many times more each next round has.
_FIRST, _GROWTH = 4, 4


@dataclass(frozen=True, slots=True)
class AdoptedSearch:
    """Dense search of an adopted index, by the best view or by DRPQ."""

    source: ViewSource

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a dense result for each query."""
        where, texts = self.source.where, queries.texts
        if queries.combine is not None:
            raise Unsupported(f"{where}: an adopted index searches no query groups; search each query")
        if plan.filter is not None:
            raise Unsupported(f"{where}: an adopted index takes no filter; copy it: {self.source.copied_by}")
        if plan.exact and not self.source.is_exact:
            raise Unsupported(
                f"{where}: exact=True needs an index that ranks all rows, got {self.source.kind}; copy it: "
                f"{self.source.copied_by}"
            )
        return [
            self._result(query, plan, None if texts is None else texts[number])
            for number, query in enumerate(queries.vectors)
        ]

    def close(self) -> None:
        """Do nothing: there are no files to let go of."""

    def copy_bytes(self) -> None:
        """Return None: there are no copies of views."""

    def mapped_bytes(self) -> None:
        """Return None: there are no copies of views."""

    def _result(self, query: Floats, plan: Plan, text: str | None) -> SearchResult:
        source, top_k = self.source, plan.top_k
        most = min(source.max_limit, max(source.num_rows, 1))
        limit, rounds = min(_FIRST * top_k, most), 0
        if plan.candidates is not None:
            limit = most = min(plan.candidates, most)
        found: dict[str, AdoptedDocument] = {}
        while True:
            ranked = source.rank(query, limit)
            rounds += 1
            new = [doc_id for doc_id in dict.fromkeys(ranked.documents) if doc_id not in found]
            found |= source.read(new, with_text=Field.TEXT in plan.fields)
            best = _best(source, list(found.values()), query, plan)
            is_certain = ranked.is_all or self._is_certain(query, ranked.scores, best, top_k)
            if is_certain or limit >= most or (len(found) >= top_k and not source.is_exact):
                break
            limit = min(limit * _GROWTH, most)
        ranking = best._replace(
            exact=source.is_exact and is_certain,
            short_by=0 if ranked.is_all else max(0, top_k - len(best.rows)),
            rounds=rounds,
        ).page(plan.offset)
        documents = list(found.values())
        winners = zip(ranking.rows.tolist(), ranking.slots.tolist(), strict=True)
        stored = {row: documents[row].of_view(slot) for row, slot in winners}
        cites = None
        if text is not None and Field.TEXT in plan.fields:
            cites = cites_of(text, ranking.rows.tolist(), stored, None, plan.quoting)
        estimate = judge_of(plan.mode, plan.model, of_views(best).evidence)
        hits: tuple[Hit, ...] = hits_of(ranking, stored, plan.fields, None, cites, estimate)
        return SearchResult(hits, ranking.exact, ranking.short_by, ranking.rounds)

    def _is_certain(self, query: Floats, scores: Floats, best: Ranking, top_k: int) -> bool:
        """Return whether no row that was not seen can change the result: a document scores at most its best view."""
        if not self.source.is_exact or len(best.rows) < top_k or not len(scores):
            return False
        return bool(best.scores[top_k - 1] > scores[-1] + 2 * self.source.error(query))


def _best(source: ViewSource, documents: Sequence[AdoptedDocument], query: Floats, plan: Plan) -> Ranking:
    """Return the best documents: by falling scores of their stored views, then in the order of their first rows."""
    if not documents:
        nothing = np.empty(0, dtype=np.int64)
        return Ranking(nothing, nothing.astype(np.float32), nothing, False, 0, 0, 0)
    sums = score_sums(source.metric, np.concatenate([one.views for one in documents]), query)
    starts = np.cumsum([0, *(len(one.views) for one in documents)])
    scores, slots = document_scores(sums, starts, plan.scoring)
    ordinals = np.array([one.ordinal for one in documents])
    order = np.lexsort((ordinals, -scores))[: plan.top_k]
    return Ranking(order, scores[order], slots[order], False, 0, 0, len(documents))
