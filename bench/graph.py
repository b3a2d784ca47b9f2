"""Compare single queries of kind graph, public call with texts, with hnswlib, usearch and Faiss alone.

    python bench/graph.py --corpus gauss transplants --documents 100000 --data DIR [--keep FOLDER]
    python bench/graph.py --documents 100000 1000000 --dim 96 --peers --data DIR
    python bench/graph.py --corpus seeded --documents 1000000 --dim 128 --peers faiss --keep FOLDER
    python bench/graph.py --tiny

All are asked the same questions in one process, in turns question by question, on one thread; times are medians of
the process's CPU milliseconds. mvindex answers `index.search(question, top_k)` with ids, texts and scores, once a
beam; the peers hold the views in float32 (Faiss in 8 bits: HNSW SQ8), are built with M 16 and ef_construction 200
(documented defaults of hnswlib, see --construction) and fetch 8 k views, of which the first k distinct documents
count, without texts.
Recall is of documents against the exact answer in float64. `build` is CPU seconds on one thread, peak_MB the private
memory of the process when a graph is built, at most. A peer that is not installed is named as not run. Corpus `seeded`
needs no data (bench/vectors.py). A build that was killed goes on. --keep: the graphs of the peers are saved in that
folder, and not built again.
"""

import itertools
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import harness
import numpy as np
from peers_parts.export import exported
from scale_parts.indexes import cached

import mvindex
from mvindex import kernels
from mvindex.engines.build import save_search_params
from mvindex.index import embedded_store_of

TIMES = 8
# Views that Faiss learns its levels from, and takes at a time.
TRAINED, ADDED = 65_536, 65_536
BEAMS = {10: (30, 60, 100, 200, 320, 400, 800), 100: (400, 800, 1200, 2000)}
# What hnswlib and usearch look at.
EFFORTS = {10: (80, 120, 200, 400, 800, 1600), 100: (800, 1600, 3200)}


def graphs(path, top_k):
    """Return the calls of mvindex by beam: each of an index opened while that was its setting."""
    calls = {}
    for beam in BEAMS[top_k]:
        with mvindex.open(path) as index:
            save_search_params(embedded_store_of(index), {"beam": beam, "top_k": top_k})
        index = mvindex.open(path)

        def ask(question, index=index):
            return [int(hit.id) for hit in index.search(question, top_k=top_k).hits if hit.text]

        calls[f"graph, beam {beam}"] = ask
    return calls


def over_fetched(find, document, top_k):
    """Return a call that finds views and keeps the first distinct documents."""
    return lambda question: list(dict.fromkeys(document[find(question[None], TIMES * top_k)].tolist()))[:top_k]


def hnswlib_graph(views, file, construction):
    import hnswlib

    graph = hnswlib.Index(space="ip", dim=views.shape[1])
    if file.exists():
        graph.load_index(str(file))
    else:
        graph.init_index(max_elements=len(views), M=16, ef_construction=construction)
        graph.add_items(views, np.arange(len(views)), num_threads=1)
        graph.save_index(str(file))
    graph.set_num_threads(1)

    def finding(effort):
        def find(question, count):
            graph.set_ef(max(effort, count))
            return graph.knn_query(question, k=count)[0][0].astype(np.int64)

        return find

    return finding


def usearch_graph(views, file, construction):
    from usearch.index import Index

    graph = Index(ndim=views.shape[1], metric="ip", dtype="f32", connectivity=16, expansion_add=construction)
    if file.exists():
        graph.load(file)
    else:
        graph.add(np.arange(len(views)), views, threads=1)
        graph.save(file)

    def finding(effort):
        def find(question, count):
            graph.expansion_search = max(effort, count)
            return graph.search(question[0], count, threads=1).keys.astype(np.int64)

        return find

    return finding


