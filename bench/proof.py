"""Measure what a proof costs: documents that a scan's bound leaves, and documents scored until the top_k is proven.

    python bench/proof.py --sizes 50000,200000 --scans native,torch [--plot FILE] [--json]
    python bench/proof.py --sizes 1000000 --scans native --remove

A scan multiplies copies of the views and leaves out a document only where a bound proves that top_k others
score higher. `left` counts the candidates that are left to a query, `scored` those the one scoring function then
looked at (Ranking.num_scored): median and 90th percentile over the queries. `again`: queries of the native scan that
left too many and were repeated with the wider one. Counts depend on the vectors and the scan, not on load.
By best view (max) and by DRPQ's mean at several temperatures. Seeded vectors (bench/vectors.py); --remove deletes
the indexes that were not there before.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import tiny
from vectors import NUM_QUERIES, cached_index, index_folder

from mvindex.engines.device_views import DeviceConfig
from mvindex.engines.scan_torch import TorchScan
from mvindex.engines.scan_vnni import VnniScan
from mvindex.kernels import has_int8_products
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.search.ranking import Engines, Request
from mvindex.search.views import search_documents
from mvindex.store.embedded import EmbeddedStore


class Counted:
    """A scan that keeps how many candidates each query was left with."""

    def __init__(self, scan):
        self._scan = scan
        self.left = []

    def candidates(self, *request):
        found = self._scan.candidates(*request)
        self.left += np.diff(found.starts).tolist()
        return found


def opened(name):
    """Return the scan of that name, and the wider one that the native scan falls back to, which keeps no copies."""
    wider = Counted(TorchScan(DeviceConfig(cache_bytes=0)))
    if name != "native":
        return Counted(TorchScan()), wider
    return Counted(VnniScan(lambda: wider)), wider


def scorings(temperatures):
    yield "max", Scoring()
    for temperature in temperatures:
        yield f"drpq T = {temperature:g}", Scoring(Aggregate.DRPQ, temperature)


def measure(snapshot, queries, options):
    """Yield a row for each scan, scoring and top_k."""
    for name in options.scans.split(","):
        scan, wider = opened(name)
        for label, scoring in scorings(map(float, options.temperatures.split(","))):
            for top_k in map(int, options.top_k.split(",")):
                scan.left, wider.left = [], []
                request = Request(
                    top_k=top_k, allowed=snapshot.alive, num_allowed=snapshot.num_documents, scoring=scoring
                )
                rankings = search_documents(snapshot, Engines(scan=scan), queries, request)
                assert all(ranking.exact and len(ranking.rows) == top_k for ranking in rankings)
                counts = {"left": scan.left, "scored": [ranking.num_scored for ranking in rankings]}
                yield {
                    "documents": snapshot.num_documents,
                    "scan": name,
                    "scoring": label,
                    "top_k": top_k,
                    **{key: np.quantile(values, [0.5, 0.9]).round().tolist() for key, values in counts.items()},
                    "again": len(wider.left),
                }


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    top_ks = sorted({row["top_k"] for row in rows})
    labels = list(dict.fromkeys(row["scoring"] for row in rows))
    lines = list(dict.fromkeys((row["documents"], row["scan"]) for row in rows))
    _, panels = plt.subplots(1, len(top_ks), figsize=(5 * len(top_ks), 4.5), sharey=True, squeeze=False)
    for axes, top_k in zip(panels[0], top_ks, strict=True):
        for documents, scan in lines:
            chosen = (documents, scan, top_k)
            found = [row for row in rows if (row["documents"], row["scan"], row["top_k"]) == chosen]
            scored = [row["scored"][0] for row in found]
            axes.plot(range(len(labels)), scored, "o-", label=f"{documents:,}, {scan}")
        axes.axhline(top_k, color="0.3", linestyle="--")
        axes.set(yscale="log", title=f"k = {top_k}")
        axes.set_xticks(range(len(labels)), [label.replace(" T", "\nT") for label in labels])
        axes.grid(axis="y", alpha=0.3)
    panels[0][0].set_ylabel("documents scored a query, median (dashed: k)")
    panels[0][-1].legend(frameon=False, title="documents, scan")
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="50000,200000")
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--dim", type=int, default=384)
    # The native scan needs AVX-512 VNNI.
    native = "native," if has_int8_products() else ""
    parser.add_argument("--scans", default=f"{native}torch")
    parser.add_argument("--top-k", default="10,100")
    parser.add_argument("--temperatures", default="1,0.2,0.05")
    parser.add_argument("--queries", type=int, default=64, help=f"up to {NUM_QUERIES}")
    parser.add_argument("--remove", action="store_true", help="delete the indexes made by this run")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(
        parser, sizes="600", views=2, dim=32, queries=4, top_k="5", temperatures="0.2", scans=f"{native}torch"
    )
    if "native" in options.scans and not native:
        parser.error("--scans native: expected a processor with AVX-512 VNNI; this one has none")
    rows = []
    for documents in map(int, options.sizes.split(",")):
        shape = (documents, options.views, options.dim)
        is_kept = index_folder(*shape).exists() or not options.remove
        path, queries = cached_index(*shape)
        store = EmbeddedStore(path)
        for row in measure(store.snapshot, queries[: options.queries], options):
            rows.append(row)
            print(json.dumps(row) if options.json else _line(row), flush=True)
        store.close()
        if not is_kept:
            shutil.rmtree(index_folder(*shape))
    if options.plot:
        plot(rows, options.plot)


def _line(row):
    left, scored = (f"{name} {row[name][0]:8,.0f} ({row[name][1]:8,.0f})" for name in ("left", "scored"))
    head = f"{row['documents']:9,d} {row['scan']:6s} {row['scoring']:14s} k {row['top_k']:3d}"
    return f"{head}  {left}  {scored}  again {row['again']}"


if __name__ == "__main__":
    main()
