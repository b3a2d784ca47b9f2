"""LlamaIndex: the contract of its base class over a directory, Milvus, our server, and over its own store."""

import pytest

NOT_RUN = "NOT RUN: needs llama-index-core (the extra llamaindex, or frameworks-dev)"
pytest.importorskip("llama_index.core", reason=NOT_RUN)

from llama_index.core.vector_stores import SimpleVectorStore  # noqa: E402
from llamaindex_contract import VectorStoreContract, asked, by, node  # noqa: E402
from suites import CUT, IS_LONG, cut  # noqa: E402

from mvindex.errors import QueryError  # noqa: E402
from mvindex_connectors.frameworks.llamaindex import MVIndexVectorStore  # noqa: E402


class TestLlamaIndexsOwnStore(VectorStoreContract):
    """LlamaIndex's own store in memory keeps the contract, except where marked here."""

    no_nodes = "SimpleVectorStore keeps ids and embeddings, no nodes"
    not_done = {
        "test_filters_nest": "SimpleVectorStore refuses nested filters",
        "test_a_query_may_be_of_some_documents": "SimpleVectorStore does not look at doc_ids",
        "test_mmr_heeds_the_threshold_of_the_query": "SimpleVectorStore takes mmr_threshold as an argument only",
        "test_get_nodes_gives_those_of_the_ids_that_exist": no_nodes,
        "test_get_nodes_gives_those_that_match_or_all": no_nodes,
        "test_nodes_come_back_as_they_were_added": no_nodes,
        "test_a_query_gives_the_nodes_with_their_text_and_metadata": no_nodes,
        "test_get_nodes_can_be_awaited": no_nodes,
        "test_an_index_is_there_again_from_the_store_alone": no_nodes,
    }

    @pytest.fixture
    def store(self):
        return SimpleVectorStore()

    def reopened(self, store, tmp_path):
        store.persist(str(tmp_path / "store.json"))
        return SimpleVectorStore.from_persist_path(str(tmp_path / "store.json"))


class TestStoreInADirectory(VectorStoreContract):
    """All of it, of a store as it comes."""

    @pytest.fixture
    def store(self, tmp_path):
        made = MVIndexVectorStore(tmp_path / "a.mvx")
        yield made
        made.close()

    def reopened(self, store, tmp_path):
        store.persist()
        store.close()
        return MVIndexVectorStore(store.index)

    def test_a_missing_id_is_no_document(self, filled):
        assert self.ids(filled, asked(doc_ids=[None])) == ""
        assert self.ids(filled, asked(doc_ids=[None, "film"])) == "c"
        for refused in (lambda: filled.delete_nodes([None]), lambda: filled.get_nodes([None])):
            with pytest.raises(QueryError, match="expected a string, got NoneType"):
                refused()
        with pytest.raises(QueryError, match="expected a string, got int 7"):
            filled.delete(7)
        assert self.ids(filled, asked()) == "abcd"

    def test_a_key_with_dots_wins_over_the_path(self, filled):
        filled.add([node("k", 0.9, metadata={"m.n": [1], "m": {"n": [2]}}), node("p", 0.7, metadata={"m": {"n": [2]}})])
        assert self.ids(filled, asked(9, filters=by("m.n", "contains", 1))) == "k"
        assert self.ids(filled, asked(9, filters=by("m.n", "any", [2, 3]))) == "p"
        filled.delete_nodes(filters=by("m.n", "all", [2]))
        assert self.ids(filled, asked(9, filters=by("m.n", "is_empty", None))) == "abcd"

    def test_what_is_no_list_has_no_member_that_is_no_text(self, filled):
        assert self.ids(filled, asked(filters=by("year", "contains", 1973))) == ""


class TestStoreToldItsDimensions(TestStoreInADirectory):
    @pytest.fixture
    def store(self, tmp_path):
        made = MVIndexVectorStore(tmp_path / "a.mvx", embedding_dim=2)
        yield made
        made.close()


_SomeOfTheContract = cut(
    TestStoreInADirectory,
    "test_adding_an_id_again_replaces_its_node",
    "test_delete_takes_all_nodes_of_a_document_and_no_other",
    "test_deleting_the_document_none_deletes_no_node_without_a_document",
    "test_a_missing_id_is_no_document",
    "test_a_key_with_dots_wins_over_the_path",
    "test_conditions_join_what_an_index_tells_and_what_it_does_not",
    "test_filters_nest",
    "test_a_query_may_be_of_some_documents",
    "test_mmr_takes_the_unlike_one_where_plain_search_takes_a_twin",
    "test_nodes_come_back_as_they_were_added",
    "test_a_persisted_store_is_there_again",
    "test_every_method_can_be_awaited",
    "test_get_nodes_can_be_awaited",
    "test_an_index_over_the_store_finds_what_was_inserted_and_forgets_what_was_deleted",
)


@pytest.mark.skipif(not IS_LONG, reason=CUT)
def test_the_whole_contract_is_run_elsewhere_too():
    assert _SomeOfTheContract is TestStoreInADirectory


@pytest.fixture(scope="module")
def in_milvus(milvus):
    made = MVIndexVectorStore(milvus, embedding_dim=2)
    yield made
    made.close()


class TestStoreInMilvus(_SomeOfTheContract):
    @pytest.fixture
    def store(self, in_milvus):
        yield in_milvus
        in_milvus.clear()


class TestStoreBehindAServer(_SomeOfTheContract):
    @pytest.fixture
    def store(self, server):
        made = MVIndexVectorStore(server.url("dim2"))
        yield made
        made.clear()
        made.close()