def faiss_graph(views, file, construction):
    import faiss

    faiss.omp_set_num_threads(1)
    if file.exists():
        graph = faiss.read_index(str(file))
    else:
        graph = faiss.IndexHNSWSQ(views.shape[1], faiss.ScalarQuantizer.QT_8bit, 16, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = construction
        graph.train(views[:: max(1, len(views) // TRAINED)])
        for begin in range(0, len(views), ADDED):
            graph.add(views[begin : begin + ADDED])
        faiss.write_index(graph, str(file))

    def finding(effort):
        def find(question, count):
            graph.hnsw.efSearch = max(effort, count)
            return graph.search(question, count)[1][0]

        return find

    return finding


PEERS = {"hnswlib": hnswlib_graph, "usearch": usearch_graph, "faiss": faiss_graph}


def measured(calls, questions, truth):
    """Yield a row for each call: recall, and the median of its times over the second half of the questions."""
    names, spent, shares = list(calls), {name: [] for name in calls}, {name: [] for name in calls}
    for number, question in enumerate(questions):
        for name in names if number % 2 else names[::-1]:
            seconds, found = harness.timed(lambda name=name, question=question: calls[name](question))
            shares[name].append(len(set(found) & set(truth[number].tolist())) / len(truth[number]))
            if number >= len(questions) // 2:
                spent[name].append(seconds)
    for name in names:
        yield {
            "side": name,
            "recall": round(statistics.mean(shares[name]), 4),
            "ms": round(1e3 * statistics.median(spent[name]), 3),
        }


def rows_of(corpus, documents, kept, options):
    path, _ = cached(corpus, documents, options.views, options.data, dim=options.dim)
    folder = exported(corpus, documents, options.views, options.data, options.dim)
    views = np.load(folder / "views.npy", mmap_mode="r")
    document, questions, truth = (np.load(folder / f"{name}.npy") for name in ("document", "questions", "truth"))
    common = {"corpus": corpus, "documents": documents}
    place = path.with_name("index-graph.mvx")
    if not place.exists():
        building, copying = (place.with_name(f"{step}-{place.name}") for step in ("building", "copying"))
        if not building.exists():
            shutil.rmtree(copying, ignore_errors=True)
            shutil.copytree(path, copying)
            copying.rename(building)
        with mvindex.open(building) as index, harness.Peak() as peak:
            seconds, report = harness.timed(lambda: index.admin.build("graph"))
        building.rename(place)
        sizes = {"B_doc": round(report.engine_bytes / documents), "peak_MB": peak.bytes >> 20}
        yield common | {"side": "graph", "build_s": round(seconds, 1)} | sizes
    found = {}
    for name in options.peers:
        try:
            file = kept / f"{folder.name}-{options.construction}.{name}"
            is_built = not file.exists()
            seconds, found[name] = harness.timed(
                lambda name=name, file=file: PEERS[name](views, file, options.construction)
            )
            if is_built:
                size = round(file.stat().st_size / documents)
                yield common | {"side": name, "build_s": round(seconds, 1), "B_doc": size}
        except ImportError as err:
            yield common | {"side": name, "not_run": str(err)}
    for top_k in BEAMS:
        calls = graphs(place, top_k)
        for name, finding in found.items():
            calls |= {f"{name}, {effort}": over_fetched(finding(effort), document, top_k) for effort in EFFORTS[top_k]}
        for row in measured(calls, questions[: options.questions], truth[:, :top_k]):
            yield common | {"top_k": top_k} | row


def main():
    parser = harness.parser(__doc__, documents=[100_000], views=8, questions=256, data=harness.COLLECTIONS, json=False)
    parser.add_argument(
        "--corpus", nargs="+", choices=["gauss", "transplants", "real", "seeded"], default=["gauss", "transplants"]
    )
    parser.add_argument("--dim", type=int, help="of projections onto as many principal components; 384 without")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--keep", type=Path, help="folder for the graphs of the peers; without it they are not kept")
    parser.add_argument("--construction", type=int, default=200, help="candidates of a node, as the peers build (200)")
    options = harness.parse(
        parser,
        corpus=["transplants"],
        documents=[300],
        views=4,
        questions=8,
        peers=[],
        data=harness.DATA,
    )
    os.environ["OMP_NUM_THREADS"] = "1"
    kernels.expect_work()
    with tempfile.TemporaryDirectory() as temporary:
        kept = options.keep or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        for documents, corpus in itertools.product(options.documents, options.corpus):
            for row in rows_of(corpus, documents, kept, options):
                harness.show(row, options.json)


if __name__ == "__main__":
    main()
