"""MVIndexVectorStore and MVIndexRetriever: an index as LangChain's vector store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np

from mvindex.plugins import require

# Before the imports of it: names the command that installs what is missing.
require("langchain_core", "langchain", "the LangChain store")

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from pydantic import ConfigDict, Field, model_validator

import mvindex
from mvindex.errors import ConfigError, QueryError
from mvindex.index import Index
from mvindex.index.options import EncoderLike
from mvindex.records import Floats, SearchResult
from mvindex_connectors.frameworks.citations import (
    HIT_KEY,
    CitedMetadata,
    citation,
    citations,
    cited_title,
    own_metadata,
    stored_metadata,
)
from mvindex_connectors.frameworks.connection import Place, Reach
from mvindex_connectors.frameworks.query import Asked
from mvindex_connectors.frameworks.sync_adapter import Blocking
from mvindex_connectors.frameworks.views import spans_of, unit_rows

# Documents embedded and committed at once.
BATCH = 1000


class MVIndexVectorStore(VectorStore):
    """An index, with LangChain's ids: adding an id again replaces its document.

    index: a directory, milvus://..., milvus-lite:..., grpc://host:port/name, or an open Index. One that is not there is
    made when something is added; until then it is empty. embedding: who embeds texts and queries; each snippet of a
    text, up to max_snippets, is embedded by itself and becomes a view (1: a text is one view). Without it the index's
    own multi-view encoder does it; encoder: of an index to be made. lexical: "unicode" or "english", of an index to be
    made, and mode="hybrid" and "lexical" work. Scores are cosines, higher is better. What is found carries
    metadata["mvindex"], see docs/langchain.md, and equals what was added all the same; cites=False leaves it out.
    has_view_scores: with every view's score; on a server and in Milvus that is one more call. relevance_score_fn:
    score -> 0..1, in place of (1 + score) / 2.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        index: Index | str | os.PathLike[str],
        embedding: Embeddings | None = None,
        *,
        encoder: EncoderLike = "minilm",
        max_snippets: int = 8,
        lexical: str | None = None,
        cites: bool = True,
        has_view_scores: bool = True,
        relevance_score_fn: Callable[[float], float] | None = None,
    ) -> None:
        if embedding is not None and not isinstance(embedding, Embeddings):
            raise ConfigError(f"embedding is {type(embedding).__name__}; wanted langchain_core.embeddings.Embeddings")
        self._place = Place(index, encoder if embedding is None else None, None, lexical)
        self._embedding, self._max_snippets = embedding, max_snippets
        self._cites, self._has_view_scores = cites, has_view_scores
        self._relevance = relevance_score_fn or relevance_of_cosine

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: Index | str | os.PathLike[str],
        **options: Any,
    ) -> MVIndexVectorStore:
        """A store over the index, with these texts in it. options: of the store."""
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
        index: Index | str | os.PathLike[str],
        **options: Any,
    ) -> MVIndexVectorStore:
        """from_texts(), awaited."""
        store = cls(index, embedding, **options)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store

    @property
    def embeddings(self) -> Embeddings | None:
        """Who embeds; None where the index's own encoder does."""
        return self._embedding

    def close(self) -> None:
        """Nothing; the index is closed, unless it was given open, and opened again by the next call."""
        self._place.close()

    async def aclose(self) -> None:
        """Nothing; the index and this event loop's connection are closed."""
        await self._place.aclose()

    def add_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """The ids: of ids= where given, else the documents' own, else new ones. Adding an id again replaces."""
        return self._place.now(lambda reach: self._add(reach, documents, options.get("ids")))

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """add_documents(), awaited."""
        return await self._place.awaited(lambda reach: self._add(reach, documents, options.get("ids")))

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """The ids of the texts, which are added."""
        return self.add_documents(_documents_of(texts, metadatas), ids=ids)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """add_texts(), awaited."""
        return await self.aadd_documents(_documents_of(texts, metadatas), ids=ids)

    def delete(self, ids: list[str] | None = None, *, filter: dict[str, Any] | None = None, **options: Any) -> bool:
        """True; the documents of the ids that exist, or that the filter matches, are gone; all of them for neither."""
        return self._place.now(lambda reach: _delete(reach, ids, filter))

    async def adelete(
        self, ids: list[str] | None = None, *, filter: dict[str, Any] | None = None, **options: Any
    ) -> bool:
        """delete(), awaited."""
        return await self._place.awaited(lambda reach: _delete(reach, ids, filter))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents that exist, in the order of the ids."""
        return self._place.now(lambda reach: _get(reach, ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """get_by_ids(), awaited."""
        return await self._place.awaited(lambda reach: _get(reach, ids))

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """The k best documents. options: of Index.search(), as filter, exact, scoring, mode, fusion, rerank."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """similarity_search(), awaited."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """The k best documents with their scores, higher is better: cosines, unless by words or reranked."""
        return self._place.now(lambda reach: self._scored(reach, query, k, options))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """similarity_search_with_score(), awaited."""
        return await self._place.awaited(lambda reach: self._scored(reach, query, k, options))

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """The k best documents of a query vector."""
        found = self._place.now(lambda reach: self._scored(reach, self._vector(embedding), k, options))
        return [document for document, _ in found]

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """similarity_search_by_vector(), awaited."""
        found = await self._place.awaited(lambda reach: self._scored(reach, self._vector(embedding), k, options))
        return [document for document, _ in found]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Of the fetch_k best documents k that are unlike each other: what is compared are their winning views.

        In a directory these are the views as stored; elsewhere, where they cannot be read, the winning snippets are
        embedded once more, by the embedding, or by the index's encoder as it encodes queries.
        """
        return self._place.now(lambda reach: self._diverse(reach, query, (k, fetch_k, lambda_mult), options))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """max_marginal_relevance_search(), awaited."""
        return await self._place.awaited(lambda reach: self._diverse(reach, query, (k, fetch_k, lambda_mult), options))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """max_marginal_relevance_search() of a query vector."""
        vector, how = self._vector(embedding), (k, fetch_k, lambda_mult)
        return self._place.now(lambda reach: self._diverse(reach, vector, how, options))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """max_marginal_relevance_search_by_vector(), awaited."""
        vector, how = self._vector(embedding), (k, fetch_k, lambda_mult)
        return await self._place.awaited(lambda reach: self._diverse(reach, vector, how, options))

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        self._check_relevance(options)
        found: list[tuple[Document, float]] = super()._similarity_search_with_relevance_scores(query, k, **options)
        return found

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        self._check_relevance(options)
        found: list[tuple[Document, float]] = await super()._asimilarity_search_with_relevance_scores(
            query, k, **options
        )
        return found

    def _check_relevance(self, options: Mapping[str, Any]) -> None:
        """ValueError for scores that are no cosines, where nobody said how relevant they are."""
        is_dense = options.get("mode", "dense") == "dense" and options.get("rerank") is None
        if not is_dense and self._relevance is relevance_of_cosine:
            raise ValueError(
                "relevance is made of cosines, and by words or reranked there are none: relevance_score_fn="
            )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._relevance

    async def _add(self, reach: Reach, documents: Iterable[Document], ids: Sequence[str | None] | None) -> list[str]:
        named = _named(list(documents), ids)
        # The last of an id counts, as if they had been added one after the other.
        latest = list({doc_id: (doc_id, document) for doc_id, document in named}.values())
        for begin in range(0, len(latest), BATCH):
            batch = latest[begin : begin + BATCH]
            if self._embedding is None:
                await reach.add([_stored(doc_id, document, {}) for doc_id, document in batch])
            else:
                await self._add_embedded(reach, batch)
        return [doc_id for doc_id, _ in named]

    async def _add_embedded(self, reach: Reach, batch: Sequence[tuple[str, Document]]) -> None:
        spans = [spans_of(document.page_content, self._max_snippets) for _, document in batch]
        texts = [
            document.page_content[begin:end]
            for (_, document), own in zip(batch, spans, strict=True)
            for begin, end in own
        ]
        rows = await self._embedded(reach, texts)
        ends = itertools.accumulate(map(len, spans))
        items = [
            _stored(doc_id, document, {"spans": [list(span) for span in own]})
            for (doc_id, document), own in zip(batch, spans, strict=True)
        ]
        await reach.add_views(items, [rows[end - len(own) : end] for end, own in zip(ends, spans, strict=True)])

    async def _embedded(self, reach: Reach, texts: list[str]) -> Floats:
        """A unit vector for each text of a document."""
        if self._embedding is None:
            vectors = await reach.encode_queries(texts)
            return np.empty((0, 1), dtype=np.float32) if vectors is None else vectors
        if isinstance(reach, Blocking):
            return unit_rows(self._embedding.embed_documents(texts), len(texts))
        return unit_rows(await self._embedding.aembed_documents(texts), len(texts))

    async def _asked(self, reach: Reach, question: str | Floats, options: Mapping[str, Any]) -> Asked:
        """The question as the index takes it: embedded, unless words alone are asked for or the index encodes."""
        if not isinstance(question, str):
            return Asked(query=question)
        if options.get("mode") == "lexical":
            return Asked(query=None, text=question)
        if self._embedding is None:
            # Encoded once, for the search and for the scores of views.
            vectors = await reach.encode_queries([question]) if self._cites and self._has_view_scores else None
            return Asked(query=question if vectors is None else vectors[0], text=question)
        if isinstance(reach, Blocking):
            return Asked(query=self._vector(self._embedding.embed_query(question)), text=question)
        return Asked(query=self._vector(await self._embedding.aembed_query(question)), text=question)

    def _vector(self, embedding: Any) -> Floats:
        """A query vector; of length 1, as the views are, where an embedding makes them."""
        is_own = self._embedding is None
        vector: Floats = np.asarray(embedding, dtype=np.float32) if is_own else unit_rows([embedding], 1)[0]
        return vector

    async def _found(
        self, reach: Reach, question: str | Floats, k: int, options: Mapping[str, Any]
    ) -> tuple[Asked, SearchResult]:
        search = dict(options)
        condition = search.pop("filter", None)
        if callable(condition):
            raise QueryError("filter is a function; wanted an object such as {'year': {'gte': 1990}}, see docs/api.md")
        asked = await self._asked(reach, question, search)
        return asked, await asked.search(reach, k, condition, search)

    async def _scored(
        self, reach: Reach, question: str | Floats, k: int, options: Mapping[str, Any]
    ) -> list[tuple[Document, float]]:
        asked, result = await self._found(reach, question, k, options)
        documents = await self._documents(reach, asked, result)
        return [(document, hit.score) for document, hit in zip(documents, result.hits, strict=True)]

    async def _diverse(
        self, reach: Reach, question: str | Floats, how: tuple[int, int, float], options: Mapping[str, Any]
    ) -> list[Document]:
        k, fetch_k, lambda_mult = how
        if options.get("mode", "dense") != "dense":
            raise ValueError(f"mode={options['mode']!r} does not belong to MMR, which compares views")
        asked, result = await self._found(reach, question, max(k, fetch_k), options)
        if not result.hits:
            return []
        vector = asked.vector
        if vector is None:
            vectors = await reach.encode_queries([asked.query])
            vector = None if vectors is None else vectors[0]
        views = await self._winning_views(reach, result)
        chosen = maximal_marginal_relevance(vector, list(views), lambda_mult, k)
        return await self._documents(reach, asked, replace(result, hits=tuple(result.hits[place] for place in chosen)))

    async def _winning_views(self, reach: Reach, result: SearchResult) -> Floats:
        views = reach.winning_views(result.hits) if isinstance(reach, Blocking) else None
        if views is not None:
            return views
        return await self._embedded(reach, [citation(hit, True)["snippet"] or hit.text for hit in result.hits])

    async def _documents(self, reach: Reach, asked: Asked, result: SearchResult) -> list[Document]:
        documents = [_given(hit.id, hit.text, hit.metadata) for hit in result.hits]
        if self._cites:
            cited = await citations(reach, asked.vector if self._has_view_scores else None, result)
            for document, one in zip(documents, cited, strict=True):
                # Assigned, as a constructor would make it a plain dict.
                document.metadata = CitedMetadata(document.metadata | {HIT_KEY: one})
        return documents


