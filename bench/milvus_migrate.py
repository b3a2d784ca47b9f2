"""Migrate an index from a directory to Milvus Lite and back, each killed once on the way, and compare the exports.

    python bench/milvus_migrate.py [--documents 100000] [--views 2] [--json]

Documents of 20 to 120 made words by Zipf's law with views of 64 dims and a lexical side. Each `mvindex migrate` is a
process of its own, killed by SIGKILL after --kill seconds; then the same command continues. Both directories are
exported to JSONL, whose files have to be equal to the last byte. Seconds are wall-clock of both runs, reading the
documents that were there already included; memory is the most that the second run had.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import tiny
from milvus_bulk import run
from milvus_hybrid import texts_of

import mvindex
from mvindex import Document

DIM, BLOCK = 64, 5_000


def made(path, documents, views):
    """Make the index."""
    rng = np.random.default_rng(3)
    with mvindex.create(path, dim=DIM, lexical="unicode") as index:
        for begin in range(0, documents, BLOCK):
            numbers = range(begin, min(begin + BLOCK, documents))
            texts = texts_of(rng, len(numbers), 20, 120)
            named = [Document(f"d{n}", text, metadata={"n": n}) for n, text in zip(numbers, texts, strict=True)]
            index.add_views(named, rng.standard_normal((len(numbers), views, DIM)).astype(np.float32))


def migrated(source, target, kill_s):
    """Migrate, once killed on the way; return a row."""
    over = threading.Event()
    timer = threading.Timer(kill_s, over.set)
    timer.start()
    first = run("migrate", source, target, until=over.is_set)
    timer.cancel()
    second = run("migrate", source, target)
    folder = Path(str(target).removeprefix("milvus-lite:"))
    return {
        "to": "milvus-lite" if folder != Path(target) else "directory",
        "documents": second["documents"],
        "moved_before_the_kill": second["documents"] - second["moved"],
        "seconds": round(first["seconds"] + second["seconds"], 1),
        "of_the_second_run": second["seconds"],
        "bytes": sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()),
        "memory_mb": second["bytes"] >> 20,
    }


def digests(folder):
    """Return the digest of each file of an export, but for its manifest, which has the index's own id."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--kill", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    # A kill in the first seconds would meet the creation of the target, which is not resumed.
    options = tiny.parse(parser, documents=300, kill=20.0)
    with tempfile.TemporaryDirectory(prefix="milvus-migrate-") as name:
        folder = Path(name)
        there = f"milvus-lite:{folder}/there.db"
        made(folder / "first.mvx", options.documents, options.views)
        for source, target in ((folder / "first.mvx", there), (there, folder / "back.mvx")):
            row = migrated(source, target, options.kill)
            print(json.dumps(row) if options.json else row, flush=True)
        started = time.monotonic()
        found = []
        for index in ("first", "back"):
            run("export", folder / index, "--index", folder / f"{index}.mvx", "--to", "jsonl")
            found.append(digests(folder / index))
        row = {"files": len(found[0]), "equal": found[0] == found[1], "seconds": round(time.monotonic() - started, 1)}
        print(json.dumps(row) if options.json else row)
        if not row["equal"] or not row["files"]:
            sys.exit("the exports differ")


if __name__ == "__main__":
    main()
