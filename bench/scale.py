"""Measure engine kinds on collections of growing size: recall, latency, bytes, build time (docs/how-to/scale.md).

    python bench/scale.py --documents 1250 12500 125000 --corpus gauss transplants --kinds ivf-pq hnsw [--json] \
        --data DIR

Collections are real text where there is enough (corpus `real`: SQuAD, SQuADShifts, then Debian's package descriptions,
with SQuAD's questions) and stand-ins made from real vectors (scale_parts/corpora.py), kept in build/bench. In one
process, for each size: the certified scan, then each kind built with its default settings, searched with these and with
those that `tune` chooses for recall@100 of --target; `plain` is IndexHNSWFlat without mvindex: 2 k views fetched,
each document's best kept (right after kind hnsw: on its graph, which has the same settings). Builds use
--build-threads. Recall is of documents against the certified answer; times are the median of single queries and a
query's share of a batch of 256, search and scoring without encoding, wall clock, threads as OMP_NUM_THREADS says.
Memory is what opening the engine adds to a fresh process' private memory. Prints a row a kind, size and corpus.
"""

import os
import subprocess
import sys
import time

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import faiss  # noqa: E402 - after the settings of threads
import numpy as np  # noqa: E402 - after the settings of threads
from scale_parts.corpora import CORPORA  # noqa: E402 - after the settings of threads
from scale_parts.indexes import cached  # noqa: E402 - after the settings of threads

import mvindex  # noqa: E402 - after the settings of threads
from mvindex.engines import open_scan  # noqa: E402 - after the settings of threads
from mvindex.engines.auto import nprobe_of  # noqa: E402 - after the settings of threads
from mvindex.engines.build import report_of  # noqa: E402 - after the settings of threads
from mvindex.index import embedded_store_of  # noqa: E402 - after the settings of threads
from mvindex.kernels.score import decode  # noqa: E402 - after the settings of threads
from mvindex.search.local import EngineCache  # noqa: E402
from mvindex.search.parts import Part, Parts  # noqa: E402 - after the settings of threads
from mvindex.search.ranking import Engines, Request  # noqa: E402
from mvindex.search.tuning import TuneGoal, Tuning, choose  # noqa: E402 - after the settings of threads

KINDS = ("flat", "hnsw", "ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq")
DEPTHS = (10, 100)