class MVIndexRetriever(BaseRetriever):
    """The k best documents of a store, for chains. invoke(query, k=...) and filter= and options of one call count more.

    In place of store, index and embedding of one may be given. options: of every search, such as {"exact": True}.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: MVIndexVectorStore
    k: int = 4
    filter: dict[str, Any] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_store(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "index" not in given or "store" in given:
            return given
        rest = {name: value for name, value in given.items() if name not in ("index", "embedding")}
        return {**rest, "store": MVIndexVectorStore(given["index"], given.get("embedding"))}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return self.store.similarity_search(query, **self._chosen(options))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return await self.store.asimilarity_search(query, **self._chosen(options))

    def _chosen(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "filter": self.filter, **self.options, **options}


def relevance_of_cosine(score: float) -> float:
    """(1 + score) / 2, in 0..1: 1 for the same direction, 0.5 for a right angle, 0 for the opposite one.

    A score beyond -1..1, by rounding or of vectors that are not of length 1, counts as the nearer of the two.
    """
    return min(1.0, max(0.0, (1.0 + score) / 2.0))


def _documents_of(texts: Iterable[str], metadatas: list[dict[str, Any]] | None) -> list[Document]:
    given = list(texts)
    if metadatas and len(metadatas) != len(given):
        raise ValueError(f"{len(metadatas)} metadatas for {len(given)} texts; wanted one for each")
    pairs = zip(given, metadatas or itertools.repeat({}), strict=False)
    return [Document(page_content=text, metadata=metadata) for text, metadata in pairs]


def _named(documents: list[Document], ids: Sequence[str | None] | None) -> list[tuple[str, Document]]:
    """The documents with their ids; a new one for each that has none."""
    if ids is not None and len(ids) != len(documents):
        raise ValueError(f"{len(ids)} ids for {len(documents)} documents; wanted one for each")
    given = ids if ids is not None else [document.id for document in documents]
    return [(doc_id or str(uuid4()), document) for doc_id, document in zip(given, documents, strict=True)]


def _stored(doc_id: str, document: Document, ours: dict[str, Any]) -> mvindex.Document:
    metadata, title = stored_metadata(document.metadata, ours), cited_title(document.metadata)
    return mvindex.Document(doc_id, document.page_content, title, metadata)


async def _delete(reach: Reach, ids: Sequence[str] | None, filter: dict[str, Any] | None) -> bool:
    if ids is None:
        await reach.delete(filter=filter or {})
    elif filter is not None:
        raise ValueError("delete() takes ids or filter, not both")
    else:
        await reach.delete(ids=ids)
    return True


async def _get(reach: Reach, ids: Sequence[str]) -> list[Document]:
    return [_given(document.id, document.text, document.metadata) for document in await reach.get_all(ids)]


def _given(doc_id: str, text: str, metadata: Mapping[str, Any]) -> Document:
    return Document(id=doc_id, page_content=text, metadata=own_metadata(metadata))
