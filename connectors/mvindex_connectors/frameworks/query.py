"""One query to an index, dense, lexical or hybrid, and the search for hits that pass a framework's filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import LimitExceeded, QueryError
from mvindex.records import Document, Floats, Hit, SearchResult, check_count
from mvindex.search import diversity
from mvindex.search.confidence import confident
from mvindex.search.diversity import Diverse, unit_rows
from mvindex.search.request import check_min_confidence, check_offset
from mvindex.store.filters import Filter
from mvindex.store.lexical.tokenizer import parse_lexical
from mvindex_connectors.frameworks.citations import choose_best_snippets, dense_score, winning_text
from mvindex_connectors.frameworks.connection import AsyncIndexAPI
from mvindex_connectors.frameworks.filter_pushdown import PushedFilter

# Of hits that are fetched to be checked; a server may allow fewer.
_MOST_HITS = 10_000
# Options of a search that must know all documents that a filter allows: reranking and diversity are of so many of the
# best, and hits of some fields only cannot be checked.
_WHOLE = ("rerank", "diversity", "fields")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query, for views and for terms.

    Attributes:
        source: What views are searched with: a (d,) vector, or a text that the index encodes; None for lexical search.
        text: The text for lexical search, a reranker and citations; None where the source is a text, or there is none.

    """

    source: Any
    text: str | None = None

    @property
    def vector(self) -> Floats | None:
        """The vector that views are scored with; None for a text that the index encodes, or for lexical search."""
        return None if self.source is None or isinstance(self.source, str) else self.source

    async def search(
        self, api: AsyncIndexAPI, top_k: int, condition: Filter | None, options: Mapping[str, Any]
    ) -> SearchResult:
        """Return the best documents; ValueError for lexical search or a reranker without a text.

        Args:
            api: The index.
            top_k: Number of documents.
            condition: A filter of the index.
            options: Other options of IndexProtocol.search().

        """
        source, search = self.source, dict(options)
        if is_like(options):
            # A query beside documents is refused there.
            similar: SearchResult = await api.search(source, top_k, condition, **search)
            return similar
        mode = search.get("mode", "auto")
        if (mode not in ("auto", "dense") or search.get("rerank") is not None) and not isinstance(source, str):
            text = search.pop("text", None) or self.text
            if text is None:
                raise ValueError(f"mode={mode!r} and rerank: expected the query's text, got none. Give text=...")
            source, search = (text, search) if mode == "lexical" else (source, {**search, "text": text})
        elif self.text is not None and not isinstance(source, str):
            search["text"] = self.text  # for terms and citations
        result: SearchResult = await api.search(source, top_k, condition, **search)
        return await _with_best_snippets(api, source, result) if mode == "lexical" and result.hits else result

    async def is_hybrid(self, api: AsyncIndexAPI, options: Mapping[str, Any]) -> bool:
        """Return whether a search with these options is hybrid."""
        mode = options.get("mode", "auto")
        if mode != "auto" or (self.text is None and not isinstance(self.source, str)):
            return bool(mode == "hybrid")
        info = await api.info()
        return info is not None and info.lexical is not None


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """The documents that a query is about.

    Attributes:
        pushed: The part of the filter that the index evaluates.
        passes: The check of one document, for the rest of the filter.

    """

    pushed: PushedFilter
    passes: Callable[[Document | Hit], bool]


async def search_filtered(
    api: AsyncIndexAPI, query: Query, plan: FilterPlan, top_k: int, options: Mapping[str, Any]
) -> SearchResult:
    """Return the top_k best documents that pass the plan, certified as the search is.

    Where the index can evaluate a part of the filter only, hits are checked one by one, and more are fetched until
    enough pass; where few of many do, all documents are checked first.
    """
    pushed = plan.pushed
    if pushed.is_exact:
        return await query.search(api, top_k, pushed.filter, options)
    # Fusion scales by the documents that the filter allows.
    if not (any(options.get(name) is not None for name in _WHOLE) or await query.is_hybrid(api, options)):
        found = await _search_checked(api, query, plan, top_k, options)
        if found is not None:
            return found
    allowed = [stored.id async for stored in api.scan(pushed.filter) if plan.passes(stored)]
    return await query.search(api, top_k, {"and": [pushed.filter or {}, {"id": {"in": allowed}}]}, options)


