"""Haystack: its own suites over a directory, Milvus (Lite and a server) and our server."""

import pytest

NOT_RUN = "NOT RUN: needs haystack-ai (the extra haystack, or frameworks-dev)"
pytest.importorskip("haystack", reason=NOT_RUN)

from haystack import Document  # noqa: E402 - there, now
from haystack.document_stores.errors import DuplicateDocumentError  # noqa: E402
from haystack.testing import document_store as sync_suite  # noqa: E402
from haystack.testing import document_store_async as async_suite  # noqa: E402
from suites import CUT, IS_LONG, cut  # noqa: E402

from mvindex_connectors.frameworks.haystack import MVIndexDocumentStore  # noqa: E402


class _Suite(
    sync_suite.DocumentStoreBaseExtendedTests,
    sync_suite.CountDocumentsByFilterTest,
    sync_suite.CountUniqueMetadataByFilterTest,
    sync_suite.GetMetadataFieldsInfoTest,
    sync_suite.GetMetadataFieldMinMaxTest,
    sync_suite.GetMetadataFieldUniqueValuesTest,
):
    """Every sync mixin; only the test that asks to be written is."""

    def test_write_documents(self, document_store):
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        assert document_store.filter_documents() == [document]


class _AsyncSuite(
    async_suite.CountDocumentsAsyncTest,
    async_suite.WriteDocumentsAsyncTest,
    async_suite.DeleteDocumentsAsyncTest,
    async_suite.DeleteAllAsyncTest,
    async_suite.DeleteByFilterAsyncTest,
    async_suite.UpdateByFilterAsyncTest,
    async_suite.FilterDocumentsAsyncTest,
    async_suite.CountDocumentsByFilterAsyncTest,
    async_suite.CountUniqueMetadataByFilterAsyncTest,
    async_suite.GetMetadataFieldsInfoAsyncTest,
    async_suite.GetMetadataFieldMinMaxAsyncTest,
    async_suite.GetMetadataFieldUniqueValuesAsyncTest,
):
    """Every async mixin; only the test that asks to be written is."""

    async def test_write_documents_async(self, document_store):
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
        assert await document_store.filter_documents_async() == [document]


class _InADirectory:
    """A store that is told how long embeddings are: its documents need no texts."""

    @pytest.fixture
    def document_store(self, tmp_path):
        store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=768)
        yield store
        store.close()


class TestStoreInADirectory(_InADirectory, _Suite):
    pass


class TestAsyncStoreInADirectory(_InADirectory, _AsyncSuite):
    pass


@pytest.fixture
def loaded_once(packaged, monkeypatch):
    """The packaged encoder is loaded once for all tests; nothing else of the store is touched."""
    monkeypatch.setattr("mvindex.encoder.registry.load_encoder", lambda *args, **options: packaged)


class _AsItComes:
    @pytest.fixture
    def document_store(self, tmp_path, loaded_once):
        store = MVIndexDocumentStore(tmp_path / "a.mvx")
        yield store
        store.close()


@pytest.mark.needs("minilm")
class TestStoreAsItComes(_AsItComes, _Suite):
    pass


@pytest.mark.needs("minilm")
class TestAsyncStoreAsItComes(_AsItComes, _AsyncSuite):
    pass


_SomeOfTheSuite = cut(
    _Suite,
    "test_write_documents",
    "test_write_documents_duplicate_overwrite",
    "test_delete_documents",
    "test_delete_by_filter_advanced_filters",
    "test_update_by_filter_advanced_filters",
    "test_comparison_in",
    "test_delete_all_documents_without_recreate_index",
)
_SomeOfTheAsyncSuite = cut(
    _AsyncSuite,
    "test_write_documents_async",
    "test_write_documents_duplicate_skip_async",
    "test_delete_by_filter_async",
    "test_update_by_filter_async",
    "test_delete_all_documents_with_recreate_index_async",
)


@pytest.mark.skipif(not IS_LONG, reason=CUT)
def test_the_whole_suites_are_run_elsewhere_too():
    assert (_SomeOfTheSuite, _SomeOfTheAsyncSuite) == (_Suite, _AsyncSuite)


@pytest.fixture(scope="module")
def in_milvus(milvus):
    store = MVIndexDocumentStore(milvus, embedding_dim=768)
    yield store
    store.close()


class _InMilvus:
    @pytest.fixture
    def document_store(self, in_milvus):
        yield in_milvus
        in_milvus.delete_all_documents()


class TestStoreInMilvus(_InMilvus, _SomeOfTheSuite):
    pass


class TestAsyncStoreInMilvus(_InMilvus, _SomeOfTheAsyncSuite):
    pass


class _BehindAServer:
    @pytest.fixture
    def document_store(self, server):
        store = MVIndexDocumentStore(server.url("dim768"))
        yield store
        store.delete_all_documents()
        store.close()


class TestStoreBehindAServer(_BehindAServer, _SomeOfTheSuite):
    pass


class TestAsyncStoreBehindAServer(_BehindAServer, _SomeOfTheAsyncSuite):
    pass
