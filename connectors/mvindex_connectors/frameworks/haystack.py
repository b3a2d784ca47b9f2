"""MVIndexDocumentStore, MVIndexEmbeddingRetriever and MVIndexTextRetriever: an index as Haystack's document store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mvindex.plugins import require

# Before the imports of it: names the command that installs what is missing.
require("haystack", "haystack", "the Haystack store")

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
from haystack.utils import Secret

from mvindex.errors import ConfigError
from mvindex.index.options import EncoderLike
from mvindex.records import Floats
from mvindex_connectors.frameworks.citations import HIT_KEY, citations
from mvindex_connectors.frameworks.connection import Place, Reach
from mvindex_connectors.frameworks.haystack_documents import given_document, stored_document
from mvindex_connectors.frameworks.haystack_fields import (
    field_types,
    least_and_greatest,
    number_of_values,
    page_of_values,
)
from mvindex_connectors.frameworks.haystack_operations import (
    Filters,
    counted,
    deleted,
    found_with_views,
    listed,
    matching,
    updated,
    writable,
)
from mvindex_connectors.frameworks.query import Asked
from mvindex_connectors.frameworks.views import unit_rows

# Documents committed at once.
BATCH = 1000


class MVIndexDocumentStore:
    """An index, with Haystack's documents, which come back exactly as they were written.

    index: a directory, milvus://..., milvus-lite:..., grpc://host:port/name, or a Secret that resolves to one. One that
    is not there is made when something is written. The index makes the views of the texts by its encoder ("minilm") or,
    with embedding_dim, the documents' embeddings are the views. With neither, an index says itself which of them it is;
    one that is made takes the embeddings where a document of the first that are written has one, else encodes.
    similarity: of embeddings; "cosine" makes them unit vectors, "dot_product" takes them as they are. A document
    without an embedding is kept, and found by words only. lexical: "unicode" or "english", of an index to be made, and
    retrievers with mode "hybrid" or "lexical" work. Each method has a twin _async: awaited where a server has the
    index, else done in a thread.
    """

    def __init__(
        self,
        index: str | os.PathLike[str] | Secret,
        *,
        encoder: EncoderLike | None = None,
        embedding_dim: int | None = None,
        similarity: str = "cosine",
        lexical: str | None = None,
    ) -> None:
        if encoder is not None and embedding_dim is not None:
            raise ConfigError("give encoder (the index embeds texts) or embedding_dim (documents bring embeddings)")
        if similarity not in ("cosine", "dot_product"):
            raise ConfigError(f"similarity is {similarity!r}; wanted cosine or dot_product")
        self._index, self._encoder = index, encoder
        self.embedding_dim, self.similarity, self.lexical = embedding_dim, similarity, lexical
        where = index.resolve_value() if isinstance(index, Secret) else index
        if where is None:
            raise ConfigError(f"index {index!r} resolves to nothing; wanted a directory or an address")
        is_open_to_both = encoder is None and embedding_dim is None
        self._dim = embedding_dim
        # Whether documents' embeddings are the views; None until the index, or the first documents, say so.
        self._takes_embeddings = None if is_open_to_both else embedding_dim is not None
        chosen = None if embedding_dim is not None else encoder or "minilm"
        self._place = Place(where, chosen, embedding_dim, lexical, takes_either=is_open_to_both)

    def to_dict(self) -> dict[str, Any]:
        """The store as a dict; ConfigError where it cannot be told in one: an encoder object, a password."""
        if self._encoder is not None and not isinstance(self._encoder, str | os.PathLike):
            raise ConfigError(f"encoder {self._encoder!r:.80} is an object; only a name or a path can be written down")
        if not isinstance(self._index, Secret) and "@" in self._place.path and "://" in self._place.path:
            raise ConfigError("the index's address holds a secret; give Secret.from_env_var(...) in its place")
        told: dict[str, Any] = default_to_dict(
            self,
            index=self._index.to_dict() if isinstance(self._index, Secret) else os.fspath(self._index),
            encoder=None if self._encoder is None else os.fspath(self._encoder),
            embedding_dim=self.embedding_dim,
            similarity=self.similarity,
            lexical=self.lexical,
        )
        return told

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MVIndexDocumentStore:
        """The store that to_dict() told of."""
        store: MVIndexDocumentStore = default_from_dict(cls, data)
        return store

    def close(self) -> None:
        """Nothing; the index is closed, to be opened again by the next call."""
        self._place.close()

    async def close_async(self) -> None:
        """Nothing; the index and this event loop's connection are closed."""
        await self._place.aclose()

    def count_documents(self) -> int:
        """How many documents there are."""
        return self._place.now(lambda reach: reach.count())

    async def count_documents_async(self) -> int:
        """count_documents(), awaited."""
        return await self._place.awaited(lambda reach: reach.count())

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """The documents that match, in the index's order: it is read through, each checked as Haystack does."""
        return self._place.now(lambda reach: listed(reach, filters))

    async def filter_documents_async(self, filters: Filters | None = None) -> list[Document]:
        """filter_documents(), awaited."""
        return await self._place.awaited(lambda reach: listed(reach, filters))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """How many were written. NONE is FAIL: DuplicateDocumentError before anything is written."""
        return self._place.now(lambda reach: self._write(reach, documents, policy))

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """write_documents(), awaited."""
        return await self._place.awaited(lambda reach: self._write(reach, documents, policy))

    def delete_documents(self, document_ids: list[str]) -> None:
        """Nothing; the documents of these ids that exist are gone."""
        self._place.now(lambda reach: reach.delete(ids=document_ids))

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """delete_documents(), awaited."""
        await self._place.awaited(lambda reach: reach.delete(ids=document_ids))

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Nothing; the store is empty. recreate_index: and takes up no room; a server sees to that itself."""
        self._place.now(lambda reach: reach.delete(filter={}))
        if recreate_index and not self._place.is_remote:
            self._place.compact()

    async def delete_all_documents_async(self, recreate_index: bool = False) -> None:
        """delete_all_documents(), awaited."""
        await self._place.awaited(lambda reach: reach.delete(filter={}))
        if recreate_index and not self._place.is_remote:
            await self._place.awaited(self._compacted)

    def delete_by_filter(self, filters: Filters) -> int:
        """How many matched, and are gone."""
        return self._place.now(lambda reach: deleted(reach, filters))

    async def delete_by_filter_async(self, filters: Filters) -> int:
        """delete_by_filter(), awaited."""
        return await self._place.awaited(lambda reach: deleted(reach, filters))

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """How many matched; these keys of their meta have the new values. Nothing is encoded again."""
        return self._place.now(lambda reach: updated(reach, filters, meta))

    async def update_by_filter_async(self, filters: Filters, meta: dict[str, Any]) -> int:
        """update_by_filter(), awaited."""
        return await self._place.awaited(lambda reach: updated(reach, filters, meta))

    def count_documents_by_filter(self, filters: Filters) -> int:
        """How many documents match."""
        return self._place.now(lambda reach: counted(reach, filters))

    async def count_documents_by_filter_async(self, filters: Filters) -> int:
        """count_documents_by_filter(), awaited."""
        return await self._place.awaited(lambda reach: counted(reach, filters))

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Of each field, how many distinct values the documents that match have."""
        return self._place.now(lambda reach: number_of_values(matching(reach, filters), metadata_fields))

    async def count_unique_metadata_by_filter_async(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """count_unique_metadata_by_filter(), awaited."""
        return await self._place.awaited(lambda reach: number_of_values(matching(reach, filters), metadata_fields))

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The fields of the documents' meta, each with its "type": keyword, int, float or boolean."""
        return self._place.now(lambda reach: field_types(matching(reach, None)))

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """get_metadata_fields_info(), awaited."""
        return await self._place.awaited(lambda reach: field_types(matching(reach, None)))

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The least and the greatest value of a field, "min" and "max"; None where there is none, or no order."""
        return self._place.now(lambda reach: least_and_greatest(matching(reach, None), metadata_field))

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """get_metadata_field_min_max(), awaited."""
        return await self._place.awaited(lambda reach: least_and_greatest(matching(reach, None), metadata_field))

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """A page of a field's distinct values, in order of their texts, and how many hold the term in all."""
        page = slice(from_, from_ + size)
        return self._place.now(
            lambda reach: page_of_values(matching(reach, filters), metadata_field, search_term, page)
        )

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """get_metadata_field_unique_values(), awaited."""
        page = slice(from_, from_ + size)
        return await self._place.awaited(
            lambda reach: page_of_values(matching(reach, filters), metadata_field, search_term, page)
        )

    def retrieve(self, query: str | Sequence[float], filters: Filters | None, **options: Any) -> list[Document]:
        """The top_k best documents of a text or an embedding, for retrievers. options: see _retrieve."""
        return self._place.now(lambda reach: self._retrieve(reach, query, filters, **options))

    async def retrieve_async(
        self, query: str | Sequence[float], filters: Filters | None, **options: Any
    ) -> list[Document]:
        """retrieve(), awaited."""
        return await self._place.awaited(lambda reach: self._retrieve(reach, query, filters, **options))

    async def _retrieve(  # noqa: PLR0913 - what a retriever may choose
        self,
        reach: Reach,
        query: str | Sequence[float],
        filters: Filters | None,
        *,
        top_k: int,
        text: str | None = None,
        return_embedding: bool = False,
        has_view_scores: bool = True,
        **search: Any,
    ) -> list[Document]:
        """query: what views are asked for. text: of an embedding's question. search: options of Index.search()."""
        await self._settle(reach)
        asked = await self._asked(reach, query, text, has_view_scores, search.get("mode", "dense"))
        result = await found_with_views(reach, asked, filters, top_k, search)
        cited = await citations(reach, asked.vector if has_view_scores else None, result)
        return [
            _answer(given_document(hit), hit.score, one, return_embedding)
            for hit, one in zip(result.hits, cited, strict=True)
        ]

    async def _asked(  # noqa: PLR0913, PLR0917 - what a question is made of
        self, reach: Reach, query: str | Sequence[float], text: str | None, has_view_scores: bool, mode: str
    ) -> Asked:
        if not isinstance(query, str):
            return Asked(query=None if mode == "lexical" else self._vector(query), text=text)
        if mode == "lexical":
            return Asked(query=None, text=query)
        if self._takes_embeddings:
            raise ConfigError("this store holds given embeddings; embed the query and use MVIndexEmbeddingRetriever")
        # Encoded once, for the search and for the scores of views.
        vectors = await reach.encode_queries([query]) if has_view_scores else None
        return Asked(query=query if vectors is None else vectors[0], text=query)

    def _vector(self, embedding: Sequence[float]) -> Floats:
        is_cosine = self._takes_embeddings is not False and self.similarity == "cosine"
        vector: Floats = unit_rows([embedding], 1)[0] if is_cosine else np.asarray(embedding, dtype=np.float32)
        return vector

    async def _settle(self, reach: Reach, documents: Sequence[Document] = ()) -> None:
        """Nothing; it is known whether embeddings are the views, if the index or documents to be written say so."""
        if self._takes_embeddings is not None:
            return
        info = await reach.info()
        if info is not None:
            self._takes_embeddings, self._dim = info.encoder is None, info.dim
        elif documents:
            lengths = [len(document.embedding) for document in documents if document.embedding is not None]
            self._takes_embeddings, self._dim = bool(lengths), next(iter(lengths), None)

    async def _write(self, reach: Reach, documents: list[Document], policy: DuplicatePolicy) -> int:
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError(f"documents are {documents!r:.80}; wanted a list of haystack.Document")
        fresh = await writable(reach, documents, policy)
        await self._settle(reach, fresh)
        for begin in range(0, len(fresh), BATCH):
            await self._add(reach, fresh[begin : begin + BATCH])
        return len(documents) if policy is DuplicatePolicy.OVERWRITE else len(fresh)

    async def _add(self, reach: Reach, batch: Sequence[Document]) -> None:
        if not self._takes_embeddings:
            await reach.add([stored_document(document, None) for document in batch])
            return
        items = [stored_document(document, document.embedding is not None) for document in batch]
        rows = [None if document.embedding is None else self._vector(document.embedding) for document in batch]
        # An index holds no document without a view; this one scores 0, and retrievers leave it out.
        nothing = np.zeros(self._dim or 1, dtype=np.float32)
        await reach.add_views(items, [nothing if row is None else row for row in rows])

    async def _compacted(self, reach: Reach) -> None:
        self._place.compact()


def _answer(document: Document, score: float, cited: dict[str, Any], has_embedding: bool) -> Document:
    embedding = document.embedding if has_embedding else None
    return replace(document, score=score, embedding=embedding, meta={**document.meta, HIT_KEY: cited})


class _Retriever:
    """What both retrievers share: mode, scoring and exact are of Index.search()."""

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        document_store: MVIndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        scoring: str = "max",
        exact: bool = False,
        return_embedding: bool = False,
        has_view_scores: bool = True,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        mode: str = "dense",
    ) -> None:
        if not isinstance(document_store, MVIndexDocumentStore):
            raise TypeError(f"document_store is {type(document_store).__name__}; wanted MVIndexDocumentStore")
        if mode not in ("dense", "hybrid", "lexical"):
            raise ValueError(f"mode is {mode!r}; wanted dense, hybrid or lexical")
        self.document_store, self.filters, self.top_k = document_store, filters, _checked_top_k(top_k)
        self.options = {
            "scoring": scoring,
            "exact": exact,
            "return_embedding": return_embedding,
            "has_view_scores": has_view_scores,
            "mode": mode,
        }
        self.filter_policy = FilterPolicy.from_str(str(filter_policy))

    def to_dict(self) -> dict[str, Any]:
        """The retriever as a dict."""
        told: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
            **self.options,
        )
        return told

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """The retriever that to_dict() told of."""
        parameters = dict(data["init_parameters"])
        store = parameters["document_store"]
        if isinstance(store, Mapping):
            parameters["document_store"] = MVIndexDocumentStore.from_dict(dict(store))
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    def _chosen(self, filters: dict[str, Any] | None, top_k: int | None) -> dict[str, Any]:
        """The filters and options of one run."""
        options = {name: value for name, value in self.options.items() if name != "mode" or value != "dense"}
        wanted = self.top_k if top_k is None else _checked_top_k(top_k)
        return {
            "filters": apply_filter_policy(self.filter_policy, self.filters, filters), "top_k": wanted, **options
        }  # fmt: skip


