"""Time one store of LangChain in this process: python langchain_store.py '{"side": ..., "phase": ..., ...}'.

Phases: "add" makes the store, adds the texts, and searches at once; "query" and "filter" open it again and begin with a
query or a filter. Prints one JSON object of milliseconds.
"""

import importlib
import json
import os
import sys
import time
import zlib
from contextlib import contextmanager
from functools import cache

import numpy as np
from langchain_core.embeddings import Embeddings

DIM = 384


@cache
def word_vector(word):
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIM).astype(np.float32)


class HashEmbeddings(Embeddings):
    """Sum a random vector of each word: costs next to nothing, so that the stores' own work shows."""

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        total = sum(word_vector(word) for word in text.lower().split() or ["none"])
        return (total / np.linalg.norm(total)).tolist()


class MiniLMEmbeddings(Embeddings):
    """One vector per text by the packaged all-MiniLM-L6-v2."""

    def __init__(self):
        import mvindex

        self._encoder = mvindex.load_encoder("minilm")

    def embed_documents(self, texts):
        return self._encoder.encode_queries(texts).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def open_mvindex(folder, embedding, **options):
    from mvindex_connectors.frameworks.langchain import MVIndexVectorStore

    return MVIndexVectorStore(os.path.join(folder, "index.mvx"), embedding, **options)


def open_mvindex_dense(folder, embedding):
    return open_mvindex(folder, embedding, max_snippets=1, lexical="none", cites=False)


def open_chroma(folder, embedding):
    from langchain_chroma import Chroma

    return Chroma("texts", embedding, persist_directory=folder, collection_metadata={"hnsw:space": "cosine"})


def open_lancedb(folder, embedding):
    from langchain_community.vectorstores import LanceDB

    return LanceDB(uri=folder, embedding=embedding, mode="append", distance="cosine")


OPENERS = {
    "mvindex": open_mvindex,
    "mvindex, dense": open_mvindex_dense,
    "chroma": open_chroma,
    "lancedb": open_lancedb,
}


MODULES = {
    "mvindex": "mvindex_connectors.frameworks.langchain",
    "mvindex, dense": "mvindex_connectors.frameworks.langchain",
    "chroma": "langchain_chroma",
    "lancedb": "langchain_community.vectorstores.lancedb",
}


def filter_options(side, source):
    """Return the filter of a source in the store's own language."""
    if side == "lancedb":
        return {"filter": "metadata.source = '{}'".format(source.replace("'", "''")), "prefilter": True}
    return {"filter": {"source": source}}


class Clock:
    def __init__(self):
        self.taken = {}

    @contextmanager
    def timing(self, name):
        since = time.perf_counter()
        yield
        self.taken.setdefault(name, []).append(1000 * (time.perf_counter() - since))


def searched(store, clock, side, job, first):
    """Time the first query and filter, the 50 queries after them, and, after some seconds of queries, all of them."""
    kinds = {
        "query": [(query, {}) for query in job["queries"]],
        "filter": [
            (query, filter_options(side, source)) for query, source in zip(job["queries"], job["sources"], strict=True)
        ],
    }

    def search(kind, number, name):
        query, options = kinds[kind][number % len(kinds[kind])]
        with clock.timing(name):
            found = store.similarity_search(query, k=4, **options)
        assert found, (side, kind, query)
        if options:
            assert {document.metadata["source"] for document in found} == {job["sources"][number]}, found

    for kind in sorted(kinds, key=lambda kind: kind != first):
        search(kind, 0, f"first {kind}")
    for number in range(50):
        search("query", number, "next 50 queries")
    until = time.perf_counter() + job["settle_s"]
    while time.perf_counter() < until:
        search("query", len(clock.taken.setdefault("unsettled", [])), "unsettled")
    for kind, asked in kinds.items():
        for number in range(len(asked)):
            search(kind, number, kind)


def main():
    job = json.loads(sys.stdin.read())
    side, clock = job["side"], Clock()
    embedding = {"hash": HashEmbeddings, "minilm": MiniLMEmbeddings}[job["embedding"]]()
    # What embeds is loaded, and is not what is measured.
    embedding.embed_documents(job["texts"] + job["queries"] if job["embedding"] == "hash" else job["queries"][:1])
    with clock.timing("import"):
        importlib.import_module(MODULES[side])
    with clock.timing("open"):
        store = OPENERS[side](job["folder"], embedding)
    if job["phase"] == "add":
        with clock.timing("add"):
            store.add_texts(
                job["texts"],
                [{"source": source, "number": number} for number, source in enumerate(job["sources_of_texts"])],
                ids=[str(number) for number in range(len(job["texts"]))],
            )
    searched(store, clock, side, job, "filter" if job["phase"] == "filter" else "query")
    print(json.dumps({name: times for name, times in clock.taken.items()}))
    sys.stdout.flush()
    os._exit(0)  # some stores' threads outlive the process otherwise


if __name__ == "__main__":
    main()
