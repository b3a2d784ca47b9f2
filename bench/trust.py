"""Measure what trust costs: checksums on search, fsync on ingest, and the time to open and to verify an index.

    python bench/trust.py [search] [ingest] [open] --documents 100000 --views 8 --dim 384 [--encode FILE] [--json]

An index of seeded vectors (1 to --views views a document, fp16), texts of about 100 words and metadata, made once under
build/bench. Two variants take turns in one process, A B, B A, ...; a ratio is the median of the rounds' ratios, with
the bootstrapped 95 % interval of that median (--json: quartiles too), by wall clock and by the process' CPU time. As
many threads as OMP_NUM_THREADS says.
  search  with checksums / without: of documents at rescoring, of blocks, of the catalog's rows that are shown. Warm:
          documents and blocks were verified at first read, so that only rows are left.
  ingest  with fsync / without: os.fsync does nothing and SQLite runs with synchronous=OFF. The disk is at rest before
          each run. `add_views` is given 4 batches of 1,024; `add` encodes --encoded documents of --encode by minilm.
  open    mvindex.open, the first search after it with checksums and without (each block is checked at first touch), and
          mvindex.verify, with the files in the page cache (warm) and driven out of it (cold).
"""

import argparse
import json
import os
import platform
from pathlib import Path

import tiny
from trust_parts.checksums import measure_search, search_line
from trust_parts.disk import ingest_line, measure_ingest
from trust_parts.opening import measure_open, open_line

from mvindex.engines import scan_name
from mvindex.kernels.threads import default_threads

PARTS = {
    "search": (measure_search, search_line),
    "ingest": (measure_ingest, ingest_line),
    "open": (measure_open, open_line),
}


def machine():
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    cpu = f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return {"part": "machine", "cpu": cpu, "threads": default_threads(), "scan": scan_name(), "on": platform.platform()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    for name, value in {"documents": 100_000, "views": 8, "dim": 384, "rounds": 11, "seed": 0, "encoded": 256}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--kinds", default="exact,flat,hnsw")
    parser.add_argument("--scorings", default="max,drpq")
    parser.add_argument("--batches", default="1,16,256")
    parser.add_argument("--top-k", default="10,100")
    parser.add_argument("--encode", type=Path, help="a corpus whose first documents `add` encodes")
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(
        parser,
        documents=300,
        views=2,
        dim=16,
        rounds=1,
        encoded=4,
        kinds="exact",
        scorings="max",
        batches="1",
        top_k="5",
    )
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    info = machine()
    print(json.dumps(info) if options.json else "# " + ", ".join(f"{key} {value}" for key, value in info.items()))
    for name in options.parts or PARTS:
        measure, as_line = PARTS[name]
        for row in measure(options):
            print(json.dumps(row) if options.json else as_line(row), flush=True)


if __name__ == "__main__":
    main()
