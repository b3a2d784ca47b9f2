"""The search of `mvindex query` and `mvindex eval`: one index with parsed options. Imported when a command runs."""

from __future__ import annotations

from typing import Any

from mvindex.cli.flags import RerankFlags
from mvindex.index import IndexProtocol
from mvindex.records import Floats, QueryGroup, SearchResult
from mvindex.search.confidence import calibration_of
from mvindex.search.fusion import Fusion, Mode, parse_setting
from mvindex.search.plan import IndexState, make_plan
from mvindex.search.request import Queries, SearchRequest


class Searcher:
    """Searches one index for batches of questions."""

    def __init__(self, index: IndexProtocol, request: SearchRequest, rerank: RerankFlags, device: str | None) -> None:
        """Load the cross-encoder, if any.

        Raises:
            Unsupported: When the index has no lexical search, but the mode needs it.
            QueryError: When the depth of reranking is less than top_k.

        """
        info = index.info()
        state = IndexState(
            where=index.where,
            capabilities=index.capabilities,
            has_lexical=info.lexical is not None,
            temperature=index.temperature,
            fusion=parse_setting(info.fusion) or Fusion(),
            calibration=calibration_of(info.confidence, info.encoder, index.where),
        )
        self._plan = make_plan(request, state, has_text=True)
        self._index, self._request, self._rerank = index, request, rerank
        if rerank.rerank is not None:
            from mvindex.search.rerank import parse_rerank

            loaded = parse_rerank(rerank.rerank, rerank.rerank_on, rerank.rerank_depth, request, device)
            self._request = request.reranked(loaded)

    @property
    def described(self) -> dict[str, Any]:
        """The options as results name them, with the index's own values where none were given."""
        named = self._plan.as_json() | ({"operators": True} if self._request.operators else {})
        if self._request.diversity is not None:
            named["diversity"] = self._request.diversity
        if self._request.min_confidence is not None:
            named["min_confidence"] = self._request.min_confidence
        if (like := self._request.like) is not None:
            named["positives"] = list(like.positives)
            named |= {"negatives": list(like.negatives)} if like.negatives else {}
        return named | self._rerank.as_json()

    def search(self, texts: list[str], vectors: Floats | None = None) -> list[SearchResult]:
        """Return the result of each question.

        Args:
            texts: The questions.
            vectors: Their vectors, (q, d), where they are encoded already.

        """
        if self._request.like is not None:
            return self._index.run(self._request)
        request = self._request.of(texts)
        if vectors is not None and self._plan.mode is not Mode.LEXICAL:
            request = request.with_queries(Queries(vectors, texts))
        results: list[SearchResult] = request.answer(self._index.run(request))
        return results

    def search_group(self, texts: list[str], combine: str | None) -> SearchResult:
        """Return the result of several wordings of one question; combine: "max" where None."""
        [result] = self._index.run(self._request.of(QueryGroup(texts, combine or "max")))
        return result
