"""Migrate an index from a directory to Milvus and back, each killed once on the way, and compare the exports.

    python bench/milvus_migrate.py [--documents 100000] [--views 2] [--json]
    python bench/milvus_migrate.py --server DIR --documents 125000 --views 8 --dim 96

Documents of 20 to 120 made words by Zipf's law with a lexical side. Each `mvindex migrate` is a process of its own,
killed by SIGKILL after --kill seconds; then the same command continues. Both directories are exported, and their files
have to be equal to the last byte. Seconds are wall-clock of both runs, reading the documents that were there already
included; `cpu_s` is what the commands used, and the server; memory is the most that the second run had, and the server.

With --server it is the server of tests/milvus/milvus_server.py, without a lexical side, which it cannot have. All files
stay in DIR, and what is there already is not made again. Then 1, 8 and 64 callers, threads of one process, search the
server's copy and the directory behind `mvindex serve`, by turns. All results of the first queries have to be equal.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import harness
import numpy as np
from milvus_bulk import MilvusServer, most_memory, run
from milvus_hybrid import texts_of
from serving import latencies, random_vectors, serve

import mvindex
from mvindex import Document

BLOCK = 5_000
CALLERS, COMPARED = (1, 8, 64), 16
# A server ends itself when a busy machine lets it wait for longer than its session lives.
PATIENT_SERVER = "common.session.ttl=600"
TICKS = os.sysconf("SC_CLK_TCK")


def made(path, options):
    """Make the index, if it is not there yet."""
    if path.exists():
        return
    rng, unfinished = np.random.default_rng(3), path.with_suffix(".part")
    with mvindex.create(unfinished, dim=options.dim, lexical="none" if options.server else "unicode") as index:
        for begin in range(0, options.documents, BLOCK):
            numbers = range(begin, min(begin + BLOCK, options.documents))
            texts = texts_of(rng, len(numbers), 20, 120)
            named = [Document(f"d{n}", text, metadata={"n": n}) for n, text in zip(numbers, texts, strict=True)]
            index.add_views(named, rng.standard_normal((len(numbers), options.views, options.dim)).astype(np.float32))
    unfinished.rename(path)


def cpu_s(pid):
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def migrated(source, target, kill_s, server):
    """Migrate, once killed on the way; return a row."""
    over = threading.Event()
    timer = threading.Timer(kill_s, over.set)
    timer.start()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_server = cpu_s(server.pid) if server else 0.0
    first = run("migrate", source, target, until=over.is_set)
    timer.cancel()
    second = run("migrate", source, target)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = {
        "to": str(target).partition(":")[0] if ":" in str(target) else "directory",
        "documents": second["documents"],
        "moved_before_the_kill": second["documents"] - second["moved"],
        "seconds": round(first["seconds"] + second["seconds"], 1),
        "of_the_second_run": second["seconds"],
        "cpu_s": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 1),
        "memory_mb": second["bytes"] >> 20,
    }
    if server:
        row |= {"server_cpu_s": round(cpu_s(server.pid) - of_server, 1), "server_mb": most_memory(server.pid) >> 20}
    return row


def size_of(folder):
    """Return the bytes of the files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def digests(folder):
    """Return the digest of each file of an export, but for its manifest, which has the index's own id."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def compared(folder):
    """Export the first directory and the last; return a row."""
    started = time.monotonic()
    found = []
    for index in ("first", "back"):
        run("export", folder / index, "--index", folder / f"{index}.mvx", "--to", "npy")
        found.append(digests(folder / index))
    equal = bool(found[0]) and found[0] == found[1]
    return {"files": len(found[0]), "equal": equal, "seconds": round(time.monotonic() - started, 1)}


def there_and_back(folder, there, kept, server, options):
    """Yield a row for each way, and one for the exports. kept: the folder that Milvus keeps its files in."""
    made(folder / "first.mvx", options)
    for source, target, files in (
        (folder / "first.mvx", there, kept),
        (there, folder / "back.mvx", folder / "back.mvx"),
    ):
        before = size_of(files)
        row = migrated(source, target, options.kill, server)
        yield {**row, "bytes": size_of(files) - before}
    yield compared(folder)


def rates(folder, there, server, options):
    """Yield the rows of searches in the server, and in the directory behind `mvindex serve`."""
    serving = serve(sys.executable, folder / "first.mvx")
    try:
        sides = (there, server.pid, serving.url(), serving.process.pid)
        command = [sys.executable, __file__, "--seconds", options.seconds, "--client", *sides]
        printed = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        serving.close()
    yield from map(json.loads, printed.splitlines())


def client(options):
    """Print a row for each number of callers and each side: an address, and the process that responds there."""
    places, pids = options.client[::2], list(map(int, options.client[1::2]))
    with mvindex.open(places[0]) as milvus, mvindex.open(places[1]) as served:
        queries = list(random_vectors(2000, served.dim))
        equal = sum(_same(milvus, served, query) for query in queries[:COMPARED])
        print(json.dumps({"equal": f"{equal} of {COMPARED}"}), flush=True)
        for callers in CALLERS:
            for name, index, pid in zip(("milvus", "served"), (milvus, served), pids, strict=True):
                begun, used, own = time.monotonic(), cpu_s(pid), time.process_time()
                row = latencies(index.search, queries, callers, options.seconds)
                num_queries = max(1.0, row["queries_per_s"] * (time.monotonic() - begun))
                row |= {"cpu_ms_a_query": round(1000 * (cpu_s(pid) - used) / num_queries, 1)}
                row |= {"client_cpu_ms_a_query": round(1000 * (time.process_time() - own) / num_queries, 1)}
                print(json.dumps({"callers": callers, "side": name, **row}), flush=True)


def _same(milvus, served, query):
    results = [index.search(query) for index in (milvus, served)]
    return results[0].hits == results[1].hits and results[0].exact == results[1].exact


def measured(folder, options):
    """Yield the rows."""
    if not options.server:
        there = f"milvus-lite:{folder}/there.db"
        yield from there_and_back(folder, there, folder / "there.db", None, options)
        return
    (folder / "server").mkdir(parents=True, exist_ok=True)
    with MilvusServer(folder / "server", [PATIENT_SERVER]) as server:
        there = server.url("moved", "?timeout=600&lease=600")
        if not (folder / "back.mvx").exists():
            yield from there_and_back(folder, there, folder / "server" / "data", server, options)
        yield from rates(folder, there, server, options)


def main():
    parser = harness.parser(__doc__, documents=100_000, views=2, dim=64, json=False)
    parser.add_argument("--kill", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--server", type=Path, metavar="DIR", help="a real server, with its files in this folder")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each number of callers and side")
    parser.add_argument("--client", nargs="+", help=argparse.SUPPRESS)
    options = harness.parse(parser, documents=300, kill=4.0)
    if options.client:
        client(options)
        return
    folder = nullcontext(options.server) if options.server else tempfile.TemporaryDirectory(prefix="milvus-migrate-")
    with folder as name:
        for row in measured(Path(name).absolute(), options):
            print(json.dumps(row) if options.json else row, flush=True)
            if row.get("equal") in (False, f"0 of {COMPARED}"):
                sys.exit("the exports or results differ")


if __name__ == "__main__":
    main()
