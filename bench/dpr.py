"""Measure the time and memory that importing a shard of DPR's embeddings takes.

    python bench/dpr.py write /tmp/embeddings_0 [--count 400000] [--dim 768]
    python bench/dpr.py import /tmp/embeddings_0 [--json]

The shard holds random vectors, as DPR's generate_dense_embeddings.py writes them; its documents get no texts. Two
commands, so that what writing it takes is not counted.
"""

import argparse
import json
import pickle  # noqa: TID251 - what DPR writes
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import tiny

from mvindex.io.dpr import import_dpr
from mvindex.io.import_ import Target

_MIB = 1 << 20


def write_shard(path, count, dim):
    """Write a list of pairs (id, vector), each vector (dim,) fp32."""
    rows = np.random.default_rng(1).standard_normal((count, dim), dtype=np.float32)
    with path.open("wb") as file:
        pickle.dump([(f"wiki:{number}", row) for number, row in enumerate(rows, start=1)], file, protocol=4)


def measure_import(path):
    """Import the shard into a new index and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        report = import_dpr([str(path)], Target(path=f"{folder}/x.mvx"))
        seconds = time.perf_counter() - started
    return {
        "documents": report.documents,
        "shard_mib": round(path.stat().st_size / _MIB),
        "seconds": round(seconds, 1),
        "peak_mib": _peak_mib(),
    }


def _peak_mib():
    """Return the peak of resident memory; Linux counts KiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    """Write a shard, or import one and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "import"])
    parser.add_argument("shard", type=Path)
    parser.add_argument("--count", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, what="import", shard=tiny.OUT, count=50, dim=8)
    if options.tiny:
        write_shard(options.shard, options.count, options.dim)
    if options.what == "write":
        write_shard(options.shard, options.count, options.dim)
        return
    row = measure_import(options.shard)
    print(json.dumps(row) if options.json else "\n".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
