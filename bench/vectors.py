"""Inputs that the benchmarks share: seeded vectors, and indexes kept in build/bench under what they were made of.

Vectors are seeded: article centres, passages about them, views about those; queries lie near a view of a passage.
They are made a chunk of documents at a time, so that a million documents need no more memory than ten thousand.
"""

import os
import sys
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.measure.questions import read_questions

CACHE = harness.FOLDER or Path(__file__).resolve().parent.parent / "build" / "bench"
CHUNK_DOCUMENTS = 8192
NUM_QUERIES = 256


def view_chunks(documents, views, dim, seed=0):
    """Yield unit vectors (n, views, dim) float32 of up to CHUNK_DOCUMENTS documents at a time."""
    articles = np.random.default_rng([seed, 0]).standard_normal((max(documents // 40, 1), dim), dtype=np.float32)
    for number, begin in enumerate(range(0, documents, CHUNK_DOCUMENTS), start=1):
        rng = np.random.default_rng([seed, number])
        count = min(CHUNK_DOCUMENTS, documents - begin)
        passages = articles[rng.integers(0, len(articles), count)]
        passages += 0.8 * rng.standard_normal((count, dim), dtype=np.float32)
        rows = 0.9 * rng.standard_normal((count, views, dim), dtype=np.float32)
        rows += passages[:, None]
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        yield rows


def index_folder(documents, views, dim, seed=0):
    """Return the folder in which cached_index() keeps an index and its queries."""
    return CACHE / f"{documents}x{views}x{dim}-seed{seed}"


def cached_index(documents, views, dim, seed=0):
    """Return the path of an index of such vectors, built when missing, and its queries (NUM_QUERIES, dim)."""
    folder = index_folder(documents, views, dim, seed)
    if not folder.exists():
        _build(folder, (documents, views, dim, seed))
    return folder / "index.mvx", np.load(folder / "queries.npy")


def cached_squad(data):
    """Return the path of an index of SQuAD's passages by the packaged MiniLM, and all its questions."""
    path = CACHE / "squad-minilm.mvx"
    if not path.exists():
        building = CACHE / f"building-{os.getpid()}.mvx"
        print(f"encoding {data}/squad into {path}", file=sys.stderr)
        with mvindex.create(building, encoder="minilm", lexical="none") as index:
            index.add(read_documents(str(data / "squad/passages.tsv"), CorpusOptions()))
        building.rename(path)
    files = ("questions.train.jsonl", "questions.test.jsonl")
    return path, list(read_questions([str(data / "squad" / name) for name in files]))


def _build(folder, shape):
    documents, views, dim, seed = shape
    building = folder.with_name(f"building-{os.getpid()}")
    print(f"building {folder}", file=sys.stderr)
    rng = np.random.default_rng([seed, documents + 1])
    owners, slots = rng.integers(0, documents, NUM_QUERIES), rng.integers(0, views, NUM_QUERIES)
    queries = 0.05 * rng.standard_normal((NUM_QUERIES, dim), dtype=np.float32)
    begin = 0
    with mvindex.create(building / "index.mvx", dim=dim) as index:
        for rows in view_chunks(documents, views, dim, seed):
            index.add_views([mvindex.Document(str(begin + n), "x") for n in range(len(rows))], rows)
            here = (owners >= begin) & (owners < begin + len(rows))
            queries[here] += rows[owners[here] - begin, slots[here]]
            begin += len(rows)
    np.save(building / "queries.npy", queries / np.linalg.norm(queries, axis=1, keepdims=True))
    building.rename(folder)
