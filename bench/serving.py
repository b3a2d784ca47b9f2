"""Measure throughput and latency of servers at 1, 8 and 64 clients, by turns, against the embedded index in a loop.

    python bench/serving.py [--before OTHER/bin/python] [--out build/bench/serving.json]

Servers stand side by side, each with an index of its own of the same passages: `now`, `alone` with `--batch 1` (64
clients only), and `before`, of another installation. They are asked in turns, in rounds, by clients in a process of
their own: medians over the rounds, and `ratio`, the median of a round's rate over that of the first server. Text
queries go through the packaged encoder, vector queries past it. `overhead` is what one client waits longer than for the
embedded index, 40 searches of each in turn. Everything runs on this machine, clients included: they take their share of
its cores. The load of 20 minutes and the kills are in bench/serving_load.py.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex import Document
from mvindex_connectors.remote import CallSettings, IndexClient

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serving"))
from serving_tools import Serving  # noqa: E402 - the tests' server, in a process of its own

CLIENTS = (1,) if harness.FOLDER else (1, 8, 64)
TEXTS = ROOT / "examples" / "squad" / "passages.tsv"
PATIENT = CallSettings(timeout_s=300, retry_s=120)
# Queries of one side before the other's turn: both meet the same neighbours on the machine.
TURN = 40


def passages(count):
    with open(TEXTS, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1 : count + 1]
    return [Document(row[0], row[1], row[2]) for row in rows]


def questions(documents, count):
    """Return distinct questions made of the passages' own words."""
    words = [document.text.split() for document in documents]
    return [" ".join(words[n % len(words)][n // len(words) % 20 :][:9]) + "?" for n in range(count)]


def queries_of(kind, dim):
    return questions(passages(200), 2000) if kind == "text" else list(random_vectors(2000, dim))


def random_vectors(count, dim):
    rows = np.random.default_rng(5).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def timed(ask, query):
    begun = time.perf_counter()
    ask(query)
    return time.perf_counter() - begun


def latencies(ask, queries, clients, seconds):
    """Return seconds of each call, and calls a second, of so many threads that search one after the other."""
    ends, found = time.monotonic() + seconds, [[] for _ in range(clients)]

    def work(number):
        turn = number
        while time.monotonic() < ends:
            found[number].append(timed(ask, queries[turn % len(queries)]))
            turn += clients

    begun = time.monotonic()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = np.concatenate(found)
    p50, p95, p99 = np.percentile(taken, [50, 95, 99]) * 1000
    return {"queries_per_s": round(len(taken) / (time.monotonic() - begun), 1), "p50_ms": round(p50, 3),
            "p95_ms": round(p95, 3), "p99_ms": round(p99, 3)}  # fmt: skip


def beside(index, path, queries, seconds):
    """Return the medians of single queries, remote and embedded in turns in one process, and their difference."""
    taken = {"embedded": [], "remote": []}
    with mvindex.open(path) as embedded:
        asks = {"embedded": embedded.search, "remote": index.search}
        for ask in asks.values():
            for query in queries[:TURN]:
                ask(query)
        ends, turn = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            for name, ask in asks.items():
                taken[name] += [timed(ask, queries[(turn + n) % len(queries)]) for n in range(TURN)]
            turn += TURN
    medians = {name: 1000 * float(np.median(each)) for name, each in taken.items()}
    overhead = medians["remote"] - medians["embedded"]
    return {f"{name}_p50_ms": round(value, 3) for name, value in medians.items()} | {"overhead_ms": round(overhead, 3)}


def client(options):
    """Print the latencies of one process with so many threads."""
    with IndexClient(options.client, settings=PATIENT) as index:
        queries = queries_of(options.kind, index.dim)
        for query in queries[:3]:
            index.search(query)
        if options.beside:
            print(json.dumps(beside(index, options.beside, queries, options.seconds)))
        else:
            print(json.dumps(latencies(index.search, queries, options.clients, options.seconds)))


def seen_by_clients(url, kind, seconds, *more):
    command = [sys.executable, __file__, "--client", url, "--kind", kind, "--seconds", str(seconds), *map(str, more)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def make(path, documents):
    """Make the index in this installation, be it one that names no terms by None."""
    try:
        index = mvindex.create(path, encoder="minilm", lexical="none")
    except mvindex.MvindexError:
        index = mvindex.create(path, encoder="minilm", lexical=None)
    with index:
        index.add(passages(documents))


def serve(python, path, *flags):
    command = [python, "-m", "mvindex", "serve", "--port", "0", "--max-calls", "512", f"--index=a={path}", *flags]
    # As a server comes: the tests' has one thread for its encoder.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))}
    return Serving(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env=os.environ | threads))  # fmt: skip


def by_turns(servers, kind, clients, options):
    """Yield a row for each server."""
    names = [name for name in servers if name != "alone" or clients == CLIENTS[-1]]
    seen = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 else reversed(names):
            seen[name].append(seen_by_clients(servers[name].url(), kind, options.seconds, "--clients", clients))
    rates = {name: np.array([each["queries_per_s"] for each in seen[name]]) for name in names}
    for name in names:
        figures = {key: round(float(np.median([each[key] for each in seen[name]])), 3) for key in seen[name][0]}
        ratio = round(float(np.median(rates[name] / rates[names[0]])), 2)
        yield {"kind": kind, "clients": clients, "server": name, **figures, "ratio": ratio}


def embedded_loop(path, seconds, kinds):
    with mvindex.open(path) as index:
        for kind in kinds:
            queries = queries_of(kind, index.dim)
            for query in queries[:3]:
                index.search(query)
            yield {"kind": kind, "clients": "embedded", **latencies(index.search, queries, 1, seconds)}


def measured(folder, options):
    """Yield the rows."""
    kinds = options.kinds.split(",")
    sides = {"before": (options.before,)} if options.before else {}
    sides |= {"now": (sys.executable,), "alone": (sys.executable, "--batch", "1")}
    with ExitStack() as stack:
        servers = {}
        for name, (python, *flags) in sides.items():
            path = folder / f"{name}.mvx"
            subprocess.run([python, __file__, "--make", path, "--documents", str(options.documents)], check=True)
            servers[name] = serve(python, path, *flags)
            stack.callback(servers[name].close)
        shutil.copytree(folder / "now.mvx", folder / "embedded.mvx")
        yield from embedded_loop(folder / "embedded.mvx", options.seconds, kinds)
        for kind in kinds:
            for name in ("before", "now"):
                if name in servers:
                    found = seen_by_clients(servers[name].url(), kind, options.seconds * options.rounds, "--beside",
                                            folder / "embedded.mvx")  # fmt: skip
                    yield {"kind": kind, "clients": "overhead", "server": name, **found}
            for clients in CLIENTS:
                yield from by_turns(servers, kind, clients, options)


def main():
    parser = harness.parser(__doc__, rounds=6, documents=200, kinds="vector,text")
    parser.add_argument("--seconds", type=float, default=2, help="of each turn")
    parser.add_argument("--before", help="the Python of another installation, measured too")
    parser.add_argument("--out", type=Path)
    for hidden, kind in (("--make", Path), ("--client", str), ("--kind", str), ("--clients", int), ("--beside", str)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = harness.parse(parser, seconds=0.1, rounds=1, documents=8, kinds="vector")
    if options.make:
        make(options.make, options.documents)
        return
    if options.client:
        client(options)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in measured(Path(folder), options):
            rows.append(row)
            print(json.dumps(row), flush=True)
    harness.save_rows(rows, options.out)


if __name__ == "__main__":
    main()
