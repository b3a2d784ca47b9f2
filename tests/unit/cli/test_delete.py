"""`mvindex delete` asks on a terminal, and deletes everything only when told so."""

import json
import os
import pty
import subprocess

import pytest

import mvindex
from mvindex import Document
from mvindex.testing import unit
from tests.helpers import cli


@pytest.fixture
def folder(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([Document(f"d{n}", "t", metadata={"n": n}) for n in range(5)], [unit([[1.0, 0.0]])] * 5)
    return tmp_path


def count(folder):
    with mvindex.open(folder / "a.mvx") as index:
        return len(index)


@pytest.mark.parametrize(
    "condition",
    ["{}", '{"and": []}', '{"or": [{}]}', '{"n": {"nin": []}}', '{"not": {"n": {"in": []}}}',
     '{"id": {"exists": true}}', '{"or": [{"n": 1}, {"id": {"nin": []}}]}'],
)  # fmt: skip
def test_a_filter_that_matches_everything_is_refused(folder, condition):
    done = cli.mvindex("delete", "--filter", condition, "--yes", cwd=folder)
    assert done.returncode == 2 and "--all" in done.stderr
    assert count(folder) == 5


def test_the_help_says_that_a_filter_chooses_what_is_deleted(folder):
    shown = " ".join(cli.mvindex("delete", "--help", cwd=folder).stdout.split())
    assert "Delete the documents whose metadata meet conditions" in shown and "Keep documents" not in shown


def test_all_deletes_everything_and_goes_with_nothing_else(folder):
    for other in (["d1"], ["--filter", '{"n": 1}']):
        assert cli.mvindex("delete", "--all", *other, cwd=folder).returncode == 2
    assert json.loads(cli.ok(cli.mvindex("delete", "--all", "--json", cwd=folder)).stdout) == {
        "deleted": 5, "documents": 0
    }  # fmt: skip


@pytest.mark.parametrize(("reply", "left"), [("n", 5), ("y", 3)])
def test_on_a_terminal_it_says_how_many_and_asks(folder, reply, left):
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{reply}\n".encode())
        done = subprocess.run(
            [*cli.COMMAND, "delete", "--filter", '{"n": {"gte": 3}}'],
            cwd=folder, stdin=theirs, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "delete 2 of 5 documents?" in done.stderr
    assert done.returncode == (0 if reply == "y" else 1)
    assert count(folder) == left
