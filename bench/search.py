"""Compare exact search by best view: mvindex' scan against Faiss IndexFlatIP with one-pass exact over-fetch.

    python bench/search.py --documents 200000 --views 8 --dim 384 --top-k 100 [--threads 2] [--plot FILE] [--json]

All sides run in one process and are alternated run by run; the median of --repeats runs is reported, and ratios of
medians with the quartiles of the run-by-run ratios. With one thread, times are CPU time of the process, and ratios
of wall time stand beside them; with more, wall time. A run of a batch below 16 searches 16 queries in such batches.
  mvindex   all that the public search does for its answer but fetching texts: scan, proof, rescoring, order
  stock     IndexFlatIP with its defaults, fetching (k - 1) m + 1 rows and keeping each document's best
  repaired  the same with faiss.cvar.distance_compute_blas_threshold = 1
  gemm      the limit: bare torch._int_mm over an int8 copy of the same views, 8,192 at a time, by tiles of up to 64
            queries, into one output, in the faster of the two operand orders: no max, no top-k, no proof
  read      batch 1 only: the same int8 copy read by the faster of NumPy's sum and a compiled xor over int64
Where the CPU has AVX-512 the process starts with OPENBLAS_CORETYPE=SkylakeX, as Faiss' and NumPy's OpenBLAS choose a
narrower kernel by themselves. A second process without it shows what that gives Faiss: `unset`, the time of the
faster of stock and repaired there, over the same here.
Documents must be Faiss' own but for near ties (float32 sums), and every answer certified; else the run fails.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import faiss
import harness
import numba
import numpy as np
import torch
from vectors import cached_index

from mvindex import set_threads
from mvindex.engines import open_scan
from mvindex.kernels.score import decode
from mvindex.kernels.threads import run_in_threads
from mvindex.search.ranking import Engines, Request
from mvindex.search.views import search_documents
from mvindex.store.embedded import EmbeddedStore

STOCK_THRESHOLD = faiss.cvar.distance_compute_blas_threshold
RUN_QUERIES = 16
TILE, BLOCK_VIEWS = 64, 8192
CLOCKS = ("cpu", "wall")


class Sides:
    """The compared searches over one index; each call takes a list of query batches."""

    def __init__(self, options):
        path, self.queries = cached_index(options.documents, options.views, options.dim)
        self.top_k, self.views, self.threads = options.top_k, options.views, options.threads
        self.store = EmbeddedStore(path)
        self.snapshot = self.store.snapshot
        self.engines = Engines(scan=open_scan())
        self.flat = faiss.IndexFlatIP(options.dim)
        self.copy = np.empty((self.snapshot.views.num_views, options.dim), dtype=np.int8)
        for begin in range(0, len(self.copy), BLOCK_VIEWS):
            rows = decode(self.snapshot.views.read_views(begin, min(begin + BLOCK_VIEWS, len(self.copy))))
            self.flat.add(rows)
            self.copy[begin : begin + len(rows)] = np.rint(rows * (127 / np.abs(rows).max()))
        self.blocks = torch.from_numpy(self.copy).split(BLOCK_VIEWS)
        self.output = torch.empty(TILE * BLOCK_VIEWS, dtype=torch.int32)
        self.words = np.array_split(self.copy.reshape(-1).view(np.int64), self.threads)

    def mvindex(self, batches):
        request = Request(top_k=self.top_k, allowed=self.snapshot.alive, num_allowed=self.snapshot.num_documents)
        return [one for batch in batches for one in search_documents(self.snapshot, self.engines, batch, request)]

    def faiss(self, batches, threshold):
        """Return the top_k documents of each query, (q, top_k), and their scores by one exact over-fetch."""
        faiss.cvar.distance_compute_blas_threshold = threshold
        found = []
        for batch in batches:
            scores, rows = self.flat.search(batch, (self.top_k - 1) * self.views + 1)
            for its_scores, its_rows in zip(scores, rows // self.views, strict=True):
                first = np.sort(np.unique(its_rows, return_index=True)[1])[: self.top_k]
                found.append((its_rows[first], its_scores[first]))
        return found

    def gemm(self, batches, views_first):
        """Compute integer products of all views and queries; batches: int8 (q, d), or (d, q) if views come first."""
        for batch in batches:
            tiles = batch.split(TILE, dim=1 if views_first else 0)
            for block in self.blocks:
                for tile in tiles:
                    factors = (block, tile) if views_first else (tile, block.T)
                    shape = (factors[0].shape[0], factors[1].shape[1])
                    torch._int_mm(*factors, out=self.output[: shape[0] * shape[1]].view(shape))

    def read(self, batches, call):
        for _ in batches:
            parts = iter(self.words)
            run_in_threads(lambda parts=parts: call(next(parts)), self.threads)

    def calls(self, batch, is_check):
        queries = self.queries[: max(batch, RUN_QUERIES)]
        batches = [queries[at : at + batch] for at in range(0, len(queries), batch)]
        in_faiss = {
            "stock": lambda: self.faiss(batches, STOCK_THRESHOLD),
            "repaired": lambda: self.faiss(batches, 1),
        }
        if is_check:  # what multiplies by BLAS; a single query is faster without
            return in_faiss if batch == 1 else {"repaired": in_faiss["repaired"]}
        narrow = [torch.from_numpy(np.rint(one * (127 / np.abs(one).max())).astype(np.int8)) for one in batches]
        # A fresh layout: of (q, 1) `.T.contiguous()` is the same memory with strides (1, 1).
        columns = [torch.empty(one.shape[::-1], dtype=torch.int8).copy_(one.T) for one in narrow]
        calls = {
            "mvindex": lambda: self.mvindex(batches),
            **in_faiss,
            "gemm_vq": lambda: self.gemm(columns, views_first=True),
            "gemm_qv": lambda: self.gemm(narrow, views_first=False),
        }
        reads = {"read_sum": lambda: self.read(batches, np.sum), "read_xor": lambda: self.read(batches, xor)}
        return calls | reads if batch == 1 else calls


@numba.njit(nogil=True)
def xor(words):
    total = np.int64(0)
    for at in range(words.size):  # by position: `for word in words` is not vectorised
        total ^= words[at]
    return total


def timed(call):
    begin = time.process_time(), time.perf_counter()
    value = call()
    return (time.process_time() - begin[0], time.perf_counter() - begin[1]), value


def share_of_same(rankings, found, top_k, tolerance):
    """Return the share of queries whose list equals Faiss'; the others may differ by near ties only."""
    for ranking, (rows, scores) in zip(rankings, found, strict=True):
        assert ranking.exact and len(ranking.rows) == len(rows) == top_k
        assert np.abs(ranking.scores - scores).max() <= tolerance
        assert (ranking.scores[~np.isin(ranking.rows, rows)] <= scores[-1] + tolerance).all()
    return np.mean([np.array_equal(one.rows, rows) for one, (rows, _) in zip(rankings, found, strict=True)])