def held_bytes(path):
    """Return the bytes of private memory that opening the engine adds to a process of its own."""
    code = (
        "import sys; from pathlib import Path; from mvindex.store.embedded import EmbeddedStore; "
        "from mvindex.search.local import EngineCache; import faiss; "
        "held = lambda: int(dict(l.split(':') for l in Path('/proc/self/status').read_text().splitlines())"
        "['RssAnon'].split()[0]) << 10; "
        "store = EmbeddedStore(Path(sys.argv[1])); before = held(); "
        "engine = EngineCache().open(store.snapshot); print(held() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def note(text):
    print(text, file=sys.stderr, flush=True)


class Collection:
    """One stand-in at one size: its index, the scan, and what kinds are measured against."""

    def __init__(self, corpus, documents, options):
        path, self.questions = cached(corpus, documents, options.views, options.data)
        self.index = mvindex.open(path)
        snapshot = embedded_store_of(self.index).snapshot
        self.row = {"corpus": corpus, "documents": snapshot.num_documents, "views": snapshot.views.num_views}
        self.row["store_B_doc"] = round(self.index.info().size_bytes / snapshot.num_documents)
        self.target, self.scan, self.build_threads = options.target, open_scan(), options.build_threads
        self.is_default_only, self.keeps, self.efforts = options.default_only, options.keep, options.efforts
        if not self.keeps:
            self.index.build("exact")

    def tunings(self, engine):
        """Yield a tuning for each top_k."""
        snapshot = embedded_store_of(self.index).snapshot
        engines = Engines(scan=self.scan, ranking=engine)
        requests = [
            Request(top_k=depth, allowed=snapshot.alive, num_allowed=snapshot.num_documents) for depth in DEPTHS
        ]
        return [Tuning(Parts([Part(snapshot, engines, request, reader=None)]), self.questions) for request in requests]

    def kind(self, kind):
        """Yield the rows of a kind: as built, and as tuned."""
        report, built_s = self._built(kind)
        engine = EngineCache().open(embedded_store_of(self.index).snapshot)
        held = held_bytes(self.index.path)
        common = self.row | {
            "kind": kind,
            "build_s": built_s,
            "engine_B_doc": round(report.engine_bytes / report.documents, 1),
            "memory_B_doc": round(held / report.documents, 1),
        }
        if not engine.choices():
            return
        shallow, deep = self.tunings(engine)
        scan = {"scan_ms": round(deep.exact_ms, 2), "scan_ms_batch": round(deep.exact_ms_batch, 3)}
        settings = [("default", engine.search_settings)]
        if self.efforts and "nprobe" in engine.search_settings:
            nlist = embedded_store_of(self.index).snapshot.settings["engine"]["settings"]["parameters"]["nlist"]
            probed = [(effort, nprobe_of(effort, nlist)) for effort in self.efforts]
            k_factor = engine.search_settings["k_factor"]
            settings += [(f"effort {effort:g}", {"nprobe": count, "k_factor": k_factor}) for effort, count in probed]
        if not self.is_default_only:
            chosen = choose(deep.run(TuneGoal(top_k=DEPTHS[1], recall=self.target))[0], self.target)
            settings.append(("tuned", chosen.search if chosen else None))
        for label, search in settings:
            if search is None:
                yield common | {"setting": f"no setting reaches {self.target}"}
                continue
            ten, hundred = shallow.measured(search), deep.measured(search)
            yield (
                common
                | scan
                | {
                    "setting": label,
                    "search": dict(search),
                    "recall@10": round(ten.recall, 4),
                    "recall@100": round(hundred.recall, 4),
                    "ms": round(hundred.ms, 2),
                    "ms_batch": round(hundred.ms_batch, 3),
                    "scored": round(hundred.documents_scored),
                    "scan/ms": round(deep.exact_ms / hundred.ms, 2),
                }
            )

    def _built(self, kind):
        """Return the build report and its seconds; None for an engine that was there, with --keep."""
        snapshot = embedded_store_of(self.index).snapshot
        record = snapshot.settings["engine"]
        if self.keeps and record is not None and record["kind"] == kind:
            return report_of(snapshot, kind, record), None
        started = time.perf_counter()
        faiss.omp_set_num_threads(self.build_threads)
        report = self.index.build(kind)
        faiss.omp_set_num_threads(1)
        built_s = time.perf_counter() - started
        note(f"{kind} of {self.row['views']} views in {built_s:.0f} s")
        return report, round(built_s, 1)

    def _graph(self, snapshot):
        """Return IndexHNSWFlat over all views, and its build seconds: 0 for the active engine's own."""
        views, record = snapshot.views, snapshot.settings["engine"]
        if record is not None and record["kind"] == "hnsw":
            (file,) = (snapshot.directory / record["directory"]).glob("*.faiss")
            return faiss.read_index(str(file)), 0.0
        graph = faiss.IndexHNSWFlat(views.dim, 32, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = 80
        started = time.perf_counter()
        faiss.omp_set_num_threads(self.build_threads)
        for begin in range(0, views.num_views, 65_536):
            graph.add(decode(views.read_views(begin, min(begin + 65_536, views.num_views))))
        faiss.omp_set_num_threads(1)
        return graph, time.perf_counter() - started

    def plain(self):
        """Yield the row of plain HNSW over views: 2 k fetched, duplicates dropped, the rest is the result."""
        snapshot = embedded_store_of(self.index).snapshot
        views = snapshot.views
        graph, built_s = self._graph(snapshot)
        graph.hnsw.efSearch = 400
        row = self.row | {"kind": "plain hnsw", "setting": "fetch 2k, ef 400", "build_s": round(built_s, 1)}
        for depth in DEPTHS:
            exact = self.index.search(self.questions, top_k=depth, exact=True)
            seconds, shares, shorts = [], [], 0
            for question, truth in zip(self.questions, exact, strict=True):
                begun = time.perf_counter()
                _, rows = graph.search(question[None], 2 * depth)
                documents = list(dict.fromkeys(views.document_rows(rows[0][rows[0] >= 0]).tolist()))[:depth]
                seconds.append(time.perf_counter() - begun)
                expected = {int(hit.id) for hit in truth.hits}
                shares.append(len(expected & set(documents)) / depth)
                shorts += len(documents) < depth
            row |= {f"recall@{depth}": round(float(np.mean(shares)), 4), f"short@{depth}": shorts}
            row["ms"] = round(1000 * float(np.median(seconds)), 2)
        return row


def main():
    parser = harness.parser(
        __doc__,
        documents=[1250, 12_500],
        views=8,
        build_threads=len(os.sched_getaffinity(0)),
        target=0.97,
        data=harness.COLLECTIONS,
        json=False,
    )
    parser.add_argument("--corpus", nargs="+", choices=["real", *CORPORA], default=list(CORPORA))
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, "plain"], default=["ivf-pq", "hnsw", "plain"])
    parser.add_argument("--default-only", action="store_true", help="do not tune")
    parser.add_argument("--keep", action="store_true", help="measure an engine of the kind that was built before")
    parser.add_argument(
        "--efforts", type=float, nargs="*", default=[], help="also: lists looked at per square root of their number"
    )
    options = harness.parse(parser, documents=[300], views=4, data=harness.DATA, default_only=True, kinds=["plain"])
    for corpus in options.corpus:
        for documents in options.documents:
            collection = Collection(corpus, documents, options)
            for kind in options.kinds:
                rows = [collection.plain()] if kind == "plain" else collection.kind(kind)
                for row in rows:
                    harness.show(row, options.json)


if __name__ == "__main__":
    main()
