"""Measure how long a process takes to its first answer, and which imports take it.

    python bench/start.py --index demo.mvx [--question TEXT] [--runs 9] [--json]
    python bench/start.py --tiny --json

Every run is a process of its own, `mvindex query QUESTION --index INDEX`, with files in the page cache and one thread
unless OMP_NUM_THREADS says otherwise. Three sides take turns: `form` encodes the question by the ONNX form of the
encoder, which is made first; `no-numba` does so where numba cannot be imported; `torch` has no cache to find the form
in. Wall and processor seconds are medians, and the least of both. `imports` are milliseconds by package, of one more
run under `python -X importtime`, which slows it; --tiny makes an index of a few documents, for one run. Python's
bytecode is written, as by an installation.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import mvindex
from mvindex.encoder import load_encoder, prepare_queries

QUESTION = "when did the oil crisis begin?"
# No folder: nothing is found there, and nothing can be made.
NOWHERE = os.path.join(os.devnull, "cache")
PROGRAM = ["-m", "mvindex"]
WITHOUT_NUMBA = [
    "-c",
    "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None; from mvindex.cli import main; main()",
]
SHOWN = 8


def query(options, cache, program, *flags):
    """Return wall and processor seconds of a process that answers, and its stderr."""
    command = [sys.executable, *flags, *program, "query", options.question, "--index", str(options.index)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "MVINDEX_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stderr


def import_ms(stderr):
    """Return milliseconds by top package, the slowest first, of the report of -X importtime."""
    spent = defaultdict(float)
    for line in stderr.splitlines():
        own, _, name = line.removeprefix("import time:").partition("|")
        if line.startswith("import time:") and own.strip().isdigit():
            spent[name.rpartition("|")[2].strip().partition(".")[0]] += int(own) / 1000
    slowest = sorted(spent.items(), key=lambda item: -item[1])
    rest = sum(ms for _, ms in slowest[SHOWN:])
    return {name: round(ms, 1) for name, ms in [*slowest[:SHOWN], ("others", rest)]}


def measure(options, cache):
    """Return a row for each side."""
    sides = {"form": (cache, PROGRAM), "no-numba": (cache, WITHOUT_NUMBA), "torch": (NOWHERE, PROGRAM)}
    times = {side: [] for side in sides}
    for how in sides.values():
        query(options, *how)  # fills the page cache
    for _ in range(options.runs):
        for side, how in sides.items():
            times[side].append(query(options, *how)[:2])
    rows = []
    for side, how in sides.items():
        columns = list(zip(*times[side], strict=True))
        imports = import_ms(query(options, *how, "-X", "importtime")[2])
        row = {"side": side, "runs": options.runs}
        for name, column in zip(("wall_s", "processor_s"), columns, strict=True):
            row |= {name: round(statistics.median(column), 3), f"least_{name}": round(min(column), 3)}
        rows.append(row | {"imports_ms": imports})
    return rows


def make_tiny(folder):
    """Return an index of a few documents."""
    lines = Path(__file__).parents[1].joinpath("examples/squad/passages.tsv").read_text(encoding="utf-8").splitlines()
    documents = [mvindex.Document(row[0], row[1], row[2]) for row in (line.split("\t") for line in lines[1:9])]
    with mvindex.create(folder / "tiny.mvx", encoder="minilm") as index:
        index.add(documents)
    return folder / "tiny.mvx"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--index", type=Path)
    chosen.add_argument("--tiny", action="store_true")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            options.index, options.runs = make_tiny(Path(folder)), 1
        os.environ["MVINDEX_CACHE"] = folder
        with mvindex.open(options.index) as index:
            source = index.info().encoder["source"]
        print(prepare_queries(load_encoder(source)), file=sys.stderr)
        rows = measure(options, folder)
    for row in rows:
        if options.json:
            print(json.dumps(row))
            continue
        imports = ", ".join(f"{name} {ms:.0f}" for name, ms in row["imports_ms"].items())
        times = f"{row['wall_s']:.2f} s wall, {row['processor_s']:.2f} s of processor"
        least = f"at least {row['least_wall_s']:.2f} and {row['least_processor_s']:.2f} s"
        print(f"{row['side']:8s} {times}; {least}; ms of {imports}")


if __name__ == "__main__":
    main()
