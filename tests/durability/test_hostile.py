"""Directories that someone made to harm, or broke on purpose: refused at once, in every way an index is read."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.engines.build import save_search_params
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, StoreError
from mvindex.index import embedded_store_of

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'key' || i AS key, '1' AS value FROM n"
)
SCHEMAS = {
    "a view in place of the settings": f"DROP TABLE settings; CREATE VIEW settings AS {ENDLESS};",
    "a view beside the tables": f"CREATE VIEW more AS {ENDLESS};",
    "a view in place of the texts": "ALTER TABLE texts RENAME TO hidden; CREATE VIEW texts AS SELECT * FROM hidden;",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents; END;",
    "another table": "CREATE TABLE more(x);",
    "an index by an expression": "CREATE INDEX more ON documents(abs(ordinal));",
    "a virtual table": "CREATE VIRTUAL TABLE more USING fts5(x);",
}
LIMIT_S = 60


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.mvx"
    with mvindex.create(path, dim=4, lexical="unicode") as index:
        index.add_views([Document(f"d{n}", f"text {n}") for n in range(5)], np.eye(5, 4)[:, None] + 1)
    return path


def catalog_of(path):
    return next(path.glob("generation-*/catalog.sqlite"))


def harmed(path, script):
    connection = sqlite3.connect(catalog_of(path))
    connection.executescript(script)
    connection.close()
    return path


# Each in turn in a process that is killed where a call does not end.
CALLS = """
import json, sys
import mvindex

path = sys.argv[1]
calls = {
    "open": lambda: mvindex.open(path),
    "verify": lambda: [str(problem) for problem in mvindex.verify(path).problems],
    "salvage": lambda: mvindex.salvage(path, path + ".new"),
    "repair": lambda: mvindex.repair(path),
    "snapshot": lambda: mvindex.open(path).admin.snapshot(path + ".copy"),
}
found = {}
for name, call in calls.items():
    try:
        found[name] = call()
    except mvindex.errors.MvindexError as err:
        found[name] = f"{type(err).__name__} {err}"
