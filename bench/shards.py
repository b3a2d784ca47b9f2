"""Fill and build shards in processes of their own, assemble them, and compare with one index of the same documents.

    python bench/shards.py --folder DIR --data DATA [--documents 5000000] [--shards 8] [--at-once 2]

Documents of 8 views of 96 dimensions, as in full_count.py, whose views are made once, in DIR/views.f16. `one` is one
index, filled and built by one process. Each shard is filled by a process that reads the whole corpus, and built by one,
--at-once at a time; lists and codes are trained once, on views of all shards. Times are wall-clock and CPU seconds
inside mvindex, of all processes together. `compare` searches both: exact results have to be equal, to the last bit;
recall is against them, `scored` are the documents that a query reads. Then each is copied by `snapshot`, and by
`compact` after every tenth document was deleted: `disk` is what the folder takes before and at most, in bytes. Exact
results have to be those of before. Prints a line of JSON a step, and removes everything afterwards.
"""

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import harness
import numpy as np
from full_count import Clock, disk_bytes, percentiles
from scale_parts.corpora import BLOCK_DOCUMENTS
from scale_parts.passages import Passages

import mvindex
from mvindex.engines.build import EngineChoice
from mvindex.engines.build_shards import build_one_shard, train_shards
from mvindex.index import search_engine_of
from mvindex.index.factory import create_shard_index
from mvindex.ingest.shards import assemble
from mvindex.records import no_progress
from mvindex.search.plan import Plan
from mvindex.search.views import rank_views
from mvindex.store.shard_layout import ShardPlace
from mvindex.store.sharded import open_sharded_store

CHOICE = EngineChoice(kind="ivf-pq")
# Recalls of 2,048 questions are told to .002; results of a copy are compared for fewer.
QUESTIONS, FEW = 2_048, 256
STEPS = ("corpus", "fill_one", "build_one", "fill", "assemble", "train", "build", "compare")
COPIES = ("snapshot_one", "snapshot_apart", "compact_one", "compact_apart")


def disk_now(folder):
    """Return the bytes of the files in a folder; 0 where one is removed while they are counted."""
    try:
        return disk_bytes(folder)
    except FileNotFoundError:
        return 0


