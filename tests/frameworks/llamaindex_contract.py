"""The promises of LlamaIndex's BasePydanticVectorStore as tests: subclass them and give them a store.

Answers are worked by hand: a node's embedding is its direction, all are queried by (1, 0).
"""

import asyncio

import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.schema import (
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

# Of each node: its cosine with (1, 0), its document and its metadata.
CORPUS = {
    "a": (1.0, "book", {"year": 1973, "lang": "en", "tags": ["oil", "war"], "title": "The Oil Shock"}),
    "b": (0.8, "book", {"year": 1343, "lang": "la", "tags": ["plague"], "title": "the plague"}),
    "c": (0.6, "film", {"year": 1984.5, "lang": "en", "tags": [], "title": ""}),
    "d": (0.0, None, {"lang": "el", "note": None}),
}

# Key, operator, value, and the nodes that pass: a missing key and null pass by NE, NIN and IS_EMPTY alone.
OPERATORS = [
    ("lang", "==", "en", "ac"),
    ("year", "==", 1973, "a"),
    ("year", "==", 1973.0, "a"),
    ("year", "==", "1973", ""),
    ("note", "==", None, ""),
    ("lang", "!=", "en", "bd"),
    ("year", "!=", 1973, "bcd"),
    ("year", ">", 1973, "c"),
    ("year", ">=", 1973, "ac"),
    ("year", "<", 1973, "b"),
    ("year", "<=", 1973, "ab"),
    ("lang", ">", "en", "b"),
    ("lang", "<=", "en", "acd"),
    ("lang", "in", ["la", "el"], "bd"),
    ("year", "in", [1343, 1973], "ab"),
    ("lang", "in", [], ""),
    ("lang", "nin", ["la", "el"], "ac"),
    ("year", "nin", [1343, 1973], "cd"),
    ("tags", "any", ["oil", "plague"], "ab"),
    ("tags", "all", ["oil", "war"], "a"),
    ("tags", "all", [], "abc"),
    ("tags", "contains", "plague", "b"),
    ("title", "text_match", "plague", "b"),
    ("title", "text_match", "oil", ""),
    ("title", "text_match_insensitive", "THE", "ab"),
    ("tags", "is_empty", None, "cd"),
    ("title", "is_empty", None, "cd"),
    ("note", "is_empty", None, "abcd"),
    ("tags", "any", ["war", "x"], "a"),
    ("tags", "any", [7], ""),
    ("tags", "any", [], ""),
    ("tags", "contains", "pla", ""),
    ("title", "contains", "Oil", "a"),
    ("doc_id", "==", None, ""),
    ("doc_id", "in", [], ""),
    ("doc_id", "==", "book", "ab"),
    ("ref_doc_id", "in", ["film", "None"], "cd"),
    ("document_id", "!=", "book", "cd"),
]


def corpus():
    """The nodes a to d."""
    return [node(name, cosine, ref, metadata) for name, (cosine, ref, metadata) in CORPUS.items()]


def node(name, cosine, ref=None, metadata=None):
    """A node of this cosine with (1, 0), of this document."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)} if ref else {}
    direction = [cosine, float(np.sqrt(1 - cosine**2))]
    return TextNode(
        id_=name, text=f"text of {name}", embedding=direction, metadata=dict(metadata or {}), relationships=source
    )


def by(key, operator, value):
    """One comparison as filters."""
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=FilterOperator(operator), value=value)])


def joined(condition, *filters):
    """Filters, and comparisons as triples, under one condition."""
    parts = [part if isinstance(part, MetadataFilters) else by(*part).filters[0] for part in filters]
    return MetadataFilters(filters=parts, condition=FilterCondition(condition))


def asked(top_k=10, **options):
    """A query by (1, 0)."""
    return VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=top_k, **options)


class TwoDirections(BaseEmbedding):
    """Texts on oil lie at (1, 0), all others at (0, 1)."""

    def _get_text_embedding(self, text):
        return [1.0, 0.0] if "oil" in text else [0.0, 1.0]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


class VectorStoreContract:
    """Every method of the base class. `not_done`: test -> why this store fails it, which must then be so."""

    not_done: dict[str, str] = {}

    @pytest.fixture
    def store(self):
        """An empty store for embeddings of two dimensions; to be given."""
        raise NotImplementedError

    def reopened(self, store, tmp_path):
        """The store once more, from where it was persisted; to be given."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _marked(self, request):
        reason = self.not_done.get(request.node.originalname)
        if reason:
            request.applymarker(pytest.mark.xfail(strict=True, reason=reason))

    @pytest.fixture
    def filled(self, store):
        store.add(corpus())
        return store

    def ids(self, store, query):
        return "".join(store.query(query).ids)

    def test_add_gives_the_ids_of_the_nodes(self, store):
        assert store.add(corpus()) == list("abcd")
        assert store.add([]) == []

    def test_an_empty_store_finds_nothing(self, store):
        result = store.query(asked())
        assert list(result.ids) == [] and list(result.similarities) == [] and not result.nodes

    def test_nodes_come_by_their_cosines_best_first(self, filled):
        result = filled.query(asked())
        assert result.ids == list("abcd")
        assert result.similarities == pytest.approx([1.0, 0.8, 0.6, 0.0], abs=1e-3)

    def test_no_more_than_top_k_come(self, filled):
        assert self.ids(filled, asked(2)) == "ab"

    def test_an_embedding_of_another_length_has_the_same_cosine(self, store):
        long = node("long", 0.8)
        long.embedding = [8.0, 6.0]
        store.add([long])
        assert store.query(asked()).similarities == pytest.approx([0.8], abs=1e-3)

    def test_adding_an_id_again_replaces_its_node(self, filled):
        filled.add([node("d", 0.9, "film", {"lang": "new"})])
        assert self.ids(filled, asked()) == "adbc"
        assert self.ids(filled, asked(filters=by("lang", "==", "el"))) == ""

    def test_the_last_of_an_id_counts_in_one_call(self, store):
        store.add([node("a", 0.0, metadata={"n": 1}), node("a", 1.0, metadata={"n": 2})])
        assert self.ids(store, asked(filters=by("n", "==", 2))) == "a"

    def test_a_node_without_an_embedding_is_refused_beside_others(self, filled):
        with pytest.raises(ValueError, match="embedding"):
            filled.add([TextNode(id_="x", text="no embedding")])

    def test_delete_takes_all_nodes_of_a_document_and_no_other(self, filled):
        filled.delete("book")
        assert self.ids(filled, asked()) == "cd"

    def test_deleting_the_document_none_deletes_no_node_without_a_document(self, filled):
        filled.delete(None)
        asyncio.run(filled.adelete(None))
        assert self.ids(filled, asked()) == "abcd"

    def test_deleting_an_unknown_document_changes_nothing(self, filled):
        filled.delete("a")
        filled.delete("never there")
        assert self.ids(filled, asked()) == "abcd"

    @pytest.mark.parametrize(
        ("node_ids", "filters", "left"),
        [
            (["a", "c", "never there"], None, "bd"),
            ([], None, "abcd"),
            (None, by("lang", "==", "en"), "bd"),
            (None, by("tags", "contains", "plague"), "acd"),
            (["a", "b"], by("lang", "==", "en"), "bcd"),
            (["a", "b"], by("tags", "contains", "plague"), "acd"),
        ],
    )
    def test_delete_nodes_takes_ids_filters_or_what_is_in_both(self, filled, node_ids, filters, left):
        filled.delete_nodes(node_ids, filters)
        assert self.ids(filled, asked()) == left

    def test_clear_leaves_nothing_and_the_store_can_be_filled_again(self, filled):
        filled.clear()
        assert self.ids(filled, asked()) == ""
        filled.add(corpus()[:1])
        assert self.ids(filled, asked()) == "a"

    @pytest.mark.parametrize(("key", "operator", "value", "passing"), OPERATORS)
    def test_each_operator_lets_through_what_it_should(self, filled, key, operator, value, passing):
        assert self.ids(filled, asked(filters=by(key, operator, value))) == passing

    def test_every_operator_has_a_case(self):
        assert {FilterOperator(operator) for _, operator, _, _ in OPERATORS} == set(FilterOperator)

    @pytest.mark.parametrize(("condition", "passing"), [("and", "a"), ("or", "abc"), ("not", "d")])
    def test_conditions_join_what_an_index_tells_and_what_it_does_not(self, filled, condition, passing):
        filters = joined(condition, ("lang", "==", "en"), ("tags", "any", ["oil", "plague"]))
        assert self.ids(filled, asked(filters=filters)) == passing

    @pytest.mark.parametrize(("condition", "passing"), [("and", "a"), ("or", "abc"), ("not", "d")])
    def test_conditions_join_comparisons(self, filled, condition, passing):
        filters = joined(condition, ("lang", "==", "en"), ("year", "<", 1980))
        assert self.ids(filled, asked(filters=filters)) == passing

    def test_no_filters_let_everything_through(self, filled):
        assert self.ids(filled, asked(filters=MetadataFilters(filters=[]))) == "abcd"

    def test_filters_nest(self, filled):
        inner = joined("or", ("year", "<", 1500), ("tags", "contains", "oil"))
        assert self.ids(filled, asked(filters=joined("and", ("lang", "!=", "la"), inner))) == "a"
        assert self.ids(filled, asked(filters=joined("not", inner))) == "cd"

    def test_top_k_nodes_come_of_those_that_pass(self, filled):
        assert self.ids(filled, asked(1, filters=by("tags", "is_empty", None))) == "c"
        assert self.ids(filled, asked(1, filters=by("year", "<", 1500))) == "b"

    def test_a_query_may_be_of_some_nodes(self, filled):
        assert self.ids(filled, asked(node_ids=["b", "d", "x"])) == "bd"
        assert self.ids(filled, asked(node_ids=["b", "d"], filters=by("lang", "==", "la"))) == "b"

    def test_a_query_may_be_of_some_documents(self, filled):
        assert self.ids(filled, asked(doc_ids=["film", "none"])) == "c"

    def test_mmr_takes_the_unlike_one_where_plain_search_takes_a_twin(self, store):
        store.add([node("a", 0.96), node("twin", 0.95), node("other", 0.6)])
        store.add([TextNode(id_="other", text="x", embedding=[0.6, -0.8])])
        plain, mmr = VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR
        assert store.query(asked(2, mode=plain)).ids == ["a", "twin"]
        assert store.query(asked(2, mode=mmr)).ids == ["a", "other"]
        result = store.query(asked(2, mode=mmr), mmr_threshold=1.0)
        assert result.ids == ["a", "twin"] and result.similarities == pytest.approx([0.96, 0.95], abs=2e-3)

    def test_mmr_heeds_the_threshold_of_the_query(self, store):
        store.add([node("a", 0.96), node("twin", 0.95), TextNode(id_="other", text="x", embedding=[0.6, -0.8])])
        query = asked(2, mode=VectorStoreQueryMode.MMR, mmr_threshold=1.0)
        assert store.query(query).ids == ["a", "twin"]

    def test_mmr_heeds_filters(self, filled):
        query = asked(2, mode=VectorStoreQueryMode.MMR, filters=by("lang", "==", "en"))
        assert filled.query(query).ids == ["a", "c"]

    def test_a_mode_that_is_not_there_is_refused(self, filled):
        with pytest.raises(ValueError, match="mode"):
            filled.query(asked(mode=VectorStoreQueryMode.SEMANTIC_HYBRID))

    def test_get_nodes_gives_those_of_the_ids_that_exist(self, filled):
        assert [found.node_id for found in filled.get_nodes(["c", "never there", "a"])] == ["c", "a"]
        assert [found.node_id for found in filled.get_nodes(["c", "b"], by("lang", "==", "la"))] == ["b"]

    def test_get_nodes_gives_those_that_match_or_all(self, filled):
        assert [found.node_id for found in filled.get_nodes(filters=by("tags", "contains", "war"))] == ["a"]
        assert sorted(found.node_id for found in filled.get_nodes()) == list("abcd")

    def test_nodes_come_back_as_they_were_added(self, store):
        given = every_kind()
        store.add([each.model_copy(update={"embedding": [1.0, 0.0]}) for each in given])
        for each in given:
            (found,) = store.get_nodes([each.node_id])
            assert type(found) is type(each) and found == each and found.hash == each.hash
            assert list(found.metadata) == list(each.metadata)

    def test_a_query_gives_the_nodes_with_their_text_and_metadata(self, filled):
        nodes = filled.query(asked(1)).nodes
        assert nodes[0].get_content() == "text of a" and nodes[0].ref_doc_id == "book"
        assert CORPUS["a"][2].items() <= nodes[0].metadata.items()

    def test_a_persisted_store_is_there_again(self, filled, tmp_path):
        again = self.reopened(filled, tmp_path)
        assert self.ids(again, asked(filters=by("lang", "==", "en"))) == "ac"
        again.delete("book")
        assert self.ids(again, asked()) == "cd"

    def test_every_method_can_be_awaited(self, store):
        async def run():
            assert await store.async_add(corpus()) == list("abcd")
            assert (await store.aquery(asked(2))).ids == ["a", "b"]
            await store.adelete("film")
            await store.adelete_nodes(["a"])
            await store.adelete_nodes(filters=by("lang", "==", "el"))
            assert (await store.aquery(asked())).ids == ["b"]
            await store.aclear()
            assert list((await store.aquery(asked())).ids) == []

        asyncio.run(run())

    def test_get_nodes_can_be_awaited(self, filled):
        assert [found.node_id for found in asyncio.run(filled.aget_nodes(["b"]))] == ["b"]

    def test_an_index_over_the_store_finds_what_was_inserted_and_forgets_what_was_deleted(self, store):
        context = StorageContext.from_defaults(vector_store=store)
        documents = [Document(text="oil price", doc_id="o"), Document(text="plague", doc_id="p")]
        index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=TwoDirections())
        best = index.as_retriever(similarity_top_k=1).retrieve("oil?")[0]
        assert best.node.ref_doc_id == "o" and best.get_content() == "oil price"
        cosine = best.metadata["mvindex"]["dense_score"] if "mvindex" in best.metadata else best.score
        assert cosine == pytest.approx(1.0, abs=1e-3)
        index.delete_ref_doc("o", delete_from_docstore=True)
        assert [found.node.ref_doc_id for found in index.as_retriever().retrieve("oil?")] == ["p"]

    def test_an_index_is_there_again_from_the_store_alone(self, filled):
        index = VectorStoreIndex.from_vector_store(filled, embed_model=TwoDirections())
        best = index.as_retriever(similarity_top_k=1, filters=by("lang", "==", "la")).retrieve("oil?")
        assert [(found.node_id, found.get_content()) for found in best] == [("b", "text of b")]
        found = asyncio.run(index.as_retriever(similarity_top_k=2).aretrieve("oil?"))
        assert [each.node_id for each in found] == ["a", "b"]

    def test_an_ingestion_pipeline_replaces_a_document_that_changed(self, store):
        pipeline = IngestionPipeline(
            transformations=[TwoDirections()],
            vector_store=store,
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS,
        )
        pipeline.run(documents=[Document(text="oil", doc_id="o"), Document(text="plague", doc_id="p")])
        pipeline.run(documents=[Document(text="more oil", doc_id="o"), Document(text="plague", doc_id="p")])
        assert store.query(asked()).ids == ["o", "p"]


