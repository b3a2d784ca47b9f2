"""Measurements of a peer by its run_NAME.py, in its own environment: NumPy and the standard library only.

    python measuring.py NAME build|search DATA WORK VARIANT

DATA holds views.npy (r, d) float32, document.npy (r,) int32 (which document each view is of), questions.npy (q, d)
and truth.npy (q, 100), the exact answer. `build` makes the index under WORK and closes it; `search`, in a process of
its own, opens it, asks all questions and prints a line of JSON a setting. Both keep to one core.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DEPTHS = (10, 100)
TARGET = 0.97
WARM = 8
LEAST_BATCH_S = 1.0
TIMED = 64
# How much graphs look at, in rising cost; at least as much as is fetched.
RISING = (100, 200, 400, 800, 1600, 3200, 6400)
# Questions of a call: all, and this many.
SMALL_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way of asking. one(question, k) gives k documents, best first; many(questions, k) the same for each, or None
    where the peer has no batch call.
    """  # noqa: D205 - the first sentence takes two lines

    label: str
    one: Callable
    many: Callable | None = None


@dataclass(frozen=True)
class Data:
    folder: Path

    def __getattr__(self, name):
        """Return an array by its name, mapped."""
        path = self.folder / f"{name}.npy"
        if not path.exists():
            raise AttributeError(name)
        return np.load(path, mmap_mode="r")


def private_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":") for line in lines)["RssAnon"].split()[0]) << 10


def folder_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def distinct(documents, k):
    """Return the first k distinct documents."""
    return list(dict.fromkeys(documents))[:k]


def over_fetched(find, document, times):
    """Return one() and many() that fetch times k views by find(vectors, count) -> rows, and drop duplicates.

    Rows below 0 or beyond the collection are padding.
    """

    def many(questions, k):
        rows = find(questions, times * k)
        return [distinct(document[each[(each >= 0) & (each < len(document))]].tolist(), k) for each in rows]

    return {"one": lambda question, k: many(question[None], k)[0], "many": many}


def recall(answers, truth):
    return float(np.mean([len(set(found) & set(best)) / len(best) for found, best in zip(answers, truth, strict=True)]))


class Measured:
    """Settings against the exact answer, as one line each."""

    def __init__(self, data):
        self._questions = np.array(data.questions)
        self._truth = {depth: data.truth[:, :depth].tolist() for depth in DEPTHS}

    def line(self, setting):
        row = {"setting": setting.label}
        for depth in DEPTHS:
            answers, wall, cpu = self._single(setting, depth)
            row[f"ms@{depth}"], row[f"cpu_ms@{depth}"] = round(wall, 3), round(cpu, 3)
            if setting.many is not None:
                _, wall, cpu = self._together(setting, depth, SMALL_BATCH)
                row[f"batch{SMALL_BATCH}_ms@{depth}"] = round(wall, 3)
                row[f"batch{SMALL_BATCH}_cpu_ms@{depth}"] = round(cpu, 3)
                answers, wall, cpu = self._together(setting, depth, len(self._questions))
                row[f"batch_ms@{depth}"], row[f"batch_cpu_ms@{depth}"] = round(wall, 3), round(cpu, 3)
            row[f"recall@{depth}"] = round(recall(answers, self._truth[depth]), 4)
            row[f"short@{depth}"] = sum(len(set(found)) < depth for found in answers)
        return row

    def warm(self, setting):
        for question in self._questions[:WARM]:
            setting.one(question, max(DEPTHS))

    def _single(self, setting, depth):
        """Return answers, and the median milliseconds of a question: of the clock, of the processor.

        Of TIMED questions; of all where there is no batch call to answer the rest.
        """
        self.warm(setting)
        answers, walls, cpus = [], [], []
        for question in self._questions[: TIMED if setting.many else None]:
            wall, cpu = time.perf_counter(), time.process_time()
            answers.append(setting.one(question, depth))
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
        return answers, 1000 * float(np.median(walls)), 1000 * float(np.median(cpus))

    def _together(self, setting, depth, count):
        """Return the answers of a call, and a query's milliseconds, wall and processor: the median of up to five."""
        spent, questions = [], self._questions[:count]
        while len(spent) < 5 and sum(wall for wall, _ in spent) < LEAST_BATCH_S:
            wall, cpu = time.perf_counter(), time.process_time()
            answers = setting.many(questions, depth)
            spent.append((time.perf_counter() - wall, time.process_time() - cpu))
        wall, cpu = 1000 * np.median(spent, axis=0) / len(questions)
        return answers, float(wall), float(cpu)


def build_line(peer, data, work, variant):
    wall, cpu = time.perf_counter(), time.process_time()
    peer.build(data, work, variant)
    row = {"build_s": round(time.perf_counter() - wall, 1), "build_cpu_s": round(time.process_time() - cpu, 1)}
    return row | {"versions": {name: importlib.metadata.version(name) for name in peer.PACKAGES}}


def search_lines(peer, data, work, variant):
    documents = int(data.document[-1]) + 1
    before = private_bytes()
    engine = peer.open(data, work, variant)
    measured = Measured(data)
    common = {"disk_B_doc": round(folder_bytes(work) / documents)}
    for ladder in peer.settings(engine, variant):
        # Of a ladder, rising in cost, up to the first step that reaches the target; the last of these stands for it.
        for left, setting in zip(reversed(range(len(ladder))), ladder, strict=True):
            if "open_B_doc" not in common:
                measured.warm(setting)
                common["open_B_doc"] = round((private_bytes() - before) / documents)
                common["libraries_MB"] = round(before / 2**20)
            row = measured.line(setting)
            common.setdefault("used_B_doc", round((private_bytes() - before) / documents))
            is_last = left == 0 or row[f"recall@{max(DEPTHS)}"] >= TARGET
            yield common | row | {"is_last": is_last}
            if is_last:
                break


def main(name, what, data, work, variant):
    """Print one line of JSON for a build, or one a setting for a search."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    peer, data, work = importlib.import_module(f"run_{name}"), Data(Path(data)), Path(work)
    rows = [build_line(peer, data, work, variant)] if what == "build" else search_lines(peer, data, work, variant)
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
