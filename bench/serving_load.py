"""Check a server under load against an oracle: ingest, queries and deletes at once; and kill -9 in the middle of them.

    python bench/serving_load.py mixed --minutes 20 --out build/bench/mixed.json
    python bench/serving_load.py kills --rounds 20

The oracle keeps every vector: a result is wrong when it has a document twice, one that was never added or whose
deletion was acknowledged before, a wrong score or text, fewer hits than requested, or lacks a document that was there
all the time and scores better than its last.
"""

import json
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex import Document
from mvindex_connectors.remote import CallSettings, IndexClient

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serving"))
from serving_tools import served, start  # noqa: E402 - the tests' server, in a process of its own

PATIENT = CallSettings(timeout_s=300, retry_s=120)
DIM, VIEWS, CHUNK, LIVING, TOP_K = 64, 2, 200, 20_000, 10
KEPT = 1 << 16
# Views are stored in fp16.
TOLERANCE = 2e-3


class Oracle:
    """Documents 0, 1, 2, ...: added in order, deleted from the front. Bounds say what must and what may be there."""

    def __init__(self):
        # Of the last KEPT documents.
        self.views = np.zeros((KEPT, VIEWS, DIM), dtype=np.float32)
        self.deleting = self.deleted = self.added = self.adding = 0

    def plan(self, views):
        self.views[np.arange(self.adding, self.adding + len(views)) % KEPT] = views
        self.adding += len(views)

    def scores(self, rows, query):
        return (self.views[rows % KEPT] @ query).max(axis=1)

    def must(self):
        return self.deleting, self.added

    def may(self):
        return self.deleted, self.adding

    def faults(self, query, hits, before, after):
        """Return the faults of a result. before: may() at the request; after: must() at the result, and before."""
        rows = np.array([int(hit.id[1:]) for hit in hits], dtype=np.int64)
        low, high = before[0], self.adding
        if len(set(rows.tolist())) != len(rows):
            return "a document twice"
        if len(rows) and (rows.min() < low or rows.max() >= high):
            return f"a document that cannot be there: {rows.tolist()}, expected {low} to {high}"
        sure = np.arange(*after)
        if len(rows) < min(TOP_K, len(sure)):
            return f"{len(rows)} hits of {len(sure)} documents at least"
        right = self.scores(rows, query)
        given = np.array([hit.score for hit in hits])
        if np.abs(right - given).max(initial=0) > TOLERANCE or (np.diff(given) > 0).any():
            return f"scores {given.tolist()}, expected {right.tolist()}"
        if any(hit.text != f"text of {hit.id}" for hit in hits):
            return "another's text"
        if len(sure):
            scores = self.scores(sure, query)
            missed = np.setdiff1d(sure[scores > given[-1] + TOLERANCE], rows)
            if len(missed):
                return f"documents {missed.tolist()} are missing"
        return None


