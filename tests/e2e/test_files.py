"""Folders and files through the command line: ingest, sync, citations, watching."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import mvindex as package
from mvindex.io.sync import run
from tests.helpers.cli import lines, mvindex, ok
from tests.helpers.folders import Counting, write

OIL = "# Oil\n\nAn introduction.\n\n## The embargo\n\nIt had causes.\nThe embargo began in October 1973.\n"


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "notes", **{"oil.md": OIL, "sub/plague.txt": "The plague came in 1348.\n", "x.png": "x"})
    return tmp_path / "notes"


def test_ingest_of_a_folder_and_a_query_lead_back_to_the_line(notes, tmp_path):
    done = ok(mvindex("ingest", "notes/", "--json", cwd=tmp_path))
    report = json.loads(done.stdout)
    assert (report["added"], report["rejected"]) == (3, 0)
    assert "left out: 1 without a reader (.png) (x.png)" in done.stderr
    [found] = lines(mvindex("query", "when did the embargo begin?", "-k", "1", "--json", cwd=tmp_path))
    [hit] = found["hits"]
    assert hit["id"] == "notes/oil.md#oil/the-embargo"
    place = {name: hit["citation"][name] for name in ("text", "file", "line")}
    assert place == {"text": "The embargo began in October 1973.", "file": "oil.md", "line": 8}
    assert "(oil.md, line 8)" in ok(mvindex("query", "when did the embargo begin?", "-k", "1", cwd=tmp_path)).stdout


def test_ingest_rejects_a_broken_file_of_a_folder_and_fails_in_the_end(notes, tmp_path):
    write(notes, **{"a.md": b"a\0"})
    done = mvindex("ingest", "notes", "--json", cwd=tmp_path)
    assert done.returncode == 1 and json.loads(done.stdout)["rejected_files"] == 1
    assert "a.md: holds a NUL at character 2; expected text; file rejected" in done.stderr
    [reason] = (tmp_path / "notes.rejects.reasons.jsonl").read_text().splitlines()
    assert json.loads(reason)["reason"] == "holds a NUL at character 2; expected text"
    assert ok(mvindex("ingest", "notes", "--on-error", "skip", cwd=tmp_path))


def test_ingest_rejects_bad_rows_of_a_folder_and_goes_on(notes, tmp_path):
    write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n{"id": "2", "te', "b.csv": "id,text\n1,x\n1,y\n"})
    write(notes, **{"adr.md": "---\ntitle: ADR 1: Use Postgres\n---\nWe use it.\n", "c.json": '{"a": 1'})
    done = mvindex("ingest", "notes", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert [report[name] for name in ("added", "rejected", "rejected_files", "warnings")] == [6, 2, 1, 1]
    for told in (
        "a.jsonl:2: invalid JSON at character 12",
        "b.csv:3: id 'notes/b.csv#1' occurs at",
        "c.json: expected JSON, got what is damaged or cut at line 1, column 8",
        "adr.md:2: front matter: expected YAML, got 'title: ADR 1: Use Postgres'",
    ):
        assert told in done.stderr
    # A file of rejects, ingested, would give both rows the ids "1" and "2", without their folder and file.
    assert [path.name for path in tmp_path.glob("*.rejects*")] == ["notes.rejects.reasons.jsonl"]
    assert "\ncorrect the files of the folder, and run the same command again\n" in done.stderr


def test_a_name_with_an_escape_code_does_not_reach_the_terminal(tmp_path):
    write(tmp_path / "f", **{"a\x1b[2J.txt": "x"})
    done = mvindex("ingest", "f", cwd=tmp_path)
    assert "a␛[2J.txt: id" in done.stderr and "\x1b" not in done.stderr + done.stdout


@pytest.mark.parametrize("first", ["ingest", "sync"])
def test_ingest_refuses_another_folder_of_the_same_name(notes, tmp_path, first):
    write(tmp_path / "b" / "notes", **{"oil.md": "# Other oil\n\nOf olives.\n"})
    ok(mvindex(first, "notes", "--index", "i.mvx", cwd=tmp_path))
    done = mvindex("ingest", "b/notes", "--index", "i.mvx", cwd=tmp_path)
    assert done.returncode == 1 and f"another folder named 'notes', {notes}. If it was moved" in done.stderr
    with package.open(tmp_path / "i.mvx") as index:
        assert len(index) == 3 and index.get("notes/oil.md#oil").text.endswith("An introduction.")
    ok(mvindex("sync", "b/notes", "--index", "i.mvx", "--name", "other", cwd=tmp_path))
    ok(mvindex("ingest", "notes", "--index", "i.mvx", cwd=tmp_path))


def test_ingest_of_a_broken_file_by_name_is_an_error_unless_skipped(notes, tmp_path):
    write(notes, **{"a.md": b"a\0"})
    done = mvindex("ingest", "notes/a.md", "notes/oil.md", cwd=tmp_path, input="")
    assert done.returncode == 1 and "notes/a.md: holds a NUL" in done.stderr
    done = ok(mvindex("ingest", "notes/a.md", "notes/oil.md", "--on-error", "skip", "--json", cwd=tmp_path))
    assert json.loads(done.stdout)["added"] == 2


def sync(tmp_path, *options, code=0):
    done = mvindex("sync", "notes", "--index", "i.mvx", "--json", *options, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def test_sync_adds_changes_deletes_and_proves_it(notes, tmp_path):
    dry, _ = sync(tmp_path, "--dry-run")
    assert (dry["files_added"], dry["equal"]) == (2, False) and not (tmp_path / "i.mvx").exists()
    first, _ = sync(tmp_path)
    assert (first["files_added"], first["documents_encoded"], first["equal"]) == (2, 3, True)
    assert first["in_folder"] == first["in_index"] and first["in_folder"]["passages"] == 3
    assert sync(tmp_path)[0]["documents_encoded"] == 0
    write(notes, **{"oil.md": OIL.replace("1973", "1974"), "sub/plague.txt": None, "new.md": "new"})
    checked, _ = sync(tmp_path, "--check", code=1)
    assert checked["differing_files"] == ["new.md", "oil.md", "sub/plague.txt"]
    second, _ = sync(tmp_path)
    counts = [second[f"files_{kind}"] for kind in ("added", "changed", "deleted", "unchanged")]
    assert counts == [1, 1, 1, 0] and (second["documents_encoded"], second["documents_deleted"]) == (2, 1)
    assert sync(tmp_path, "--check")[0]["equal"]


def test_sync_with_a_broken_file_exits_with_1_and_keeps_its_passages(notes, tmp_path):
    sync(tmp_path)
    write(notes, **{"oil.md": b"\0"})
    report, told = sync(tmp_path, code=1)
    assert report["stale"] == ["oil.md"] and "1 files cannot be read, or not all of their rows" in told
    assert ok(mvindex("get", "notes/oil.md#oil", "--index", "i.mvx", cwd=tmp_path))


def test_sync_after_ingest_takes_its_documents_over(notes, tmp_path):
    ok(mvindex("ingest", "notes", "--index", "i.mvx", cwd=tmp_path))
    report, _ = sync(tmp_path)
    assert (report["files_unchanged"], report["documents_encoded"], report["equal"]) == (2, 0, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--watch", "--check"), "--watch: expected without --dry-run and --check"),
        (("--check", "--force"), "--check: changes nothing; expected it without --dry-run and --force"),
        (("--include", "!"), "include: expected patterns as in .gitignore"),
        (("--name", "a/b"), "expected a folder name without / and #, got 'a/b'"),
    ],
)
def test_wrong_options_are_named(notes, tmp_path, options, told):
    done = mvindex("sync", "notes", "--index", "i.mvx", *options, cwd=tmp_path)
    assert done.returncode in (1, 2) and told in done.stderr
    assert not (tmp_path / "i.mvx").exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    done = mvindex("sync", "nowhere", "--index", "i.mvx", cwd=tmp_path)
    assert done.returncode == 1 and "nowhere: expected a folder, got nothing" in done.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        ((), "stopping after this chunk; press Ctrl-C again to stop at once (stored documents are safe)"),
        (("--check",), "stopping after this row; press Ctrl-C again to stop at once (nothing is changed)"),
        (("--dry-run",), "stopping after this row; press Ctrl-C again to stop at once (nothing is changed)"),
    ],
    ids=["sync", "check", "dry run"],
)
def test_ctrl_c_stops_a_sync_that_says_it_is_not_complete(notes, tmp_path, monkeypatch, options, message):
    sync(tmp_path)
    # Private: an interruption between two files.
    read = run._Sync._read

    def interrupt(self, file):
        os.kill(os.getpid(), signal.SIGINT)
        return read(self, file)

    monkeypatch.setattr(run._Sync, "_read", interrupt)
    report, told = sync(tmp_path, *options, code=1)
    assert message in told and "stopped before the end" in told
    assert (report["stopped"], report["equal"], report["differing"]) == (True, False, 0)


def test_watch_syncs_again_when_files_change_and_ends_at_ctrl_c(notes, tmp_path):
    pytest.importorskip("watchfiles")
    ok(mvindex("sync", "notes", "--index", "notes/i.mvx", cwd=tmp_path))
    command = [sys.executable, "-m", "mvindex", "sync", "notes", "--index", "notes/i.mvx", "--watch", "--json"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert json.loads(child.stdout.readline())["files_unchanged"] == 2
        while "watching" not in child.stderr.readline():
            assert child.poll() is None
        time.sleep(1)  # until the watcher has begun
        write(notes, **{"new.md": "new text"})
        report = json.loads(child.stdout.readline())
        assert report["files_added"] == 1 and report["equal"]
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (out, child.returncode) == ("", 0) and "Traceback" not in err


def test_python_reads_and_syncs_folders(notes, tmp_path):
    with package.create(tmp_path / "p.mvx", encoder=Counting().encoder()) as index:
        index.add(package.read_files(notes, exclude=["sub/"]))
        assert len(index) == 2
        report = package.sync_folder(index, notes, package.SyncOptions(passage_words=100))
        assert isinstance(report, package.SyncReport) and report.is_complete and len(index) == 3


def test_a_folder_is_found_from_anywhere_by_one_name(notes, tmp_path):
    ok(mvindex("sync", "notes", "--index", "i.mvx", cwd=tmp_path))
    done = ok(mvindex("sync", ".", "--index", os.path.join("..", "i.mvx"), "--json", cwd=notes))
    assert json.loads(done.stdout)["files_unchanged"] == 2
