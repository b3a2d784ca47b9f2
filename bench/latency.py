"""Break down the time of `mvindex query` in a warm process, for single questions and for batches.

    python bench/latency.py --data DATA [--questions 64] [--plot FILE] [--json]

The command's own function answers SQuAD's questions over SQuAD's passages, encoded by the packaged MiniLM; only the
opening is replaced, by an index that stays open and warm. Real functions are timed where they stand: `encode` the
question, `scan` for candidates, `rescore` them for the proof and the order, `fetch` texts from the catalog, `show`
them (print_result), `rest` is everything else. Each part is its median over the questions (or batches), wall
milliseconds a question, and their sum stands beside the median of the whole. All cores, unless OMP_NUM_THREADS says
otherwise. `cold` is a process of its own for one question: Python, torch and the encoder have to be loaded.
"""

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from vectors import cached_squad

import mvindex
from mvindex.cli import query, render
from mvindex.engines import open_scan
from mvindex.index import Index
from mvindex.search.rescore import Best
from mvindex.store.reader import SnapshotReader

PARTS = ("encode", "scan", "rescore", "fetch", "show", "rest")
COLOURS = ("#4c78a8", "#f58518", "#e45756", "#72b7b2", "#b0b0b0", "#dddddd")


class Clock:
    """Seconds spent in the parts since the last reset(); the functions are wrapped where they stand."""

    def __init__(self):
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def reset(self):
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def wrap(self, owner, name, part):
        inner = getattr(owner, name)

        def timed(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - begin

        setattr(owner, name, timed)


def wrapped_clock():
    """Return a clock around the functions that do the work of a query; none of them calls another."""
    clock = Clock()
    clock.wrap(Index, "encode_queries", "encode")
    clock.wrap(type(open_scan()), "candidates", "scan")
    clock.wrap(Best, "settle", "rescore")
    clock.wrap(SnapshotReader, "documents", "fetch")
    clock.wrap(render, "print_result", "show")
    return clock


def ask(path, questions, top_k):
    """Return the seconds that the command takes for a question, or a file of several; its output is dropped."""
    text, file = (questions[0].text, None) if len(questions) == 1 else (None, path.with_suffix(".tsv"))
    if file is not None:
        lines = (f"{number}\t{question.text}\n" for number, question in enumerate(questions, start=1))
        file.write_text("".join(lines), encoding="utf-8")
    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        query.query(text=text, index=path, queries=file and str(file), top_k=top_k)
    return time.perf_counter() - begin


def measure(clock, path, questions, batch, options):
    """Return medians of the parts and of the whole, wall ms a question, with batches of this size."""
    with tempfile.TemporaryDirectory() as folder, mvindex.open(path) as index:
        if index.info().kind != "exact":
            index.build("exact")
        query.open_chosen = lambda *_, **__: contextlib.nullcontext(index)
        rows = []
        for repeat in range(options.questions + 1):
            first = repeat * batch % (len(questions) - batch)
            clock.reset()
            whole = ask(Path(folder) / "questions", questions[first : first + batch], options.top_k)
            clock.seconds["rest"] = whole - sum(clock.seconds.values())
            if repeat:  # the first copies the views and compiles
                rows.append([value / batch * 1e3 for value in (*clock.seconds.values(), whole)])
    *parts, whole = np.median(rows, axis=0).tolist()
    quartiles = np.quantile(rows, [0.25, 0.75], axis=0)[:, -1].tolist()
    named = dict(zip(PARTS, parts, strict=True))
    return {"batch": batch, "questions": len(rows), **named, "sum": sum(parts), "whole": whole, "quartiles": quartiles}


def cold_seconds(path, question):
    command = [sys.executable, "-m", "mvindex", "query", question.text, "--index", str(path)]
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, panels = plt.subplots(len(rows), 1, figsize=(8, 1.7 * len(rows) + 0.8), squeeze=False)
    for axes, row in zip(panels[:, 0], rows, strict=True):
        left = 0.0
        for part, colour in zip(PARTS, COLOURS, strict=True):
            axes.barh(0, row[part], left=left, color=colour, edgecolor="white", label=part)
            if row[part] > 0.06 * row["sum"]:
                axes.text(left + row[part] / 2, 0, f"{row[part]:.2f}", ha="center", va="center")
            left += row[part]
        axes.set(yticks=[], xlim=(0, row["sum"]))
        axes.set_title("one question" if row["batch"] == 1 else f"batch of {row['batch']}", loc="left")
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1][0].set_xlabel("ms a question, medians")
    handles, labels = panels[0][0].get_legend_handles_labels()
    panels[0][0].legend(handles, labels, frameon=False, ncols=len(PARTS), loc="lower right", bbox_to_anchor=(1, 1))
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="a folder that holds squad/")
    parser.add_argument("--questions", type=int, default=64, help="number of single questions, and of batches")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path, questions = cached_squad(options.data)
    clock = wrapped_clock()
    rows = [measure(clock, path, questions, batch, options) for batch in map(int, options.batches.split(","))]
    cold = cold_seconds(path, questions[0])
    if options.plot:
        plot(rows, options.plot)
    if options.json:
        print("\n".join(json.dumps(row) for row in (*rows, {"cold_s": cold})))
        return
    names = ("batch", *PARTS, "sum", "whole")
    print("  ".join(f"{name:>7s}" for name in names))
    for row in rows:
        print("  ".join(f"{row[name]:7d}" if name == "batch" else f"{row[name]:7.3f}" for name in names))
    print(f"ms a question, top_k {options.top_k}; a cold process answers one in {cold:.2f} s")


if __name__ == "__main__":
    main()
