"""Compare what a graph and the exact scan take under filters, and which of them answers by default.

    python bench/graph_filters.py [--documents 20000] [--dim 128] [--json]

Documents of 8 views around 400 centres, drawn by chance; filters by their metadata allow all of them, a half, a tenth,
a hundredth and a thousandth. Median CPU milliseconds of single questions by `index.search` with texts, the sides in
turns, each asked once before. `default` chooses by what its build has measured; `graph` has search parameters that were
set, so that it walks wherever the filter is not tight; `scan` is asked for exact results. Recall of the default is
against the scan.
"""

import statistics
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex import Document
from mvindex.engines.build import save_search_params
from mvindex.index import embedded_store_of

VIEWS, CENTRES, BATCH, QUESTIONS = 8, 400, 2000, 64
SHARES = {"all": 1, "1/2": 2, "1/10": 10, "1/100": 100, "1/1000": 1000}


def drawn(rng, centres, count):
    """Return unit views, (count, VIEWS, d) float32, of documents around the centres."""
    near = centres[rng.integers(0, len(centres), count)] + 0.8 * rng.standard_normal((count, centres.shape[1]))
    views = near[:, None] + 0.7 * rng.standard_normal((count, VIEWS, centres.shape[1]))
    return (views / np.linalg.norm(views, axis=2, keepdims=True)).astype(np.float32)


def make(path, options):
    """Make the index with its graph; return questions, (QUESTIONS, d) float32."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, options.dim))
    with mvindex.create(path, dim=options.dim) as index:
        for begin in range(0, options.documents, BATCH):
            numbers = range(begin, min(begin + BATCH, options.documents))
            documents = [
                Document(f"d{n}", f"text of {n} " * 10, metadata={name: n % every for name, every in SHARES.items()})
                for n in numbers
            ]
            index.add_views(documents, drawn(rng, centres, len(documents)))
        index.admin.build("graph")
    return drawn(rng, centres, QUESTIONS)[:, 0]


def rows_of(sides, questions, top_k, name):
    """Return a row of one filter: the milliseconds of each side, and the recall of the default."""
    asked = {"top_k": top_k} | ({} if name == "all" else {"filter": {name: 0}})
    spent, shares = {side: [] for side in sides}, []
    for question in questions:
        hits = {}
        for index, more in sides.values():
            index.search(question, **asked, **more)
        for side, (index, more) in sides.items():
            begin = time.process_time()
            hits[side] = {hit.id for hit in index.search(question, **asked, **more) if hit.text}
            spent[side].append(1e3 * (time.process_time() - begin))
        shares.append(len(hits["default"] & hits["scan"]) / max(len(hits["scan"]), 1))
    medians = {side: round(statistics.median(times), 3) for side, times in spent.items()}
    return {"top_k": top_k, "allowed": name, **medians, "recall": round(statistics.mean(shares), 4)}


def main():
    parser = harness.parser(__doc__, documents=20_000, dim=128, json=False)
    options = harness.parse(parser, documents=2000, dim=16)
    with tempfile.TemporaryDirectory(dir=harness.FOLDER) as folder:
        path, walked = Path(folder) / "default.mvx", Path(folder) / "graph.mvx"
        questions = make(path, options)
        with mvindex.open(path) as index:
            index.admin.snapshot(walked)
            search = {name: value for name, value in index.info().search.items() if name != "measured"}
        with mvindex.open(walked) as index:
            save_search_params(embedded_store_of(index), search)
        with mvindex.open(path) as default, mvindex.open(walked) as graph:
            sides = {"default": (default, {}), "graph": (graph, {}), "scan": (default, {"exact": True})}
            for top_k in (10, 100):
                for name in SHARES:
                    harness.show(rows_of(sides, questions, top_k, name), options.json)


if __name__ == "__main__":
    main()
