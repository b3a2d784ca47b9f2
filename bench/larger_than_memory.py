"""Open, search, read and verify an index larger than the memory of the process, and compare with no limit.

    nice python bench/larger_than_memory.py --documents 40000 --views 16 --dim 768 --limit 400M [--kind ivf-pq] [--json]

The process under the limit is in a control group, which counts the page cache too (needs root, or a delegated group).
Nothing of the index is cached before. Prints the ratio of the views' bytes to the limit, the most that the group held,
and seconds with and without the limit; exits 1 where an answer differs, or the process is killed for want of memory.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import tiny

import mvindex
from mvindex.measure.planning.units import parse_bytes

sys.path.insert(0, str(Path(__file__).parents[1]))
limits = importlib.import_module("tests.helpers.memory_limits")


def make(path, options):
    """Make an index of unit vectors around some hundred centres, with an engine unless the kind is exact."""
    rng = np.random.default_rng(options.seed)
    places = rng.standard_normal((256, options.dim), dtype=np.float32)
    with mvindex.create(path, dim=options.dim) as index:
        for begin in range(0, options.documents, 1024):
            count = min(1024, options.documents - begin)
            near = places[rng.integers(len(places), size=(count, 1))]
            views = near + rng.standard_normal((count, options.views, options.dim), dtype=np.float32)
            views /= np.linalg.norm(views, axis=2, keepdims=True)
            index.add_views([mvindex.Document(f"d{begin + n}", "t" * 600) for n in range(count)], views)
        if options.kind != "exact":
            index.admin.build(options.kind)


def timed(*arguments, **options):
    started = time.monotonic()
    return limits.said(*arguments, **options), time.monotonic() - started


def measure(path, options):
    """Return the measured row."""
    how = {"queries": options.queries, "default_scan": not options.numpy}
    limits.uncached(path)
    expected, free_s = timed(path, **how)
    with limits.group(options.limit) as made:
        limits.uncached(path)
        found, limited_s = timed(path, limits.in_group(made), **how)
        peak = limits.peak_bytes(made)
    views = limits.views_bytes(path)
    return {
        "views_bytes": views,
        "limit_bytes": options.limit,
        "ratio": round(views / options.limit, 2),
        "peak_bytes": peak,
        "free_s": round(free_s, 1),
        "limited_s": round(limited_s, 1),
        "differs": sorted(name for name, answer in found.items() if answer != expected[name]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument(
        "--limit", type=partial(parse_bytes, "--limit"), default=400 << 20, help="memory, such as 400M or 2G"
    )
    parser.add_argument("--kind", default="ivf-pq")
    parser.add_argument("--queries", type=int, default=16)
    parser.add_argument("--numpy", action="store_true", help="the NumPy scan, whose process takes 100 MB less")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the index is made; a temporary folder, not in memory")
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, documents=400, views=2, dim=32, queries=4)
    if not limits.can_group():
        sys.exit("NOT RUN: needs control groups of memory that may be made (root, or a delegated one)")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "x.mvx"
        make(path, options)
        row = measure(path, options)
    print(json.dumps(row) if options.json else "\n".join(f"{name}: {value}" for name, value in row.items()))
    sys.exit(1 if row["differs"] else 0)


if __name__ == "__main__":
    main()
