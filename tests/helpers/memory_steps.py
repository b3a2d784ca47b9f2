"""Every step of an index's life, over a collection of any size, and the program that measures what memory each takes.

    python -m tests.helpers.memory_steps --documents 70000 140000 --folder /tmp/steps

prints a line of JSON for each step and size. Each step runs in a process of its own, forked from one that has all
modules loaded and opens nothing. Two peaks are taken. `python_bytes`, by tracemalloc: of Python objects and NumPy
arrays, to the byte. `private_bytes`, the highest RssAnon that was seen: all private memory, that of Faiss and SQLite
too, as the process above sees it every millisecond.
"""

import argparse
import gc
import json
import os
import sqlite3
import sys
import time
import tracemalloc
from contextlib import closing
from importlib import import_module
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import faiss  # noqa: E402 - after the settings of threads
import numpy as np  # noqa: E402 - after the settings of threads

import mvindex  # noqa: E402 - as above
from mvindex.corpus import CorpusOptions, open_corpus  # noqa: E402 - as above
from mvindex.engines import auto  # noqa: E402 - as above
from mvindex.engines.build import save_search_params  # noqa: E402 - as above
from mvindex.index import embedded_store_of  # noqa: E402 - as above
from mvindex.index.factory import create_shard_index  # noqa: E402 - as above
from mvindex.ingest.files import CorpusIngest, OnError  # noqa: E402 - as above
from mvindex.ingest.shards import assemble  # noqa: E402 - as above
from mvindex.records import Views  # noqa: E402 - as above
from mvindex.store.shard_layout import ShardPlace  # noqa: E402 - as above

DIM, VIEWS, LISTS, SHARDS = 8, 2, 16, 2
BLOCK_MODULES = ("store.catalog", "store.views", "maintenance.snapshot", "maintenance.verify")
# What is worked on in pieces of a fixed size, documents, views or bytes, is here worked on in pieces of these.
PIECE, PIECE_BYTES, CACHE_KIB = 256, 1 << 13, 64
PIECES = [
    ("mvindex.ingest.pipeline", "CHUNK_DOCUMENTS", PIECE),
    ("mvindex.ingest.shards", "_CHECKED_IDS", PIECE),
    ("mvindex.store.writer", "_COPIED_DOCUMENTS", PIECE),
    ("mvindex.maintenance.compact", "_SORTED_ROWS", PIECE),
    ("mvindex.maintenance.read", "_CHUNK_ROWS", PIECE),
    ("mvindex.store.embedded", "_SCANNED", PIECE),
    ("mvindex.maintenance.salvage", "_CHUNK_ROWS", PIECE),
    ("mvindex.store.generation", "_FETCH_ROWS", PIECE),
    ("mvindex.store.id_ranges", "_MOST_IDS", PIECE),
    ("mvindex.store.filter_reader", "_FETCH_ROWS", PIECE),
    ("mvindex.store.snapshot", "_FETCH_ROWS", PIECE),
    ("mvindex.store.views", "_PIECE_ROWS", PIECE),
    ("mvindex.store.writer", "_INDEXED_ROWS", PIECE),
    ("mvindex_connectors.engines.faiss_files", "_BLOCK_ROWS", PIECE),
    ("mvindex_connectors.engines.faiss_ivf", "_READ_ROWS", PIECE),
    ("mvindex_connectors.engines.faiss_ivf", "LEAST_SAMPLE", auto.POINTS * LISTS),
    ("mvindex.engines.auto", "LEAST_SAMPLE", auto.POINTS * LISTS),
    ("mvindex.corpus.inputs", "_BLOCK_BYTES", PIECE_BYTES),
    ("mvindex.durable", "_READ_BYTES", PIECE_BYTES),
    *((f"mvindex.{module}", "BLOCK_BYTES", PIECE_BYTES) for module in BLOCK_MODULES),
]


class TwoViews:
    """Two views a document, drawn by chance with the first id as seed."""

    dim, max_views = DIM, VIEWS
    fingerprint = "callable:two-views"
    spec = {"kind": "callable", "name": "two-views", "fingerprint": fingerprint}

    def encode_documents(self, documents, on_progress=None):
        count = VIEWS * len(documents)
        rng = np.random.default_rng(list(documents[0].id.encode()))
        starts = np.arange(0, count + 1, VIEWS, dtype=np.int64)
        return Views(rng.standard_normal((count, DIM), dtype=np.float32), starts, np.full((count, 2), -1))


def write_corpus(path, ids, version):
    """Write a corpus of these numbers. One row in twenty is bad, and one in twenty repeats an id."""
    with open(path, "w", encoding="utf-8") as file:
        for number in ids:
            row = {"id": f"d{number}", "text": f"text {number} of version {version}", "group": number % 2}
            file.write(json.dumps(row) + "\n")
            if number % 20 == 3:
                file.write(json.dumps({"id": f"bad{number}", "text": None}) + "\n")
            if number % 20 == 7:
                file.write(json.dumps(row | {"text": "again"}) + "\n")


