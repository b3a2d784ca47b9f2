"""Near-duplicate views left out on the command line: at ingest, at build, and what each costs."""

import csv
import json
import os

import pytest
from typer.testing import CliRunner

from mvindex.cli import app
from mvindex.errors import MvindexError

pytestmark = pytest.mark.needs("minilm")

ROW_BYTES = 384 * 2
SUBJECTS = {"1": "The river Elbe", "2": "The old town hall", "3": "A steam engine", "4": "The violin"}
QUESTIONS = [("Which river floods?", "1"), ("Where is the town hall?", "2"), ("What does an engine burn?", "3")]


def mvindex(*args, cwd):
    """In this process: one that loads the encoder anew takes seconds each time."""
    before = os.getcwd()
    os.chdir(cwd)
    try:
        return CliRunner().invoke(app, [str(arg) for arg in args])
    finally:
        os.chdir(before)


def shown(*args, cwd):
    done = mvindex(*args, "--json", cwd=cwd)
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def refused(*args, cwd):
    done = mvindex(*args, cwd=cwd)
    assert isinstance(done.exception, MvindexError), done.exception
    return str(done.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of four sentences that say nearly the same, and questions with and without the gold passage."""
    folder = tmp_path_factory.mktemp("pruning")
    with open(folder / "corpus.tsv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["id", "text", "title"])
        for doc_id, subject in SUBJECTS.items():
            text = f"{subject} is very well known here. " * 3 + f"{subject} was painted in 1890 by a man from Spain."
            writer.writerow([doc_id, text, ""])
    rows = [json.dumps({"question": text, "passage_id": gold}) for text, gold in QUESTIONS]
    (folder / "gold.jsonl").write_text("\n".join(rows))
    (folder / "plain.txt").write_text("\n".join(text for text, _ in QUESTIONS))
    assert shown("ingest", "corpus.tsv", "--index", "whole.mvx", cwd=folder)["added"] == 4
    return folder


@pytest.mark.full
def test_ingest_leaves_near_duplicates_out_for_good_and_shows_what_that_saves(folder):
    report = shown("ingest", "corpus.tsv", "--index", "pruned.mvx", "--prune-views", "0.5", cwd=folder)
    assert 4 <= report["views_stored"] < report["views_given"] == shown("info", "-i", "whole.mvx", cwd=folder)["views"]
    assert report["view_bytes_given"] == report["views_given"] * ROW_BYTES
    assert report["view_bytes_stored"] == report["views_stored"] * ROW_BYTES
    info = shown("info", "--index", "pruned.mvx", cwd=folder)
    assert (info["prune_views"], info["views"], info["documents"]) == (0.5, report["views_stored"], 4)

    again = shown("ingest", "corpus.tsv", "--index", "pruned.mvx", "--prune-views", "0.5", cwd=folder)
    assert (again["unchanged"], again["views_given"]) == (4, 0)
    other = refused("ingest", "corpus.tsv", "--index", "pruned.mvx", "--prune-views", "0.25", cwd=folder)
    assert "prune-views 0.5, not 0.25" in other
    missing = refused("ingest", "corpus.tsv", "--index", "whole.mvx", "--prune-views", "0.5", cwd=folder)
    assert "prune-views None, not 0.5" in missing


def test_a_value_that_is_no_distance_makes_no_index(folder):
    assert "prune_views" in refused("ingest", "corpus.tsv", "--index", "none.mvx", "--prune-views", "nan", cwd=folder)
    assert not (folder / "none.mvx").exists()


def test_a_build_is_measured_against_the_exact_search(folder):
    options = ("--index", "whole.mvx", "--kind", "flat")
    report = shown("build", *options, "--questions", "gold.jsonl", "--at", "1,3", cwd=folder)
    measured = report["measured"]
    assert report["views"] == shown("info", "-i", "whole.mvx", cwd=folder)["views"]
    assert report["stored_bytes"] == report["views"] * ROW_BYTES
    assert measured["questions"] == measured["before"]["exact"] == measured["after"]["exact"] == 3
    assert list(measured["before"]["gold"]) == ["R@1", "R@3"]
    assert measured["before"]["gold"] == measured["after"]["gold"]
    assert measured["same_first"] == 1.0

    plain = shown("build", *options, "--questions", "plain.txt", "--format", "text", cwd=folder)["measured"]
    assert plain["same_first"] == 1.0 and "gold" not in plain["before"]
    table = mvindex("build", *options, "--questions", "gold.jsonl", cwd=folder).stdout
    assert "R@20" in table and f"{report['stored_bytes']:,} (store) -> {report['engine_bytes']:,} (engine)" in table


def test_a_build_that_cannot_be_refuses_before_it_starts(folder):
    (folder / "bad.jsonl").write_text("{\n")
    before = shown("info", "-i", "whole.mvx", cwd=folder)
    refused("build", "--index", "whole.mvx", "--kind", "hnsw", "--questions", "bad.jsonl", cwd=folder)
    assert shown("info", "-i", "whole.mvx", cwd=folder) == before
