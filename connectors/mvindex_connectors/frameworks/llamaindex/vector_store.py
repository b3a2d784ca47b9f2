"""MVIndexVectorStore: an index as LlamaIndex's vector store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from mvindex.encoder import EncoderLike
from mvindex.encoder.checkpoint.hub import DEFAULT
from mvindex.errors import ConfigError, QueryError
from mvindex.index import IndexProtocol
from mvindex.ingest import IngestHooks
from mvindex.records import CountCallback, Floats, SearchResult, check_count, sliced
from mvindex_connectors.frameworks.citations import citations, stored_fields
from mvindex_connectors.frameworks.connection import AsyncIndexAPI, IndexHandle, IndexLike, show_address
from mvindex_connectors.frameworks.filter_pushdown import ALL
from mvindex_connectors.frameworks.llamaindex.nodes import (
    delete_document,
    delete_nodes,
    list_nodes,
    node_text,
    original_node,
    pack_row,
    plan_filters,
    stored_node,
    unpack_row,
)
from mvindex_connectors.frameworks.query import (
    MMR,
    Query,
    choose_diverse,
    is_blank,
    is_like,
    list_first,
    search_filtered,
    winning_views,
)
from mvindex_connectors.frameworks.views import (
    check_items,
    embed_in_parts,
    embeddings_of,
    group_rows,
    show_added,
    spans_of,
    unit_rows,
)

# Nodes embedded and committed at once.
BATCH = 1000
# As in LlamaIndex's other stores: MMR chooses from so many times top_k nodes, with this weight of relevance.
MMR_FACTOR, MMR_THRESHOLD = 4, 0.5


class MVIndexVectorStore(BasePydanticVectorStore):
    """An index as a vector store; adding an id again replaces its node. Higher scores are better.

    Give at most one of `encoder`, `embed_model` and `embedding_dim`. With none of them an index that exists decides; a
    new one takes the embeddings of nodes where the first ones have some, else it encodes.

    Attributes:
        index: A directory, milvus://..., milvus-lite:... or grpc://host:port/name; created by the first write.
        encoder: The encoder of a new index that makes the views of texts itself.
        embed_model: The model that embeds each snippet of a text, which becomes a view.
        embedding_dim: Dimensions of the nodes' own embeddings, one view each.
        max_snippets: With `embed_model`: most snippets of a text.
        lexical: The terms of a new index, "unicode", "english", "auto" (by the first texts) or "none". In a
            directory or in Milvus "auto" is the default.
        cites: Add a citation, metadata["mvindex"], to found nodes; see docs/how-to/llamaindex.md.
        has_view_scores: Add every view's score to the citation; one more call on a server and in Milvus.
        progress: Show a bar on stderr while nodes are added; by default on a terminal, for 50 or more.

    """

    stores_text: bool = True
    index: str
    encoder: Any = Field(default=None, exclude=True)
    embed_model: BaseEmbedding | None = Field(default=None, exclude=True)
    embedding_dim: int | None = None
    max_snippets: int = 8
    lexical: str | None = None
    cites: bool = True
    has_view_scores: bool = True
    progress: bool | None = None
    _handle: IndexHandle = PrivateAttr()
    # Whether nodes' embeddings are the views; None until the index, or the first nodes, decide.
    _takes_embeddings: bool | None = PrivateAttr(None)

    def __init__(
        self,
        index: IndexLike,
        *,
        encoder: EncoderLike | None = None,
        embed_model: BaseEmbedding | None = None,
        embedding_dim: int | None = None,
        **options: Any,
    ) -> None:
        """Make a store over an index, which is opened when it is first needed, and created by the first write.

        Args:
            index: As the attribute, or an open index.
            encoder: As the attribute.
            embed_model: As the attribute.
            embedding_dim: As the attribute.
            **options: The other attributes.

        Raises:
            ConfigError: For more than one of encoder, embed_model and embedding_dim.

        """
        if sum(each is not None for each in (encoder, embed_model, embedding_dim)) > 1:
            raise ConfigError("expected at most one of encoder, embed_model and embedding_dim, got several")
        unknown = options.keys() - type(self).model_fields.keys() - {"class_name"}
        if unknown:
            raise TypeError(f"MVIndexVectorStore(): expected no argument {', '.join(sorted(unknown))}")
        check_count("max_snippets", options.get("max_snippets", 1))
        has_vectors = embed_model is not None or embedding_dim is not None
        accepts_both = encoder is None and not has_vectors
        chosen = None if has_vectors else encoder or DEFAULT
        handle = IndexHandle(index, chosen, embedding_dim, options.get("lexical"), accepts_both=accepts_both)
        # Where it is False LlamaIndex embeds no queries: they arrive as texts.
        options["is_embedding_query"] = embedding_dim is not None or accepts_both
        super().__init__(
            index=handle.path, encoder=encoder, embed_model=embed_model, embedding_dim=embedding_dim, **options
        )
        self._handle = handle
        self._takes_embeddings = None if accepts_both else embedding_dim is not None

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex registers the class by."""
        return "MVIndexVectorStore"

    @field_serializer("index")
    def _shown(self, index: str) -> str:
        """Return the address without secrets."""
        return show_address(index)

    @property
    def client(self) -> IndexProtocol | None:
        """The index at its latest state; None where there is none yet."""
        return self._handle.open()

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

    def persist(self, persist_path: str = "", fs: Any = None) -> None:
        """Do nothing, for StorageContext: nodes are stored when they are added."""

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Add nodes; return their ids."""
        return self._handle.run_sync(lambda api: self._add(api, nodes))

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Do what add() does, awaited."""
        return await self._handle.run_async(lambda api: self._add(api, nodes))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document; QueryError for an id that is no string."""
        self._handle.run_sync(lambda api: delete_document(api, ref_doc_id))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Do what delete() does, awaited."""
        await self._handle.run_async(lambda api: delete_document(api, ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes of the ids that match; ValueError for neither ids nor filters: clear() deletes all."""
        self._handle.run_sync(lambda api: delete_nodes(api, node_ids, filters))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Do what delete_nodes() does, awaited."""
        await self._handle.run_async(lambda api: delete_nodes(api, node_ids, filters))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that match, all or those of the ids that exist, in the order of the ids."""
        return self._handle.run_sync(lambda api: list_nodes(api, node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Do what get_nodes() does, awaited."""
        return await self._handle.run_async(lambda api: list_nodes(api, node_ids, filters))

    def clear(self) -> None:
        """Delete all nodes."""
        self._handle.run_sync(lambda api: api.delete(all=True))

    async def aclear(self) -> None:
        """Do what clear() does, awaited."""
        await self._handle.run_async(lambda api: api.delete(all=True))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes.

        Args:
            query: LlamaIndex's query; its mode is DEFAULT, TEXT_SEARCH, HYBRID or MMR. With a filter and the text "" it
                lists the first nodes that match, with similarity 0 and no citation.
            **kwargs: exact, scoring, fusion... of Index.search(); mmr_threshold, mmr_prefetch_k of MMR.

        Raises:
            ValueError: For another mode, or a query without what its mode needs.

        """
        return self._handle.run_sync(lambda api: self._query(api, query, kwargs))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Do what query() does, awaited."""
        return await self._handle.run_async(lambda api: self._query(api, query, kwargs))

    async def _add(self, api: AsyncIndexAPI, nodes: Sequence[BaseNode]) -> list[str]:
        # The last of an id counts, as if they had been added one after the other.
        nodes = check_items("nodes", nodes, BaseNode)
        latest = list({node.node_id: node for node in nodes}.values())
        await self._decide_views(api, latest)
        with show_added(len(latest), self.progress) as on_progress:
            for batch in sliced(latest, BATCH):
                if self.embed_model is not None:
                    await self._add_snippets(api, batch, on_progress)
                elif self._takes_embeddings:
                    await self._add_embedded(api, batch)
                    on_progress(len(batch))
                else:
                    hooks = IngestHooks(on_progress=on_progress)
                    await api.add([stored_node(node, {}) for node in batch], hooks=hooks)
        return [node.node_id for node in nodes]

    async def _decide_views(self, api: AsyncIndexAPI, nodes: Sequence[BaseNode] = ()) -> None:
        """Decide whether nodes' embeddings are the views, as soon as the index or nodes to be added tell."""
        if self._takes_embeddings is not None:
            return
        info = await api.info()
        if info is not None:
            self._takes_embeddings = info.encoder is None
        elif nodes:
            self._takes_embeddings = any(node.embedding is not None for node in nodes)
        if self._takes_embeddings is False:
            self.is_embedding_query = False

    async def _add_embedded(self, api: AsyncIndexAPI, batch: Sequence[BaseNode]) -> None:
        """Add nodes whose embeddings are their views, which stand for their whole texts."""
        missing = [node.node_id for node in batch if node.embedding is None]
        if missing:
            raise ValueError(
                f"node {missing[0]!r}: expected an embedding, which is the node's view in this index, got none"
            )
        rows = unit_rows([node.embedding for node in batch], len(batch))
        items = [
            stored_node(node, {"spans": [[0, len(node_text(node))]], "row": pack_row(row)})
            for node, row in zip(batch, rows, strict=True)
        ]
        await api.add_views(items, [row[None] for row in rows])

    async def _add_snippets(self, api: AsyncIndexAPI, batch: Sequence[BaseNode], on_progress: CountCallback) -> None:
        texts = [node_text(node) for node in batch]
        spans = [spans_of(text, self.max_snippets) for text in texts]
        snippets = [text[begin:end] for text, own in zip(texts, spans, strict=True) for begin, end in own]
        sizes = list(map(len, spans))
        rows = await embed_in_parts(lambda part: self._embed_texts(api, part), snippets, sizes, on_progress)
        items = [
            stored_node(node, {"spans": [list(span) for span in own]}) for node, own in zip(batch, spans, strict=True)
        ]
        await api.add_views(items, group_rows(rows, sizes))

    async def _embed_texts(self, api: AsyncIndexAPI, texts: list[str]) -> Floats:
        """Return a unit vector per text of a node."""
        if self.embed_model is None:
            vectors = await api.encode_queries(texts)
            return np.empty((0, 1), dtype=np.float32) if vectors is None else vectors
        if api.is_blocking:
            return unit_rows(self.embed_model.get_text_embedding_batch(texts), len(texts))
        return unit_rows(await self.embed_model.aget_text_embedding_batch(texts), len(texts))

    async def _query(
        self, api: AsyncIndexAPI, query: VectorStoreQuery, options: dict[str, Any]
    ) -> VectorStoreQueryResult:
        query = replace(query, mode=_parsed_mode(query.mode))
        if query.mode is VectorStoreQueryMode.MMR:
            return await self._diverse(api, query, options)
        search, top_k = {**options, **_mode_options(query)}, query.similarity_top_k
        if query.mode is VectorStoreQueryMode.HYBRID and query.hybrid_top_k is not None:
            top_k = query.hybrid_top_k
        plan = plan_filters(query)
        if query.query_embedding is not None and is_blank(query.query_str):
            query = replace(query, query_str=None)
        if plan.pushed != ALL and is_blank(query.query_str) and not is_like(search):
            listed = await list_first(api, plan, top_k)
            ids, nodes = [one.id for one in listed], [original_node(one) for one in listed]
            return VectorStoreQueryResult(nodes=nodes, similarities=[0.0] * len(nodes), ids=ids)
        prepared = await self._prepare_query(api, query, search)
        result = await search_filtered(api, prepared, plan, top_k, search)
        return await self._query_result(api, prepared, result)

    async def _prepare_query(self, api: AsyncIndexAPI, query: VectorStoreQuery, options: Mapping[str, Any]) -> Query:
        """Return the query for the index: a vector, or a text where the index encodes."""
        if is_like(options) and not query.query_str and query.query_embedding is None:
            return Query(source=None)
        await self._decide_views(api)
        text = query.query_str
        if query.mode is VectorStoreQueryMode.TEXT_SEARCH:
            if text is None:
                raise ValueError("query mode 'text_search': expected query_str, got None")
            return Query(source=None, text=text)
        # LlamaIndex's model may have embedded the query to an index that encodes itself.
        encodes = self._takes_embeddings is False and self.embed_model is None and self.encoder is None
        if query.query_embedding is not None and not (encodes and text is not None):
            return Query(source=self._vector(query.query_embedding), text=text)
        if text is None or self._takes_embeddings:
            needed = "query_embedding" if self._takes_embeddings else "query_str"
            raise ValueError(f"query to {self._handle.shown_path}: expected {needed}, got None")
        return Query(source=await self._embed_query(api, text), text=text)

    async def _embed_query(self, api: AsyncIndexAPI, text: str) -> Any:
        """Return the vector of a query text, or the text itself where only the index can encode it."""
        if self.embed_model is None:
            # Encoded once, for the search and for the scores of views.
            vectors = await api.encode_queries([text]) if self.cites and self.has_view_scores else None
            return text if vectors is None else vectors[0]
        if api.is_blocking:
            return self._vector(self.embed_model.get_query_embedding(text))
        return self._vector(await self.embed_model.aget_query_embedding(text))

    def _vector(self, embedding: Any) -> Floats:
        """Return a query vector; of length 1, as the views are, unless the index's own encoder made them."""
        is_own = self.embed_model is None and self._takes_embeddings is False
        vector: Floats = embeddings_of(embedding).astype(np.float32) if is_own else unit_rows([embedding], 1)[0]
        return vector

    async def _diverse(
        self, api: AsyncIndexAPI, query: VectorStoreQuery, options: dict[str, Any]
    ) -> VectorStoreQueryResult:
        """Return the nodes in the order in which MMR chooses them, with their MMR scores."""
        search = MMR.options(options)
        mmr = _mmr_of(query, search)
        prepared = await self._prepare_query(api, query, search)
        result = await search_filtered(api, prepared, plan_filters(query), max(mmr.depth, mmr.top_k), search)
        if not result.hits:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        vector = prepared.vector
        if vector is None and prepared.source is not None:
            vector = (await self._embed_texts(api, [prepared.source]))[0]
        diverse = choose_diverse(result, await self._views(api, result), vector, mmr)
        chosen = SearchResult(tuple(result.hits[row] for row in diverse.rows), result.exact, 0, result.rounds)
        answer = await self._query_result(api, prepared, chosen)
        answer.similarities = diverse.scores
        return answer

    async def _views(self, api: AsyncIndexAPI, result: SearchResult) -> Floats:
        """Return the winning view of each hit; where a server sends none, the node's stored embedding if it has one."""

        async def embed(texts: list[str]) -> Floats:
            if self._takes_embeddings:
                return np.array([unpack_row(stored_fields(hit.metadata)["row"]) for hit in result.hits])
            return await self._embed_texts(api, texts)

        return await winning_views(api, result, embed)

    async def _query_result(self, api: AsyncIndexAPI, query: Query, result: SearchResult) -> VectorStoreQueryResult:
        cited: Sequence[dict[str, Any] | None] = [None] * len(result.hits)
        if self.cites:
            cited = await citations(api, query.vector if self.has_view_scores else None, result)
        return VectorStoreQueryResult(
            nodes=[original_node(hit, one) for hit, one in zip(result.hits, cited, strict=True)],
            similarities=[hit.score for hit in result.hits],
            ids=[hit.id for hit in result.hits],
        )


def _parsed_mode(mode: object) -> VectorStoreQueryMode:
    """Return the mode of a query, also of one that has it as a text; ValueError for another."""
    try:
        return VectorStoreQueryMode(mode)
    except ValueError as err:
        raise ValueError(f"query mode: expected default, hybrid, text_search or mmr, got {mode!r:.60}") from err


def _mmr_of(query: VectorStoreQuery, options: dict[str, Any]) -> MMR:
    """Return the parameters of MMR of a query, and take those of LlamaIndex' own out of its options."""
    top_k, factor = query.similarity_top_k, options.pop("mmr_prefetch_factor", MMR_FACTOR)
    check_count("similarity_top_k", top_k)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 1:
        raise QueryError(f"mmr_prefetch_factor: expected a number from 1 on, got {factor!r:.60}")
    depth, threshold = options.pop("mmr_prefetch_k", None), options.pop("mmr_threshold", None)
    if query.mmr_threshold is not None:
        threshold = query.mmr_threshold
    return MMR(
        top_k, int(factor * top_k) if depth is None else depth, MMR_THRESHOLD if threshold is None else threshold
    ).checked(("similarity_top_k", "mmr_prefetch_k", "mmr_threshold"))


def _mode_options(query: VectorStoreQuery) -> dict[str, Any]:
    """Return the options of Index.search() for the query's mode."""
    if query.mode is VectorStoreQueryMode.DEFAULT:
        return {}
    if query.mode is VectorStoreQueryMode.TEXT_SEARCH:
        return {"mode": "lexical"}
    if query.mode is not VectorStoreQueryMode.HYBRID:
        raise ValueError(f"query mode: expected default, hybrid, text_search or mmr, got {query.mode.value!r}")
    if query.alpha is None:
        return {"mode": "hybrid"}
    if isinstance(query.alpha, bool) or not isinstance(query.alpha, int | float) or not 0 <= query.alpha <= 1:
        raise QueryError(f"alpha: expected a number from 0 to 1, got {query.alpha!r:.60}")
    return {"mode": "hybrid", "weights": (query.alpha, 1 - query.alpha)}
