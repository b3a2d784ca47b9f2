"""compact, snapshot and verify as a user calls them."""

import json

import pytest

import mvindex as package
from mvindex.testing import unit
from tests.helpers.cli import lines, mvindex, ok, schema

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture
def folder(tmp_path):
    """A folder with one index: 30 documents, ten of them replaced, one deleted."""
    import numpy as np

    views = unit(np.random.default_rng(1).standard_normal((30, 2, 8)))
    with package.create(tmp_path / "notes.mvx", dim=8) as index:
        index.add_views([package.Document(f"d{n}", f"text {n}") for n in range(30)], views)
        index.add_views([package.Document(f"d{n}", f"text {n}, new") for n in range(10)], views[:10])
        index.delete(ids="d29")
    return tmp_path


def test_compact_drops_what_was_replaced_and_deleted(folder):
    (report,) = lines(mvindex("compact", "--json", cwd=folder))
    assert (report["documents"], report["dropped"]) == (29, 11)
    assert report["bytes_after"] < report["bytes_before"]
    (info,) = lines(mvindex("info", "--json", cwd=folder))
    assert (info["documents"], info["num_deleted"]) == (29, 0)
    assert "new" in lines(mvindex("get", "d3", "--json", cwd=folder))[0]["text"]
    (again,) = lines(mvindex("compact", "--json", cwd=folder))
    assert again["dropped"] == 0


def test_a_snapshot_is_an_index_of_its_own(folder):
    (report,) = lines(mvindex("snapshot", "backup/monday.mvx", "--json", cwd=folder))
    assert report["documents"] == 29
    ok(mvindex("delete", "d1", cwd=folder))
    (kept,) = lines(mvindex("get", "d1", "--index", "backup/monday.mvx", "--json", cwd=folder))
    assert kept["text"] == "text 1, new"
    again = mvindex("snapshot", "backup/monday.mvx", "--index", "notes.mvx", cwd=folder)
    assert again.returncode == 1 and "exists already" in again.stderr


def test_verify_says_what_is_damaged_and_salvage_saves_the_rest(folder):
    assert "sound" in ok(mvindex("verify", cwd=folder)).stdout
    views = next((folder / "notes.mvx").glob("generation-*/views-*"))
    content = bytearray(views.read_bytes())
    content[20 * 32] ^= 1  # of d20: two views of eight fp16 a document
    views.write_bytes(content)
    done = mvindex("verify", "--json", "--salvage", "saved.mvx", cwd=folder)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("verify_report"))
    assert not report["is_sound"] and report["damaged_documents"] == 1
    assert [problem["document"] for problem in report["problems"]] == ["d20 (row 20)"]
    assert report["salvaged"]["documents"] == 28
    table = mvindex("verify", "--index", "notes.mvx", cwd=folder)
    assert table.returncode == 1 and "d20 (row 20)" in table.stdout and "--salvage" in table.stderr
    assert lines(mvindex("verify", "--index", "saved.mvx", "--json", cwd=folder))[0]["is_sound"]
    over = mvindex("verify", "--index", "notes.mvx", "--salvage", "saved.mvx", cwd=folder)
    assert over.returncode == 1 and "exists already" in over.stderr


def test_build_makes_again_what_is_derived(folder):
    current = folder / "notes.mvx" / "current.json"
    current.write_text("{")
    broken = mvindex("query", "x", cwd=folder)
    assert broken.returncode == 1 and "mvindex build" in broken.stderr
    done = ok(mvindex("build", "--kind", "exact", cwd=folder))
    assert f"rebuilt from the catalog: {current}" in done.stderr
    assert "yes" in ok(mvindex("verify", cwd=folder)).stdout


def test_an_index_that_is_not_there_is_one_line(tmp_path):
    for command in ("compact", "verify", "info"):
        done = mvindex(command, "--index", "nowhere.mvx", cwd=tmp_path)
        assert done.returncode == 1 and "no mvindex index here" in done.stderr and "Traceback" not in done.stderr
