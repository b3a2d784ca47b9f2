"""Exact search of documents by best view: the torch scan against Faiss IndexFlatIP with one-pass exact over-fetch.

    python bench/search.py --documents 50000 --views 8 --dim 384 --top-k 100

One thread, one run, alternated. Times are CPU seconds of this process (one thread), because wall time on a shared
machine is not repeatable; the median of --repeats is reported, and the ratio to each Faiss variant beside it.
  stock     IndexFlatIP as it comes, fetching (k - 1) m + 1 rows and keeping each document's best
  repaired  the same with faiss.cvar.distance_compute_blas_threshold = 1
Everything that mvindex does for its answer is timed: scan, proof, rescoring from the fp16 store, order. `same` is the
share of queries for which Faiss' document list equals ours (near ties differ by its float32 sums).
Vectors are seeded: article centres, passages about them, views about those; queries lie near a view of a passage.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import faiss  # noqa: E402 - the thread counts must be set first
import numpy as np  # noqa: E402
import torch  # noqa: E402

import mvindex  # noqa: E402
from mvindex.engines.exact_torch import TorchScan  # noqa: E402
from mvindex.search import Engines, search_documents  # noqa: E402
from mvindex.store.embedded import EmbeddedStore  # noqa: E402

STOCK_THRESHOLD = faiss.cvar.distance_compute_blas_threshold


def make_vectors(documents, views, dim, queries, seed=0):
    rng = np.random.default_rng(seed)
    articles = rng.standard_normal((max(documents // 40, 1), dim), dtype=np.float32)
    passages = articles[rng.integers(0, len(articles), documents)]
    passages += 0.8 * rng.standard_normal((documents, dim), dtype=np.float32)
    rows = np.repeat(passages, views, axis=0) + 0.9 * rng.standard_normal((documents * views, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    near = rows[rng.integers(0, len(rows), queries)]
    asked = near + 0.05 * rng.standard_normal((queries, dim), dtype=np.float32)
    return rows.reshape(documents, views, dim), asked / np.linalg.norm(asked, axis=1, keepdims=True)


def faiss_documents(index, queries, top_k, views):
    """The top_k documents of each query by one exact over-fetch, (q, top_k)."""
    _, rows = index.search(queries, (top_k - 1) * views + 1)
    found = np.empty((len(queries), top_k), dtype=np.int64)
    for query, its_rows in enumerate(rows // views):
        _, first = np.unique(its_rows, return_index=True)
        found[query] = its_rows[np.sort(first)[:top_k]]
    return found


def cpu_seconds(call):
    begin = time.process_time()
    value = call()
    return time.process_time() - begin, value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--batches", default="1,16,64,256")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder) / "bench.mvx")


def run(options, path):
    documents, views, top_k = options.documents, options.views, options.top_k
    rows, queries = make_vectors(documents, views, options.dim, 256)
    with mvindex.create(path, dim=options.dim) as index:
        index.add_views((mvindex.Document(str(n), "x") for n in range(documents)), rows)
    flat = faiss.IndexFlatIP(options.dim)
    flat.add(rows.reshape(-1, options.dim).astype(np.float16).astype(np.float32))
    store = EmbeddedStore(path)
    snapshot, engines = store.snapshot, Engines(scan=TorchScan())
    print(f"# {documents:,} documents x {views} views x {options.dim} dims, top_k {top_k}, one thread, CPU ms a query")
    print(f"{'batch':>5} {'mvindex':>9} {'stock':>9} {'repaired':>9} {'vs stock':>9} {'vs repaired':>11} {'same':>6}")
    for batch in map(int, options.batches.split(",")):
        asked = queries[:batch]
        calls = {
            "mvindex": lambda asked=asked: search_documents(snapshot, engines, asked, top_k, snapshot.alive),
            "stock": lambda asked=asked: faiss_documents(flat, asked, top_k, views),
            "repaired": lambda asked=asked: faiss_documents(flat, asked, top_k, views),
        }
        times = {name: [] for name in calls}
        found = {}
        for repeat in range(options.repeats + 1):
            for name, call in calls.items():
                faiss.cvar.distance_compute_blas_threshold = 1 if name == "repaired" and batch > 1 else STOCK_THRESHOLD
                seconds, found[name] = cpu_seconds(call)
                if repeat:
                    times[name].append(seconds / batch * 1e3)
        ms = {name: float(np.median(values)) for name, values in times.items()}
        ours = [ranking.rows for ranking in found["mvindex"]]
        same = np.mean([np.array_equal(a, b) for a, b in zip(ours, found["stock"], strict=True)])
        assert all(ranking.exact and len(ranking.rows) == top_k for ranking in found["mvindex"])
        row = {
            "batch": batch,
            **ms,
            "vs_stock": ms["stock"] / ms["mvindex"],
            "vs_repaired": ms["repaired"] / ms["mvindex"],
        }
        if options.json:
            print(json.dumps({**row, "same": same}))
        else:
            print(
                f"{batch:5d} {ms['mvindex']:9.3f} {ms['stock']:9.3f} {ms['repaired']:9.3f} "
                f"{row['vs_stock']:8.2f}x {row['vs_repaired']:10.2f}x {same:6.3f}"
            )
    store.close()


if __name__ == "__main__":
    main()
