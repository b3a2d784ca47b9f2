"""MVIndexDocumentStore: an index as Haystack's document store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from haystack import Document, default_from_dict, default_to_dict
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from mvindex.encoder import EncoderLike
from mvindex.encoder.checkpoint.hub import DEFAULT
from mvindex.errors import ConfigError
from mvindex.ingest import IngestHooks
from mvindex.records import CountCallback, Floats
from mvindex_connectors.frameworks.citations import HIT_KEY, citations
from mvindex_connectors.frameworks.connection import AsyncIndexAPI, IndexHandle
from mvindex_connectors.frameworks.haystack.documents import original_document, stored_document
from mvindex_connectors.frameworks.haystack.operations import (
    Filters,
    count_distinct,
    count_matching,
    delete_matching,
    documents_to_write,
    field_types,
    list_matching,
    list_values,
    min_and_max,
    scan_matching,
    search_documents,
    update_matching,
)
from mvindex_connectors.frameworks.query import Query, is_blank, is_like
from mvindex_connectors.frameworks.views import embeddings_of, show_added, unit_rows

# Documents committed at once.
BATCH = 1000


class MVIndexDocumentStore:
    """An index as a document store; documents come back exactly as they were written.

    Views are made by the index's encoder, or are the documents' embeddings. Without `encoder` and `embedding_dim` an
    index that exists decides; a new one takes embeddings where one of the first documents has one, else it encodes.
    A document without an embedding is stored, and found by lexical search only. Each method has an _async twin: awaited
    where a server has the index, else done in a thread.
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
        """Make a store over an index, which is opened when it is first needed, and created by the first write.

        Args:
            index: A directory, milvus://..., milvus-lite:..., grpc://host:port/name, or a Secret that resolves to one.
            encoder: The encoder of an index that makes the views of texts itself.
            embedding_dim: Instead of an encoder: the dimensions of the documents' embeddings, which are the views.
            similarity: Of embeddings: "cosine" scales them to length 1, "dot_product" takes them as they are.
            lexical: The terms of a new index, "unicode", "english", "auto" (by the first texts) or "none". In a
                directory or in Milvus "auto" is the default.

        Raises:
            ConfigError: For both of encoder and embedding_dim, or an invalid value.

        """
        if encoder is not None and embedding_dim is not None:
            raise ConfigError(
                "expected encoder (the index embeds texts) or embedding_dim (documents have embeddings), got both"
            )
        if similarity not in ("cosine", "dot_product"):
            raise ConfigError(f"similarity: expected cosine or dot_product, got {similarity!r}")
        self._index, self._encoder = index, encoder
        self.embedding_dim, self.similarity, self.lexical = embedding_dim, similarity, lexical
        where = index.resolve_value() if isinstance(index, Secret) else index
        if where is None:
            raise ConfigError(f"index: expected a directory or an address, got {index!r}, which resolves to nothing")
        accepts_both = encoder is None and embedding_dim is None
        self._dim = embedding_dim
        # Whether documents' embeddings are the views; None until the index, or the first documents, decide.
        self._takes_embeddings = None if accepts_both else embedding_dim is not None
        chosen = None if embedding_dim is not None else encoder or DEFAULT
        self._handle = IndexHandle(where, chosen, embedding_dim, lexical, accepts_both=accepts_both)

    def to_dict(self) -> dict[str, Any]:
        """Return the store as a dict; ConfigError for an encoder object or a password, which must not be written."""
        if self._encoder is not None and not isinstance(self._encoder, str | os.PathLike):
            raise ConfigError(
                f"encoder: expected a name or a path, which can be written down, got {self._encoder!r:.80}"
            )
        if not isinstance(self._index, Secret) and "@" in self._handle.path and "://" in self._handle.path:
            raise ConfigError(
                "index: expected an address without a secret, got one with a password. Give Secret.from_env_var(...)"
            )
        data: dict[str, Any] = default_to_dict(
            self,
            index=self._index.to_dict() if isinstance(self._index, Secret) else os.fspath(self._index),
            encoder=None if self._encoder is None else os.fspath(self._encoder),
            embedding_dim=self.embedding_dim,
            similarity=self.similarity,
            lexical=self.lexical,
        )
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MVIndexDocumentStore:
        """Return the store of a dict that to_dict() made."""
        store: MVIndexDocumentStore = default_from_dict(cls, data)
        return store

    def warm_up(self) -> bool:
        """Load what searches need, so that the first does not wait; return whether all is loaded.

        The encoder of the index, its engine and compiled loops. Adding documents loads the encoder too.
        """
        return self._handle.warm_up()

    def close(self) -> None:
        """Close the index; the next call opens it again."""
        self._handle.close()

    async def close_async(self) -> None:
        """Close the index, and the connection of the running event loop."""
        await self._handle.aclose()

    def count_documents(self) -> int:
        """Return the number of documents."""
        return self._handle.run_sync(lambda api: api.count())

    async def count_documents_async(self) -> int:
        """Do what count_documents() does, awaited."""
        return await self._handle.run_async(lambda api: api.count())

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that match, in the order in which they were first written."""
        return self._handle.run_sync(lambda api: list_matching(api, filters))

    async def filter_documents_async(self, filters: Filters | None = None) -> list[Document]:
        """Do what filter_documents() does, awaited."""
        return await self._handle.run_async(lambda api: list_matching(api, filters))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents; return how many were written.

        Args:
            documents: Documents with or without embeddings.
            policy: For ids that are stored already; NONE is FAIL.

        Raises:
            DuplicateDocumentError: By policy FAIL, before anything is written.

        """
        return self._handle.run_sync(lambda api: self._write(api, documents, policy))

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Do what write_documents() does, awaited."""
        return await self._handle.run_async(lambda api: self._write(api, documents, policy))

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete the documents of these ids that exist."""
        self._handle.run_sync(lambda api: api.delete(ids=document_ids))

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Do what delete_documents() does, awaited."""
        await self._handle.run_async(lambda api: api.delete(ids=document_ids))

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Delete all documents; with recreate_index give their bytes back too, which a server does by itself."""
        self._handle.run_sync(lambda api: _delete_all(api, recreate_index))

    async def delete_all_documents_async(self, recreate_index: bool = False) -> None:
        """Do what delete_all_documents() does, awaited."""
        await self._handle.run_async(lambda api: _delete_all(api, recreate_index))

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that match; return how many there were."""
        return self._handle.run_sync(lambda api: delete_matching(api, filters))

    async def delete_by_filter_async(self, filters: Filters) -> int:
        """Do what delete_by_filter() does, awaited."""
        return await self._handle.run_async(lambda api: delete_matching(api, filters))

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Set these keys of the meta of the documents that match, without encoding again; return how many matched."""
        return self._handle.run_sync(lambda api: update_matching(api, filters, meta))

    async def update_by_filter_async(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Do what update_by_filter() does, awaited."""
        return await self._handle.run_async(lambda api: update_matching(api, filters, meta))

    def count_documents_by_filter(self, filters: Filters) -> int:
        """Return the number of documents that match."""
        return self._handle.run_sync(lambda api: count_matching(api, filters))

    async def count_documents_by_filter_async(self, filters: Filters) -> int:
        """Do what count_documents_by_filter() does, awaited."""
        return await self._handle.run_async(lambda api: count_matching(api, filters))

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Return the number of distinct values of each field among the documents that match."""
        return self._handle.run_sync(lambda api: count_distinct(scan_matching(api, filters), metadata_fields))

    async def count_unique_metadata_by_filter_async(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """Do what count_unique_metadata_by_filter() does, awaited."""
        return await self._handle.run_async(lambda api: count_distinct(scan_matching(api, filters), metadata_fields))

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the fields of the documents' meta, each with its "type": keyword, int, float or boolean."""
        return self._handle.run_sync(lambda api: field_types(scan_matching(api, None)))

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """Do what get_metadata_fields_info() does, awaited."""
        return await self._handle.run_async(lambda api: field_types(scan_matching(api, None)))

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return "min" and "max" of a field; None for no value, or a mix of texts and numbers."""
        return self._handle.run_sync(lambda api: min_and_max(scan_matching(api, None), metadata_field))

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """Do what get_metadata_field_min_max() does, awaited."""
        return await self._handle.run_async(lambda api: min_and_max(scan_matching(api, None), metadata_field))

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Return a page of a field's distinct values, sorted by their text, and how many there are in all.

        Args:
            metadata_field: The field, with or without "meta.".
            search_term: Only values whose text has this term.
            from_: Number of values before the page.
            size: Most values of the page.
            filters: Only documents that match.

        """
        page = _page(from_, size)
        return self._handle.run_sync(
            lambda api: list_values(scan_matching(api, filters), metadata_field, search_term, page)
        )

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Do what get_metadata_field_unique_values() does, awaited."""
        page = _page(from_, size)
        return await self._handle.run_async(
            lambda api: list_values(scan_matching(api, filters), metadata_field, search_term, page)
        )

    def retrieve(self, query: str | Sequence[float], filters: Filters | None, **options: Any) -> list[Document]:
        """Return the best documents of a text or an embedding, for retrievers; options as of a retriever."""
        return self._handle.run_sync(lambda api: self._retrieve(api, query, filters, **options))

    async def retrieve_async(
        self, query: str | Sequence[float], filters: Filters | None, **options: Any
    ) -> list[Document]:
        """Do what retrieve() does, awaited."""
        return await self._handle.run_async(lambda api: self._retrieve(api, query, filters, **options))

    async def _retrieve(  # noqa: PLR0913 - what a retriever may choose
        self,
        api: AsyncIndexAPI,
        query: str | Sequence[float],
        filters: Filters | None,
        *,
        top_k: int,
        text: str | None = None,
        return_embedding: bool = False,
        has_view_scores: bool = True,
        **search: Any,
    ) -> list[Document]:
        """Return the best documents.

        Args:
            api: The index.
            query: The text or the embedding.
            filters: Haystack's filters.
            top_k: Number of documents.
            text: The text of an embedding's query.
            return_embedding: Return documents with their embeddings.
            has_view_scores: Return every view's score.
            **search: Other options of Index.search().

        """
        await self._decide_views(api)
        if is_blank(query) and is_like(search):
            prepared = Query(source=None)
        else:
            prepared = await self._prepare_query(api, query, text, has_view_scores, search.get("mode", "auto"))
        result = await search_documents(api, prepared, filters, top_k, search)
        cited = await citations(api, prepared.vector if has_view_scores else None, result)
        return [
            _with_citation(original_document(hit), hit.score, one, return_embedding)
            for hit, one in zip(result.hits, cited, strict=True)
        ]

    async def _prepare_query(  # noqa: PLR0913, PLR0917 - the parts of a query
        self, api: AsyncIndexAPI, query: str | Sequence[float], text: str | None, has_view_scores: bool, mode: str
    ) -> Query:
        if not isinstance(query, str):
            return Query(source=None if mode == "lexical" else self._vector(query), text=text)
        if mode == "lexical":
            return Query(source=None, text=query)
        if self._takes_embeddings:
            raise ConfigError(
                "query: expected an embedding, as the store holds given ones, got a text. Use MVIndexEmbeddingRetriever"
            )
        # Encoded once, for the search and for the scores of views.
        vectors = await api.encode_queries([query]) if has_view_scores else None
        return Query(source=query if vectors is None else vectors[0], text=query)

    def _vector(self, embedding: Sequence[float]) -> Floats:
        is_cosine = self._takes_embeddings is not False and self.similarity == "cosine"
        vector: Floats = unit_rows([embedding], 1)[0] if is_cosine else embeddings_of(embedding).astype(np.float32)
        return vector

    async def _decide_views(self, api: AsyncIndexAPI, documents: Sequence[Document] = ()) -> None:
        """Decide whether embeddings are the views, as soon as the index or documents to be written tell."""
        if self._takes_embeddings is not None:
            return
        info = await api.info()
        if info is not None:
            self._takes_embeddings, self._dim = info.encoder is None, info.dim
        elif documents:
            lengths = [len(document.embedding) for document in documents if document.embedding is not None]
            self._takes_embeddings, self._dim = bool(lengths), next(iter(lengths), None)

    async def _write(self, api: AsyncIndexAPI, documents: list[Document], policy: DuplicatePolicy) -> int:
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError(f"documents: expected a list of haystack.Document, got {documents!r:.80}")
        policy = _parsed_policy(policy)
        with api.write_lock:
            fresh = await documents_to_write(api, documents, policy)
            await self._decide_views(api, fresh)
            with show_added(len(fresh), None) as on_progress:
                for begin in range(0, len(fresh), BATCH):
                    await self._add(api, fresh[begin : begin + BATCH], on_progress)
        return len(documents) if policy is DuplicatePolicy.OVERWRITE else len(fresh)

    async def _add(self, api: AsyncIndexAPI, batch: Sequence[Document], on_progress: CountCallback) -> None:
        if not self._takes_embeddings:
            hooks = IngestHooks(on_progress=on_progress)
            await api.add([stored_document(document, None) for document in batch], hooks=hooks)
            return
        items = [stored_document(document, document.embedding is not None) for document in batch]
        rows = [None if document.embedding is None else self._vector(document.embedding) for document in batch]
        # An index stores no document without a view; a zero vector scores 0, and retrievers leave it out.
        zero = np.zeros(self._dim or 1, dtype=np.float32)
        await api.add_views(items, [zero if row is None else row for row in rows])
        on_progress(len(batch))


def _page(begin: int, size: int) -> slice:
    """Return the places of a page; ValueError for what are no whole numbers from 0 on."""
    for name, number in (("from_", begin), ("size", size)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{name}: expected a whole number from 0 on, got {number!r:.60}")
    return slice(begin, begin + size)


def _parsed_policy(policy: object) -> DuplicatePolicy:
    """Return the policy, also of one that is named by a text; ValueError for another."""
    try:
        return DuplicatePolicy(policy)
    except ValueError as err:
        names = ", ".join(each.value for each in DuplicatePolicy)
        raise ValueError(f"policy: expected a DuplicatePolicy ({names}), got {policy!r:.60}") from err


async def _delete_all(api: AsyncIndexAPI, recreate_index: bool) -> None:
    await api.delete(all=True)
    if recreate_index:
        await api.compact()


def _with_citation(document: Document, score: float, cited: dict[str, Any], has_embedding: bool) -> Document:
    embedding = document.embedding if has_embedding else None
    return replace(document, score=score, embedding=embedding, meta={**document.meta, HIT_KEY: cited})
