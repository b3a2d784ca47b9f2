"""Score a query's candidates whose views are not in memory, with and without prefetch of their pages.

    python bench/cold.py --documents 200000 [--candidates 800] [--rounds 5] --data DIR [--json]

Candidates lie anywhere in the file of views. Before each round the file is driven out of the page cache (Linux), and
then mapped anew; the two sides take turns. `faults` is a plain memory map: each missing page waits by itself, and the
kernel reads ahead behind it; `prefetch` is mvindex; `warm` is the same candidates once more. On a virtual disk the
host's memory may answer: then read the ratio, not the time.

Then the same candidates are only read, from two files, called for as mvindex does: the views as they are, fp16 one
document behind the other, and as int8 where each document begins a page. Pages and milliseconds a query, p50 and p99.

Last, a sample of 64 views of each MiB is read, as a build does, whose MiB is verified: page by page, and called for.
"""

import mmap
import os
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
from scale_parts.indexes import cached

from mvindex.kernels import llvm as pages_of
from mvindex.kernels.score import Scoring
from mvindex.search.parts import score_pairs
from mvindex.search.ranking import Pairs
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.views import BLOCK_BYTES, MappedSegment


def drive_out(path):
    os.sync()
    for file in filter(Path.is_file, path.rglob("views-*")):
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def scored_ms(path, query, candidates, seed, is_called):
    """Return milliseconds for the candidates, with nothing in memory and with everything."""
    drive_out(path)
    store = EmbeddedStore(path)
    views = store.snapshot.views
    rows = np.sort(np.random.default_rng(seed).choice(views.num_rows, candidates, replace=False))
    pairs = Pairs(rows, np.zeros(len(rows), dtype=np.int64))
    call = pages_of.call_for_documents
    if not is_called:
        pages_of.call_for_documents = lambda *_: False
        views._views.file.memory.madvise(mmap.MADV_NORMAL)
    times = []
    try:
        for _ in range(2):
            started = time.perf_counter()
            score_pairs(views, query[None], pairs, Scoring())
            times.append(1000 * (time.perf_counter() - started))
    finally:
        pages_of.call_for_documents = call
        store.close()
    return times


def read_ms(path, begins, ends):
    """Return the milliseconds and the pages of reading bytes begins[i] : ends[i] of a file that is not in memory."""
    drive_out(path.parent)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        memory.madvise(mmap.MADV_RANDOM)
        stored = np.frombuffer(memory, dtype=np.int8).reshape(-1, 1)
        firsts, counts = begins // mmap.PAGESIZE, (ends - 1) // mmap.PAGESIZE - begins // mmap.PAGESIZE + 1
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pages = np.unique(np.repeat(firsts, counts) + within)
        started = time.perf_counter()
        pages_of.call_for_documents(stored, begins, ends)
        stored[pages * mmap.PAGESIZE].sum()
        took = 1000 * (time.perf_counter() - started)
        del stored
    return took, len(pages)


def sample_mb_s(path, is_called):
    """Return MB a second of a sample of views whose blocks are verified."""
    drive_out(path)
    store = EmbeddedStore(path)
    views, call = store.snapshot.views, MappedSegment._call_for
    if not is_called:
        MappedSegment._call_for = lambda *_: None
    try:
        started = time.perf_counter()
        for begin in range(0, views.num_views - 64, BLOCK_BYTES // views.row_bytes):
            views.read_views(begin, begin + 64)
        return views.num_views * views.row_bytes / 1e6 / (time.perf_counter() - started)
    finally:
        MappedSegment._call_for = call
        store.close()


def layouts(path, options):
    """Return pages and milliseconds of the candidates in the file of views, and in one of whole pages of int8."""
    store = EmbeddedStore(path)
    starts, row_bytes = np.asarray(store.snapshot.views.starts), store.snapshot.views.row_bytes
    views = next(path.rglob("views-*"))
    store.close()
    slot = -(-int(np.diff(starts).max()) * row_bytes // 2 // mmap.PAGESIZE) * mmap.PAGESIZE
    found = {}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        aligned = Path(folder) / "views-int8"
        with open(aligned, "wb") as file:
            for _ in range(len(starts) - 1):
                file.write(os.urandom(slot))
        for seed in range(options.reads + 1):  # the first compiles
            rows = np.sort(np.random.default_rng(seed).choice(len(starts) - 1, options.candidates, replace=False))
            ends = rows * slot + np.diff(starts)[rows] * row_bytes // 2
            sides = [
                ("fp16", views, starts[rows] * row_bytes, starts[rows + 1] * row_bytes),
                ("int8 by pages", aligned, rows * slot, ends),
            ]
            for name, file, begins, stops in sides if seed % 2 else reversed(sides):
                found.setdefault(name, []).append(read_ms(file, begins, stops))
    return {
        name: {
            "pages": round(float(np.mean([pages for _, pages in reads[1:]]))),
            "ms": [round(float(value), 1) for value in np.percentile([took for took, _ in reads[1:]], [50, 99])],
        }
        for name, reads in found.items()
    }


def main():
    parser = harness.parser(__doc__, documents=200_000, candidates=800, rounds=5, data=harness.COLLECTIONS, json=False)
    parser.add_argument("--reads", type=int, default=40, help="queries whose candidates are only read")
    options = harness.parse(parser, documents=200, candidates=40, rounds=1, reads=2, data=harness.DATA)
    path, questions = cached("transplants", options.documents, 8, options.data)
    scored_ms(path, questions[0], options.candidates, 0, True)  # compiles
    times = {True: [], False: []}
    for number in range(options.rounds):
        for is_called in (number % 2 == 0, number % 2 == 1):
            times[is_called].append(scored_ms(path, questions[1], options.candidates, number, is_called))
    called, faults = (np.median(times[side], axis=0) for side in (True, False))
    row = {
        "documents": options.documents,
        "candidates": options.candidates,
        "faults_ms": round(float(faults[0]), 1),
        "prefetch_ms": round(float(called[0]), 1),
        "ratio": round(float(np.median([f[0] / c[0] for f, c in zip(times[False], times[True], strict=True)])), 1),
        "warm_faults_ms": round(float(faults[1]), 2),
        "warm_prefetch_ms": round(float(called[1]), 2),
        "only read": layouts(path, options),
        "sample, MB/s": {
            name: round(float(np.median([sample_mb_s(path, is_called) for _ in range(options.rounds)])))
            for name, is_called in (("page by page", False), ("called for", True))
        },
    }
    harness.show(row, options.json)


if __name__ == "__main__":
    main()
