"""The adapters of a served index while its server is restarted: no document is lost or doubled, no search fails."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from serving_tools import start
from word_vectors import OIL, word_counts

import mvindex
from mvindex_connectors.remote import CallSettings, IndexClient
from tests.helpers.marks import long

BATCHES, BATCH = 40, 8


def langchain(index):
    embeddings = pytest.importorskip("langchain_core.embeddings")
    from mvindex_connectors.frameworks.langchain import MVIndexVectorStore

    class Words(embeddings.Embeddings):
        def embed_documents(self, texts):
            return [word_counts(text) for text in texts]

        def embed_query(self, text):
            return word_counts(text)

    store = MVIndexVectorStore(index, Words())

    def add(ids):
        store.add_texts([OIL] * len(ids), ids=ids)

    return SimpleNamespace(add=add, search=lambda: store.similarity_search("oil", k=3), close=store.close)


def llamaindex(index):
    schema = pytest.importorskip("llama_index.core.schema")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from mvindex_connectors.frameworks.llamaindex import MVIndexVectorStore

    store = MVIndexVectorStore(index)

    def add(ids):
        store.add([schema.TextNode(id_=each, text=OIL, embedding=word_counts(OIL)) for each in ids])

    def search():
        return store.query(VectorStoreQuery(query_embedding=word_counts("oil"), similarity_top_k=3)).nodes

    return SimpleNamespace(add=add, search=search, close=store.close)


def haystack(index):
    documents = pytest.importorskip("haystack.dataclasses")
    from haystack.document_stores.types import DuplicatePolicy

    from mvindex_connectors.frameworks.haystack import MVIndexDocumentStore, MVIndexEmbeddingRetriever

    store = MVIndexDocumentStore(index, embedding_dim=10)
    retriever = MVIndexEmbeddingRetriever(document_store=store, top_k=3)

    def add(ids):
        store.write_documents(
            [documents.Document(id=each, content=OIL, embedding=word_counts(OIL)) for each in ids],
            policy=DuplicatePolicy.OVERWRITE,
        )

    return SimpleNamespace(
        add=add, search=lambda: retriever.run(query_embedding=word_counts("oil"))["documents"], close=store.close
    )


@pytest.mark.full
@pytest.mark.parametrize("adapter", [langchain, long(llamaindex), long(haystack)])
def test_an_adapter_goes_on_while_its_server_is_restarted(adapter, tmp_path):
    path = tmp_path / "words.mvx"
    mvindex.create(path, dim=10).close()
    server = start(f"--index={path}", "--drain", "5")
    port = server.target.rpartition(":")[2]
    # On a busy machine a server takes longer to come back than clients wait by default.
    client = IndexClient(server.url("words"), settings=CallSettings(retry_s=60))
    store = adapter(client)
    added, counts, failures = threading.Event(), Counter(), []

    def write():
        for batch in range(BATCHES):
            store.add([f"{batch}-{number}" for number in range(BATCH)])
            counts["batches"] = batch + 1
        added.set()

    def read():
        store.add(["first", "second", "third"])
        while not added.is_set():
            try:
                assert len(store.search()) == 3
            except Exception as err:  # noqa: BLE001 - every one is a failed search
                failures.append(err)
            counts["searches"] += 1

    threads = [threading.Thread(target=each) for each in (read, write)]
    try:
        for thread in threads:
            thread.start()
        restarts = 0
        while not added.wait(0.3) and restarts < 2:
            assert server.stop() == 0
            server = start(f"--index={path}", "--drain", "5", "--port", port)
            restarts += 1
        for thread in threads:
            thread.join(100)
    finally:
        added.set()
        store.close()
        client.close()
        server.close()
    assert failures == [] and restarts > 0 and counts["searches"] > restarts
    with mvindex.open(path) as index:
        assert sorted(document.id for document in index) == sorted(
            [f"{batch}-{number}" for batch in range(BATCHES) for number in range(BATCH)] + ["first", "second", "third"]
        )
