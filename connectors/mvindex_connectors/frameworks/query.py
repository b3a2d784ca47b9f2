"""One question to an index, by views, by words, or by both; and of what is found, what a framework's filter passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mvindex.lexical.tokenizer import parse_lexical
from mvindex.records import Document, Floats, Hit, SearchResult
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.best_snippet import worded
from mvindex_connectors.frameworks.connection import Reach
from mvindex_connectors.frameworks.filter_pushdown import Pushed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question: what views are asked for (a vector, or a text where the index encodes by itself), and its words."""

    query: Any
    text: str | None = None

    @property
    def vector(self) -> Floats | None:
        """What views are scored by; None where only the index can tell, or words alone are asked for."""
        return None if self.query is None or isinstance(self.query, str) else self.query

    async def search(
        self, reach: Reach, top_k: int, condition: Filter | None, options: Mapping[str, Any]
    ) -> SearchResult:
        """What Index.search() finds; ValueError for a search by words without words."""
        query, search = self.query, dict(options)
        mode = search.get("mode", "dense")
        if (mode != "dense" or search.get("rerank") is not None) and not isinstance(query, str):
            text = search.pop("text", None) or self.text
            if text is None:
                raise ValueError(f"mode={mode!r} and rerank want the question's text as well: text=...")
            query, search = (text, search) if mode == "lexical" else (query, {**search, "text": text})
        result: SearchResult = await reach.search(query, top_k, condition, **search)
        return await _said(reach, query, result) if mode == "lexical" and result.hits else result


class Wanted(NamedTuple):
    """Which documents a question is about: what an index can tell of it, and the check of one for the rest."""

    pushed: Pushed
    passes: Callable[[Document | Hit], bool]


async def found(reach: Reach, asked: Asked, wanted: Wanted, top_k: int, search: Mapping[str, Any]) -> SearchResult:
    """The top_k best documents that are wanted, certified as the search is.

    What the index cannot tell of the filters is checked on hit after hit; it is asked for more until enough pass.
    """
    pushed = wanted.pushed
    if pushed.is_exact:
        return await asked.search(reach, top_k, pushed.filter, search)
    if search.get("mode") == "hybrid" or search.get("rerank") is not None:
        # Fusion scales by what the filter allows, and so many hits are reranked: the index has to know that.
        allowed = [stored.id async for stored in reach.listed(pushed.filter) if wanted.passes(stored)]
        return await asked.search(reach, top_k, {"and": [pushed.filter or {}, {"id": {"in": allowed}}]}, search)
    limit = top_k
    while True:
        result = await asked.search(reach, limit, pushed.filter, search)
        hits = tuple(hit for hit in result.hits if wanted.passes(hit))
        if len(hits) >= top_k or len(result.hits) < limit:
            return replace(result, hits=hits[:top_k])
        limit *= 4


async def _said(reach: Reach, text: str, result: SearchResult) -> SearchResult:
    """The hits, each with the snippet that says most of the text, also where a framework made the views."""
    info = await reach.info()
    kind = parse_lexical(None if info is None else info.lexical)
    return result if kind is None else replace(result, hits=worded(text, result.hits, kind))
