"""Every command with an address instead of a directory, as a user gives it."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mvindex.cli import app

ROOT = Path(__file__).parents[2]
PASSAGES = ROOT / "examples" / "squad" / "passages.tsv"
QUESTION = "when did the oil crisis begin?"


def told(*args):
    """The JSON that the command wrote, a value a line."""
    done = CliRunner().invoke(app, [*map(str, args), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert "pymilvus" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
@pytest.mark.needs("minilm")
def test_every_command_takes_an_address(place, tmp_path, monkeypatch):
    """Beside each answer, that of an index in a directory of the same passages."""
    if place.startswith("milvus-lite") and os.environ.get("MVINDEX_LONG") != "1":
        pytest.skip("NOT RUN: long; MVINDEX_LONG=1 runs it in Lite too, a server is the harder half")
    monkeypatch.chdir(tmp_path)
    lines = PASSAGES.read_text(encoding="utf-8").splitlines(keepends=True)[:31]
    Path("p.tsv").write_text("".join(lines), encoding="utf-8")
    at, same = ("--index", place), ("--index", "same.mvx")
    [made] = told("ingest", "p.tsv", *at)
    assert (made["added"], made["index"]) == (30, place.partition("?")[0])
    # An older server has no lexical side.
    terms = told("info", *at)[0]["lexical"]
    assert (terms is None) == (told("info", *at)[0]["server"]["has_sparse"] is False)
    told("ingest", "p.tsv", *same, "--lexical", terms or "none")
    for options in (
        (),
        ("--mode", "dense"),
        ("--scoring", "drpq"),
        ("--filter", '{"id": {"in": ["3", "4"]}}'),
        ("--exact",),
    ):
        [found], [wanted] = (told("query", QUESTION, *index, *options) for index in (at, same))
        assert (found["hits"], found["exact"]) == (wanted["hits"], True)
    [again] = told("ingest", "p.tsv", *at)
    assert (again["unchanged"], again["added"]) == (30, 0)
    assert told("get", "3", *at) == told("get", "3", *same)
    Path("new.jsonl").write_text('{"id": "3", "text": "The strike began in 1926."}\n{"id": "x", "text": "More."}\n')
    for index in (at, same):
        [replaced] = told("ingest", "new.jsonl", *index)
        assert (replaced["replaced"], replaced["added"]) == (1, 1)
        assert told("delete", "--filter", '{"id": "x"}', *index) == [{"deleted": 1, "documents": 30}]
    assert told("get", "3", *at) == told("get", "3", *same)
    assert told("verify", *at)[0]["is_sound"]
    assert told("compact", *at)[0]["documents"] == 30
    Path("q.jsonl").write_text(json.dumps({"question": QUESTION, "answers": ["1973"]}) + "\n")
    [found], [wanted] = (told("eval", "--questions", "q.jsonl", *index) for index in (at, same))
    assert {**found, "index": ""} == {**wanted, "index": ""}
    assert told("build", "--kind", "hnsw", *at)[0]["kind"] == "hnsw"
    assert told("tune", "--target-recall", "0.5", *at)[0]["chosen"]
    shown = told("info", *at)[0]
    assert (shown["kind"], shown["documents"], shown["server"]["max_limit"]) == ("hnsw", 30, 16_384)
    [moved] = told("migrate", place, "back.mvx", "--verify")
    assert (moved["moved"], moved["queries"]) == (30, 200)
    [written] = told("export", "bulk", "--to", "milvus-bulk", *at)
    assert (written["documents"], written["shards"]) == (30, 1)