async def _search_checked(
    api: AsyncIndexAPI, query: Query, plan: FilterPlan, top_k: int, options: Mapping[str, Any]
) -> SearchResult | None:
    """Return what search_filtered() does, of hits that are checked one by one; None where few of many pass."""
    options = dict(options)
    if options.get("cursor") is not None:
        raise ValueError(
            "cursor: expected a filter that the index evaluates whole, got one that it cannot; give offset="
        )
    offset = options.pop("offset", 0)
    check_offset(offset)
    if (least := options.get("min_confidence")) is not None:
        # Hits are left out of those that pass, so that all are fetched.
        least, options["min_confidence"] = check_min_confidence(least), 0.0
    limit = offset + top_k
    while True:
        try:
            result = await query.search(api, limit, plan.pushed.filter, options)
        except LimitExceeded:
            if limit == offset + top_k:
                raise
            return None
        hits = tuple(hit for hit in result.hits if plan.passes(hit))
        if len(hits) >= offset + top_k or len(result.hits) < limit:
            kept = replace(result, hits=hits[offset : offset + top_k])
            return kept if least is None else confident([kept], least)[0]
        limit *= 4
        if limit > _MOST_HITS:
            return None


def is_like(options: Mapping[str, Any]) -> bool:
    """Return whether documents stand for the query of a search with these options."""
    return any(options.get(name) for name in ("like", "positives", "negatives"))


def is_blank(text: object) -> bool:
    """Return whether this is a query text that says nothing: with a filter it stands for the documents that match."""
    return isinstance(text, str) and not text.strip()


async def list_first(api: AsyncIndexAPI, plan: FilterPlan, top_k: int) -> list[Document]:
    """Return the first top_k documents that pass the plan, in the order in which they were first added."""
    check_count("top_k", top_k)
    found: list[Document] = []
    async for stored in api.scan(plan.pushed.filter, top_k if plan.pushed.is_exact else None):
        if plan.passes(stored):
            found.append(stored)
        if len(found) == top_k:
            break
    return found


async def _with_best_snippets(api: AsyncIndexAPI, text: str, result: SearchResult) -> SearchResult:
    """Return the hits of a lexical search with their best snippets, also where a framework made the views."""
    info = await api.info()
    tokenizer = parse_lexical(None if info is None else info.lexical)
    return result if tokenizer is None else replace(result, hits=choose_best_snippets(text, result.hits, tokenizer))


class MMR(NamedTuple):
    """The parameters of maximal marginal relevance.

    Attributes:
        top_k: Number of documents.
        depth: Number of documents to choose from.
        relevance_weight: 1 for relevance alone, 0 for diversity alone.

    """

    top_k: int
    depth: int
    relevance_weight: float

    def checked(self, names: tuple[str, str, str]) -> MMR:
        """Return the parameters; QueryError, by the framework's names, for those that cannot be."""
        check_count(names[0], self.top_k)
        check_count(names[1], self.depth)
        weight = self.relevance_weight
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight <= 1:
            raise QueryError(f"{names[2]}: expected a number from 0 to 1, got {weight!r:.60}")
        return self

    @staticmethod
    def options(options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the search whose hits MMR orders; QueryError for fields=, since it reads them."""
        if options.get("fields") is not None:
            raise QueryError("fields= does not go with MMR, which reads the hits; give one of them")
        return {"mode": "dense", **options}


def choose_diverse(result: SearchResult, views: Floats, query: Floats | None, mmr: MMR) -> Diverse:
    """Return the rows of the hits that MMR chooses.

    The relevance of a hit is its score by views, divided by the lengths of query and view: a cosine, where scores are
    inner products.

    Args:
        result: The hits of a search.
        views: (n, d), the one view of each hit that stands for it.
        query: (d,) vector; None where documents stand for the query, whose length counts as 1.
        mmr: The parameters.

    """
    length = 1.0 if query is None else float(np.linalg.norm(query.astype(np.float64)))
    lengths = np.linalg.norm(views.astype(np.float64), axis=1) * length
    scores = [(dense_score(hit), hit.score) for hit in result.hits]
    relevance = np.array([score if dense is None else dense for dense, score in scores])
    relevance /= np.where(lengths == 0, 1, lengths)
    return diversity.choose_diverse(relevance, unit_rows(views), mmr.top_k, mmr.relevance_weight)


async def winning_views(
    api: AsyncIndexAPI, result: SearchResult, embed: Callable[[list[str]], Awaitable[Floats]]
) -> Floats:
    """Return the view of each hit that won the query, (n, d).

    A server sends no views: there the texts that they stand for are embedded, else the documents' texts.
    """
    views = await api.winning_views(result.hits)
    if views is not None:
        return views
    return await embed([winning_text(hit) or hit.text for hit in result.hits])
