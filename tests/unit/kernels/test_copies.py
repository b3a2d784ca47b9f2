"""Memory of the scans' copies: counted, limited by what is available, given back when that falls short."""

import gc
import itertools
import weakref

import numpy as np
import pytest

import mvindex
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_torch import TorchScan
from mvindex.engines.scan_vnni import VnniConfig, VnniScan
from mvindex.index import search_engine_of
from mvindex.kernels import copies
from mvindex.kernels.copies import Memory
from mvindex.kernels.threads import available_bytes
from mvindex.testing import unit

GIB = 1 << 30
MEMINFO = "MemTotal: 16777216 kB\nMemFree: 9 kB\nMemAvailable: 4194304 kB\n"
V2, V1 = {"proc/self/cgroup": "0::/a\n"}, {"proc/self/cgroup": "4:memory:/a\n"}
STAT = f"anon 5\nactive_file {GIB // 4}\ninactive_file {GIB // 4}\n"


def group(root, limit, used, stat, names=("memory.max", "memory.current")):
    return dict(zip((f"{root}/a/{name}" for name in (*names, "memory.stat")), (limit, used, stat), strict=True))


OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")
OLD_STAT = "active_file 1\ninactive_file 1\n" + "".join(f"total_{line}\n" for line in STAT.splitlines())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 4 * GIB),
        # Cached files of a group count as available.
        ({"proc/meminfo": MEMINFO, **V2, **group("sys/fs/cgroup", f"{3 * GIB}", f"{2 * GIB}", STAT)}, 3 * GIB // 2),
        ({"proc/meminfo": MEMINFO, **V2, **group("sys/fs/cgroup", "max", f"{2 * GIB}", STAT)}, 4 * GIB),
        ({**V2, **group("sys/fs/cgroup", f"{GIB}", f"{2 * GIB}", STAT)}, 0),
        ({**V1, **group("sys/fs/cgroup/memory", f"{3 * GIB}", f"{2 * GIB}", OLD_STAT, OLD)}, 3 * GIB // 2),
    ],
)
def test_available_memory_is_that_of_the_machine_and_of_its_groups(files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == expected


@pytest.mark.parametrize(
    ("available", "is_short", "room"),
    [(None, False, 500), (800, False, 500), (325, False, 300), (65, False, 40), (60, True, 35), (0, True, -25)],
)
def test_copies_leave_a_part_of_the_memory(available, is_short, room):
    memory = Memory(lambda: 1000, lambda: available, lambda: 0.0, lambda: 0)
    assert memory.is_short() is is_short
    assert memory.room_bytes(100, 500) == room


@pytest.mark.parametrize(("own", "room"), [(100, 300), (350, 187), (550, -13), (700, -163)])
def test_copies_do_not_bring_the_process_above_half_of_the_memory(own, room):
    # Of 1,000 bytes, of which the copies have 100.
    memory = Memory(lambda: 1000, lambda: 900, lambda: 0.0, lambda: own)
    assert memory.room_bytes(100, 300) == room


def test_memory_is_looked_at_once_a_second():
    now, available = 0.0, 500
    memory = Memory(lambda: 1000, lambda: available, lambda: now)
    assert not memory.is_short()
    available, now = 10, 0.9
    assert not memory.is_short()
    now = 1.0
    assert memory.is_short()


@pytest.mark.parametrize(("needed", "room"), [(1, 375), (2, 75), (float("inf"), 75)])
def test_a_little_is_taken_by_what_was_seen_within_a_second(needed, room):
    now, available = 0.0, 1000
    memory = Memory(lambda: 5000, lambda: available, lambda: now, lambda: 0)
    assert memory.room_bytes(0, 9000, needed) == 375
    available = 700
    assert memory.room_bytes(0, 9000, needed) == room
    now = 1.0
    assert memory.room_bytes(0, 9000, needed) == 75


@pytest.fixture
def index(tmp_path):
    views = unit(np.random.default_rng(1).standard_normal((600, 3, 32)))
    with mvindex.create(tmp_path / "x.mvx", dim=32) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(600)], views)
        yield index


@pytest.mark.needs("vnni")
def test_a_scan_without_memory_for_copies_finds_the_same(index):
    now, available = itertools.count(), [900 << 10]
    memory = Memory(lambda: 1000 << 10, lambda: available[0], lambda: next(now), lambda: 0)
    scan = VnniScan(NumpyScan, VnniConfig(threads=1), memory)
    search_engine_of(index).use_scan(lambda: scan)
    queries = unit(np.random.default_rng(2).standard_normal((3, 32)))
    assert index.info().copy_bytes == 0
    expected = index.search(queries, 20)
    held = index.info().copy_bytes
    assert 600 * 3 * 32 <= held <= 2 * 600 * 3 * 32
    # Available memory, and the copies that are held during the search: too little for new ones leaves those that are.
    for left, after in ((100, held), (50, 0), (100, 0), (900, held)):
        available[0] = left << 10
        for one, other in zip(index.search(queries, 20), expected, strict=True):
            assert one == other
        assert index.info().copy_bytes == after


@pytest.mark.needs("vnni")
@pytest.mark.parametrize("open_scan", [lambda: VnniScan(NumpyScan), TorchScan])
def test_copies_are_given_back_between_searches(index, open_scan, monkeypatch):
    is_short = [False]
    monkeypatch.setattr(copies, "_WATCH_EVERY_S", 0.01)
    monkeypatch.setattr(copies.MEMORY, "is_short", lambda: is_short[0])
    monkeypatch.setattr(copies, "_thread", None)
    search_engine_of(index).use_scan(open_scan)
    query = np.ones(32, dtype=np.float32)
    expected = index.search(query, 5, exact=True)
    assert index.info().copy_bytes > 0
    # Private: the thread that watches for a while without queries.
    watching = copies._thread
    is_short[0] = True
    watching.join(timeout=60)
    assert index.info().copy_bytes == 0
    assert copies._thread is None
    is_short[0] = False
    assert index.search(query, 5, exact=True) == expected
    assert index.info().copy_bytes > 0
    scan = weakref.ref(search_engine_of(index)._engines.popitem()[1].scan)
    copies._thread.join(timeout=60)
    gc.collect()
    assert scan() is None