def measure(options):
    """Print one JSON line a batch: the times of each side, (repeats, clocks) in seconds a query."""
    set_threads(options.threads)
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    sides = Sides(options)
    for batch in map(int, options.batches.split(",")):
        calls = sides.calls(batch, options.measure == "check")
        times, found = {name: [] for name in calls}, {}
        for repeat in range(options.repeats + 1):
            # Forth and back, so that no side always follows the same one; the first round only warms up.
            for name in list(calls)[:: 1 if repeat % 2 else -1]:
                seconds, found[name] = timed(calls[name])
                if repeat:
                    times[name].append([value / max(batch, RUN_QUERIES) for value in seconds])
        row = {"batch": batch, "scan": type(sides.engines.scan).__name__, "times": times}
        if "mvindex" in found:
            tolerance = options.dim * 2.0**-23
            pairs = [(name, found[name]) for name in ("stock", "repaired")]
            row["same"] = {name: share_of_same(found["mvindex"], one, options.top_k, tolerance) for name, one in pairs}
            row["copy_bytes"] = sides.copy.nbytes
        print(json.dumps(row), flush=True)


def summary(row, checked, clock):
    """Return medians, ratios and shares of one batch by one clock."""
    times = {name: np.array(values)[:, CLOCKS.index(clock)] for name, values in row["times"].items()}
    medians = {name: float(np.median(values)) for name, values in times.items()}
    ours, medians["gemm"] = medians["mvindex"], min(medians["gemm_vq"], medians["gemm_qv"])
    result = {"batch": row["batch"], "clock": clock, "ms": {name: value * 1e3 for name, value in medians.items()}}
    for name in ("stock", "repaired"):
        result[f"{name}_ratio"] = medians[name] / ours
        result[f"{name}_quartiles"] = np.quantile(times[name] / times["mvindex"], [0.25, 0.75]).tolist()
    result["of_gemm"] = medians["gemm"] / ours
    if "read_sum" in medians:
        result["read_bytes_per_s"] = row["copy_bytes"] / min(medians["read_sum"], medians["read_xor"])
        result["of_read"] = row["copy_bytes"] / ours / result["read_bytes_per_s"]
    if checked is not None:
        unset = [np.median(np.array(values)[:, CLOCKS.index(clock)]) for values in checked["times"].values()]
        result["unset"] = float(min(unset)) / min(medians["stock"], medians["repaired"])
    return result | {"same": row["same"]}


