"""Measure the peak memory of ingesting (no build) corpora of different sizes, each in a process of its own.

    python bench/memory.py --corpus passages.tsv.zst [more files] --sizes 20000,100000 [--json]

Prints the peak resident bytes of `Index.add` for each size and the ratio of the largest run to the smallest.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import tiny


def measure(files, size):
    """Return the peak resident MiB of this process after ingesting the first `size` documents."""
    import mvindex
    from mvindex.corpus import read_documents

    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder="minilm", lexical="none") as index,
    ):
        report = index.add(islice(read_documents(files), size))
        info = index.info()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"documents": report.added, "views": info.views, "index_mib": info.size_bytes / 2**20, "peak_mib": peak}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", nargs="+", required=True)
    parser.add_argument("--sizes", default="20000,100000")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = tiny.parse(parser, corpus=[tiny.SQUAD], sizes="4")
    if options.one:
        print(json.dumps(measure(options.corpus, options.one)))
        return
    rows = []
    for size in options.sizes.split(","):
        command = [sys.executable, __file__, "--corpus", *options.corpus, "--one", size]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print(json.dumps(rows[-1]) if options.json else rows[-1], flush=True)
    ratio = max(row["peak_mib"] for row in rows) / min(row["peak_mib"] for row in rows)
    print(json.dumps({"ratio": ratio}) if options.json else f"largest peak / smallest peak: {ratio:.3f}")


if __name__ == "__main__":
    main()
