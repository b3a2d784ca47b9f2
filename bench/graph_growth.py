"""Measure what it takes an engine to take in documents, and how it is searched then, beside one built from nothing.

    OMP_NUM_THREADS=1 python bench/graph_growth.py [--corpus clustered spread] [--documents 20000] [--dim 128] [--json]
        [--kind ivf-pq]

Documents of 8 views: around 400 centres, or spread in directions of falling variance. CPU seconds and milliseconds of
this process; the new documents are three tenths of those that were there. Rows:
  built       the engine, a graph by default, is built, and a graph measures itself; documents a second are of both
  scanned     new documents are added, and are scanned beside the engine
  compacted   `compact` takes them in
  added       the same documents are added to the index that was built, a tenth at a time, and taken in as they come
  replaced    three tenths are deleted from what was built, as many added, and `compact` takes these in
  from nothing, of what was compacted or replaced: one built anew of the same documents, with the same search parameters
`ms` is the median of single questions by `index.search` for the first ten with texts, sides that are compared in turns;
`recall` is of the first ten and the first hundred, against the exact scan.
"""

import os
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import graph_filters
import harness
import numpy as np

import mvindex
from mvindex import Document, kernels
from mvindex.engines import extend
from mvindex.engines.build import save_search_params
from mvindex.index import embedded_store_of

VIEWS, SHARE, STEPS, QUESTIONS = 8, 0.3, 10, 200


def spread(rng, centres, count):
    """Return unit views, (count, VIEWS, d) float32, of documents without clusters."""
    dim = centres.shape[1]
    scale = np.arange(1, dim + 1) ** -0.5
    documents = rng.standard_normal((count, 1, dim)) + 0.6 * rng.standard_normal((count, VIEWS, dim))
    views = documents * scale
    return (views / np.linalg.norm(views, axis=2, keepdims=True)).astype(np.float32)


CORPORA = {"clustered": graph_filters.drawn, "spread": spread}


class Corpus:
    """Documents of one sort, the same in every run."""

    def __init__(self, name, dim):
        self._draw, self._rng = CORPORA[name], np.random.default_rng(0)
        self._centres = self._rng.standard_normal((graph_filters.CENTRES, dim))

    def views(self, count):
        return self._draw(self._rng, self._centres, count)


def add(index, first, views):
    """Add documents of these views; return CPU seconds."""
    documents = [Document(f"d{number}", f"text of {number} " * 10) for number in range(first, first + len(views))]
    return harness.timed(lambda: index.add_views(documents, views))[0]


def let_it_answer(path, search=None):
    """Set search parameters, those that were measured for None, so that no scan answers for a graph; return them."""
    with mvindex.open(path) as index:
        search = search or {name: value for name, value in (index.info().search or {}).items() if name != "measured"}
        if search:
            save_search_params(embedded_store_of(index), search)
    return search


def searched(paths, questions):
    """Return the medians of milliseconds and the recall of each of the indexes, asked in turns."""
    with ExitStack() as stack:
        indexes = [stack.enter_context(mvindex.open(path)) for path in paths]
        rows = [{} for _ in indexes]
        for top_k in (10, 100):
            spent, shares = [[] for _ in indexes], [[] for _ in indexes]
            for question in questions:
                for number, index in enumerate(indexes):
                    index.search(question, top_k=top_k)
                    begin = time.process_time()
                    found = {hit.id for hit in index.search(question, top_k=top_k) if hit.text}
                    spent[number].append(1e3 * (time.process_time() - begin))
                    true = {hit.id for hit in index.search(question, top_k=top_k, exact=True)}
                    shares[number].append(len(found & true) / len(true))
            for row, times, each in zip(rows, spent, shares, strict=True):
                row[f"ms_{top_k}"] = round(statistics.median(times), 3)
                row[f"recall_{top_k}"] = round(statistics.mean(each), 4)
    return rows


