"""LangChain: its own suites over a directory, Milvus (Lite and a server) and our server."""

import pytest

NOT_RUN = "NOT RUN: needs langchain-core and langchain-tests (the extra frameworks-dev)"
pytest.importorskip("langchain_tests", reason=NOT_RUN)

from langchain_core.embeddings import DeterministicFakeEmbedding  # noqa: E402
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests  # noqa: E402
from suites import CUT, IS_LONG, cut  # noqa: E402

from mvindex_connectors.frameworks.langchain import MVIndexRetriever, MVIndexVectorStore  # noqa: E402


class TestStoreInADirectory(VectorStoreIntegrationTests):
    """All 25 tests as they come, of a store as it comes."""

    @pytest.fixture
    def vectorstore(self, tmp_path):
        store = MVIndexVectorStore(tmp_path / "a.mvx", self.get_embeddings())
        yield store
        store.close()


@pytest.mark.needs("minilm")
class TestStoreWithItsOwnEncoder(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path, packaged):
        store = MVIndexVectorStore(tmp_path / "a.mvx", encoder=packaged)
        yield store
        store.close()


_SomeOfTheStoreSuite = cut(
    VectorStoreIntegrationTests,
    "test_add_documents",
    "test_add_documents_by_id_with_mutation",
    "test_deleting_bulk_documents",
    "test_add_documents_async",
    "test_get_by_ids_missing_async",
    "test_deleting_bulk_documents_async",
)


@pytest.mark.skipif(not IS_LONG, reason=CUT)
def test_the_whole_suite_is_run_elsewhere_too():
    assert _SomeOfTheStoreSuite is VectorStoreIntegrationTests


@pytest.fixture(scope="module")
def in_milvus(milvus):
    embeddings = DeterministicFakeEmbedding(size=6)
    store = MVIndexVectorStore(milvus, embeddings)
    yield store
    store.close()


class TestStoreInMilvus(_SomeOfTheStoreSuite):
    @pytest.fixture
    def vectorstore(self, in_milvus):
        yield in_milvus
        in_milvus.delete(all=True)


class TestStoreBehindAServer(_SomeOfTheStoreSuite):
    @pytest.fixture
    def vectorstore(self, server):
        store = MVIndexVectorStore(server.url("dim6"), self.get_embeddings())
        yield store
        store.delete(all=True)
        store.close()


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def filled(self, tmp_path):
        texts = [f"text {number}" for number in range(5)]
        self.store = MVIndexVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=6), index=tmp_path / "a.mvx")
        yield
        self.store.close()

    @property
    def retriever_constructor(self):
        return MVIndexRetriever

    @property
    def retriever_constructor_params(self):
        return {"store": self.store}

    @property
    def retriever_query_example(self):
        return "text 3"