@component
class MVIndexEmbeddingRetriever(_Retriever):
    """The top_k best documents of a query's embedding; each carries meta["mvindex"], see docs/haystack.md.

    query: the question's text, which mode="hybrid" and "lexical" want as well.
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        query: str | None = None,
    ) -> dict[str, list[Document]]:
        """The documents, best first."""
        chosen = self._chosen(filters, top_k)
        return {"documents": self.document_store.retrieve(query_embedding, text=query, **chosen)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        query: str | None = None,
    ) -> dict[str, list[Document]]:
        """run(), awaited."""
        chosen = self._chosen(filters, top_k)
        return {"documents": await self.document_store.retrieve_async(query_embedding, text=query, **chosen)}


@component
class MVIndexTextRetriever(_Retriever):
    """The top_k best documents of a text; each carries meta["mvindex"].

    The index encodes the text itself; with mode="lexical" it goes by words, in a store of given embeddings as well.
    """

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The documents, best first."""
        return {"documents": self.document_store.retrieve(query, **self._chosen(filters, top_k))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """run(), awaited."""
        return {"documents": await self.document_store.retrieve_async(query, **self._chosen(filters, top_k))}


def _checked_top_k(top_k: int) -> int:
    if top_k < 1:
        raise ValueError(f"top_k is {top_k}; wanted 1 or more")
    return top_k
