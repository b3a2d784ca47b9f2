"""A writer is killed at named steps and random moments of every operation; the index is checked, and it is run again.

By default at a few of the steps, with FULL=1 at one of each name (the same write of each batch, for example). The long
form, bench/kills.py, kills at every step, at as many random moments as you like, and processes of the command line.
"""

import os

import pytest

from tests.durability.kills.broken import BROKEN
from tests.durability.kills.shards import SHARD_OPERATIONS
from tests.durability.operations import OPERATIONS
from tests.durability.processes import call

IS_FULL, IS_LONG = (os.environ.get(name) == "1" for name in ("FULL", "MVINDEX_LONG"))
STEPS = None if IS_LONG else 8 if IS_FULL else 4
# Their steps are those of other operations, or of "ingest more beside a graph"; killed with MVINDEX_LONG=1.
LIKE_OTHERS = {
    "delete by filter",
    "build flat",
    "build exact",
    "compact",
    "compact with hnsw",
    "compact a graph that lacks documents",
}


def killed(operations, folder, **options):
    """Return what became of the kills, by operation."""
    rows = call(
        "tests.durability.kills.trials:killed",
        operations,
        str(folder),
        prepared_by="tests.durability.kills.trials:prepare",
        **options,
    )
    return {row["operation"]: row for row in rows}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(name, marks=[pytest.mark.full, pytest.mark.long]) if name in LIKE_OTHERS else name
        for name in OPERATIONS
    ],
)
def test_a_kill_loses_nothing_acknowledged_and_shows_nothing_partial(operation, tmp_path):
    found = killed([operation], tmp_path, steps=STEPS, at_random=2 if IS_FULL else 1)[operation]
    assert found["faults"] == []
    assert found["at_steps"] >= 4 and found["at_random"] + found["finished"] >= 1


@pytest.mark.parametrize("operation", SHARD_OPERATIONS)
def test_a_kill_while_shards_are_filled_assembled_or_built_loses_nothing(operation, tmp_path):
    steps, at_random = (8, 2) if IS_FULL else (3, 1)
    found = killed([operation], tmp_path, steps=steps, at_random=at_random)[operation]
    assert found["faults"] == []
    assert found["at_steps"] == min(steps, len(found["steps"]))


@pytest.mark.parametrize(
    ("broken", "operation", "kind"),
    [
        ("commit-before-append", "ingest more", "unreadable"),
        ("two-commits", "ingest more", "partial"),
        ("acknowledged-early", "ingest more", "lost"),
        ("litter", "update metadata", "litter"),
        ("build-forgotten", "build flat", "lost"),
    ],
)
def test_kills_find_a_store_that_breaks_its_promise(broken, operation, kind, tmp_path):
    assert broken in BROKEN
    found = killed([operation], tmp_path, steps=13, at_random=0, broken=broken)[operation]
    assert kind in {fault for _, fault, _ in found["faults"]}


def test_every_kind_of_step_is_among_those_at_which_a_writer_is_killed(tmp_path):
    found = killed(["ingest into a new index", "compact"], tmp_path, steps=0, at_random=0)
    named = [step.split()[:2] for each in found.values() for step in each["steps"]]
    for step in ("write", "fsync", "commit", "rename", "remove"):
        assert ["before", step] in named and ["after", step] in named
    assert ["after", "acknowledging"] in named
