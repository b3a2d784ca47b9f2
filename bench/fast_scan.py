"""Time the search of inverted lists as large as those of 168 million views: compiled loops beside Faiss, by turns.

    python bench/fast_scan.py [--views 168122592] [--searches 4096:240 6144:120] [--threads 1 2] [--json]

Kind `ivf-pq`, without a store: lists are found, scanned, and the rows of the best hits read; no document is scored.
Centroids are trained on vectors drawn by chance, codes are bytes drawn by chance: the time of a scan hardly depends on
them, and recall is not measured. A search is nprobe:k_factor, for the first 10 documents. Milliseconds of single
queries: wall-clock time (median, and least) and CPU time (median). `nearest`, `scan` and `read` are the medians of the
compiled loops' parts: finding lists, scanning codes, and reading rows of hits. Needs 48 bytes of memory a view.
"""

import argparse
import ctypes
import json
import os
import sys
import time

import faiss
import numpy as np
import tiny

import mvindex
from mvindex import kernels
from mvindex_connectors.engines import faiss_fast_scan
from mvindex_connectors.engines.faiss import FaissRanking, Held
from mvindex_connectors.engines.faiss_fast_scan import FastScan
from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, train

TOP_K, CENTROID_ROWS = 10, 3
PARTS = {"nearest": (FastScan, "_nearest"), "scan": (faiss_fast_scan, "_scanned"), "read": (faiss_fast_scan, "_read")}


def drawn(rng, count, dim):
    """Return unit vectors around places of their own, (count, dim) float32."""
    places = rng.standard_normal((1024, dim), dtype=np.float32)
    rows = places[rng.integers(1024, size=count)] + rng.standard_normal((count, dim), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def filled(options, rng):
    """Return an engine with about so many codes in its lists."""
    index = new_ivf(faiss, "ivf-pq", options.dim, options.nlist)
    train(faiss, index, drawn(rng, CENTROID_ROWS * options.nlist, options.dim))
    ivf = faiss.downcast_index(ivf_of(faiss, index))
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    # Lists of real views are of uneven sizes.
    sizes = rng.gamma(6, options.views / options.nlist / 6, options.nlist).astype(np.int64) + 1
    block_bytes = ivf.pq.M * 16
    codes = np.frombuffer(rng.bytes((int(sizes.max()) // 32 + 4096) * block_bytes), dtype=np.uint8)
    row = 0
    for number, size in enumerate(sizes.tolist()):
        lists.resize(number, size)
        size_bytes = -(-size // 32) * block_bytes
        begin = int(rng.integers(len(codes) - size_bytes))
        ctypes.memmove(int(lists.get_codes(number)), codes.ctypes.data + begin, size_bytes)
        rows = np.arange(row, row + size)
        ctypes.memmove(int(lists.get_ids(number)), rows.ctypes.data, rows.nbytes)
        row += size
    ivf.ntotal = index.ntotal = row
    settings = {"max_norm": 1.0, "parameters": {"nlist": options.nlist}, "built_rows": row}
    return FaissRanking(faiss, "ivf-pq", Held(index, None, FastScan(faiss, index)), settings)


def timed_parts():
    """Wrap the parts of a search where they stand, and return their seconds, to be cleared by the caller."""
    seconds = {name: [] for name in PARTS}

    def wrap(owner, name, spent):
        function = getattr(owner, name)

        def timed(*args):
            begin = time.perf_counter()
            try:
                return function(*args)
            finally:
                spent.append(time.perf_counter() - begin)

        setattr(owner, name, timed)

    for part, (owner, name) in PARTS.items():
        wrap(owner, name, seconds[part])
    return seconds


def measure(options):
    """Yield a row for each number of threads, search, turn and way."""
    kernels.expect_work()
    rng = np.random.default_rng(0)
    engine, fits, seconds = filled(options, rng), FastScan.fits, timed_parts()
    queries = drawn(rng, options.queries, options.dim)
    for threads in options.threads:
        mvindex.set_threads(threads)
        for search in options.searches:
            nprobe, k_factor = map(int, search.split(":"))
            searched = engine.with_search({"nprobe": nprobe, "k_factor": k_factor, "top_k": TOP_K})
            for _ in range(options.turns):
                for way in ("faiss", "compiled"):
                    FastScan.fits = fits if way == "compiled" else False
                    for spent in seconds.values():
                        spent.clear()
                    times = [once(searched, query[None], TOP_K * k_factor) for query in queries]
                    row = {"threads": threads, "search": search, "way": way, **summary(times)}
                    row |= {name: ms(np.median(spent)) for name, spent in seconds.items() if spent}
                    yield row | {"load": round(os.getloadavg()[0], 1)}


def once(engine, query, limit):
    """Return the wall-clock and CPU seconds of one search."""
    wall, cpu = time.perf_counter(), time.process_time()
    engine.search(query, limit, None)
    return time.perf_counter() - wall, time.process_time() - cpu


def summary(times):
    wall, cpu = np.array(times).T
    return {"wall_ms": ms(np.median(wall)), "least_ms": ms(wall.min()), "cpu_ms": ms(np.median(cpu))}


def ms(seconds):
    return round(1000 * float(seconds), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=168_122_592)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--nlist", type=int, default=131_072)
    parser.add_argument("--searches", nargs="+", default=["3655:60", "4096:240", "6144:120"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON a row")
    options = tiny.parse(parser, views=20_000, dim=16, nlist=64, searches=["16:4"], queries=4, turns=1)
    for row in measure(options):
        print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
