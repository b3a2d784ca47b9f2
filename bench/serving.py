"""What a server costs and gives: throughput and latency at 1, 8 and 64 clients, against the embedded index in a loop.

    python bench/serving.py --seconds 5 --out bench/out/serving.json        # clients in a process of their own
    python bench/serving.py --mixed 20                                      # minutes of ingest, queries and deletes
    python bench/serving.py --kills 5                                       # kill -9 under load, what was acknowledged

Text queries go through the packaged encoder, vector queries past it. Everything runs on this machine, clients included:
they take their share of its cores.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import mvindex
from mvindex import Document
from mvindex_connectors.remote import CallSettings, IndexClient

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serving"))
from serving_tools import served, start  # noqa: E402 - the tests' server, in a process of its own

CLIENTS = (1, 8, 64)
TEXTS = ROOT / "examples" / "squad" / "passages.tsv"
PATIENT = CallSettings(timeout_s=300, retry_s=120)


def passages(count):
    import csv

    with open(TEXTS, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1 : count + 1]
    return [Document(row[0], row[1], row[2]) for row in rows]


def questions(documents, count):
    """Questions made of the passages' own words, all different."""
    words = [document.text.split() for document in documents]
    return [" ".join(words[n % len(words)][n // len(words) % 20 :][:9]) + "?" for n in range(count)]


def latencies(ask, queries, clients, seconds):
    """Seconds of each call, and calls a second, of so many threads that ask one after the other."""
    ends, found = time.monotonic() + seconds, [[] for _ in range(clients)]

    def work(number):
        turn = number
        while time.monotonic() < ends:
            begun = time.perf_counter()
            ask(queries[turn % len(queries)])
            found[number].append(time.perf_counter() - begun)
            turn += clients

    begun = time.monotonic()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = np.concatenate(found)
    return row_of(taken, len(taken) / (time.monotonic() - begun))


def row_of(taken, rate):
    p50, p95, p99 = np.percentile(taken, [50, 95, 99]) * 1000
    return {"queries_per_s": round(rate, 1), "p50_ms": round(p50, 3), "p95_ms": round(p95, 3), "p99_ms": round(p99, 3)}


def load(path, batch, seconds, kinds):
    """A row for each kind of query and number of clients."""
    rows = []
    with served(f"--index=a={path}", "--batch", batch, "--max-calls", "512") as serving:
        for kind in kinds:
            for clients in CLIENTS:
                command = [sys.executable, __file__, "--client", serving.url(), "--kind", kind]
                command += ["--clients", str(clients), "--seconds", str(seconds)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                rows.append({"kind": kind, "clients": clients, "batch": batch, **json.loads(done.stdout)})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def client(url, kind, clients, seconds):
    """Printed: what one process of so many threads sees."""
    texts = questions(passages(200), 2000)
    with IndexClient(url, settings=PATIENT) as index:
        queries = texts if kind == "text" else list(random_vectors(2000, index.dim))
        for query in queries[:3]:
            index.search(query)
        print(json.dumps(latencies(index.search, queries, clients, seconds)))


def random_vectors(count, dim):
    rows = np.random.default_rng(5).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def embedded(path, seconds, kinds):
    rows = []
    with mvindex.open(path) as index:
        for kind in kinds:
            queries = questions(passages(200), 2000) if kind == "text" else list(random_vectors(2000, index.dim))
            for query in queries[:3]:
                index.search(query)
            rows.append({"kind": kind, "clients": "embedded", **latencies(index.search, queries, 1, seconds)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def figures(folder, seconds, documents, kinds):
    path = folder / "bench.mvx"
    with mvindex.create(path, encoder="minilm") as index:
        index.add(passages(documents))
    rows = embedded(path, seconds, kinds) + load(path, 256, seconds, kinds) + load(path, 1, seconds, kinds)
    report = {"rows": rows, "cores": os.cpu_count(), "load": os.getloadavg()}
    for kind in kinds:
        rates = {(row["clients"], row.get("batch")): row for row in rows if row["kind"] == kind}
        alone = rates["embedded", None]
        report[kind] = {
            "speedup_at_64_over_embedded_loop": round(rates[64, 256]["queries_per_s"] / alone["queries_per_s"], 2),
            "speedup_at_64_over_no_batching": round(rates[64, 256]["queries_per_s"] / rates[64, 1]["queries_per_s"], 2),
            "overhead_p50_ms": round(rates[1, 256]["p50_ms"] - alone["p50_ms"], 3),
        }
    return report


def mixed(folder, minutes):
    """Ingest, queries and deletes at once; every answer is checked against an oracle of what must be there."""
    path, dim = folder / "mixed.mvx", 64
    mvindex.create(path, dim=dim).close()
    ends = time.monotonic() + 60 * minutes
    wrong, counts, memory = [], {"added": 0, "searched": 0, "deleted": 0}, []
    living = {}
    lock = threading.Lock()
    with served(f"--index=m={path}") as serving:
        with IndexClient(serving.url("m"), settings=PATIENT) as index:

            def write():
                rng, number = np.random.default_rng(1), 0
                while time.monotonic() < ends:
                    rows = random_from(rng, 200, dim)
                    names = [f"m{number + n}" for n in range(200)]
                    index.add_views([Document(name, "text of " + name) for name in names], rows)
                    with lock:
                        living.update(zip(names, rows, strict=True))
                        old = list(living)[: max(0, len(living) - 20_000)]
                        for name in old:
                            del living[name]
                    counts["added"] += 200
                    number += 200
                    if old:
                        counts["deleted"] += index.delete(ids=old)

            def ask(seed):
                rng = np.random.default_rng(seed)
                while time.monotonic() < ends:
                    with lock:
                        # Neither new enough to be in doubt nor old enough to be deleted meanwhile.
                        names = list(living)[len(living) // 3 : -400]
                        if not names:
                            continue
                        name = names[rng.integers(len(names))]
                        row = living[name]
                    hit = index.search(row, top_k=1).hits[0]
                    if hit.id != name or hit.text != "text of " + name:
                        wrong.append((name, hit.id))
                    counts["searched"] += 1

            threads = [threading.Thread(target=write), *(threading.Thread(target=ask, args=(n,)) for n in range(4))]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                memory.append(resident_mb(serving.process.pid))
                time.sleep(min(10, max(1, 6 * minutes)))
        with lock:
            whole = set(living)
    with mvindex.open(path) as index:
        stored = {document.id for document in index}
    third = len(memory) // 3
    return {
        "minutes": minutes, **counts, "wrong_answers": len(wrong), "wrong": wrong[:3],
        "documents_differ": len(whole ^ stored),
        "memory_mb": {"after a third": memory[third], "at the end": memory[-1], "most": max(memory)},
    }  # fmt: skip


def random_from(rng, count, dim):
    rows = rng.standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def resident_mb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def kills(folder, rounds):
    """kill -9 under load, so many times: what was acknowledged is there, once, and nothing else is half there."""
    path = folder / "killed.mvx"
    mvindex.create(path, dim=16).close()
    acknowledged, rng, lost = {}, np.random.default_rng(2), 0
    for turn in range(rounds):
        server = start(f"--index=k={path}")
        killer = threading.Timer(0.3 + 1.5 * rng.random(), lambda s=server: s.process.send_signal(signal.SIGKILL))
        killer.start()
        try:
            with IndexClient(server.url("k"), settings=CallSettings(timeout_s=5, retry_s=0)) as index:
                for number in range(10_000):
                    names = [f"k{turn}-{number}-{n}" for n in range(50)]
                    index.add_views([Document(name, f"text {name}") for name in names], random_from(rng, 50, 16))
                    acknowledged.update(dict.fromkeys(names))
        except mvindex.MvindexError:
            pass
        killer.join()
        server.close()
        with mvindex.open(path) as index:
            stored = [document.id for document in index]
        lost += len(acknowledged.keys() - set(stored))
        assert len(stored) == len(set(stored)) and len(stored) % 50 == 0
        print(json.dumps({"round": turn, "acknowledged": len(acknowledged), "stored": len(stored)}), flush=True)
    return {"rounds": rounds, "acknowledged": len(acknowledged), "lost": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--kinds", default="vector,text")
    parser.add_argument("--mixed", type=float, metavar="MINUTES")
    parser.add_argument("--kills", type=int, metavar="ROUNDS")
    parser.add_argument("--out")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        client(asked.client, asked.kind, asked.clients, asked.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        if asked.mixed is not None:
            report = mixed(Path(folder), asked.mixed)
        elif asked.kills is not None:
            report = kills(Path(folder), asked.kills)
        else:
            report = figures(Path(folder), asked.seconds, asked.documents, asked.kinds.split(","))
    print(json.dumps(report))
    if asked.out:
        Path(asked.out).parent.mkdir(parents=True, exist_ok=True)
        Path(asked.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
