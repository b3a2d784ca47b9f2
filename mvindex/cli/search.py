"""The search of `mvindex query` and `mvindex eval`: one index with parsed options. Imported when a command runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mvindex.cli.options import RerankOptions
from mvindex.index import IndexProtocol
from mvindex.records import Floats, QueryGroup, SearchResult
from mvindex.search.fusion import Fusion, Mode, parse_setting
from mvindex.search.options import SearchOptions
from mvindex.store.protocol import Operation

if TYPE_CHECKING:
    from mvindex.search.rerank import Rerank


def describe_search(index: IndexProtocol, options: SearchOptions, rerank: RerankOptions | None) -> dict[str, Any]:
    """Return the options as results name them, with the index's own values where none were given."""
    options = _with_mode(index, options)
    tuned = index.info().fusion if options.mode is Mode.HYBRID else None
    fusion = parse_setting(tuned) or Fusion()
    named = options.with_defaults(index.temperature, fusion).as_json()
    return named if rerank is None else named | rerank.as_json()


def _with_mode(index: IndexProtocol, options: SearchOptions) -> SearchOptions:
    """Return the options with the mode that texts are searched in."""
    return options.with_mode(has_text=True, has_lexical=options.mode is Mode.AUTO and index.info().lexical is not None)


class Searcher:
    """Searches one index for batches of questions."""

    def __init__(
        self, index: IndexProtocol, options: SearchOptions, rerank: RerankOptions | None, device: str | None
    ) -> None:
        """Load the cross-encoder, if any.

        Raises:
            Unsupported: When the index has no lexical search, but the mode needs it.
            QueryError: When the depth of reranking is less than top_k.

        """
        options = _with_mode(index, options)
        if options.mode is not Mode.DENSE:
            index.capabilities.check(Operation.LEXICAL, index.where)
        self._index, self._options = index, options
        self._rerank: Rerank | None = None
        if rerank is not None:
            from mvindex.search.rerank import parse_rerank

            text = rerank.text.value
            self._rerank = parse_rerank(rerank.checkpoint, text, rerank.depth, options.top_k, device)

    def search(self, texts: list[str], vectors: Floats | None = None) -> list[SearchResult]:
        """Return the result of each question.

        Args:
            texts: The questions.
            vectors: Their vectors, (q, d), where they are encoded already.

        """
        mode = self._options.mode
        query = texts if vectors is None or mode is Mode.LEXICAL else vectors
        text = texts if query is vectors and mode is not Mode.DENSE else None
        if self._rerank is None:
            found = self._index.search_with_options(query, self._options, text=text)
            return cast("list[SearchResult]", found)
        candidates = self._index.search_with_options(query, replace(self._options, top_k=self._rerank.depth), text=text)
        return cast("list[SearchResult]", self._rerank.reranked(texts, candidates))

    def search_group(self, texts: list[str], combine: str | None) -> SearchResult:
        """Return the result of several wordings of one question; combine: "max" where None."""
        group = QueryGroup(texts, combine or "max")
        return cast(SearchResult, self._index.search_with_options(group, self._options))