print(json.dumps(found, default=repr))
"""


@pytest.mark.parametrize("name", SCHEMAS)
def test_another_schema_is_refused_before_anything_is_read(path, name):
    harmed(path, SCHEMAS[name])
    done = subprocess.run([sys.executable, "-c", CALLS, path], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("verify") and len(found) == 4
    for call, answer in found.items():
        assert answer.startswith("DamagedIndex") and "expected the tables" in answer, call
    assert not Path(f"{path}.copy").exists() and not Path(f"{path}.new").exists()


def test_a_schema_that_changes_while_an_index_is_open_is_refused(path):
    with mvindex.open(path) as index:
        harmed(path, SCHEMAS["a trigger"])
        with pytest.raises(DamagedIndex, match="trigger"):
            index.delete(ids="d1")
    connection = sqlite3.connect(catalog_of(path))
    connection.execute("DROP TRIGGER t")
    connection.close()
    with mvindex.open(path) as index:
        assert len(index) == 5


def test_a_hard_link_in_place_of_the_acknowledged_version_is_not_written_to(path, tmp_path):
    """The note is derived, so that the write is durable without it."""
    note = next(path.glob("generation-*/acknowledged"))
    os.link(note, tmp_path / "other")
    before = note.read_bytes()
    with mvindex.open(path) as index:
        assert index.delete(ids="d1") == 1
    assert (tmp_path / "other").read_bytes() == before
    with mvindex.open(path) as index:
        assert len(index) == 4


@pytest.mark.parametrize("name", ["writer.lock", "catalog.sqlite-wal", "catalog.sqlite-shm"])
def test_a_hard_link_in_place_of_a_lock_or_log_is_refused_and_not_written_to(path, name, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"another's")
    folder = path if name == "writer.lock" else catalog_of(path).parent
    (folder / name).unlink(missing_ok=True)
    os.link(secret, folder / name)
    with pytest.raises(StoreError, match="hard links"), mvindex.open(path) as index:
        index.delete(ids="d1")
    assert secret.read_bytes() == b"another's"


def test_a_closed_index_refuses_every_call(path):
    index = mvindex.open(path)
    index.close()
    index.close()
    calls = (
        lambda: index.search(np.ones(4)), lambda: index.search("text", mode="lexical"), lambda: index.get("d1"),
        lambda: list(index.scan()), lambda: len(index), lambda: index.delete(ids="d1"), lambda: index.info(),
        lambda: index.update("d1", metadata={}), lambda: index.refresh(), lambda: index.views("d1"),
        lambda: index.explain(np.ones(4), "d1"), lambda: index.admin.verify(), lambda: index.admin.compact(),
        lambda: index.add_views([Document("x", "x")], np.ones((1, 1, 4))), lambda: "d1" in index,
        lambda: index.admin.build("exact"), lambda: index.admin.snapshot(f"{path}.copy"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(StoreError, match="was closed"):
            call()
    with mvindex.open(path) as index:
        assert len(index) == 5


def test_broken_unicode_in_a_path_is_our_error():
    with pytest.raises(ConfigError, match="valid Unicode"):
        mvindex.open("a\ud800b")


def test_a_nul_in_a_path_is_our_error(path):
    calls = (
        lambda wrong: mvindex.open(wrong), lambda wrong: mvindex.create(wrong, dim=4), mvindex.verify, mvindex.repair,
        lambda wrong: mvindex.salvage(wrong, path), lambda wrong: mvindex.salvage(path, wrong),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ConfigError, match="NUL"):
            call("a\0.mvx")
    with mvindex.open(path) as index, pytest.raises(ConfigError, match="NUL"):
        index.admin.snapshot("a\0.mvx")


@pytest.mark.parametrize("files", ["views-*", "engine-*/codes.npy"])
def test_a_file_that_is_cut_under_an_open_index_is_damage_and_not_the_end_of_the_process(path, files):
    if files.startswith("engine"):
        with mvindex.open(path) as index:
            index.admin.build("graph")
            # Of few documents the scan is faster; it is the graph that has to answer.
            save_search_params(embedded_store_of(index), {"beam": 100, "top_k": 10})
    program = (
        "import sys, os, glob, time, numpy as np, mvindex\n"
        "index = mvindex.open(sys.argv[1])\n"
        # Until its loops are compiled, a search does without the graph.
        "while not index.warm_up():\n    time.sleep(0.1)\n"
        f"[os.truncate(f, 0) for f in glob.glob(sys.argv[1] + '/generation-*/{files}')]\n"
        "try:\n    index.search(np.ones(4))\nexcept mvindex.errors.DamagedIndex as e:\n    print('damaged', e)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and "damaged" in done.stdout and "committed bytes" in done.stdout, done


def test_files_of_a_program_without_umask_are_not_for_everyone_to_write(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "A text."}\n')
    command = [sys.executable, "-m", "mvindex", "ingest", "c.jsonl", "--family", "single"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, preexec_fn=lambda: os.umask(0)
    )
    assert done.returncode == 0, done.stderr
    made = [tmp_path / "c.mvx", *(tmp_path / "c.mvx").rglob("*")]
    assert len(made) > 3 and not [each for each in made if each.stat().st_mode & stat.S_IWOTH]


def test_files_that_a_program_without_umask_makes_in_python_are_not_for_everyone_to_write(tmp_path):
    code = (
        "import os, mvindex, numpy as np; os.umask(0); i = mvindex.create('a.mvx', dim=4, lexical='unicode'); "
        "i.add_views([mvindex.Document('d', 'text')], np.eye(4)[:1, None]); i.admin.build('graph'); "
        "i.admin.snapshot('copy'); i.close(); mvindex.restore('copy', 'restored')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    entries = [entry for entry in tmp_path.rglob("*") if entry.lstat().st_mode & stat.S_IWOTH]
    assert entries == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1001) "
         "INSERT INTO settings SELECT 'more' || i, '1' FROM n;", "1,000 settings"),
        pytest.param(f"CREATE TABLE more(x DEFAULT '{'x' * (2 << 20)}');", "a schema of long texts",
                     marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="no way to limit texts of SQLite")),
    ],
    ids=["settings", "schema"],
)  # fmt: skip
def test_no_more_of_a_catalog_is_read_than_an_index_has(path, script, problem):
    """A table whose pages lead back to themselves has no end, and a text of the schema may fill the memory."""
    with pytest.raises(DamagedIndex, match=problem):
        mvindex.open(harmed(path, script))


def test_what_was_harmed_elsewhere_is_left_alone(path, tmp_path):
    """A copy of a sound index is sound: the checks refuse nothing that mvindex makes itself."""
    shutil.copytree(path, tmp_path / "copy.mvx")
    with mvindex.open(tmp_path / "copy.mvx") as index:
        index.delete(ids="d1")
        index.admin.compact()
        index.admin.enable_lexical("english")
        index.admin.disable_lexical()
        assert len(index) == 4
    assert mvindex.verify(tmp_path / "copy.mvx").is_sound
    with pytest.raises(MvindexError):
        mvindex.open(tmp_path / "never.mvx")
