"""mvindex on Milvus against a bare loop of pymilvus that does the same work, in one run.

    python bench/milvus.py --views 100000 [--server] [--dim 384] [--queries 100] [--kinds hnsw ivf-sq8] [--json]

The bare loop stores what mvindex stores (views, and a record a document), and answers a query as a careful user would:
search top_k * 8 rows, the best view of each document, then the records and views of the found. Rounds alternate, so
that both meet the same load; ratios are what to read. The server is that of tests/milvus/milvus_server.py.
"""

import contextlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "milvus"))
from milvus_parts.bare import Bare  # noqa: E402 - beside this file
from milvus_parts.corpus import CHUNK, VIEWS, documents_of, queries_of, rows_of  # noqa: E402 - beside this file
from milvus_server import MilvusServer  # noqa: E402 - beside the tests

import mvindex  # noqa: E402 - after the paths
from mvindex import Document  # noqa: E402 - after the paths

TOP_K = 10


@contextlib.contextmanager
def places(options, folder):
    """Yield the addresses of mvindex' index and of the bare loop's collections."""
    if not options.server:
        yield f"milvus-lite:{folder}/ours.db", f"{folder}/bare.db"
        return
    data = Path(folder) / "server"
    data.mkdir()
    with MilvusServer(data) as server:
        yield server.url("ours", "?timeout=600"), f"http://127.0.0.1:{server.port}"


def ingest(index, bare, count, dim, is_lite):
    """Return the seconds of each: both take the same chunks in turns; mvindex in one run, as a corpus is ingested."""
    seconds = {"mvindex": 0.0, "bare": 0.0}
    chunks = [range(begin, min(begin + CHUNK, count)) for begin in range(0, count, CHUNK)]

    def pairs():
        """Yield the documents and views for mvindex; the bare loop takes its turn, not counted, between chunks."""
        nonlocal paused
        for numbers in chunks:
            began = time.perf_counter()
            rows = rows_of(numbers, dim)
            documents = [Document(doc_id, text) for doc_id, text in documents_of(numbers)]
            started = time.perf_counter()
            bare.add(numbers, rows)
            seconds["bare"] += time.perf_counter() - started
            print(f"{numbers.stop:,} of {count:,} documents", file=sys.stderr, flush=True)
            paused += time.perf_counter() - began
            yield from zip(documents, rows, strict=True)

    paused = 0.0
    documents, views = itertools.tee(pairs())
    started = time.perf_counter()
    index.add_views((document for document, _ in documents), (rows for _, rows in views))
    seconds["mvindex"] = time.perf_counter() - started - paused
    if is_lite:
        # As mvindex has done, at the end of its run.
        started = time.perf_counter()
        bare.flush()
        seconds["bare"] += time.perf_counter() - started
    return seconds


def ask(index, bare, queries):
    """Return milliseconds of each query, and whether both found the same documents."""
    times, same = {"mvindex": [], "bare": []}, 0
    for number, query in enumerate(queries):
        found = {}
        calls = {
            "mvindex": lambda query=query: [hit.id for hit in index.search(query, TOP_K).hits],
            "bare": lambda query=query: bare.search(query, TOP_K),
        }
        for name in sorted(calls, reverse=bool(number % 2)):
            started = time.perf_counter()
            found[name] = calls[name]()
            times[name].append(1000 * (time.perf_counter() - started))
        same += found["mvindex"] == found["bare"]
    return times, same


def crowd_rounds(index, dim):
    """Return the searches that a query takes where a document's views are nearly equal, by top_k."""
    rng = np.random.default_rng(9)
    found = {}
    for top_k in (10, 100, 1000):
        queries = [rows_of([int(each)], dim, 0.005)[0][0] for each in rng.integers(1000, size=10)]
        found[top_k] = float(np.mean([index.search(query, top_k).rounds for query in queries]))
    return found


def recalls(index, kinds, queries):
    """Yield each kind's recall, build seconds and median milliseconds."""
    truth = [{hit.id for hit in index.search(query, TOP_K).hits} for query in queries]
    rows = []
    for kind in kinds:
        started = time.perf_counter()
        index.admin.build(kind)
        built = time.perf_counter() - started
        shares, times = [], []
        for query, expected in zip(queries, truth, strict=True):
            started = time.perf_counter()
            found = index.search(query, TOP_K)
            times.append(1000 * (time.perf_counter() - started))
            shares.append(len(expected & {hit.id for hit in found.hits}) / TOP_K)
        row = {"kind": kind, "recall": round(float(np.mean(shares)), 4), "build_s": round(built, 1)}
        rows.append({**row, "p50_ms": p(times, 50)})
        tell(rows[-1])
    return rows


def tell(found):
    """Print to stderr: a run takes long, and all else is printed at its end."""
    print(json.dumps(found), file=sys.stderr, flush=True)


def p(values, percent):
    return round(float(np.percentile(values, percent)), 2)


def main():
    parser = harness.parser(__doc__, views=100_000, dim=384, queries=100, server=False, json=False)
    parser.add_argument("--kinds", nargs="*", default=[])
    options = harness.parse(parser, views=400, dim=8, queries=4)
    count = options.views // VIEWS
    with tempfile.TemporaryDirectory(prefix="milvus-bench-") as folder, places(options, folder) as (ours, theirs):
        bare = Bare(theirs, options.dim)
        with mvindex.create(ours, dim=options.dim) as index:
            seconds = ingest(index, bare, count, options.dim, not options.server)
            tell({"seconds": seconds})
            queries = queries_of(options.queries, count, options.dim)
            index.search(queries[0], TOP_K)
            bare.search(queries[0], TOP_K)
            times, same = ask(index, bare, queries)
            tell({"p50_ms": {name: p(each, 50) for name, each in times.items()}, "same": same})
            report = {
                "on": index.info().server["server"],
                "views": count * VIEWS,
                "dim": options.dim,
                "rows_per_s": {name: round(count * VIEWS / each) for name, each in seconds.items()},
                "ingest_ratio": round(seconds["mvindex"] / seconds["bare"], 3),
                "p50_ms": {name: p(each, 50) for name, each in times.items()},
                "p95_ms": {name: p(each, 95) for name, each in times.items()},
                "p50_ratio": round(p(times["mvindex"], 50) / p(times["bare"], 50), 3),
                "same_answers": f"{same} of {len(queries)}",
                "rounds": crowd_rounds(index, options.dim),
                "kinds": recalls(index, options.kinds, queries[:50]),
            }
        bare.close()
    print(json.dumps(report) if options.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