def run_process(options, role, core_type, repeats):
    """Return the JSON lines of this script in a process of its own, where OpenBLAS reads its core type when loaded."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(options.threads))}
    environment.pop("OPENBLAS_CORETYPE", None)  # set to nothing, it would choose the oldest kernels there are
    environment |= {"OPENBLAS_CORETYPE": core_type} if core_type else {}
    given = [f"--{name}={getattr(options, name)}" for name in ("documents", "views", "dim", "batches", "threads")]
    command = [sys.executable, __file__, *given, f"--top-k={options.top_k}", f"--repeats={repeats}"]
    done = subprocess.run([*command, f"--measure={role}"], env=environment, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(8, 4.5))
    kinds = {"stock": "s-", "repaired": "D-", "mvindex": "o-", "gemm": "--"}
    labels = ("Faiss IndexFlatIP, stock", "Faiss IndexFlatIP, repaired", "mvindex", "limit: bare int8 product")
    for (name, kind), label, colour in zip(kinds.items(), labels, ("0.6", "C0", "C3", "0.3"), strict=True):
        ms = [row["ms"][name] for row in rows]
        axes.plot(range(len(rows)), ms, kind, color=colour, label=label)
        for at, value in enumerate(ms if name != "gemm" else []):
            below = (0, -15 if name == "mvindex" else 7)
            axes.annotate(f"{value:.2f}", (at, value), below, textcoords="offset points", ha="center", color=colour)
    axes.set(yscale="log", ylabel=f"{rows[0]['clock']} ms a query", xlabel="queries in a batch")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(rows)), [row["batch"] for row in rows])
    axes.grid(axis="y", alpha=0.3)
    axes.margins(y=0.15)
    axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def main():
    parser = harness.parser(
        __doc__, documents=50_000, views=8, dim=384, top_k=100, repeats=7, threads=1, batches="1,16,64,256", json=False
    )
    parser.add_argument("--measure", choices=["all", "check"], help=argparse.SUPPRESS)
    parser.add_argument("--plot", type=Path)
    options = harness.parse(parser, documents=600, views=2, dim=16, top_k=5, repeats=1, batches="1,4")
    if options.measure:
        measure(options)
        return
    cached_index(options.documents, options.views, options.dim)
    info = Path("/proc/cpuinfo")
    core_type = "SkylakeX" if info.exists() and "avx512f" in info.read_text() else None
    measured = run_process(options, "all", core_type, options.repeats)
    checked = run_process(options, "check", None, 3) if core_type else [None] * len(measured)
    clocks = CLOCKS if options.threads == 1 else ("wall",)
    rows = [summary(*pair, clock) for clock in clocks for pair in zip(measured, checked, strict=True)]
    if options.plot:
        plot([row for row in rows if row["clock"] == clocks[0]], options.plot)
    if options.json:
        print("\n".join(json.dumps(row) for row in rows))
        return
    size = f"{options.documents:,} documents x {options.views} views x {options.dim}, k = {options.top_k}"
    print(f"# {size}, {options.threads} threads, {measured[0]['scan']}, core type {core_type or 'chosen by OpenBLAS'}")
    print("# ms a query; Faiss' time / mvindex' time [quartiles]; shares of the limits; share of lists equal to Faiss'")
    for row in rows:
        ms = "  ".join(f"{name} {row['ms'][name]:.2f}" for name in ("mvindex", "stock", "repaired"))
        ratios = "  ".join(
            f"{name} {row[f'{name}_ratio']:.2f} [{row[f'{name}_quartiles'][0]:.2f} {row[f'{name}_quartiles'][1]:.2f}]"
            for name in ("stock", "repaired")
        )
        limits = "  ".join(f"of {name} {row[f'of_{name}']:.2f}" for name in ("gemm", "read") if f"of_{name}" in row)
        unset = f"  unset {row['unset']:.2f}" if "unset" in row else ""
        same = min(row["same"].values())
        print(f"{row['batch']:4d} {row['clock']:4s} {ms} | {ratios} | {limits} | same {same:.3f}{unset}")


if __name__ == "__main__":
    main()
