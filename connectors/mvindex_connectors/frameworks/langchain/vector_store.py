"""MVIndexVectorStore: an index as LangChain's vector store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from mvindex.encoder import EncoderLike
from mvindex.encoder.checkpoint.hub import DEFAULT
from mvindex.errors import ConfigError, QueryError
from mvindex.ingest import IngestHooks
from mvindex.records import CountCallback, Floats, SearchResult, check_count, sliced
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import HIT_KEY, CitedMetadata, citations, dense_score
from mvindex_connectors.frameworks.connection import AsyncIndexAPI, IndexHandle, IndexLike
from mvindex_connectors.frameworks.filter_pushdown import PushedFilter
from mvindex_connectors.frameworks.langchain.documents import (
    documents_of,
    original_document,
    stored_document,
    with_ids,
)
from mvindex_connectors.frameworks.query import (
    MMR,
    FilterPlan,
    Query,
    choose_diverse,
    is_blank,
    is_like,
    list_first,
    winning_views,
)
from mvindex_connectors.frameworks.views import (
    embed_in_parts,
    embeddings_of,
    group_rows,
    show_added,
    spans_of,
    unit_rows,
)

# Documents embedded and committed at once.
BATCH = 1000


_MMR_NAMES = ("k", "fetch_k", "lambda_mult")


class MVIndexVectorStore(VectorStore):
    """An index as a vector store; adding an id again replaces its document.

    Scores are cosines, higher is better. A document that was found carries a citation, metadata["mvindex"], and
    equals the document that was added.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        index: IndexLike,
        embedding: Embeddings | None = None,
        *,
        encoder: EncoderLike = DEFAULT,
        max_snippets: int = 8,
        lexical: str | None = None,
        cites: bool = True,
        has_view_scores: bool = True,
        progress: bool | None = None,
        relevance_score_fn: Callable[[float], float] | None = None,
    ) -> None:
        """Make a store over an index, which is opened when it is first needed, and created by the first write.

        Args:
            index: A directory, milvus://..., milvus-lite:..., grpc://host:port/name, or an open index.
            embedding: The model for texts and queries: every snippet of a text becomes a view. None leaves it to the
                index's own multi-view encoder.
            encoder: The encoder of a new index without `embedding`.
            max_snippets: With `embedding`: most snippets of a text; 1 makes one view of the whole text.
            lexical: The terms of a new index, "unicode", "english", "auto" (by the first texts) or "none". In a
                directory or in Milvus "auto" is the default.
            cites: Add the citation to what is found.
            has_view_scores: Add every view's score to the citation; one more call on a server and in Milvus.
            progress: Show a bar on stderr while documents are added; by default on a terminal, for 50 or more.
            relevance_score_fn: Maps a cosine to 0..1; (1 + score) / 2 by default. Of hybrid search the cosine is the
                dense score; of lexical search and a reranker it gets their scores, which the default refuses.

        Raises:
            ConfigError: For an invalid value.

        """
        if embedding is not None and not isinstance(embedding, Embeddings):
            raise ConfigError(
                f"embedding: expected langchain_core.embeddings.Embeddings, got {type(embedding).__name__}"
            )
        check_count("max_snippets", max_snippets)
        self._handle = IndexHandle(index, encoder if embedding is None else None, None, lexical)
        self._embedding, self._max_snippets = embedding, max_snippets
        self._cites, self._has_view_scores, self._progress = cites, has_view_scores, progress
        self._relevance = relevance_score_fn or relevance_of_cosine

    @classmethod
    def from_documents(
        cls,
        documents: list[Document],
        embedding: Embeddings | None = None,
        *,
        ids: list[str] | None = None,
        index: IndexLike,
        **options: Any,
    ) -> MVIndexVectorStore:
        """Return a store over the index with these documents added.

        Args:
            documents: The documents.
            embedding: As of the store.
            ids: An id for each document; their own by default, else new ones.
            index: As of the store.
            **options: Other arguments of the store.

        """
        store = cls(index, embedding, **options)
        store.add_documents(documents, ids=ids)
        return store

    @classmethod
    async def afrom_documents(
        cls,
        documents: list[Document],
        embedding: Embeddings | None = None,
        *,
        ids: list[str] | None = None,
        index: IndexLike,
        **options: Any,
    ) -> MVIndexVectorStore:
        """Do what from_documents() does, awaited."""
        store = cls(index, embedding, **options)
        await store.aadd_documents(documents, ids=ids)
        return store

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: IndexLike,
        **options: Any,
    ) -> MVIndexVectorStore:
        """Return a store over the index with these texts added.

        Args:
            texts: The texts.
            embedding: As of the store.
            metadatas: A dict for each text.
            ids: An id for each text; new ones by default.
            index: As of the store.
            **options: Other arguments of the store.

        """
        store = cls(index, embedding, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: IndexLike,
        **options: Any,
    ) -> MVIndexVectorStore:
        """Do what from_texts() does, awaited."""
        store = cls(index, embedding, **options)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store

    @property
    def embeddings(self) -> Embeddings | None:
        """The model that embeds; None where the index's own encoder does."""
        return self._embedding

    def warm_up(self) -> bool:
        """Load what searches need, so that the first does not wait; return whether all is loaded.

        The encoder of the index, its engine and compiled loops. Adding documents loads the encoder too.
        """
        return self._handle.warm_up()

    def close(self) -> None:
        """Close the index unless it was given open; the next call opens it again."""
        self._handle.close()

    async def aclose(self) -> None:
        """Close the index, and the connection of the running event loop."""
        await self._handle.aclose()

    def add_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """Add documents; return their ids.

        Args:
            documents: The documents; of an id that comes twice the last one counts.
            **options: ids, a list; the documents' own ids by default, else new ones.

        """
        return self._handle.run_sync(lambda api: self._add(api, documents, options.get("ids")))

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """Do what add_documents() does, awaited."""
        return await self._handle.run_async(lambda api: self._add(api, documents, options.get("ids")))

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Add texts; return their ids.

        Args:
            texts: The texts.
            metadatas: A dict for each text.
            ids: An id for each text; new ones by default. A known id replaces its document.
            **options: Ignored.

        """
        return self.add_documents(documents_of(texts, metadatas), ids=ids)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Do what add_texts() does, awaited."""
        return await self.aadd_documents(documents_of(texts, metadatas), ids=ids)

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        filter: dict[str, Any] | None = None,
        all: bool = False,
        **options: Any,
    ) -> bool:
        """Delete documents.

        Args:
            ids: Ids; unknown ones are ignored.
            filter: A filter of the index with a condition.
            all: Delete every document.
            **options: Ignored.

        Returns:
            True.

        Raises:
            QueryError: Unless exactly one of ids, filter and all is given.

        """
        return self._handle.run_sync(lambda api: _delete(api, ids, filter, all))

    async def adelete(
        self,
        ids: list[str] | None = None,
        *,
        filter: dict[str, Any] | None = None,
        all: bool = False,
        **options: Any,
    ) -> bool:
        """Do what delete() does, awaited."""
        return await self._handle.run_async(lambda api: _delete(api, ids, filter, all))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents that exist, in the order of the ids."""
        return self._handle.run_sync(lambda api: _get(api, ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Do what get_by_ids() does, awaited."""
        return await self._handle.run_async(lambda api: _get(api, ids))

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the k best documents, distinct, best first.

        Args:
            query: The text. "" with a filter lists the first k documents that match, with score 0 and no citation; ""
                with like= or positives= searches for what is near to these documents.
            k: Number of documents.
            **options: Options of Index.search(): filter, exact, scoring, mode, fusion, rerank and so on.

        Raises:
            QueryError: For an invalid option, or lexical search without a lexical side.

        """
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Do what similarity_search() does, awaited."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """Do what similarity_search() does; each document has its score, in dense search the cosine."""
        return self._handle.run_sync(lambda api: self._scored(api, query, k, options))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Do what similarity_search_with_score() does, awaited."""
        return await self._handle.run_async(lambda api: self._scored(api, query, k, options))

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """Do what similarity_search() does, for a query vector of the dimensions of the index."""
        found = self._handle.run_sync(lambda api: self._scored(api, self._vector(embedding), k, options))
        return [document for document, _ in found]

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """Do what similarity_search_by_vector() does, awaited."""
        found = await self._handle.run_async(lambda api: self._scored(api, self._vector(embedding), k, options))
        return [document for document, _ in found]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return k of the fetch_k best documents by maximal marginal relevance of their winning views.

        Views are read from the index. A server sends none: there the winning snippets are embedded once more.

        Args:
            query: The text.
            k: Number of documents.
            fetch_k: Number of documents to choose from.
            lambda_mult: 1 for relevance alone, 0 for diversity alone.
            **options: Options of Index.search() for dense search.

        """
        mmr = MMR(k, fetch_k, lambda_mult).checked(_MMR_NAMES)
        return self._handle.run_sync(lambda api: self._diverse(api, query, mmr, options))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Do what max_marginal_relevance_search() does, awaited."""
        mmr = MMR(k, fetch_k, lambda_mult).checked(_MMR_NAMES)
        return await self._handle.run_async(lambda api: self._diverse(api, query, mmr, options))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Do what max_marginal_relevance_search() does, for a query vector."""
        vector, mmr = self._vector(embedding), MMR(k, fetch_k, lambda_mult).checked(_MMR_NAMES)
        return self._handle.run_sync(lambda api: self._diverse(api, vector, mmr, options))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Do what max_marginal_relevance_search_by_vector() does, awaited."""
        vector, mmr = self._vector(embedding), MMR(k, fetch_k, lambda_mult).checked(_MMR_NAMES)
        return await self._handle.run_async(lambda api: self._diverse(api, vector, mmr, options))

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return self._handle.run_sync(lambda api: self._relevant(api, query, k, options))

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return await self._handle.run_async(lambda api: self._relevant(api, query, k, options))

    async def _relevant(
        self, api: AsyncIndexAPI, query: str, k: int, options: Mapping[str, Any]
    ) -> list[tuple[Document, float]]:
        """Return the k best documents with their relevance; ValueError for scores that are no cosines.

        Of a hybrid search it is that of the dense score, which is a cosine; the order stays that of the search.
        """
        is_other = options.get("mode") == "lexical" or options.get("rerank") is not None
        if is_other and self._relevance is relevance_of_cosine:
            raise ValueError("relevance: expected cosines, got lexical or reranked scores. Give relevance_score_fn=")
        prepared, result = await self._search(api, query, k, options)
        documents = await self._documents(api, prepared, result)
        scores = [None if is_other else dense_score(hit) for hit in result.hits]
        return [
            (document, self._relevance(hit.score if score is None else score))
            for document, hit, score in zip(documents, result.hits, scores, strict=True)
        ]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._relevance

    async def _add(
        self, api: AsyncIndexAPI, documents: Iterable[Document], ids: Sequence[str | None] | None
    ) -> list[str]:
        named = with_ids(documents, ids)
        # The last of an id counts, as if they had been added one after the other.
        latest = list({doc_id: (doc_id, document) for doc_id, document in named}.values())
        with show_added(len(latest), self._progress) as on_progress:
            for batch in sliced(latest, BATCH):
                if self._embedding is None:
                    hooks = IngestHooks(on_progress=on_progress)
                    await api.add([stored_document(doc_id, document, {}) for doc_id, document in batch], hooks=hooks)
                else:
                    await self._add_embedded(api, batch, on_progress)
        return [doc_id for doc_id, _ in named]

    async def _add_embedded(
        self, api: AsyncIndexAPI, batch: Sequence[tuple[str, Document]], on_progress: CountCallback
    ) -> None:
        spans = [spans_of(document.page_content, self._max_snippets) for _, document in batch]
        texts = [
            document.page_content[begin:end]
            for (_, document), own in zip(batch, spans, strict=True)
            for begin, end in own
        ]
        sizes = list(map(len, spans))
        rows = await embed_in_parts(lambda part: self._embed_texts(api, part), texts, sizes, on_progress)
        items = [
            stored_document(doc_id, document, {"spans": [list(span) for span in own]})
            for (doc_id, document), own in zip(batch, spans, strict=True)
        ]
        await api.add_views(items, group_rows(rows, sizes))

    async def _embed_texts(self, api: AsyncIndexAPI, texts: list[str]) -> Floats:
        """Return a unit vector per text of a document."""
        if self._embedding is None:
            vectors = await api.encode_queries(texts)
            return np.empty((0, 1), dtype=np.float32) if vectors is None else vectors
        if api.is_blocking:
            return unit_rows(self._embedding.embed_documents(texts), len(texts))
        return unit_rows(await self._embedding.aembed_documents(texts), len(texts))

    async def _prepare_query(self, api: AsyncIndexAPI, query: str | Floats, options: Mapping[str, Any]) -> Query:
        """Return the query for the index: embedded, unless the search is lexical or the index encodes."""
        if not isinstance(query, str):
            return Query(source=query)
        if is_blank(query) and is_like(options):
            return Query(source=None)
        if options.get("mode") == "lexical":
            return Query(source=None, text=query)
        if self._embedding is None:
            # Encoded once, for the search and for the scores of views.
            vectors = await api.encode_queries([query]) if self._cites and self._has_view_scores else None
            return Query(source=query if vectors is None else vectors[0], text=query)
        if api.is_blocking:
            return Query(source=self._vector(self._embedding.embed_query(query)), text=query)
        return Query(source=self._vector(await self._embedding.aembed_query(query)), text=query)

    def _vector(self, embedding: Any) -> Floats:
        """Return a query vector; of length 1, as the views are, where an embedding makes them."""
        is_own = self._embedding is None
        vector: Floats = embeddings_of(embedding).astype(np.float32) if is_own else unit_rows([embedding], 1)[0]
        return vector

    async def _search(
        self, api: AsyncIndexAPI, query: str | Floats, k: int, options: Mapping[str, Any]
    ) -> tuple[Query, SearchResult]:
        search = dict(options)
        condition = _checked_filter(search.pop("filter", None))
        prepared = await self._prepare_query(api, query, search)
        return prepared, await prepared.search(api, k, condition, search)

    async def _scored(
        self, api: AsyncIndexAPI, query: str | Floats, k: int, options: Mapping[str, Any]
    ) -> list[tuple[Document, float]]:
        condition = _checked_filter(options.get("filter"))
        if condition and is_blank(query) and not is_like(options):
            plan = FilterPlan(PushedFilter(condition, True), lambda _: True)
            listed = await list_first(api, plan, k)
            return [(original_document(one.id, one.text, one.metadata), 0.0) for one in listed]
        prepared, result = await self._search(api, query, k, options)
        documents = await self._documents(api, prepared, result)
        return [(document, hit.score) for document, hit in zip(documents, result.hits, strict=True)]

    async def _diverse(
        self, api: AsyncIndexAPI, query: str | Floats, mmr: MMR, options: Mapping[str, Any]
    ) -> list[Document]:
        if options.get("mode", "auto") not in ("auto", "dense"):
            raise ValueError(f"MMR compares views: expected mode='dense', got mode={options['mode']!r}")
        search = MMR.options(options) | {"mode": "dense"}
        prepared, result = await self._search(api, query, max(mmr.top_k, mmr.depth), search)
        if not result.hits:
            return []
        vector = prepared.vector
        if vector is None and prepared.source is not None:
            vector = (await self._embed_texts(api, [prepared.source]))[0]
        views = await winning_views(api, result, lambda texts: self._embed_texts(api, texts))
        rows = choose_diverse(result, views, vector, mmr).rows
        return await self._documents(api, prepared, replace(result, hits=tuple(result.hits[row] for row in rows)))

    async def _documents(self, api: AsyncIndexAPI, query: Query, result: SearchResult) -> list[Document]:
        documents = [original_document(hit.id, hit.text, hit.metadata) for hit in result.hits]
        if self._cites:
            cited = await citations(api, query.vector if self._has_view_scores else None, result)
            for document, one in zip(documents, cited, strict=True):
                # Assigned, as a constructor would make it a plain dict.
                document.metadata = CitedMetadata(document.metadata | {HIT_KEY: one})
        return documents


def relevance_of_cosine(score: float) -> float:
    """Return (1 + score) / 2 in 0..1: 1 for the same direction, 0.5 for a right angle, 0 for the opposite one.

    Scores are clipped to -1..1.
    """
    return min(1.0, max(0.0, (1.0 + score) / 2.0))


def _checked_filter(condition: Any) -> Filter | None:
    """Return a filter of the index; QueryError for a function, as some of LangChain's stores take."""
    if callable(condition):
        raise QueryError(
            "filter: expected an object such as {'year': {'gte': 1990}} (docs/reference/api.md), got a function"
        )
    return cast("Filter | None", condition)


async def _delete(
    api: AsyncIndexAPI, ids: Sequence[str] | None, filter: dict[str, Any] | None, everything: bool
) -> bool:
    await api.delete(ids=ids, filter=filter, all=everything)
    return True


async def _get(api: AsyncIndexAPI, ids: Sequence[str]) -> list[Document]:
    found = await api.get([ids] if isinstance(ids, str) else ids)
    return [original_document(document.id, document.text, document.metadata) for document in found]
