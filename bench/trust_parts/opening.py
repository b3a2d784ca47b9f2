"""The time to open an index, of its first search, and to verify it, with its files in the page cache and out of it."""

import gc
import os
from functools import partial
from pathlib import Path

import numpy as np

import mvindex
from trust_parts.checksums import without_checksums
from trust_parts.data import cached_indexes, size_bytes
from trust_parts.turns import CLOCKS, paired, ratio_text, ratios, timed


def drop_from_cache(path):
    """Drop the files from the page cache (Linux; what another process maps stays)."""
    gc.collect()
    os.sync()
    for file in filter(Path.is_file, path.rglob("*")):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def medians_ms(before, call, rounds):
    """Return the median by each clock; the first call is not counted."""
    times = []
    for _ in range(rounds + 1):
        before()
        times.append(timed(call))
    return dict(zip(CLOCKS, (np.median(times[1:], axis=0) * 1e3).tolist(), strict=True))


def measure_open(options):
    paths, queries = cached_indexes(["exact"], options)
    path = paths["exact"]

    def first_search(before):
        before()
        index = mvindex.open(path)

        def call():
            with index:
                index.search(queries[:1])

        return call

    for cache, before in {"warm": lambda: None, "cold": partial(drop_from_cache, path)}.items():
        row = {"part": "open", "cache": cache, "size_mb": size_bytes(path) / 1e6}
        row["open_ms"] = medians_ms(before, lambda: mvindex.open(path).close(), options.rounds)
        prepare = lambda _, before=before: first_search(before)  # noqa: E731
        row["first_search"] = ratios(paired(prepare, without_checksums, options.rounds))
        row["verify_ms"] = medians_ms(before, lambda: check(mvindex.verify(path)), min(options.rounds, 5))
        yield row


def check(report):
    assert not report.problems


def open_line(row):
    size, opened, verified = row["size_mb"], row["open_ms"], row["verify_ms"]
    return (
        f"{row['cache']}, {size:.0f} MB: open {opened['wall']:.1f} ms (cpu {opened['cpu']:.1f}); verify "
        f"{verified['wall']:.0f} ms (cpu {verified['cpu']:.0f}), {size * 1e3 / verified['wall']:.0f} MB/s\n"
        f"  first search {ratio_text(row['first_search'])}"
    )
