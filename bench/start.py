"""Measure how long a process takes to its first answer, and which imports take it.

    python bench/start.py --index demo.mvx [--question TEXT] [--runs 9] [--json]
    python bench/start.py --exact 1000000 [--dim 96] [--runs 5] [--json]
    python bench/start.py --tiny --json

Every run is a process of its own, `mvindex query QUESTION --index INDEX`, with files in the page cache and one thread
unless OMP_NUM_THREADS says otherwise. Three sides take turns: `form` encodes the question by the ONNX form of the
encoder, which is made first; `no-numba` does so where numba cannot be imported; `torch` has no cache to find the form
in. Wall and processor seconds are medians, and the least of both. `imports` are milliseconds by package, of one more
run under `python -X importtime`, which slows it. Python's bytecode is written, as by an installation.

--exact makes an index of so many documents of 8 random unit views, and measures the first certified query of further
processes: `mapped` with the file of copies that `mvindex build --kind exact` writes, `made` without it. The first query
includes loading compiled loops; beside it stand the median of ten later ones, and what the copies take: memory of the
process, and pages mapped from the file, which all processes share.

--tiny makes indexes of a few documents, for one run of each.
"""

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

import harness
import numpy as np

import mvindex
from mvindex import kernels
from mvindex.encoder import load_encoder, prepare_queries
from mvindex.index import embedded_store_of
from mvindex.store.copies_file import copies_path

QUESTION = "when did the oil crisis begin?"
# No folder: nothing is found there, and nothing can be made.
NOWHERE = os.path.join(os.devnull, "cache")
PROGRAM = ["-m", "mvindex"]
WITHOUT_NUMBA = [
    "-c",
    "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None; from mvindex.cli import main; main()",
]
SHOWN = 8
VIEWS, ADDED = 8, 20_000
# A process that opens the index, and times certified queries.
ASK = """
import json, statistics, sys, time
import numpy as np
import mvindex
from mvindex import kernels
kernels.expect_work()
with mvindex.open(sys.argv[1]) as index:
    queries = np.random.default_rng(1).standard_normal((11, index.dim)).astype(np.float32)
    times = []
    for query in queries:
        wall, processor = time.perf_counter(), time.process_time()
        assert index.search(query, 10, exact=True).exact
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    info = index.info()
later = statistics.median(processor for _, processor in times[1:])
print(json.dumps([*times[0], later, info.copy_bytes, info.mapped_bytes]))
"""


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


def make_vectors(folder, documents, dim):
    """Return an index of random unit views with a file of copies, and the file."""
    rng = np.random.default_rng(0)
    with mvindex.create(folder / "vectors.mvx", dim=dim) as index:
        for begin in range(0, documents, ADDED):
            views = rng.standard_normal((min(ADDED, documents - begin), VIEWS, dim), dtype=np.float32)
            views /= np.linalg.norm(views, axis=2, keepdims=True)
            index.add_views([mvindex.Document(str(begin + each), "") for each in range(len(views))], views)
        index.admin.build("exact")
        snapshot = embedded_store_of(index).snapshot
        return folder / "vectors.mvx", copies_path(snapshot.directory, snapshot.generation)


def measure_exact(options, folder):
    """Return a row for each side."""
    index, file = make_vectors(folder, options.exact, options.dim)
    aside = file.with_name("aside.bin")
    answers = {"mapped": [], "made": []}
    for number in range(options.runs + 1):
        for side, found in answers.items():
            if side == "made":
                file.rename(aside)
            command = [sys.executable, "-c", ASK, str(index)]
            done = subprocess.run(command, env={"OMP_NUM_THREADS": "1", **os.environ}, capture_output=True, check=True)
            if side == "made":
                aside.rename(file)
            if number:  # the first one fills the page cache
                found.append(json.loads(done.stdout))
    rows = []
    for side, found in answers.items():
        wall, processor, later, copied, mapped = (statistics.median(column) for column in zip(*found, strict=True))
        row = {"side": side, "documents": options.exact, "dim": options.dim, "runs": options.runs}
        row |= {"first_wall_s": round(wall, 3), "first_processor_s": round(processor, 3)}
        row |= {"later_processor_s": round(later, 4), "copy_bytes": copied, "mapped_bytes": mapped}
        rows.append(row | {"file_bytes": file.stat().st_size})
    return rows


def make_tiny(folder):
    """Return an index of a few documents."""
    lines = Path(__file__).parents[1].joinpath("examples/squad/passages.tsv").read_text(encoding="utf-8").splitlines()
    documents = [mvindex.Document(row[0], row[1], row[2]) for row in (line.split("\t") for line in lines[1:9])]
    with mvindex.create(folder / "tiny.mvx", encoder="minilm", lexical="none") as index:
        index.add(documents)
    return folder / "tiny.mvx"


def measure_queries(options, folder):
    """Return a row for each side, with the ONNX form of the index's encoder in the folder."""
    os.environ["MVINDEX_CACHE"] = str(folder)
    with mvindex.open(options.index) as index:
        source = index.info().encoder["source"]
    print(prepare_queries(load_encoder(source)), file=sys.stderr)
    return measure(options, folder)


def show(row):
    """Print a row for people."""
    if "imports_ms" not in row:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
        return
    imports = ", ".join(f"{name} {ms:.0f}" for name, ms in row["imports_ms"].items())
    times = f"{row['wall_s']:.2f} s wall, {row['processor_s']:.2f} s of processor"
    least = f"at least {row['least_wall_s']:.2f} and {row['least_processor_s']:.2f} s"
    print(f"{row['side']:8s} {times}; {least}; ms of {imports}")


def main():
    parser = harness.parser(__doc__, question=QUESTION, dim=96, runs=9, json=False)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--index", type=Path)
    chosen.add_argument("--exact", type=int, metavar="DOCUMENTS")
    chosen.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.tiny:
            kernels.WORTH_LOADING = 0  # the file is made for indexes of any size
            options.index, options.exact, options.runs = make_tiny(folder), 500, 1
        rows = measure_queries(options, folder) if options.index else []
        rows += measure_exact(options, folder) if options.exact else []
    for row in rows:
        print(json.dumps(row)) if options.json else show(row)


if __name__ == "__main__":
    main()