def from_nothing(path, kind, search):
    """Return a copy of the index with an engine built anew, searched by these parameters, and its CPU seconds."""
    copy = path.with_name(f"anew-{path.name}")
    shutil.copytree(path, copy)
    with mvindex.open(copy) as index:
        seconds, _ = harness.timed(lambda: index.admin.build(kind))
    let_it_answer(copy, search)
    return copy, seconds


def measured(folder, name, options):
    """Yield the rows of one corpus."""
    corpus, count, kind = Corpus(name, options.dim), options.documents, options.kind
    new = round(SHARE * count)
    questions = corpus.views(options.questions)[:, 0]
    path, added, replaced = (folder / f"{name}-{each}.mvx" for each in ("compacted", "added", "replaced"))
    with mvindex.create(path, dim=options.dim) as index:
        for first in range(0, count, graph_filters.BATCH):
            add(index, first, corpus.views(min(graph_filters.BATCH, count - first)))
        index.admin.build(kind)  # loads or compiles what the second finds
        seconds, _ = harness.timed(lambda: index.admin.build(kind))
    search = let_it_answer(path)
    yield {"row": "built", "cpu_s": seconds, "documents_s": count / seconds} | searched([path], questions)[0]
    for copy in (added, replaced):
        shutil.copytree(path, copy)
    views = corpus.views(new)

    least, extend.LEAST_DOCUMENTS = extend.LEAST_DOCUMENTS, count + new
    with mvindex.open(path) as index:
        seconds = add(index, count, views)
        yield {"row": "scanned", "cpu_s": seconds, "documents_s": new / seconds} | searched([path], questions)[0]
        taken, _ = harness.timed(index.admin.compact)
    copy, anew = from_nothing(path, kind, search)
    one, other = searched([path, copy], questions)
    yield {"row": "compacted", "cpu_s": taken, "documents_s": new / (seconds + taken)} | one
    yield {"row": "from nothing, of what was compacted", "cpu_s": anew} | other

    extend.LEAST_DOCUMENTS = min(least, new // STEPS)
    with mvindex.open(added) as index:
        parts = np.array_split(views, STEPS)
        seconds = sum(add(index, count + number * len(parts[0]), part) for number, part in enumerate(parts))
        lacking = index.info().fresh_documents
    row = {"row": "added", "cpu_s": seconds, "documents_s": new / seconds, "scanned": lacking}
    yield row | searched([added], questions)[0]

    extend.LEAST_DOCUMENTS = count + new
    with mvindex.open(replaced) as index:
        gone = np.random.default_rng(1).choice(count, new, replace=False)
        index.delete(ids=[f"d{number}" for number in gone])
        seconds = add(index, count, views)
        seconds += harness.timed(index.admin.compact)[0]
    extend.LEAST_DOCUMENTS = least
    copy, anew = from_nothing(replaced, kind, search)
    one, other = searched([replaced, copy], questions)
    yield {"row": "replaced", "cpu_s": seconds, "documents_s": new / seconds} | one
    yield {"row": "from nothing, of what was replaced", "cpu_s": anew} | other


def main():
    parser = harness.parser(__doc__, documents=20_000, dim=128, questions=QUESTIONS, json=False)
    parser.add_argument("--corpus", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--kind", default="graph", help="of engine: graph, or one of ivf-*")
    options = harness.parse(parser, corpus=["clustered"], documents=1000, dim=16, questions=10)
    os.environ["OMP_NUM_THREADS"] = "1"
    kernels.expect_work()
    with tempfile.TemporaryDirectory(dir=harness.FOLDER) as folder:
        for corpus in options.corpus:
            for row in measured(Path(folder), corpus, options):
                row = {name: round(value, 2) if name == "cpu_s" else value for name, value in row.items()}
                if "documents_s" in row:
                    row["documents_s"] = round(row["documents_s"])
                harness.show({"corpus": corpus} | row, options.json)


if __name__ == "__main__":
    main()
