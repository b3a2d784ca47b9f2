"""An index that this user may read and not write, or not read in part; and reading beside another user's writes."""

import os
import tempfile

import pytest

from tests.durability.faults.cases import found_by

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: needs root, to be two users")


@pytest.fixture(scope="module")
def reader():
    """Make each call as a user who may only read."""
    return found_for_reader("reading_and_writing")


@pytest.fixture(scope="module")
def unreadable():
    """Open and verify an index of which a part may not be read."""
    return found_for_reader("unreadable_parts")


def found_for_reader(case):
    """Run the case in a new folder; pytest's own folders are private to one user."""
    with tempfile.TemporaryDirectory() as folder:
        return found_by("permissions", case, folder)


@pytest.mark.parametrize("beside", ["", "-shm", "-wal", "-wal -shm"])
def test_an_index_that_may_not_be_written_is_read_whichever_of_sqlites_files_are_missing(reader, beside):
    found = reader["reads"][beside]
    assert found.pop("verify") == {"result": []}
    assert {name: outcome["result"][:3] for name, outcome in found.items()} == {
        name: reader["truth"][:3] for name in ("look", "snapshot", "restore", "salvage")
    }


def test_commits_in_the_log_of_a_killed_writer_are_read(reader):
    found = reader["reads"]["killed writer"]
    assert found["verify"] == {"result": []}
    for name in ("look", "snapshot", "restore", "salvage"):
        assert found[name]["result"][2] == ["plain-0"]


def test_writing_is_refused_with_the_path_and_the_reason(reader):
    for name, outcome in reader["writes"].items():
        wanted = "File name too long" if "too long" in name else "Permission denied"
        assert outcome.get("error") == "StoreError", (name, outcome)
        assert wanted in outcome["message"] and outcome["message"].startswith("/"), (name, outcome)
        assert "exists already" not in outcome["message"]
    assert reader["truth afterwards"] == reader["truth"]


def test_a_part_that_may_not_be_read_is_named(unreadable):
    can_do_without = ("-shm", "-wal", "writer.lock", " 111")
    for name, outcome in unreadable.items():
        look = outcome["look"]
        if name.endswith(can_do_without):
            assert "result" in look or look["error"] == "StoreError", (name, look)
            continue
        part = name.removesuffix(" 444").rpartition("/")[2]
        assert look.get("error") in ("StoreError", "EngineUnavailable"), (name, look)
        assert part in look["message"], (name, look)
        assert "Permission denied" in look["message"] or "unable to open" in look["message"], (name, look)


def test_verify_does_not_report_damage_in_files_that_may_not_be_read(unreadable):
    for name, outcome in unreadable.items():
        found = outcome["verify"]
        said = found["message"] if "error" in found else " ".join(what for _, what in found["result"])
        assert not found.get("error", "").startswith("raw"), (name, found)
        assert "do not match" not in said and "does not match" not in said, (name, said[:300])
        assert not said or "Permission denied" in said or "unable to open" in said, (name, said[:300])


@needs_root
def test_beside_a_writer_the_answer_is_right_or_newer_or_there_is_none():
    found = found_for_reader("beside_a_writer")
    assert found["seen"]["wrong"] == []
    assert found["seen"]["answers"] >= 90 and found["seen"]["versions"] > 3 and found["is_writing"]


@needs_root
def test_an_index_replaced_while_it_is_read_without_locks_is_stale_not_damaged():
    found = found_for_reader("written_while_read")
    assert found.get("result") == 1 or found["error"] == "StaleReader", found
