"""The power is cut in the middle of operations, and every durable write keeps its order.

The order is read from the calls that strace recorded, and from the announced steps. bench/power_cut.py cuts the power
at every call of every operation.
"""

import random
import tempfile
from pathlib import Path

import pytest

from tests.durability.power.cuts import (
    Case,
    Recording,
    announced,
    as_recorded,
    cuts,
    faults_after,
    record_again,
    record_cases,
    tally_of,
)
from tests.durability.power.operations import OPERATIONS
from tests.durability.power.order import Step, order_faults, step_faults, steps_in
from tests.durability.power.strace import Call, Kind

NEEDS_STRACE = pytest.mark.needs("strace")
# At how many calls the power is cut. The longer operations also take longer to run again.
KEPT = {
    "in new folders": 6,
    "replace": 6,
    "compact with flat, beside a reader": 8,
    "snapshot": 6,
    "beside a reader": 4,
    "a whole life": 4,
}
BROKEN = "ingest into a new index"
FOUND = {
    "no_fsync": "unreadable",
    "no_fsync_of_folders": "lost",
    "fsync_after_the_commit": "unreadable",
    "no_sync_of_sqlite": "unreadable",
}
ORDERED = ["a whole life", "in new folders", "beside a reader", "compact with hnsw", "snapshot", "salvage"]
# A copy is published whole, not committed.
EMPTY = {"snapshot": {"commit"}}
DISORDER = {
    "no_fsync": {"a commit begins", "acknowledged"},
    "no_fsync_of_folders": {"acknowledged"},
    "fsync_after_the_commit": {"a commit begins"},
    "no_sync_of_sqlite": {"the database is written"},
}
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def scratch():
    """A folder in memory where possible: thousands of fsyncs are made."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder, as_recorded():
        yield Path(folder)


@pytest.fixture(scope="module")
def recordings(scratch):
    cases = [*map(Case, dict.fromkeys([*KEPT, *ORDERED])), *(Case(BROKEN, breakage) for breakage in FOUND)]
    return dict(zip(cases, record_cases(cases, scratch / "recorded"), strict=True))


def sampled(recording, count, seed):
    """Return cuts at so many of its calls and at the end, by every model."""
    length = len(recording.calls)
    return cuts(recording, [seed], {*random.Random(seed).sample(range(length), count), length})


@NEEDS_STRACE
@pytest.mark.parametrize("operation", KEPT)
def test_a_power_cut_loses_nothing_acknowledged_and_shows_nothing_partial(operation, recordings, scratch):
    recording = recordings[Case(operation)]
    tally = tally_of(recording, sampled(recording, KEPT[operation], seed=1), scratch / "cut")
    assert tally.faults == []
    assert tally.cuts == (KEPT[operation] + 1) * 4
    assert tally.distinct > KEPT[operation]


@NEEDS_STRACE
def test_a_second_cut_while_the_operation_goes_on_after_the_first_loses_nothing(recordings, scratch):
    operation = "a whole life"
    first = random.Random(2).sample(list(sampled(recordings[Case(operation)], 30, seed=2)), 2)
    for recording in record_again(operation, first, scratch / "again"):
        tally = tally_of(recording, sampled(recording, 3, seed=3), scratch / "cut")
        assert tally.faults == []
        assert tally.distinct > 3


@NEEDS_STRACE
@pytest.mark.parametrize("breakage", FOUND)
def test_power_cuts_find_a_store_that_does_not_wait_for_the_disk(breakage, recordings, scratch):
    recording = recordings[Case(BROKEN, breakage)]
    left = sampled(recording, 15, seed=1)
    faults = (fault for cut in left for fault in faults_after(recording.operation, cut, scratch / "cut"))
    assert any(fault.kind == FOUND[breakage] for fault in faults)


# The order of writes


@NEEDS_STRACE
@pytest.mark.parametrize("operation", ORDERED)
def test_data_is_durable_before_its_name_its_commit_and_its_acknowledgement(operation, recordings):
    recording = recordings[Case(operation)]
    kinds = {call.kind for call in recording.calls}
    assert kinds >= {Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.MARK}
    assert sum(call.path.startswith("ack ") for call in recording.calls) == len(recording.operation.states) - 1
    assert list(order_faults(recording)) == []


@NEEDS_STRACE
@pytest.mark.parametrize("breakage", DISORDER)
def test_the_rules_find_a_store_that_breaks_the_order(breakage, recordings):
    whats = {fault.split(": ")[1].split(",")[0] for fault in order_faults(recordings[Case(BROKEN, breakage)])}
    assert whats >= DISORDER[breakage]


def made(path, data=b"x"):
    return [Call(Kind.CREATE, path), Call(Kind.WRITE, path, data=data)]


BEFORE = {"i": None, "i/c.sqlite": b"old", "i/c.sqlite-wal": b"", "i/v.f16": b"old"}
LOG = Call(Kind.WRITE, "i/c.sqlite-wal", data=b"frame")
LOG_SYNC, DATA_SYNC, FOLDER_SYNC = (Call(Kind.SYNC, path) for path in ("i/c.sqlite-wal", "i/v.f16", "i"))
DATA = Call(Kind.WRITE, "i/v.f16", offset=3, data=b"new")
ACK = Call(Kind.MARK, "ack 1")
ACKNOWLEDGED = Step("after", "ack", "there", "1")
BASE = Call(Kind.WRITE, "i/c.sqlite", data=b"new")
BASE_SYNC, BASE_CUT = Call(Kind.SYNC, "i/c.sqlite"), Call(Kind.TRUNCATE, "i/c.sqlite-wal")
BUILT = [Call(Kind.MAKE_DIR, "j"), *made("j/c.sqlite")]
BUILT_SYNC, BUILT_FOLDER_SYNC = Call(Kind.SYNC, "j/c.sqlite"), Call(Kind.SYNC, "j")
PUBLISHED, ROOT_SYNC = Call(Kind.RENAME, "j", "k"), Call(Kind.SYNC, ".")


def disorder(*calls):
    return list(order_faults(Recording(OPERATIONS[BROKEN], BEFORE, calls)))


@pytest.mark.parametrize(
    "calls",
    [
        [DATA, DATA_SYNC, LOG, LOG_SYNC, ACK],
        [*made("i/new"), Call(Kind.SYNC, "i/new"), FOLDER_SYNC, LOG, LOG, LOG_SYNC, ACK],
        [*BUILT, BUILT_SYNC, BUILT_FOLDER_SYNC, PUBLISHED, ROOT_SYNC, ACK],
        [LOG, LOG_SYNC, BASE, BASE_SYNC, BASE_CUT, ACK],
        [LOG, LOG_SYNC, BASE, ACK],
        [*made("i/c.sqlite-shm"), *made("i/writer.lock"), ACK],
        [LOG, LOG_SYNC, Call(Kind.RENAME, "i/v.f16", "i/gone-v"), Call(Kind.UNLINK, "i/gone-v"), ACK],
    ],
    ids=["an append", "a new file", "a publication", "a checkpoint", "a copied log", "temporary files", "a removal"],
)  # fmt: skip
def test_the_right_order_has_no_fault(calls):
    assert disorder(*calls) == []


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        ([DATA, LOG], "a commit begins, and i/v.f16"),
        ([*made("i/new"), Call(Kind.SYNC, "i/new"), LOG], "a commit begins, and i is"),
        ([LOG, ACK], "acknowledged, and i/c.sqlite-wal"),
        ([DATA, ACK], "acknowledged, and i/v.f16"),
        ([*BUILT, BUILT_FOLDER_SYNC, PUBLISHED], "renamed, and j/c.sqlite"),
        ([*BUILT, BUILT_SYNC, PUBLISHED], "renamed, and j is"),
        ([Call(Kind.RENAME, "i/v.f16", "i/w"), ACK], "acknowledged, and i is"),
        ([LOG, BASE], "the database is written, and i/c.sqlite-wal"),
        ([BASE, BASE_CUT], "the log is cut, and i/c.sqlite is"),
        ([LOG, LOG_SYNC, BASE, BASE_CUT], "the log is cut, and i/c.sqlite is"),
        ([*made("new"), Call(Kind.SYNC, "new"), Call(Kind.UNLINK, "i/v.f16")], "removed, and . is"),
    ],
)  # fmt: skip
def test_each_wrong_order_is_named(calls, what):
    found = disorder(*calls)
    assert len(found) == 1
    assert what in found[0]


@pytest.fixture(scope="module")
def announced_steps(tmp_path_factory):
    """Record the steps of operations that keep the order, and of one without fsyncs, without strace."""
    cases = [*map(Case, ORDERED), Case(BROKEN, "no_flush")]
    with as_recorded():
        lines = announced(cases, tmp_path_factory.mktemp("announced_steps"))
    return dict(zip(cases, map(steps_in, lines), strict=True))


@pytest.mark.parametrize("operation", ORDERED)
def test_the_announced_steps_keep_the_order(operation, announced_steps):
    steps = announced_steps[Case(operation)]
    assert {step.step for step in steps} >= {"write", "fsync", "commit", "rename", "ack"} - EMPTY.get(operation, set())
    assert list(step_faults(steps)) == []


def test_fsyncs_that_are_left_out_are_missing_from_the_steps(announced_steps):
    assert list(step_faults(announced_steps[Case(BROKEN, "no_flush")])) != []


@pytest.mark.parametrize(
    ("steps", "faults"),
    [
        ("write new, fsync new, fsync ., commit c, ack 1", 0),
        ("write old, fsync old, commit c, ack 1", 0),
        ("write old, commit c", 1),
        ("write new, fsync ., commit c", 1),
        ("write new, fsync new, commit c", 1),
        ("write old, commit c, fsync old, ack 1", 1),
        ("write old, fsync old, write old, ack 1", 1),
        ("rename old, fsync ., ack 1", 0),
        ("rename old, ack 1", 1),
        ("rename old, remove gone", 1),
        ("rename gone, remove gone, ack 1", 0),
        ("write folder, fsync folder/x, fsync folder, fsync ., commit c", 0),
        ("write folder, fsync folder, fsync ., commit c", 1),
    ],
)
def test_an_announced_step_that_comes_too_early_is_named(steps, faults):
    there = {"new": "empty", "folder": "folder", "gone": "gone"}
    given = []
    for step, path in map(str.split, steps.split(", ")):
        moments = ["after"] if step == "ack" else ["before", "after"]
        given += [Step(moment, step, there.get(path, "file"), path) for moment in moments]
    assert len(list(step_faults(given))) == faults


def test_the_file_of_acknowledgements_may_be_old_but_not_missing():
    first, later = (Step("before", "write", there, "acknowledged") for there in ("gone", "file"))
    assert len(list(step_faults([first, ACKNOWLEDGED]))) == 2
    assert list(step_faults([later, ACKNOWLEDGED])) == []
    before = {"i": None, "i/acknowledged": b"1"}
    new, old = made("i/acknowledged"), [Call(Kind.WRITE, "i/acknowledged", data=b"2")]
    assert len(list(order_faults(Recording(OPERATIONS[BROKEN], {"i": None}, [*new, ACK])))) == 2
    assert list(order_faults(Recording(OPERATIONS[BROKEN], before, [*old, ACK]))) == []
