"""Measure throughput and latency of a server at 1, 8 and 64 clients, against the embedded index in a loop.

    python bench/serving.py --seconds 5 --out build/bench/serving.json      # clients in a process of their own

Text queries go through the packaged encoder, vector queries past it. Everything runs on this machine, clients included:
they take their share of its cores. The load of 20 minutes and the kills are in bench/serving_load.py.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import tiny

import mvindex
from mvindex import Document
from mvindex_connectors.remote import CallSettings, IndexClient

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serving"))
from serving_tools import served  # noqa: E402 - the tests' server, in a process of its own

CLIENTS = (1,) if tiny.FOLDER else (1, 8, 64)
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


def load(path, batch, seconds, kinds):
    """Yield a row for each kind of query and number of clients."""
    rows = []
    # As a server comes: the tests' has one thread for its encoder.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))}
    with served(f"--index=a={path}", "--batch", batch, "--max-calls", "512", env=threads) as serving:
        for kind in kinds:
            if batch > 1:
                record({"kind": kind, "clients": "by turns", **seen_by_clients(serving.url(), kind, seconds, "--beside",
                                                                             path)}, rows)  # fmt: skip
            for clients in CLIENTS:
                seen = seen_by_clients(serving.url(), kind, seconds, "--clients", clients)
                record({"kind": kind, "clients": clients, "batch": batch, **seen}, rows)
    return rows


def embedded_loop(path, seconds, kinds):
    rows = []
    with mvindex.open(path) as index:
        for kind in kinds:
            queries = queries_of(kind, index.dim)
            for query in queries[:3]:
                index.search(query)
            record({"kind": kind, "clients": "embedded", **latencies(index.search, queries, 1, seconds)}, rows)
    return rows


def record(row, rows):
    rows.append(row)
    print(json.dumps(row), file=sys.stderr, flush=True)


def figures(folder, seconds, documents, kinds):
    path = folder / "bench.mvx"
    with mvindex.create(path, encoder="minilm", lexical="none") as index:
        index.add(passages(documents))
    rows = embedded_loop(path, seconds, kinds) + load(path, 256, seconds, kinds) + load(path, 1, seconds, kinds)
    # Once more, at the end: what else the machine does changes.
    again = embedded_loop(path, seconds, kinds)
    report = {"rows": rows + again, "cores": os.cpu_count(), "threads": os.environ.get("OMP_NUM_THREADS", "all")}
    for kind in kinds:
        rates = {(row["clients"], row.get("batch")): row.get("queries_per_s") for row in rows if row["kind"] == kind}
        single = np.mean([row["queries_per_s"] for row in rows + again if row["kind"] == kind and
                         row["clients"] == "embedded"])  # fmt: skip
        report[kind] = {
            f"speedup_at_{CLIENTS[-1]}_over_embedded_loop": round(rates[CLIENTS[-1], 256] / single, 2),
            f"speedup_at_{CLIENTS[-1]}_over_no_batching": round(rates[CLIENTS[-1], 256] / rates[CLIENTS[-1], 1], 2),
        }
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--kinds", default="vector,text")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--beside", help=argparse.SUPPRESS)
    options = tiny.parse(parser, seconds=0.1, documents=8, kinds="vector")
    if options.client:
        client(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = figures(Path(folder), options.seconds, options.documents, options.kinds.split(","))
    print(json.dumps(report))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