def every_kind():
    """A node of each kind that LlamaIndex has, with what is hard to keep."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book", metadata={"k": [1]}, hash="h")}
    chain = {NodeRelationship.CHILD: [RelatedNodeInfo(node_id="x"), RelatedNodeInfo(node_id="y")]}
    picture = MediaResource(data=b"\x89PNG not really", mimetype="image/png")
    return [
        TextNode(
            id_="text",
            text="Grüße 😀 \n'\"\\",
            metadata={"z": 1, "a": {"deep": [None, True, 2.5]}, "ключ": "é"},
            relationships=source | chain,
            excluded_llm_metadata_keys=["z"],
            excluded_embed_metadata_keys=["a"],
            start_char_idx=3,
            end_char_idx=9,
            metadata_separator=" | ",
            mimetype="text/markdown",
        ),
        TextNode(id_="empty"),
        ImageNode(id_="image", text="caption", image="aGFsbG8=", image_path="a.png", metadata={"b": 1, "a": 2}),
        IndexNode(id_="index", text="see", index_id="other index"),
        Node(id_="node", text_resource=MediaResource(text="body"), image_resource=picture, relationships=source),
        Node(id_="blank", image_resource=picture),
        Document(doc_id="document", text="whole", metadata={"n": 1}),
    ]
