"""A writer is killed at named steps and random moments of every operation; the index is looked at, and the operation
run again.

By default at a sample of the steps, with FULL=1 at one of each name (of the same write of each batch, say). The long
form, bench/kills.py, kills at every step, at as many random moments as one likes, and processes of the command line.
"""

import json
import os

import pytest
import warm
from kill_table import OPERATIONS

AMOUNT = ("--each-name", "--random", "2") if os.environ.get("FULL") == "1" else ("--steps", "6", "--random", "1")
# So that they can run beside each other.
GROUPS = [list(OPERATIONS)[first::4] for first in range(4)]


def kills(operations, folder, *options):
    """What became of the kills, by operation: by a process that may fork."""
    done = warm.run("kill_runner", *operations, "--folder", str(folder), *options)
    assert done.returncode == 0, done.stderr
    return {found["operation"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("operations", GROUPS, ids=", ".join)
def test_a_kill_loses_nothing_shows_nothing_partial_and_is_made_good(operations, tmp_path):
    found = kills(operations, tmp_path, *AMOUNT, "--seed", "1")
    assert list(found) == operations
    assert [(name, *fault) for name, each in found.items() for fault in each["faults"]] == []
    for each in found.values():
        assert each["at_steps"] >= 6
        assert each["at_random"] + each["finished"] >= 1


@pytest.mark.parametrize(
    ("operation", "fault", "kind"),
    [
        ("ingest more", "commit-before-append", "unreadable"),
        ("ingest more", "two-commits", "partial"),
        ("ingest more", "acknowledged-early", "lost"),
        ("update metadata", "litter", "litter"),
        ("build flat", "build-forgotten", "lost"),
    ],
)
def test_a_store_that_breaks_its_promise_is_found_out(operation, fault, kind, tmp_path):
    found = kills([operation], tmp_path, "--steps", "13", "--seed", "1", "--break", fault)[operation]
    assert kind in {fault for _, fault, _ in found["faults"]}


def test_steps_of_every_kind_are_among_those_that_are_killed_before_and_after(tmp_path):
    found = kills(["ingest into a new index", "compact"], tmp_path, "--steps", "0")
    named = [step.split()[:2] for each in found.values() for step in each["steps"]]
    for step in ("write", "fsync", "commit", "rename", "remove"):
        assert ["before", step] in named and ["after", step] in named
    assert ["after", "acknowledging"] in named