def ingest(index, corpus):
    options = CorpusOptions()
    run = CorpusIngest(
        add_entries=index.add_entries,
        corpus=open_corpus([corpus], options),
        on_error=OnError.SKIP,
        rejects_stem=corpus.with_name(f"{corpus.stem}-{time.monotonic_ns()}"),
        on_warning=lambda text: None,
    )
    run.run(lambda count: None, lambda: False)


def new(folder, count):
    with mvindex.create(folder / "x.mvx", encoder=TwoViews(), lexical="none") as index:
        ingest(index, folder / "all.jsonl")


def again(folder, count):
    with opened(folder) as index:
        ingest(index, folder / "all.jsonl")


def look(folder, count):
    with opened(folder) as index:
        assert index.info().documents


def build(folder, count):
    with opened(folder) as index:
        index.admin.build("ivf-pq", nlist=LISTS)
        # A tuned engine is compacted with as many lists.
        save_search_params(embedded_store_of(index), {"nprobe": 2, "k_factor": 4})


def snapshot(folder, count):
    with opened(folder) as index:
        index.admin.snapshot(folder / "copy.mvx")


def verify(folder, count):
    assert mvindex.verify(folder / "x.mvx").is_sound


def salvage(folder, count):
    assert mvindex.salvage(folder / "x.mvx", folder / f"saved-{time.monotonic_ns()}.mvx").documents


def read_all(folder, count):
    with opened(folder) as index:
        assert sum(1 for _ in index) == len(index)


def replace_half(folder, count):
    with opened(folder) as index:
        ingest(index, folder / "half.jsonl")


def compact(folder, count):
    with opened(folder) as index:
        assert index.admin.compact().dropped


def delete_half(folder, count):
    with opened(folder) as index:
        assert index.delete(filter={"group": 1})


def one_shard(number):
    def fill(folder, count):
        with create_shard_index(folder / "s.mvx", ShardPlace(number, SHARDS), encoder=TwoViews()) as shard:
            ingest(shard, folder / "all.jsonl")

    return fill


def put_together(folder, count):
    assert assemble(folder / "s.mvx").documents == count


def build_shards(folder, count):
    with mvindex.open(folder / "s.mvx") as index:
        index.admin.build("ivf-pq", nlist=LISTS)


def opened(folder):
    return mvindex.open(folder / "x.mvx", encoder=TwoViews())


STEPS = {
    "ingest": new,
    "ingest the same again": again,
    "open": look,
    "build": build,
    "snapshot": snapshot,
    "verify": verify,
    "salvage": salvage,
    "read all documents": read_all,
    "replace half": replace_half,
    "open, half retired": look,
    "verify, half retired": verify,
    "salvage, half retired": salvage,
    "compact": compact,
    "delete half": delete_half,
    "ingest --shard": one_shard(0),
    "ingest --shard, the other": one_shard(1),
    "assemble": put_together,
    "build in shards": build_shards,
}


def measure(step, folder, count):
    """A line of figures: the peaks of the step, above what its process had when it began."""
    lines, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(lines)
        run_forked(step, (folder, count), theirs)
    os.close(theirs)
    peak, first, started = 0, None, time.monotonic()
    with open(f"/proc/{pid}/status", "rb") as status, closing(open(lines, "rb")) as told:
        while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            status.seek(0)
            found = [line for line in status.read().splitlines() if line.startswith(b"RssAnon")]
            if found:
                resident = 1024 * int(found[0].split()[1])
                first = resident if first is None else first
                peak = max(peak, resident)
            time.sleep(0.001)
        _, code = os.waitpid(pid, 0)
        if code:
            raise RuntimeError(f"{step}: exit status {code}")
        python_bytes = int(told.read())
    seconds = time.monotonic() - started
    row = {"step": step, "documents": count, "python_bytes": python_bytes, "private_bytes": peak - (first or 0)}
    return row | {"seconds": round(seconds, 2)}


def small_pieces():
    """Make pieces so small that even the least collection fills them, SQLite's cache among them.

    What is left to grow is what grows with the collection.
    """
    for module, name, size in PIECES:
        assert hasattr(import_module(module), name), f"{module} has no {name}: it has moved"
        setattr(import_module(module), name, size)
    by_callback = faiss.PyCallbackIOWriter
    faiss.PyCallbackIOWriter = lambda write: by_callback(write, PIECE_BYTES)
    connect = sqlite3.connect

    def with_small_cache(*args, **options):
        connection = connect(*args, **options)
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        return connection

    sqlite3.connect = with_small_cache


def run_forked(step, arguments, told):
    status = 1
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        STEPS[step](*arguments)
        os.write(told, str(tracemalloc.get_traced_memory()[1] - before).encode())
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, nargs="+", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trace", action="store_true", help="python_bytes as well; takes twice the time")
    options = parser.parse_args()
    small_pieces()
    if options.trace:
        tracemalloc.start()
    gc.collect()
    gc.freeze()
    for count in options.documents:
        folder = options.folder / str(count)
        folder.mkdir()
        write_corpus(folder / "all.jsonl", range(count), 1)
        write_corpus(folder / "half.jsonl", range(0, count, 2), 2)
        for step in STEPS:
            print(json.dumps(measure(step, folder, count)), flush=True)


if __name__ == "__main__":
    main()
