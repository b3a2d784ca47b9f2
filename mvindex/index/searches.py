"""Searches: the one search() of an index in this process, behind a server, and in served shards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from mvindex.records import QueryGroup, SearchResult
from mvindex.search.request import QueryLike, SearchRequest, parse_request
from mvindex.store.filters import Filter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mvindex.search.request import SearchKeywords


class Searches(Protocol):
    """The search of an index; a request goes through its one door."""

    # Where a cross-encoder that search(rerank=...) names is loaded; None for the best device there is.
    rerank_device: str | None = None

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        query: str | QueryGroup,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> SearchResult: ...
    @overload
    def search(
        self,
        query: Sequence[str] | Sequence[QueryGroup],
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[SearchResult]: ...
    @overload
    def search(
        self, query: None = None, top_k: int = 10, filter: Filter | None = None, **options: Unpack[SearchKeywords]
    ) -> SearchResult: ...
    @overload
    def search(
        self, query: QueryLike, top_k: int = 10, filter: Filter | None = None, **options: Unpack[SearchKeywords]
    ) -> Any: ...
    def search(
        self,
        query: QueryLike | None = None,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Any:
        """Return the best documents of a query: min(top_k, documents that pass the filter) distinct ones.

        Args:
            query: A text or a (d,) vector for one result; texts or a (q, d) array for a list of results. A QueryGroup
                for one result by several queries together, several groups for a list of results; text= is then one
                text for each group, and rerank= is refused. None where documents stand for it: like= or positives=.
            top_k: Number of documents.
            filter: A metadata filter.
            **options: The options below.
            scoring: "max", the best view's score, or "drpq", the mean of the view scores s weighted by
                softmax(s / T) (DRPQ eq. 4-6).
            exact: Demand a certified answer, whatever engine is active.
            temperature: T of "drpq"; the index's own by default.
            candidates: For "drpq": look at no more than so many view hits, at least top_k documents (the paper's
                fixed depth, 1,000 k of them); the result is exact only where that is proven all the same.
            mode: "dense", by views; "lexical", by terms (BM25), only documents that have one of them; "hybrid", both,
                fused, for indexes with a lexical side; "auto", hybrid for a query with a text where the index has a
                lexical side, else dense. With fusion, weights or operators auto is hybrid. The result says which it
                was.
            fusion: For "hybrid": "zscore", "minmax" or "rrf"; the index's own by default.
            weights: For "hybrid": weights of the dense and the lexical score; the index's own by default.
            text: The text of each query, for lexical search and citations; the query itself by default. With vectors,
                "lexical" and "hybrid" need it, "auto" is dense and "dense" cites nothing without it.
            operators: For "hybrid" and "lexical": "quoted phrases" and +required words of the text must occur in a
                document's title or text, -excluded ones must not. By default these signs mean nothing.
            offset: Number of documents at the head of the ranking that are left out. Beyond its end a result is empty.
            cursor: "" for the first page of a query, the result's next for the page after it: no document comes twice,
                also where documents are added and deleted in between.
            like: The id of a document that stands for the query: what is near to it is searched for by views.
            positives: Ids of several such documents. A document's score is the highest of a view of its own for a view
                of any of them; with "drpq" its views are aggregated first. The documents themselves are left out.
            negatives: Ids of documents: what is as near to one of them as to all positives, or nearer, is left out.
            citations: Number of citations of each hit, in its attribute citations: distinct, best first.
            context: Number of sentences before and after each of these.
            max_chars: Most characters of the citations of a hit with what stands around them; whole sentences are left
                out where there is no room. context and a limit without citations ask for one.
            max_tokens: The same in tokens of a language model, counted rather too high than too low: four letters,
                three digits, a mark or a gap are one.
            diversity: 0 to 1: order the best 100 documents by maximal marginal relevance, 0 by relevance alone;
                top_k and offset are then 100 at most together. Near-duplicates come behind all others, and the
                result names them in duplicates_of.
            min_confidence: 0 to 1: leave out hits of a lower confidence; the result counts them in below_confidence. A
                result without hits then is "no answer". Of single queries by the best view, where the index has a
                calibration, be it that of its encoder or its own.
            fields: "text", "title", "metadata": those of them that hits carry; all of them by default. Without the text
                a hit has no span, snippet or citation, and what is left out need not be read: () gives ids and scores.
            rerank: A function of the query and the hits that returns a score for each, higher is better, or a
                checkpoint of a cross-encoder.
            rerank_on: For a checkpoint: "snippet" (the default) or "text".
            rerank_depth: Number of documents that are reranked; max(50, top_k) by default.

        Raises:
            QueryError: For an invalid value, or options that do not go together.
            NotCalibrated: For min_confidence where hits have no confidence.
            CursorExpired: For the cursor of another index or query, or of too many documents.
            Unsupported: For lexical search in an index without a lexical side.

        """
        request = parse_request(query, top_k, filter, device=self.rerank_device, **options)
        return request.answer(self.run(request))

    @abstractmethod
    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, as the index orders documents: before reranking."""
