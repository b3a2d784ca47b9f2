"""Exports and imports that are killed or interrupted: no half file has a final name, and the command goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.io.export import export_index
from mvindex.io.import_ import Target, import_vectors
from tests.helpers.io_examples import made_index, stored
from tests.helpers.marks import full

# The command, in small parts, that gives itself the signal before its n-th step that would last.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
number, at, sys.argv = int(sys.argv[1]), int(sys.argv[2]), ["mvindex", *sys.argv[3:]]
from mvindex.cli import main
from mvindex.io import export as exporting
from mvindex.io import staging as given
exporting.PART_BATCHES, given.CHUNK_DOCUMENTS = 1, 20
steps = 0
def stop(event, arguments):
    global steps
    if event == "mvindex.durable" and arguments[0] == "before":
        steps += 1
        if steps == at:
            os.kill(os.getpid(), number)
sys.addaudithook(stop)
main()
"""


def stopped(*arguments, number, at):
    """Assert that the signal ended the command before its step."""
    command = [sys.executable, "-c", PROGRAM, str(int(number)), str(at), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=os.environ)
    assert done.returncode in ((-number,) if number == signal.SIGKILL else (1, 130, -number)), done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return made_index(tmp_path_factory.mktemp("source") / "x.mvx", shards=3)


@pytest.mark.parametrize(
    ("number", "at", "in_manifest"), [full(signal.SIGKILL, 7, 0), (signal.SIGKILL, 18, 1), full(signal.SIGINT, 13, 1)]
)
def test_an_interrupted_export_has_no_half_file_and_goes_on(tmp_path, source, number, at, in_manifest):
    """Steps 7 and 18: the first file is whole and has no name yet; the second has its name, and no entry."""
    stopped("export", "--to", "parquet", tmp_path / "out", "--index", source, number=number, at=at)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    parquet = pytest.importorskip("pyarrow.parquet")
    assert (manifest["is_complete"], len(manifest["files"])) == (False, in_manifest)
    for path in (tmp_path / "out").glob("*.parquet"):
        parquet.read_table(path)
    with pytest.raises(mvindex.MvindexError, match="the export is not finished"):
        import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "early.mvx")))
    with mvindex.open(source) as index:
        report = export_index(index, tmp_path / "out", "parquet")
        assert (report.documents, report.written) == (59, 1)
        import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "back.mvx")))
        with mvindex.open(tmp_path / "back.mvx") as back:
            assert stored(back) == stored(index)
    assert not [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("number", "at", "left"), [full(signal.SIGKILL, 14, 59), full(signal.SIGKILL, 35, 0), (signal.SIGINT, 27, 19)]
)
def test_an_interrupted_import_has_no_index_under_its_name_and_goes_on(tmp_path, source, number, at, left):
    """Steps 14, 27 and 35: nothing is committed; two batches of 20 are; all is, but for the index' name."""
    with mvindex.open(source) as index:
        export_index(index, tmp_path / "out", "jsonl")
        wanted = stored(index)
    stopped("import", "vectors", tmp_path / "out", "--index", tmp_path / "back.mvx", number=number, at=at)
    assert not (tmp_path / "back.mvx").exists()
    report = import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "back.mvx")))
    assert (report.documents, report.imported) == (59, left)
    with mvindex.open(tmp_path / "back.mvx") as back:
        assert stored(back) == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.mvx", "out"]


def test_an_import_of_other_files_does_not_go_on_with_what_was_begun(tmp_path, source):
    with mvindex.open(source) as index:
        export_index(index, tmp_path / "out", "jsonl")
    command = ("import", "vectors", tmp_path / "out", "--index", tmp_path / "back.mvx")
    stopped(*command, number=signal.SIGKILL, at=27)
    assert (tmp_path / ".back.mvx.importing").exists()
    (tmp_path / "in.jsonl").write_text('{"id": "a", "vector": [1, 2]}\n')
    import_vectors([tmp_path / "in.jsonl"], Target(path=str(tmp_path / "back.mvx")))
    with mvindex.open(tmp_path / "back.mvx") as back:
        assert [document.id for document in back] == ["a"]


def test_what_cannot_be_written_is_told_and_leaves_no_final_file(tmp_path, source, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with mvindex.open(source) as index:
        monkeypatch.setattr("mvindex.io.export.flush_to_disk", full)
        with pytest.raises(StoreError, match="out: cannot be written: No space left on device"):
            export_index(index, tmp_path / "out", "npy")
        assert not [path.name for path in (tmp_path / "out").iterdir() if path.suffix in (".npy", ".jsonl", ".txt")]
        monkeypatch.undo()
        assert export_index(index, tmp_path / "out", "npy").documents == 59
