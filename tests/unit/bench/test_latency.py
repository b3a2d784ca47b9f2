"""The breakdown of a search's time: its parts are all there, and add up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


def test_every_part_of_a_search_is_timed_where_it_stands():
    command = [sys.executable, str(BENCH / "latency.py"), "--tiny", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=BENCH.parent)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(row["case"], row["batch"]) for row in rows} == {
        (case, batch) for case in ("mvindex query", "vectors exact") for batch in (1, 8)
    }
    for row in rows:
        is_command = row["case"] == "mvindex query"
        assert all(row[part] > 0 for part in ("rank", "rescore", "fetch", "hits", "rest"))
        assert (row["encode"] > 0, row["show"] > 0) == (is_command, is_command)
        assert row["recall"] == (None if is_command else pytest.approx(1.0))
