"""Time dense, lexical and hybrid queries in Milvus Lite beside an index in a directory, and compare their results.

    python bench/milvus_hybrid.py --documents 2000 10000 [--queries 40] [--json]

Documents of 20 to 120 made words by Zipf's law with 4 views of 64 dims, questions of 6 words; each question is searched
in both, one after the other. Milliseconds of one query, ids, scores, texts and citations included; `cpu` is what this
process used meanwhile, in which Lite runs.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex import Document

DIM, VIEWS, VOCABULARY, WORDS = 64, 4, 50_000, 6
MODES = ("dense", "lexical", "hybrid")


def texts_of(rng, count, least, most):
    """Return texts of words by Zipf's law."""
    return [
        " ".join(f"w{word % VOCABULARY}" for word in rng.zipf(1.25, rng.integers(least, most + 1)).tolist())
        for _ in range(count)
    ]


def filled(place, texts, views):
    """Return an index of the documents, and the seconds that it took to store them."""
    index = mvindex.create(place, dim=DIM, lexical="unicode")
    started = time.perf_counter()
    index.add_views([Document(f"d{number}", text) for number, text in enumerate(texts)], views)
    return index, time.perf_counter() - started


def measured(folder, count, num_queries):
    """Return a row for each mode."""
    rng = np.random.default_rng(3)
    texts = texts_of(rng, count, 20, 120)
    views = rng.standard_normal((count, VIEWS, DIM)).astype(np.float32)
    questions = texts_of(rng, num_queries, WORDS, WORDS)
    vectors = rng.standard_normal((num_queries, DIM)).astype(np.float32)
    same, same_s = filled(folder / f"{count}.mvx", texts, views)
    index, index_s = filled(f"milvus-lite:{folder / f'{count}.db'}", texts, views)
    rows = []
    with same, index:
        for mode in MODES:
            for each in (same, index):  # loads and compiles
                each.search(vectors[0], text=questions[0], mode=mode)
            times, cpu, equal = {"directory": [], "lite": []}, {"directory": [], "lite": []}, 0
            for text, vector in zip(questions, vectors, strict=True):
                results = []
                for name, each in (("directory", same), ("lite", index)):
                    started, used = time.perf_counter(), time.process_time()
                    results.append(each.search(vector, text=text, mode=mode))
                    _ = [hit.citation for hit in results[-1].hits]
                    times[name].append(1000 * (time.perf_counter() - started))
                    cpu[name].append(1000 * (time.process_time() - used))
                equal += results[0].hits == results[1].hits and results[0].exact == results[1].exact
            row = {"documents": count, "mode": mode, "equal": f"{equal} of {num_queries}"}
            row |= {f"{name}_p50_ms": round(float(np.median(own)), 2) for name, own in times.items()}
            row |= {f"{name}_cpu_ms": round(float(np.median(own)), 2) for name, own in cpu.items()}
            row["ratio"] = round(row["lite_p50_ms"] / row["directory_p50_ms"], 1)
            row |= {"directory_ingest_s": round(same_s, 2), "lite_ingest_s": round(index_s, 2)}
            rows.append(row)
    return rows


def main():
    parser = harness.parser(__doc__, queries=40, json=False)
    parser.add_argument("--documents", type=int, nargs="*", default=[2000, 10_000])
    options = harness.parse(parser, documents=[60], queries=3)
    with tempfile.TemporaryDirectory(prefix="milvus-hybrid-") as folder:
        for count in options.documents:
            for row in measured(Path(folder), count, options.queries):
                print(json.dumps(row) if options.json else row)
                if row["equal"] != f"{options.queries} of {options.queries}":
                    sys.exit("the results differ")


if __name__ == "__main__":
    main()
