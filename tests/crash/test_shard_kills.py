"""What fills, assembles and builds shards is killed at named steps and random moments, looked at, and run again.

At a few steps of each operation, with FULL=1 at twice as many; shard_kills.py itself takes every one.
"""

import json
import os

import pytest
import warm

pytest.importorskip("faiss")

OPERATIONS = ["ingest --shard 1/3", "ingest into all shards", "assemble", "assemble again", "build in shards"]


def kills(operations, folder, *options):
    """What became of the kills, by operation: by a process that may fork."""
    done = warm.run("shard_kills", *operations, "--folder", str(folder), "--seed", "1", *options)
    assert done.returncode == 0, done.stderr
    return {found["operation"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_works_on_shards_may_be_killed_at_any_of_some_moments(operation, tmp_path):
    steps, moments = (8, 2) if os.environ.get("FULL") == "1" else (4, 1)
    found = kills([operation], tmp_path, "--steps", str(steps), "--random", str(moments))[operation]
    assert found["faults"] == []
    assert found["kills"] >= min(steps, found["steps"])
