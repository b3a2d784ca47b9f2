"""`mvindex import` and `mvindex export` as a user meets them."""

import json
import re
import shutil

import pytest

from tests.helpers.cli import lines, mvindex, ok


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a small index of vectors, made by the command itself."""
    folder = tmp_path_factory.mktemp("made")
    rows = [{"id": str(n), "text": f"text {n}", "vectors": [[n, 1], [1, n]], "year": n} for n in range(5)]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ok(mvindex("import", "vectors", "in.jsonl", "--index", "in.mvx", cwd=folder))
    return folder


def test_what_goes_out_comes_back_with_counts_as_json(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (out,) = lines(mvindex("export", "--to", "jsonl", "out", "--index", "in.mvx", "--json", cwd=tmp_path))
    assert (out["documents"], out["views"], out["files"], out["to"]) == (5, 10, 1, "jsonl")
    (back,) = lines(mvindex("import", "vectors", "out", "--index", "back.mvx", "--json", cwd=tmp_path))
    wanted = {"index": "back.mvx", "documents": 5, "views": 10, "dim": 2, "dtype": "fp32", "imported": 5}
    assert back == wanted
    (document,) = lines(mvindex("get", "3", "--index", "back.mvx", "--json", cwd=tmp_path))
    assert (document["text"], document["metadata"]) == ("text 3", {"year": 3})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["import", "vectors"], 2, "Missing argument"),
        (["import", "vectors", "in.jsonl"], 2, "Missing option '--index'"),
        (["import", "csv", "in.jsonl"], 2, "No such command"),
        (["import", "vectors", "in.jsonl", "--index", "in.mvx"], 1, "in.mvx exists already"),
        (
            ["import", "vectors", "in.jsonl", "--index", "x.mvx", "--dtype", "int8"],
            2,
            "--dtype: expected fp16 or fp32",
        ),
        (["import", "vectors", "in.jsonl", "--index", "x.mvx", "--lexical", "latin"], 2, "latin"),
        (["import", "vectors", "in.jsonl", "--index", "x.mvx", "--missing", "skip"], 1, "give --corpus FILE"),
        (
            ["import", "vectors", "in.jsonl", "--index", "x.mvx", "--id-column", ""],
            1,
            "must have different names that are not empty",
        ),
        (["import", "vectors", "in.mvx", "--index", "x.mvx"], 1, "expected the manifest.json of an export"),
        (["import", "vectors", "-", "--index", "x.mvx"], 1, "-: expected a file"),
        (["import", "vectors", "none.npy", "--index", "x.mvx"], 1, "none.npy: no such file"),
        (["import", "dpr", "in.jsonl", "--index", "x.mvx"], 1, "in.jsonl: expected a pickle of protocol 2 to 5"),
        (["import", "faiss", "in.jsonl", "--index", "x.mvx", "--memory-limit", "lots"], 1, "--memory-limit 'lots'"),
        (
            ["import", "dpr", "in.jsonl", "--index", "x.mvx", "--missing", "guess"],
            2,
            "--missing: expected stop or skip",
        ),
        (["import", "faiss", "none.faiss", "--index", "x.mvx"], 1, "none.faiss: no such file"),
        (["export", "--to", "csv", "out", "--index", "in.mvx"], 2, "--to: expected an export format"),
        (["export", "out", "--index", "in.mvx"], 2, "Missing option '--to'"),
        (["export", "--to", "jsonl", "out", "--index", "none.mvx"], 1, "none.mvx"),
        (["export", "--to", "jsonl", "in.mvx", "--index", "in.mvx"], 1, "expected a new directory or one of an export"),
    ],
)
def test_wrong_arguments_are_told_and_write_nothing(made, tmp_path, arguments, code, message):
    if "faiss" in arguments:
        pytest.importorskip("faiss")
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    done = mvindex(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in re.sub(r"[\s│]+", " ", done.stderr)
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "in.mvx"]


def test_every_import_has_help_and_an_example(tmp_path):
    for command in ("dpr", "faiss", "vectors"):
        assert f"  mvindex import {command} " in ok(mvindex("import", command, "--help", cwd=tmp_path)).stdout
    assert "  mvindex import vectors" in ok(mvindex("import", "--help", cwd=tmp_path)).stdout
    assert "  mvindex export --to parquet" in ok(mvindex("export", "--help", cwd=tmp_path)).stdout
