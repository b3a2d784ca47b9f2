"""Every command with an address instead of a directory, as a user gives it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSAGES = ROOT / "examples" / "squad" / "passages.tsv"


def told(folder, *args, code=0):
    """The JSON that the command wrote, a value a line."""
    command = [sys.executable, "-m", "mvindex", *map(str, args), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    assert "pymilvus" not in done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
@pytest.mark.needs("minilm")
def test_every_command_takes_an_address(place, tmp_path):
    lines = PASSAGES.read_text(encoding="utf-8").splitlines(keepends=True)[:31]
    (tmp_path / "p.tsv").write_text("".join(lines), encoding="utf-8")
    at = ("--index", place)
    [made] = told(tmp_path, "ingest", "p.tsv", *at)
    assert (made["added"], made["index"]) == (30, place.partition("?")[0])
    told(tmp_path, "ingest", "p.tsv", "--index", "same.mvx")
    question = "when did the oil crisis begin?"
    for options in ((), ("--scoring", "drpq"), ("--filter", '{"id": {"in": ["3", "4"]}}')):
        [found] = told(tmp_path, "query", question, *at, *options)
        [wanted] = told(tmp_path, "query", question, "--index", "same.mvx", *options)
        assert (found["hits"], found["exact"]) == (wanted["hits"], True)
    [again] = told(tmp_path, "ingest", "p.tsv", *at)
    assert (again["unchanged"], again["added"]) == (30, 0)
    assert told(tmp_path, "get", "3", *at) == told(tmp_path, "get", "3", "--index", "same.mvx")
    assert told(tmp_path, "delete", "3", *at) == [{"deleted": 1, "documents": 29}]
    assert told(tmp_path, "verify", *at)[0]["is_sound"]
    assert told(tmp_path, "compact", *at)[0]["documents"] == 29
    assert told(tmp_path, "info", *at)[0]["server"]["max_limit"] == 16_384
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": question, "answers": ["1973"]}) + "\n")
    assert told(tmp_path, "eval", "--questions", "q.jsonl", *at)[0]["questions"] == 1
    [moved] = told(tmp_path, "migrate", place, "back.mvx", "--verify")
    assert (moved["moved"], moved["queries"]) == (29, 100)
    [written] = told(tmp_path, "export", "bulk", "--to", "milvus-bulk", *at)
    assert (written["documents"], written["shards"]) == (29, 1)
