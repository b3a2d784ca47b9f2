"""Sweeps by faults_runner.py, in a process that may fork, and what is expected of all of them."""

import json
from pathlib import Path

import warm


def swept(trouble: str, operations: list[str], folder: Path, *options: str) -> list[dict]:
    """What became of the operations, one row each. options: of the runner, how far apart its levels are."""
    arguments = (trouble, *operations, *options, "--folder", str(folder))
    done = warm.run("faults_runner", *arguments, is_mounting=trouble == "full-disk")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(rows: list[dict], at_least: int = 1, successes: int = 3) -> None:
    """Nothing, when all went as it must, and each operation met with the trouble so often."""
    for row in rows:
        assert row["faults"] == [], row["operation"]
        assert row["failed"] >= at_least and row["done"] >= successes, row
