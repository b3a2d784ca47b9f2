"""Kills of what works on shards, as a program of its own: a line of JSON for each operation.

    python tests/crash/shard_kills.py "build in shards" --steps 5 --random 3 --seed 1 --folder /tmp/kills

After each kill other processes look at what is there; then the same is run again, and must leave what an
uninterrupted run leaves, byte for byte. Where an operation has a reader, it looks all the while.
"""

import argparse
import gc
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["MVINDEX_KERNELS"] = "off"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "unit")]

import faiss  # noqa: E402, F401 - loaded before the forks, after the settings of threads
import numpy as np  # noqa: E402 - as above
from kill_operations import CHUNK, small_chunks  # noqa: E402 - as above
from kill_processes import KILLED, Child, Parent, Steps, asked, copied  # noqa: E402 - as above
from shard_examples import DIM, answers, corpus, fill_shard, stored  # noqa: E402 - as above

import mvindex  # noqa: E402 - as above
from mvindex import engines  # noqa: E402 - as above
from mvindex.engines.scan_numpy import NumpyScan  # noqa: E402 - as above
from mvindex.errors import StoreError  # noqa: E402 - as above
from mvindex.shards import assemble, open_shard_index  # noqa: E402 - as above
from mvindex.store.segments import file_checksum  # noqa: E402 - as above
from mvindex.store.shard_layout import ShardPlace, shard_of  # noqa: E402 - as above
from mvindex.testing import brute_force  # noqa: E402 - as above
from mvindex_connectors.engines import faiss_lists  # noqa: E402 - as above

