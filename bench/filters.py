"""Measure what declared filter fields save: the same filters on an index with columns and on one without.

    python bench/filters.py [--documents 200000] [--json]

Each document has a year, one of 1,000 sources, and three of 1,000 tags in a list. "first" is the first filter of a
process on the field, which checks what it reads; "later" the median of the others. Both indexes answer each filter in
turn. CPU milliseconds of a scan for the first ten documents, without a search.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import tiny

import mvindex

FIELDS = {"year": "int", "source": "text", "tags": "text"}
BATCH = 20_000
REPEATS = 5


def filled(path, count, fields):
    """Make the index, and return the CPU seconds of adding and the bytes of a document."""
    rows = np.random.default_rng(0).standard_normal((count, 1, 4), dtype=np.float32)
    with mvindex.create(path, dim=4, filter_fields=fields) as index:
        begun = time.process_time()
        for begin in range(0, count, BATCH):
            numbers = range(begin, min(begin + BATCH, count))
            metadata = (
                {
                    "year": 1900 + 7919 * number % 124,
                    "source": f"s{number % 1000}",
                    "tags": [f"t{(number * prime) % 1000}" for prime in (1, 7, 31)],
                }
                for number in numbers
            )
            documents = [
                mvindex.Document(str(number), "", metadata=each) for number, each in zip(numbers, metadata, strict=True)
            ]
            index.add_views(documents, rows[begin : begin + BATCH])
        return time.process_time() - begun, index.info().size_bytes / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON lines.")
    options = tiny.parse(parser, documents=500)
    filters = {
        "year from 2010 on": [{"year": {"gte": 2010 + number}} for number in range(REPEATS)],
        "one source": [{"source": f"s{number}"} for number in range(REPEATS)],
        "one tag": [{"tags": {"contains": f"t{number}"}} for number in range(REPEATS)],
        "two tags": [{"tags": {"contains_all": [f"t{number}", f"t{7 * number}"]}} for number in range(REPEATS)],
        "both": [{"year": {"lt": 1950}, "source": {"in": [f"s{number}", "s7"]}} for number in range(REPEATS)],
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = {"columns": Path(folder) / "columns.mvx", "metadata": Path(folder) / "metadata.mvx"}
        added = {
            side: filled(path, options.documents, FIELDS if side == "columns" else None) for side, path in paths.items()
        }
        with mvindex.open(paths["columns"]) as columns, mvindex.open(paths["metadata"]) as metadata:
            sides = {"columns": columns, "metadata": metadata}
            rows = [
                {"side": side, "what": "add", "cpu_us": round(1e6 * cpu_s / options.documents, 1), "bytes": round(size)}
                for side, (cpu_s, size) in added.items()
            ]
            for name, conditions in filters.items():
                rows += measured(name, conditions, sides)
    for row in rows:
        print(json.dumps(row) if options.json else "  ".join(f"{key} {value}" for key, value in row.items()))


def measured(name, conditions, sides):
    spent, found = {side: [] for side in sides}, {}
    for condition in conditions:
        for side, index in sides.items():
            begun = time.process_time()
            found[side] = [document.id for document in index.scan(condition, limit=10)]
            spent[side].append(1e3 * (time.process_time() - begun))
        assert found["columns"] == found["metadata"], found
    return [
        {"side": side, "what": name, "first_ms": round(ms[0], 2), "later_ms": round(float(np.median(ms[1:])), 2)}
        for side, ms in spent.items()
    ]


if __name__ == "__main__":
    main()
