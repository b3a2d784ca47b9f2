"""Time what the stores of LangChain, LlamaIndex and Haystack add to a query of the bare index."""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from haystack import Document as HaystackDocument
from langchain_core.embeddings import Embeddings
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

import mvindex
from mvindex_connectors.frameworks import haystack, langchain, llamaindex

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "serving"))
from serving_tools import served  # noqa: E402 - the tests' server, in a process of its own

WARM = 20


class NumberedEmbeddings(Embeddings):
    """Embed a text by the number in it."""

    def __init__(self, rows, queries):
        self.rows, self.queries = rows, queries

    def embed_documents(self, texts):
        return [self.rows[int(text.split()[-1])] for text in texts]

    def embed_query(self, text):
        return self.queries[int(text.split()[-1])]


def unit_rows(count, dim, seed):
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill_stores(folder, rows, queries):
    """Fill a store of each framework, each over its own directory, with the same vectors."""
    lists, metadata = rows.tolist(), [{"number": number, "half": number % 2} for number in range(len(rows))]
    texts = [f"a text of {number}" for number in range(len(rows))]
    langchain.MVIndexVectorStore.from_texts(
        texts,
        NumberedEmbeddings(lists, queries),
        metadata,
        ids=texts,
        index=folder / "langchain.mvx",
        max_snippets=1,
        lexical="none",
    ).close()
    nodes = [TextNode(id_=t, text=t, metadata=m, embedding=v) for t, m, v in zip(texts, metadata, lists, strict=True)]
    store = llamaindex.MVIndexVectorStore(folder / "llamaindex.mvx", lexical="none")
    store.add(nodes)
    store.close()
    documents = [
        HaystackDocument(id=t, content=t, meta=m, embedding=v) for t, m, v in zip(texts, metadata, lists, strict=True)
    ]
    store = haystack.MVIndexDocumentStore(folder / "haystack.mvx", lexical="none")
    store.write_documents(documents)
    store.close()


def local_searches(folder, rows, queries, top_k):
    """Return the searches to time, by name: the bare index, and each framework's query."""
    index, lists = mvindex.open(folder / "langchain.mvx"), queries.tolist()
    found = {"index": lambda n: [hit.id for hit in index.search(queries[n], top_k).hits]}
    for suffix, has_view_scores in (("", True), (" terse", False)):
        chain = langchain.MVIndexVectorStore(
            folder / "langchain.mvx", NumberedEmbeddings(rows, lists), has_view_scores=has_view_scores
        )
        llama = llamaindex.MVIndexVectorStore(folder / "llamaindex.mvx", has_view_scores=has_view_scores)
        store = haystack.MVIndexDocumentStore(folder / "haystack.mvx")
        retriever = haystack.MVIndexEmbeddingRetriever(store, top_k=top_k, has_view_scores=has_view_scores)
        found |= {
            f"langchain{suffix}": lambda n, s=chain: [d.id for d in s.similarity_search(f"query {n}", k=top_k)],
            f"llamaindex{suffix}": lambda n, s=llama: (
                s.query(VectorStoreQuery(query_embedding=lists[n], similarity_top_k=top_k)).ids
            ),
            f"haystack{suffix}": lambda n, r=retriever: [d.id for d in r.run(lists[n])["documents"]],
        }
    return found


def server_searches(address, rows, queries, top_k):
    """Return the searches of LangChain's store and the bare index on a server."""
    index, lists = mvindex.open(address), queries.tolist()
    found = {"index, server": lambda n: [hit.id for hit in index.search(queries[n], top_k).hits]}
    for suffix, has_view_scores in (("", True), (" terse", False)):
        chain = langchain.MVIndexVectorStore(address, NumberedEmbeddings(rows, lists), has_view_scores=has_view_scores)
        found[f"langchain{suffix}, server"] = lambda n, s=chain: [
            d.id for d in s.similarity_search(f"query {n}", k=top_k)
        ]
    return found


def time_searches(searches, count):
    """Return milliseconds of each side, (sides, count); check that every side finds the same documents."""
    taken = np.zeros((len(searches), count))
    for number in range(-WARM, count):
        answers = []
        for side, search in enumerate(searches.values()):
            begun = time.perf_counter()
            answers.append(search(number % count))
            if number >= 0:
                taken[side, number] = 1000 * (time.perf_counter() - begun)
        assert all(answer == answers[0] for answer in answers), answers
    return taken


def measure_overhead(options):
    """Return for each side the median, what it adds to the bare index, and their ratio."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, queries = unit_rows(options.documents, options.dim, 1), unit_rows(options.queries, options.dim, 2)
        fill_stores(folder, rows, queries.tolist())
        searches = local_searches(folder, rows, queries, options.top_k)
        with ExitStack() as stack:
            if options.server:
                serving = stack.enter_context(served(f"--index=a={folder / 'langchain.mvx'}"))
                searches |= server_searches(serving.url(), rows, queries, options.top_k)
            taken = time_searches(searches, options.queries)
    medians = dict(zip(searches, np.median(taken, axis=1).tolist(), strict=True))
    bare = medians["index"]
    return {
        side: {"p50_ms": round(p50, 3), "added_ms": round(p50 - bare, 3), "ratio": round(p50 / bare, 2)}
        for side, p50 in medians.items()
    }


def print_overhead(sides):
    print(f"{'':24}{'p50 ms':>8}{'added':>8}{'ratio':>8}")
    for side, one in sides.items():
        print(f"{side:24}{one['p50_ms']:8.2f}{one['added_ms']:8.2f}{one['ratio']:8.2f}")