SHARDS, KIND, LISTS = 3, "ivf-pq", 4
ONE = ShardPlace(1, SHARDS)
NAME = "x.mvx"
FIRST, SECOND = corpus(70, seed=1), corpus(50, seed=2, prefix="e")
QUERIES = np.random.default_rng(3).standard_normal((4, DIM)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What is killed. look: what is wrong with what a kill left, after so many commits; has_reader: see read()."""

    start: Callable[[Path], None]
    run: Callable[[Path], object]
    look: Callable[[Path, int], list[str]]
    has_reader: bool = False


def fill_some(path: Path, numbers: range | list[int], *corpora: Any) -> None:
    for number in numbers:
        fill_shard(path, ShardPlace(number, SHARDS), *corpora)


def all_shards(path: Path, *corpora: Any) -> None:
    fill_some(path, range(SHARDS), *corpora)
    assemble(path)


def whole(path: Path) -> None:
    """Nothing; the second corpus is in all shards of the index."""
    with mvindex.open(path) as index:
        index.add_views(*SECOND)


def build(path: Path) -> None:
    with mvindex.open(path) as index:
        index.build(KIND, lists=LISTS)


def of_shard(given: Any, number: int) -> dict[str, tuple[int, str, Any, list[list[float]]]]:
    """What a shard holds of a corpus that is put into a new index, by id, in its order."""
    rows = enumerate(zip(*given, strict=True))
    mine = [(at, item, views) for at, (item, views) in rows if shard_of(item.id, SHARDS) == number]
    return {item.id: (at, item.text, dict(item.metadata), views.tolist()) for at, item, views in mine}


def look_at_one(path: Path, commits: int) -> list[str]:
    """The shard that is filled alone: chunks of it, from the first on, as many as were committed or more."""
    wanted = of_shard(FIRST, ONE.number)
    if not (path / ONE.directory).exists():
        return ["it is gone, after a commit"] if commits else []
    with open_shard_index(path, ONE) as shard:
        found = stored(shard)
    return chunks_missing(found, wanted, commits)


def chunks_missing(found: dict[str, Any], wanted: dict[str, Any], commits: int) -> list[str]:
    first = dict(list(wanted.items())[: len(found)])
    is_whole = len(found) % CHUNK == 0 or len(found) == len(wanted)
    if found != first or not is_whole:
        return [f"{sorted(found)} is no whole number of chunks, or not what was given"]
    least = min(len(wanted), CHUNK * commits)
    return [] if len(found) >= least else [f"{len(found)} documents, {least} were committed"]


def look_at_all(path: Path, commits: int) -> list[str]:
    """All shards: what was there is, and of the second corpus in each shard chunks from the first on."""
    with mvindex.open(path) as index:
        found, count = stored(index), len(index)
    wanted = {doc_id: row for number in range(SHARDS) for doc_id, row in of_shard(FIRST, number).items()}
    faults = [] if {doc_id: found.get(doc_id) for doc_id in wanted} == wanted else ["what was there before changed"]
    for number in range(SHARDS):
        later = {doc_id: (70 + row[0], *row[1:]) for doc_id, row in of_shard(SECOND, number).items()}
        faults += chunks_missing({doc_id: found[doc_id] for doc_id in later if doc_id in found}, later, 0)
    least = min(len(SECOND[0]), (commits - 2 * SHARDS) * CHUNK // 2)
    return faults + ([] if count - len(wanted) >= least else [f"{count} documents after {commits} commits"])


def look_at_index(path: Path, _: int) -> list[str]:
    """An index whose documents do not change: answers, by whatever engines there are, and every byte."""
    with mvindex.open(path) as index:
        faults = wrong_answers(index)
    return faults + [str(problem) for problem in mvindex.verify(path).problems]


def look_at_assembled(path: Path, _: int) -> list[str]:
    """Not an index yet, or all of it."""
    try:
        with mvindex.open(path) as index:
            return wrong_answers(index)
    except StoreError as err:
        return [] if "not assembled" in str(err) else [str(err)]


def wrong_answers(index: mvindex.Index) -> list[str]:
    """Where an index of all documents of the first corpus does not answer as brute force does."""
    faults = []
    for query, result in zip(QUERIES, index.search(QUERIES, top_k=9, exact=True), strict=True):
        wanted = brute_force(
            {item.id: views for item, views in zip(*FIRST, strict=True)},
            query,
            9,
            {item.id: at for at, item in enumerate(FIRST[0])},
            dtype="fp16",
        )
        if [(hit.id, hit.slot) for hit in result.hits] != [(doc_id, slot) for doc_id, _, slot in wanted]:
            faults.append(f"{[hit.id for hit in result.hits]}, not {[doc_id for doc_id, _, _ in wanted]}")
    for result in index.search(QUERIES, top_k=9):
        if len({hit.id for hit in result.hits}) != 9 or result.short_by:
            faults.append(f"{len(result.hits)} hits by the engines that there are")
    return faults


OPERATIONS = {
    "ingest --shard 1/3": Operation(
        start=lambda path: fill_some(path, [0, 2], FIRST),
        run=lambda path: fill_shard(path, ONE, FIRST),
        look=look_at_one,
    ),
    "ingest into all shards": Operation(start=lambda path: all_shards(path, FIRST), run=whole, look=look_at_all),
    "assemble": Operation(
        start=lambda path: fill_some(path, range(SHARDS), FIRST), run=assemble, look=look_at_assembled
    ),
    "assemble again": Operation(
        start=lambda path: all_shards(path, FIRST), run=assemble, look=look_at_index, has_reader=True
    ),
    "build in shards": Operation(
        start=lambda path: all_shards(path, FIRST), run=build, look=look_at_index, has_reader=True
    ),
}


def left(path: Path) -> list[Any]:
    """All that an operation leaves: documents and runs of each shard, engines to the byte, and the names of files."""
    shards = []
    for number in range(SHARDS):
        with open_shard_index(path, ShardPlace(number, SHARDS)) as shard:
            settings = shard.store.snapshot.settings
            engine = settings["engine"] and {**settings["engine"], "directory": ""}
            runs = [settings.get(key) for key in ("run", "runs", "next_ordinal")]
            shards.append([sorted(stored(shard).items()), engine, runs])
    lasting = [file for file in path.rglob("*") if not file.name.endswith(("-wal", "-shm"))]
    names = sorted(re.sub(r"-\d{6}\b", "-N", str(file.relative_to(path))) for file in lasting)
    return [shards, names, [file_checksum(file) for file in sorted(path.glob("trained-*"))]]


class Bench:
    """An operation, what it leaves when nobody stops it, and the steps that it takes."""

    def __init__(self, operation: Operation, folder: Path) -> None:
        self.operation, self._start, self._path = operation, folder / "start", folder / NAME
        asked(lambda: operation.start(self._start))
        with copied(self._start, self._path):
            started = time.monotonic()
            with Child(lambda parent: self._run(parent, None)) as child:
                self.steps = child.wait_for("steps")["steps"]
                self.duration_s = time.monotonic() - started
                child.end()
            self._wanted = asked(lambda: left(self._path))
        self.faults: list[tuple[str, str]] = []
        self.kills = 0

    def kill_at(self, step: int) -> None:
        """Nothing; the operation killed itself at the step."""
        commits = sum(name.startswith("after commit") for name in self.steps[: step + 1])
        self._kill(f"step {step}, {self.steps[step]}", (step, None), commits)

    def kill_after(self, delay_s: float) -> None:
        """Nothing; the operation was killed so long after it began, unless it had ended."""
        self._kill(f"{1000 * delay_s:.1f} ms", (None, delay_s), 0)

    def _kill(self, where: str, when: tuple[int | None, float | None], commits: int) -> None:
        step, delay_s = when
        with copied(self._start, self._path):
            reader = Child(self._read) if self.operation.has_reader else None
            if reader is not None:
                reader.wait_for("reading")
            with Child(lambda parent: self._run(parent, step)) as child:
                if delay_s is not None:
                    time.sleep(delay_s)
                    child.kill()
                list(child.lines())
                self.kills += child.end() == KILLED
            found = asked(lambda: self.operation.look(self._path, commits))
            if asked(lambda: self._again(found)) != self._wanted:
                found.append("run again, it leaves something else than an uninterrupted run")
            if reader is not None:
                found += self._met(reader)
        self.faults += [(where, fault) for fault in found]

    def _again(self, found: list[str]) -> list[Any] | None:
        self.operation.run(self._path)
        return left(self._path)

    def _run(self, parent: Parent, step: int | None) -> None:
        steps = Steps(parent, step, is_sudden=True)
        steps.watch()
        self.operation.run(self._path)
        parent.say(steps=[name for name, _ in steps.taken])

    def _read(self, parent: Parent) -> None:
        """A reader, in a child: one index keeps what it opened, another moves on; both answer rightly all the while."""
        faults: list[str] = []
        with mvindex.open(self._path) as kept, mvindex.open(self._path) as moving:
            before = answers(kept, QUERIES)
            parent.say(reading=True)
            is_last = False
            while not is_last and not faults:
                is_last = parent.is_waiting()
                moving.refresh()
                faults += wrong_answers(moving)
                with mvindex.open(self._path) as fresh:
                    faults += wrong_answers(fresh)
                time.sleep(0.001)
            if answers(kept, QUERIES) != before:
                faults.append("the state that it had opened changed")
        parent.say(faults=faults)

    def _met(self, reader: Child) -> list[str]:
        with reader:
            reader.tell()
            return [f"a reader: {fault}" for fault in reader.wait_for("faults")["faults"]]


def prepare() -> None:
    """Nothing; processes forked from this one commit every eight documents, and keep a build every 16 views."""
    small_chunks()
    faiss_lists.KEPT_EVERY = 16
    engines.open_scan = lambda *_: NumpyScan()
    gc.freeze()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="+", choices=OPERATIONS)
    parser.add_argument("--steps", type=int, default=1_000_000, metavar="COUNT", help="named steps; by default all")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="kills at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    options = parser.parse_args()
    prepare()
    for name in options.operations:
        generator = random.Random(options.seed)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            bench = Bench(OPERATIONS[name], Path(folder))
            for step in generator.sample(range(len(bench.steps)), min(options.steps, len(bench.steps))):
                bench.kill_at(step)
            for _ in range(options.random):
                bench.kill_after(generator.uniform(0, 1.05) * bench.duration_s)
        line = {"operation": name, "kills": bench.kills, "steps": len(bench.steps), "faults": bench.faults}
        print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