def mixed(folder, options):
    path = folder / "mixed.mvx"
    mvindex.create(path, dim=DIM).close()
    oracle, ends = Oracle(), time.monotonic() + 60 * options.minutes
    wrong, memory = [], []
    searched = [0] * options.clients
    failed = []
    with served(f"--index=m={path}") as serving, IndexClient(serving.url("m"), settings=PATIENT) as index:

        def write():
            rng = np.random.default_rng(1)
            while time.monotonic() < ends:
                add(index, oracle, rng)
                if oracle.added - oracle.deleted > LIVING:
                    delete_to(index, oracle, oracle.added - LIVING)

        def ask(number):
            rng = np.random.default_rng(100 + number)
            while time.monotonic() < ends:
                query = unit_rows(rng, 1)[0]
                before, sure = oracle.may(), oracle.must()
                hits = index.search(query, top_k=TOP_K).hits
                # There all the time: acknowledged before the query, its deletion not begun after it.
                fault = oracle.faults(query, hits, before, (oracle.must()[0], sure[1]))
                if fault:
                    wrong.append(fault)
                searched[number] += 1

        def kept(work, *given):
            try:
                work(*given)
            except BaseException as err:
                failed.append(repr(err))
                raise

        threads = [threading.Thread(target=kept, args=(write,))]
        threads += [threading.Thread(target=kept, args=(ask, n)) for n in range(options.clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            memory.append(harness.memory_bytes("VmRSS", serving.process.pid) >> 20)
            print(json.dumps({"minutes_left": round((ends - time.monotonic()) / 60, 1), "added": oracle.added,
                              "deleted": oracle.deleted, "searched": sum(searched), "wrong": len(wrong),
                              "memory_mb": memory[-1]}), file=sys.stderr, flush=True)  # fmt: skip
            time.sleep(min(20, max(1, 6 * options.minutes)))
    with mvindex.open(path) as index:
        stored = {document.id for document in index}
    quarter = max(1, len(memory) // 4)
    return {
        "minutes": options.minutes, "added": oracle.added, "deleted": oracle.deleted, "searched": sum(searched),
        "wrong_answers": len(wrong), "wrong": wrong[:3], "threads_that_failed": failed,
        "documents_differ": len(stored ^ {f"m{n}" for n in range(oracle.deleted, oracle.added)}),
        "memory_mb": {"after each quarter": memory[quarter::quarter][:4], "most": max(memory)},
    }  # fmt: skip


def add(index, oracle, rng):
    views = unit_rows(rng, CHUNK * VIEWS).reshape(CHUNK, VIEWS, DIM)
    first = oracle.adding
    oracle.plan(views)
    names = [f"m{first + n}" for n in range(CHUNK)]
    index.add_views([Document(name, f"text of {name}") for name in names], views)
    oracle.added = oracle.adding


def delete_to(index, oracle, end):
    first = oracle.deleting
    oracle.deleting = end
    index.delete(ids=[f"m{n}" for n in range(first, end)])
    oracle.deleted = end


def unit_rows(rng, count):
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def kills(folder, options):
    """Kill the server under load so many times: what was acknowledged is there, once, and nothing is there in part."""
    path = folder / "killed.mvx"
    mvindex.create(path, dim=DIM).close()
    oracle, rng = Oracle(), np.random.default_rng(options.seed)
    faults = []
    for turn in range(options.rounds):
        server = start(f"--index=k={path}")
        killer = threading.Timer(0.3 + 2 * rng.random(), server.process.send_signal, (signal.SIGKILL,))
        killer.start()
        # What was acknowledged until the kill is what counts.
        with (
            suppress(mvindex.MvindexError),
            IndexClient(server.url("k"), settings=CallSettings(timeout_s=5, retry_s=0)) as index,
        ):
            while True:
                add(index, oracle, rng)
                index.search(unit_rows(rng, 1)[0])
                if rng.random() < 0.3:
                    delete_to(index, oracle, oracle.deleting + int(rng.integers(1, CHUNK)))
        killer.join()
        server.close()
        faults += what_is_lost(path, oracle)
        print(json.dumps({"round": turn + 1, "acknowledged": oracle.added, "faults": len(faults)}), file=sys.stderr,
              flush=True)  # fmt: skip
    return {"rounds": options.rounds, "acknowledged": oracle.added, "deleted": oracle.deleted, "faults": faults}


def what_is_lost(path, oracle):
    """Return the faults of the index after a kill; the oracle learns the fate of what was not acknowledged."""
    with mvindex.open(path) as index:
        index.admin.verify()
        stored = [int(document.id[1:]) for document in index]
    have, faults = set(stored), []
    sure = set(range(oracle.deleting, oracle.added))
    if len(have) != len(stored):
        faults.append("a document twice")
    if sure - have:
        faults.append(f"{len(sure - have)} acknowledged documents are lost")
    if have & set(range(oracle.deleted)):
        faults.append("a deletion that was acknowledged is undone")
    for name, low, high in (("deletion", oracle.deleted, oracle.deleting), ("chunk", oracle.added, oracle.adding)):
        inside = have & set(range(low, high))
        if inside and len(inside) != high - low:
            faults.append(f"half a {name} is there: {len(inside)} of {high - low}")
    if have & set(range(oracle.deleted, oracle.deleting)):
        oracle.deleting = oracle.deleted
    oracle.deleted = oracle.deleting
    if oracle.adding - 1 in have:
        oracle.added = oracle.adding
    oracle.adding = oracle.added
    return faults


def main():
    parser = harness.parser(__doc__, minutes=20.0, clients=3, rounds=20, seed=2)
    parser.add_argument("what", choices=("mixed", "kills"))
    parser.add_argument("--out", type=Path)
    options = harness.parse(parser, what="mixed", minutes=0.1, clients=1)
    with tempfile.TemporaryDirectory() as folder:
        report = (mixed if options.what == "mixed" else kills)(Path(folder), options)
    print(json.dumps(report))
    harness.save_rows(report, options.out)


if __name__ == "__main__":
    main()