class Steps:
    """The steps, each in a process of its own."""

    def __init__(self, options):
        self.options = options
        self.one, self.apart = options.folder / "one.mvx", options.folder / "apart.mvx"
        self.passages = Passages(options.documents, options)

    def corpus(self):
        """Make the views of all documents."""
        with open(self.options.folder / "views.f16", "wb") as file:
            for block in range(self.passages.blocks):
                file.write(self.passages.views(block).astype("<f2").data)
        return {"views": self.options.documents * self.options.views}

    def fill_one(self):
        with mvindex.create(self.one, dim=self.options.dim, lexical="none") as index:
            return self._filled(index)

    def build_one(self):
        with mvindex.open(self.one) as index:
            return self._timed(index.admin.build, CHOICE.kind)

    def fill(self):
        place = ShardPlace(self.options.shard, self.options.shards)
        with create_shard_index(self.apart, place, dim=self.options.dim, lexical="none") as index:
            return self._filled(index)

    def assemble(self):
        return self._timed(assemble, self.apart)

    def train(self):
        with closing(open_sharded_store(self.apart)) as store:
            return self._timed(train_shards, self.apart, store.sharding.stores, CHOICE, no_progress)

    def build(self):
        with closing(open_sharded_store(self.apart)) as store:
            return self._timed(build_one_shard, store, self.options.shard, CHOICE, no_progress)

    def compare(self):
        vectors, _ = self.passages.questions(QUESTIONS)
        found, figures = {}, {}
        with mvindex.open(self.one) as one, mvindex.open(self.apart) as apart:
            truth = one.search(vectors, top_k=100, exact=True)
            figures["exact results are equal"] = apart.search(vectors, top_k=100, exact=True) == truth
            for name, index in (("one", one), ("apart", apart)):
                for depth in (10, 100):
                    found[name, depth], clocks = [], []
                    for vector in vectors:
                        clocks.append(Clock())
                        found[name, depth].append(clocks[-1](index.search, vector, top_k=depth))
                    with search_engine_of(index).opened(Plan(top_k=depth)) as parts:
                        scored = np.mean([ranking.num_scored for ranking in rank_views(parts, vectors)])
                    figures[f"{name} {depth} scored"] = round(float(scored), 1)
                    figures[f"{name} {depth} ms"] = percentiles([clock.wall_s for clock in clocks])
                    figures[f"{name} {depth} cpu_ms"] = percentiles([clock.cpu_s for clock in clocks])
        for depth in (10, 100):
            shares = {name: np.array([_share(*pair, depth) for pair in zip(found[name, depth], truth, strict=True)])
                      for name in ("one", "apart")}  # fmt: skip
            gain = shares["apart"] - shares["one"]
            figures |= {f"{name} recall@{depth}": round(float(values.mean()), 4) for name, values in shares.items()}
            figures[f"apart - one @{depth}"] = round(float(gain.mean()), 4)
            figures[f"standard error @{depth}"] = round(float(gain.std(ddof=1) / np.sqrt(len(gain))), 4)
        return figures | {"one_bytes": disk_bytes(self.one), "apart_bytes": disk_bytes(self.apart)}

    def snapshot_one(self):
        return self._snapshot(self.one)

    def snapshot_apart(self):
        return self._snapshot(self.apart)

    def compact_one(self):
        return self._compact(self.one)

    def compact_apart(self):
        return self._compact(self.apart)

    def _snapshot(self, path):
        copy = path.with_name("copy.mvx")
        before = self._results(path)
        row = self._watched(path, lambda index: index.admin.snapshot(copy))
        row |= self._changes(before, self._results(copy))
        shutil.rmtree(copy)
        return row

    def _compact(self, path):
        with mvindex.open(path) as index:
            index.delete(ids=[str(number) for number in range(0, self.options.documents, 10)])
        before = self._results(path)
        row = self._watched(path, lambda index: index.admin.compact())
        return row | self._changes(before, self._results(path))

    def _results(self, path):
        """Return approximate and exact results of the questions, from another process than the one measured."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(results, path, self.passages.questions(FEW)[0]).result()

    def _watched(self, path, work):
        before = disk_bytes(self.options.folder)
        with mvindex.open(path) as index, harness.Peak(lambda: disk_now(self.options.folder)) as disk:
            row = self._timed(work, index)
        return {**row, "disk": [before, disk.bytes], "disk_after": disk_bytes(path)}

    def _changes(self, before, after):
        recalls = [np.mean([len(set(one) & set(two)) / 10 for one, two in zip(*each, strict=True)])
                   for each in (before, after)]  # fmt: skip
        return {
            "exact results are equal": before[1] == after[1],
            "approximate results are equal": before[0] == after[0],
            "recall@10 before, after": [round(float(recall), 4) for recall in recalls],
        }

    def _filled(self, index):
        shape = (self.options.documents, self.options.views, self.options.dim)
        views = np.memmap(self.options.folder / "views.f16", dtype="<f2", mode="r", shape=shape)
        clock = Clock()
        for begin in range(0, len(views), BLOCK_DOCUMENTS):
            rows = views[begin : begin + BLOCK_DOCUMENTS].astype(np.float32)
            documents = [mvindex.Document(str(begin + place), f"passage {begin + place}") for place in range(len(rows))]
            clock(index.add_views, documents, rows)
        return {"documents": len(index), **clock.row(len(views))}

    def _timed(self, call, *args):
        clock = Clock()
        clock(call, *args)
        return clock.row()


def results(path, vectors):
    """Return ids and scores of the first ten documents of each query, found as by default, and exactly."""
    with mvindex.open(path) as index:
        found = [index.search(vectors, top_k=10, exact=exact) for exact in (False, True)]
    return [[[(hit.id, hit.score) for hit in result] for result in each] for each in found]


def _share(result, truth, depth):
    return len({hit.id for hit in result.hits} & {hit.id for hit in truth.hits[:depth]}) / depth


def run(step, options, shard=None):
    """Run a step in a process of its own and return what it measured."""
    command = [sys.executable, *sys.argv, "--folder", str(options.folder), "--step", step]
    command += [] if shard is None else ["--shard", str(shard)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{step}: ended with {done.returncode}")
    return json.loads(done.stdout)


def run_all(step, options):
    """Run a step for every shard, --at-once at a time, and return the sums, and the largest memory."""
    clock = Clock()
    with ThreadPoolExecutor(options.at_once) as pool:
        rows = clock(lambda: list(pool.map(lambda shard: run(step, options, shard), range(options.shards))))
    cpu_s, peak = sum(row["cpu_s"] for row in rows), max(row["peak_bytes"] for row in rows)
    return {"wall_s": round(clock.wall_s, 1), "cpu_s": round(cpu_s, 1), "peak_bytes": peak}


def main():
    parser = harness.parser(
        __doc__, documents=5_000_000, views=8, dim=96, shards=8, at_once=2, seed=0, data=harness.COLLECTIONS
    )
    parser.add_argument("--folder", type=Path, required=True, help="of the indexes")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    options = harness.parse(parser, documents=9_000, views=2, dim=16, shards=2, data=harness.DATA, folder=harness.OUT)
    if options.step is not None:
        with harness.Peak() as peak:
            figures = getattr(Steps(options), options.step)()
        print(json.dumps({**figures, "peak_bytes": peak.bytes}))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for step in (*STEPS, *COPIES):
        figures = run_all(step, options) if step in ("fill", "build") else run(step, options)
        print(json.dumps({"step": step, "documents": options.documents, **figures}), flush=True)
    for path in (options.folder / "one.mvx", options.folder / "apart.mvx"):
        shutil.rmtree(path)
    (options.folder / "views.f16").unlink()


if __name__ == "__main__":
    main()
