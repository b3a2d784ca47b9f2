"""The power is cut in the middle of operations; bench/power_cut.py cuts it at every call of every one of them."""

import random
import tempfile
from pathlib import Path

import pytest

from tests.durability.power.cuts import Job, as_recorded, cuts, faults_after, record_again, record_jobs, tally_of

pytestmark = pytest.mark.needs("strace")
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
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def scratch():
    """A folder in memory where possible: thousands of fsyncs are made."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder, as_recorded():
        yield Path(folder)


@pytest.fixture(scope="module")
def recordings(scratch):
    jobs = [*map(Job, KEPT), *(Job(BROKEN, breakage) for breakage in FOUND)]
    return dict(zip(jobs, record_jobs(jobs, scratch / "recorded"), strict=True))


def sampled(recording, count, seed):
    """Return cuts at so many of its calls and at the end, by every model."""
    length = len(recording.calls)
    return cuts(recording, [seed], {*random.Random(seed).sample(range(length), count), length})


@pytest.mark.parametrize("operation", KEPT)
def test_a_power_cut_loses_nothing_acknowledged_and_shows_nothing_partial(operation, recordings, scratch):
    recording = recordings[Job(operation)]
    tally = tally_of(recording, sampled(recording, KEPT[operation], seed=1), scratch / "cut")
    assert tally.faults == []
    assert tally.cuts == (KEPT[operation] + 1) * 4
    assert tally.distinct > KEPT[operation]


def test_a_second_cut_while_the_operation_goes_on_after_the_first_loses_nothing(recordings, scratch):
    operation = "a whole life"
    first = random.Random(2).sample(list(sampled(recordings[Job(operation)], 30, seed=2)), 2)
    for recording in record_again(operation, first, scratch / "again"):
        tally = tally_of(recording, sampled(recording, 3, seed=3), scratch / "cut")
        assert tally.faults == []
        assert tally.distinct > 3


@pytest.mark.parametrize("breakage", FOUND)
def test_power_cuts_find_a_store_that_does_not_wait_for_the_disk(breakage, recordings, scratch):
    recording = recordings[Job(BROKEN, breakage)]
    left = sampled(recording, 15, seed=1)
    faults = (fault for cut in left for fault in faults_after(recording.operation, cut, scratch / "cut"))
    assert any(fault.kind == FOUND[breakage] for fault in faults)
