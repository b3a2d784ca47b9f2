"""A clock that goes backwards, stands still or leaps, and files with such times: no result depends on it.

What mvindex reads of clocks is the modification time of a catalog that may not be locked, and how long a command took.
The clock of the machine is not moved: the process's time functions are, and all files get such times at each step.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from faults_sweeps import swept

import mvindex

OPERATIONS = ["replace", "update metadata", "compact with flat, beside a reader", "snapshot"]
OTHERS = ["ingest into a new index", "build hnsw over flat", "salvage", "mvindex compact", "mvindex delete"]
DAY_S = 86_400


def check(rows):
    """Nothing, when each operation ended well with each of four clocks."""
    for row in rows:
        assert row["faults"] == [] and (row["done"], row["failed"]) == (4, 0), row["operation"]


def test_a_wild_clock_changes_nothing_of_an_operation(tmp_path):
    check(swept("clock", OPERATIONS, tmp_path))


@pytest.mark.full
def test_a_wild_clock_changes_nothing_of_any_operation(tmp_path):
    check(swept("clock", OTHERS, tmp_path))


def set_times(path, time_s):
    for entry in [path, *path.rglob("*")]:
        os.utime(entry, (time_s, time_s))


def test_between_openings_all_files_may_have_any_time(tmp_path):
    path = tmp_path / "i.mvx"
    with mvindex.create(path, dim=4) as index:
        index.add_views([mvindex.Document(str(number), "text 0") for number in range(8)], np.eye(8, 4) + 0.25)
        index.build("flat")
    with mvindex.open(path) as kept:
        for number, time_s in enumerate((0, 4_000_000_000, -DAY_S, 1_700_000_000, 1_600_000_000), start=1):
            set_times(path, time_s)
            assert mvindex.verify(path).is_sound
            with mvindex.open(path) as index:
                assert index.get("3").text == f"text {number - 1}"
                index.add_views([mvindex.Document("3", f"text {number}")], np.full((1, 1, 4), number))
                set_times(path, -time_s)
                assert index.compact().dropped == 1
            assert kept.refresh() and kept.get("3").text == f"text {number}"
            assert kept.search(np.ones(4), top_k=1).hits[0].id == "3"


def test_a_reader_without_locks_sees_any_change_whichever_way_the_clock_went(tmp_path):
    """It takes a catalog whose time differs for another one: an earlier time is as good as a later one."""
    path = tmp_path / "i.mvx"
    with mvindex.create(path, dim=4) as index:
        index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 4)))
    (file,) = path.rglob("catalog.sqlite")
    with mvindex.open(path) as index:
        catalog = index.store.snapshot.source.catalog
        for time_s in (0, 4_000_000_000, 10):
            state = catalog._unguarded_state()
            os.utime(file, (time_s, time_s))
            with pytest.raises(mvindex.errors.StaleReader, match="changed while it was read"):
                catalog._check_unchanged(state)


def test_no_more_of_the_clock_is_read_than_is_tested_here():
    found = set()
    for source in Path(mvindex.__file__).parent.rglob("*.py"):
        if re.search(r"\btime\.(time|time_ns|localtime|gmtime)\(|datetime|st_[amc]time|utime\(", source.read_text()):
            found.add(source.name)
    # An import goes on only with the same files: by size and time of change. Another time, whichever, starts it anew:
    # test_an_import_of_other_files_does_not_go_on_with_what_was_begun.
    assert found == {"catalog.py", "importing.py"}
