"""A clock that goes backwards, stands still or leaps, and files with such times: no result depends on it.

mvindex reads only the modification time of a catalog that may not be locked, and how long a command took.
Operations under a wild clock are in the table of test_faults.py.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of

DAY_S = 86_400


def set_times(path, time_s):
    for entry in [path, *path.rglob("*")]:
        os.utime(entry, (time_s, time_s))


def test_files_may_get_any_time_between_two_openings(tmp_path):
    path = tmp_path / "i.mvx"
    with mvindex.create(path, dim=4) as index:
        index.add_views([mvindex.Document(str(number), "text 0") for number in range(8)], np.eye(8, 4) + 0.25)
        index.admin.build("flat")
    with mvindex.open(path) as kept:
        for number, time_s in enumerate((0, 4_000_000_000, -DAY_S, 1_700_000_000, 1_600_000_000), start=1):
            set_times(path, time_s)
            assert mvindex.verify(path).is_sound
            with mvindex.open(path) as index:
                assert index.get("3").text == f"text {number - 1}"
                index.add_views([mvindex.Document("3", f"text {number}")], np.full((1, 1, 4), number))
                set_times(path, -time_s)
                assert index.admin.compact().dropped == 1
            assert kept.refresh() and kept.get("3").text == f"text {number}"
            assert kept.search(np.ones(4), top_k=1).hits[0].id == "3"


def test_a_reader_without_locks_sees_any_change_whichever_way_the_clock_went(tmp_path):
    """It takes a catalog with another time for a changed one, whether the time is earlier or later."""
    path = tmp_path / "i.mvx"
    with mvindex.create(path, dim=4) as index:
        index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 4)))
    (file,) = path.rglob("catalog.sqlite")
    with mvindex.open(path) as index:
        catalog = embedded_store_of(index).snapshot.source.catalog
        for time_s in (0, 4_000_000_000, 10):
            # Private: what a connection compares by the clock.
            state = catalog._unlocked_state()
            os.utime(file, (time_s, time_s))
            with pytest.raises(mvindex.errors.StaleReader, match="changed while it was read"):
                catalog._check_unchanged(state)


def test_no_more_of_the_clock_is_read_than_is_tested_here():
    found = set()
    for source in Path(mvindex.__file__).parent.rglob("*.py"):
        if re.search(
            r"\btime\.(time|time_ns|localtime|gmtime)\(|datetime\.(now|utcnow|today)|date\.today|st_[amc]time|utime\(",
            source.read_text(),
        ):
            found.add(source.name)
    # An import goes on only with the same files: by size and time of change. Another time, whichever, starts it anew:
    # test_an_import_of_other_files_does_not_go_on_with_what_was_begun.
    # A hash of a weight file is remembered by size and times of a file that was settled by the clock: a clock that goes
    # back only makes it be read again (encoder/checkpoint/test_hashes.py). Of the cache of encoders, what was left
    # behind is removed by its age. A file of copies is mapped anew when its time is another; its blocks are compared
    # with the views either way. A sync remembers a file by size, times and inode once the clock shows that they are
    # settled: a clock that goes back only makes it be read again; so does the index of grep. A date in an endpoint's
    # Retry-After bounds one wait. A dated snapshot is named later than every other of its place, whatever the clock
    # says (tests/unit/maintenance/test_backups.py).
    assert found == {
        "backups.py",
        "connections.py",
        "copies_file.py",
        "hidden.py",
        "hashes.py",
        "openai.py",
        "import_.py",
        "onnx_cache.py",
        "report.py",
    }
