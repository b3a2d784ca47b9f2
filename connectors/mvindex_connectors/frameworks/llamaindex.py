"""MVIndexVectorStore: an index as LlamaIndex's vector store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mvindex.plugins import require

# Before the imports of it: names the command that installs what is missing.
require("llama_index.core", "llamaindex", "the LlamaIndex store")

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from mvindex.errors import ConfigError
from mvindex.index import Index
from mvindex.index.backends import find_backend
from mvindex.index.options import EncoderLike
from mvindex.records import Floats, SearchResult
from mvindex_connectors.frameworks.citations import citation, citations, kept
from mvindex_connectors.frameworks.connection import Place, Reach
from mvindex_connectors.frameworks.llamaindex_filters import REF_FIELD
from mvindex_connectors.frameworks.llamaindex_nodes import given_node, node_text, packed, stored_node, unpacked
from mvindex_connectors.frameworks.llamaindex_operations import deleted, listed, wanted_nodes
from mvindex_connectors.frameworks.query import Asked, found
from mvindex_connectors.frameworks.sync_adapter import Blocking
from mvindex_connectors.frameworks.views import spans_of, unit_rows

# Nodes embedded and committed at once.
BATCH = 1000
# As in LlamaIndex's other stores: of so many times top_k nodes MMR chooses, with this weight of likeness to the query.
MMR_FACTOR, MMR_THRESHOLD = 4, 0.5


class MVIndexVectorStore(BasePydanticVectorStore):
    """An index, with LlamaIndex's nodes and their ids: adding an id again replaces its node.

    index: a directory, milvus://..., milvus-lite:..., grpc://host:port/name, or an open Index. One that is not there is
    made when something is added; until then it is empty. Who embeds: with encoder ("minilm", of an index to be made)
    the index itself, several views a text; or embed_model, which embeds each snippet of a text, up to max_snippets, by
    itself; or, with embedding_dim, LlamaIndex, whose one embedding a node is its one view. With none of them the index
    says which of the first and the last it is; one that is made takes the embeddings of nodes that have some, else
    encodes ("minilm"). lexical: "unicode" or "english", of an index to be made, and HYBRID and TEXT_SEARCH work. Scores
    are cosines, higher is better. cites: found nodes carry metadata["mvindex"], see docs/llamaindex.md.
    has_view_scores: with every view's score; on a server and in Milvus that is one more call.
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
    _place: Place = PrivateAttr()
    # Whether nodes' embeddings are the views; None until the index, or the first nodes, say so.
    _takes_embeddings: bool | None = PrivateAttr(None)

    def __init__(
        self,
        index: Index | str | os.PathLike[str],
        *,
        encoder: EncoderLike | None = None,
        embed_model: BaseEmbedding | None = None,
        embedding_dim: int | None = None,
        **options: Any,
    ) -> None:
        if sum(each is not None for each in (encoder, embed_model, embedding_dim)) > 1:
            raise ConfigError(
                "give one of encoder (the index embeds), embed_model (snippets), embedding_dim (nodes do)"
            )
        has_vectors = embed_model is not None or embedding_dim is not None
        is_open_to_both = encoder is None and not has_vectors
        chosen = None if has_vectors else encoder or "minilm"
        place = Place(index, chosen, embedding_dim, options.get("lexical"), takes_either=is_open_to_both)
        # Without it LlamaIndex embeds no questions: they come as texts.
        options["is_embedding_query"] = embedding_dim is not None or is_open_to_both
        super().__init__(
            index=place.path, encoder=encoder, embed_model=embed_model, embedding_dim=embedding_dim, **options
        )
        self._place = place
        self._takes_embeddings = None if is_open_to_both else embedding_dim is not None

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex knows it by."""
        return "MVIndexVectorStore"

    @field_serializer("index")
    def _shown(self, index: str) -> str:
        """Without secrets."""
        backend = find_backend(index)
        return index if backend is None else backend.shown(index)

    @property
    def client(self) -> Index | None:
        """The index, at its latest state; None where none is yet."""
        return self._place.opened()

    def close(self) -> None:
        """Nothing; the index is closed, unless it was given open, and opened again by the next call."""
        self._place.close()

    async def aclose(self) -> None:
        """Nothing; the index and this event loop's connection are closed."""
        await self._place.aclose()

    def persist(self, persist_path: str = "", fs: Any = None) -> None:
        """Nothing, and nothing is written: what was added is in the index. It is there for StorageContext."""

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """The ids of the nodes, which are added."""
        return self._place.now(lambda reach: self._add(reach, nodes))

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """add(), awaited."""
        return await self._place.awaited(lambda reach: self._add(reach, nodes))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Nothing; the nodes of this document are gone."""
        self._place.now(lambda reach: reach.delete(filter={REF_FIELD: ref_doc_id}))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """delete(), awaited."""
        await self._place.awaited(lambda reach: reach.delete(filter={REF_FIELD: ref_doc_id}))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Nothing; the nodes of the ids that match are gone. ValueError for neither; clear() deletes everything."""
        self._place.now(lambda reach: deleted(reach, node_ids, filters))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """delete_nodes(), awaited."""
        await self._place.awaited(lambda reach: deleted(reach, node_ids, filters))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """The nodes of the ids that exist, in their order, or all, that match; as they were added."""
        return self._place.now(lambda reach: listed(reach, node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """get_nodes(), awaited."""
        return await self._place.awaited(lambda reach: listed(reach, node_ids, filters))

    def clear(self) -> None:
        """Nothing; every node is gone."""
        self._place.now(lambda reach: reach.delete(filter={}))

    async def aclear(self) -> None:
        """clear(), awaited."""
        await self._place.awaited(lambda reach: reach.delete(filter={}))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The best nodes. kwargs: exact, scoring, fusion... of Index.search(); mmr_threshold, mmr_prefetch_k of MMR."""
        return self._place.now(lambda reach: self._query(reach, query, kwargs))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """query(), awaited."""
        return await self._place.awaited(lambda reach: self._query(reach, query, kwargs))

    async def _add(self, reach: Reach, nodes: Sequence[BaseNode]) -> list[str]:
        # The last of an id counts, as if they had been added one after the other.
        latest = list({node.node_id: node for node in nodes}.values())
        await self._settle(reach, latest)
        for begin in range(0, len(latest), BATCH):
            batch = latest[begin : begin + BATCH]
            if self.embed_model is not None:
                await self._add_snippets(reach, batch)
            elif self._takes_embeddings:
                await self._add_embedded(reach, batch)
            else:
                await reach.add([stored_node(node, {}) for node in batch])
        return [node.node_id for node in nodes]

    async def _settle(self, reach: Reach, nodes: Sequence[BaseNode] = ()) -> None:
        """Nothing; whether nodes' embeddings are the views is known, if the index or the nodes to be added say so."""
        if self._takes_embeddings is not None:
            return
        info = await reach.info()
        if info is not None:
            self._takes_embeddings = info.encoder is None
        elif nodes:
            self._takes_embeddings = any(node.embedding is not None for node in nodes)
        if self._takes_embeddings is False:
            self.is_embedding_query = False

    async def _add_embedded(self, reach: Reach, batch: Sequence[BaseNode]) -> None:
        """Each node's embedding is its view, and stands for the whole text."""
        missing = [node.node_id for node in batch if node.embedding is None]
        if missing:
            raise ValueError(
                f"node {missing[0]!r} has no embedding, and the views of this index are those of its nodes"
            )
        rows = unit_rows([node.embedding for node in batch], len(batch))
        items = [
            stored_node(node, {"spans": [[0, len(node_text(node))]], "row": packed(row)})
            for node, row in zip(batch, rows, strict=True)
        ]
        await reach.add_views(items, [row[None] for row in rows])

    async def _add_snippets(self, reach: Reach, batch: Sequence[BaseNode]) -> None:
        texts = [node_text(node) for node in batch]
        spans = [spans_of(text, self.max_snippets) for text in texts]
        snippets = [text[begin:end] for text, own in zip(texts, spans, strict=True) for begin, end in own]
        rows = await self._embedded(reach, snippets)
        ends = itertools.accumulate(map(len, spans))
        items = [
            stored_node(node, {"spans": [list(span) for span in own]}) for node, own in zip(batch, spans, strict=True)
        ]
        await reach.add_views(items, [rows[end - len(own) : end] for end, own in zip(ends, spans, strict=True)])

    async def _embedded(self, reach: Reach, texts: list[str]) -> Floats:
        """A unit vector for each text of a node."""
        if self.embed_model is None:
            vectors = await reach.encode_queries(texts)
            return np.empty((0, 1), dtype=np.float32) if vectors is None else vectors
        if isinstance(reach, Blocking):
            return unit_rows(self.embed_model.get_text_embedding_batch(texts), len(texts))
        return unit_rows(await self.embed_model.aget_text_embedding_batch(texts), len(texts))

    async def _query(self, reach: Reach, query: VectorStoreQuery, options: dict[str, Any]) -> VectorStoreQueryResult:
        if query.mode is VectorStoreQueryMode.MMR:
            return await self._diverse(reach, query, options)
        search, top_k = {**options, **_way(query)}, query.similarity_top_k
        if query.mode is VectorStoreQueryMode.HYBRID and query.hybrid_top_k is not None:
            top_k = query.hybrid_top_k
        asked = await self._asked(reach, query)
        return await self._answer(reach, asked, await found(reach, asked, wanted_nodes(query), top_k, search))

    async def _asked(self, reach: Reach, query: VectorStoreQuery) -> Asked:
        """The query as the index takes it: a vector, or a text where it encodes by itself."""
        await self._settle(reach)
        text = query.query_str
        if query.mode is VectorStoreQueryMode.TEXT_SEARCH:
            if text is None:
                raise ValueError("the query has no query_str, which text_search wants")
            return Asked(query=None, text=text)
        # A model of LlamaIndex's may have embedded the question of an index that encodes by itself.
        encodes = self._takes_embeddings is False and self.embed_model is None and self.encoder is None
        if query.query_embedding is not None and not (encodes and text is not None):
            return Asked(query=self._vector(query.query_embedding), text=text)
        if text is None or self._takes_embeddings:
            wanted = "query_embedding" if self._takes_embeddings else "query_str"
            raise ValueError(f"the query has no {wanted}, which this store and mode want")
        return Asked(query=await self._embedded_query(reach, text), text=text)

    async def _embedded_query(self, reach: Reach, text: str) -> Any:
        """The vector of a question; the text itself where only the index can tell."""
        if self.embed_model is None:
            # Encoded once, for the search and for the scores of views.
            vectors = await reach.encode_queries([text]) if self.cites and self.has_view_scores else None
            return text if vectors is None else vectors[0]
        if isinstance(reach, Blocking):
            return self._vector(self.embed_model.get_query_embedding(text))
        return self._vector(await self.embed_model.aget_query_embedding(text))

    def _vector(self, embedding: Any) -> Floats:
        """A query vector; of length 1, as the views are, unless the index's own encoder made them."""
        is_own = self.embed_model is None and self._takes_embeddings is False
        vector: Floats = np.asarray(embedding, dtype=np.float32) if is_own else unit_rows([embedding], 1)[0]
        return vector

    async def _diverse(self, reach: Reach, query: VectorStoreQuery, options: dict[str, Any]) -> VectorStoreQueryResult:
        """The nodes in the order in which MMR takes them, with its scores, as LlamaIndex's own function gives them."""
        search = dict(options)
        factor, given = search.pop("mmr_prefetch_factor", MMR_FACTOR), search.pop("mmr_threshold", None)
        limit = search.pop("mmr_prefetch_k", None) or int(factor * query.similarity_top_k)
        threshold = given if query.mmr_threshold is None else query.mmr_threshold
        asked = await self._asked(reach, query)
        result = await found(reach, asked, wanted_nodes(query), max(limit, query.similarity_top_k), search)
        if not result.hits:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        vector = asked.vector
        if vector is None:
            vector = (await self._embedded(reach, [asked.query]))[0]
        scores, places = get_top_k_mmr_embeddings(
            vector.tolist(),
            (await self._winning_views(reach, result)).tolist(),
            similarity_top_k=query.similarity_top_k,
            embedding_ids=list(range(len(result.hits))),
            mmr_threshold=MMR_THRESHOLD if threshold is None else threshold,
        )
        chosen = SearchResult(tuple(result.hits[place] for place in places), result.exact, 0, result.rounds)
        answer = await self._answer(reach, asked, chosen)
        answer.similarities = [float(score) for score in scores]
        return answer

    async def _winning_views(self, reach: Reach, result: SearchResult) -> Floats:
        views = reach.winning_views(result.hits) if isinstance(reach, Blocking) else None
        if views is not None:
            return views
        if self._takes_embeddings:
            return np.array([unpacked(kept(hit.metadata)["row"]) for hit in result.hits])
        return await self._embedded(reach, [citation(hit, True)["snippet"] or hit.text for hit in result.hits])

    async def _answer(self, reach: Reach, asked: Asked, result: SearchResult) -> VectorStoreQueryResult:
        cited: Sequence[dict[str, Any] | None] = [None] * len(result.hits)
        if self.cites:
            cited = await citations(reach, asked.vector if self.has_view_scores else None, result)
        return VectorStoreQueryResult(
            nodes=[given_node(hit, one) for hit, one in zip(result.hits, cited, strict=True)],
            similarities=[hit.score for hit in result.hits],
            ids=[hit.id for hit in result.hits],
        )


def _way(query: VectorStoreQuery) -> dict[str, Any]:
    """What the query's mode is to Index.search()."""
    if query.mode is VectorStoreQueryMode.DEFAULT:
        return {}
    if query.mode is VectorStoreQueryMode.TEXT_SEARCH:
        return {"mode": "lexical"}
    if query.mode is not VectorStoreQueryMode.HYBRID:
        raise ValueError(f"query mode is {query.mode.value!r}; wanted default, hybrid, text_search or mmr")
    return {"mode": "hybrid"} | ({} if query.alpha is None else {"weights": (query.alpha, 1 - query.alpha)})
