"""mvindex grep: hits of a folder by terms and meaning, a hidden index that follows the folder, and exit codes."""

import fcntl
import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from mvindex.cli.grep import _as_line
from mvindex.index.factory import open_local
from mvindex.io import hidden
from mvindex.records import Citation, Hit
from mvindex.store import schema
from tests.helpers.cli import COMMAND, mvindex, ok
from tests.helpers.folders import write

OIL = "# Oil\n\nAn introduction.\n\n## The embargo\n\nIt had causes.\nThe embargo began in October 1973.\n"
CODE = 'def fetch(url, tries=3):\n    """Ask again where the server does not answer."""\n    return url\n'


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "notes", **{"oil.md": OIL, "sub/plague.txt": "The plague came in 1348.\n", "src/get.py": CODE})
    return tmp_path / "notes"


@pytest.fixture
def settled(monkeypatch):
    """Files count as unchanged at once, not only 2 s after they were written."""
    monkeypatch.setattr(hidden, "SETTLED_NS", -(10**12))


def grep(notes, *args, code=0):
    done = mvindex("grep", *args, cwd=notes)
    assert done.returncode == code, done.stderr
    return done


def hits(notes, *args, code=0):
    return [json.loads(line) for line in grep(notes, *args, "--json", code=code).stdout.splitlines()]


def place_of(notes):
    return Path(grep(notes, "--where").stdout.strip())


def test_the_best_hit_is_a_sentence_with_file_and_line(notes):
    done = grep(notes, "when did the embargo begin?")
    assert done.stdout.splitlines()[0] == "oil.md:8: The embargo began in October 1973."
    assert done.stderr == ""


def test_a_folder_that_is_named_begins_the_paths(notes):
    first = ok(mvindex("grep", "plague", "notes/sub", cwd=notes.parent)).stdout
    assert first == "notes/sub/plague.txt:1: The plague came in 1348.\n"


def test_meaning_finds_what_shares_no_word_with_the_query(notes):
    [first, *_] = hits(notes, "epidemic of medieval times")
    assert (first["file"], first["line"]) == ("sub/plague.txt", 1) and first["dense"] > 0.4
    assert hits(notes, "epidemic of medieval times", "--mode", "lexical", code=1) == []


def test_json_has_place_text_and_the_score_of_each_ranking(notes):
    [first, *_] = hits(notes, "embargo", "-n", "1")
    assert {name: first[name] for name in ("file", "line", "page")} == {"file": "oil.md", "line": 8, "page": None}
    assert first.keys() == {"file", "line", "page", "text", "id", "dense", "lexical"}


def test_no_hit_exits_with_1_and_prints_nothing(notes):
    assert grep(notes, "xyzzyqwerty", code=1).stdout == ""
    assert grep(notes, "xyzzyqwerty", "--mode", "lexical", code=1).stdout == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("word", "nowhere"), "nowhere: expected a folder, got nothing"),
        (("word", "oil.md"), "oil.md: expected a folder, got a file"),
        (("word", "-g", "#"), "include: expected patterns as in .gitignore"),
        ((" ",), "expected words to search for, got none"),
        (("word", "--mode", "x"), "--mode: expected"),
    ],
)
def test_an_error_exits_with_2(notes, args, message):
    assert message in grep(notes, *args, code=2).stderr


def test_a_second_run_reads_no_file_and_encodes_no_passage(notes, settled, monkeypatch):
    first = grep(notes, "embargo").stdout
    for name in ("_sync", "_encode"):
        monkeypatch.setattr(hidden.HiddenIndex, name, None)
    assert grep(notes, "embargo").stdout == first


def test_files_written_just_before_a_run_are_read_once_more(notes, monkeypatch):
    # Private: how often files were read, the output does not show.
    runs, sync = [], hidden.HiddenIndex._sync
    monkeypatch.setattr(hidden.HiddenIndex, "_sync", lambda *args: runs.append(sync(*args)))
    monkeypatch.setattr(hidden, "SETTLED_NS", 10**15)
    grep(notes, "embargo", "--mode", "lexical")
    monkeypatch.setattr(hidden, "SETTLED_NS", -(10**12))
    for _ in range(3):
        grep(notes, "embargo", "--mode", "lexical")
    assert len(runs) == 2


def test_passages_are_encoded_in_turn_over_the_files(notes, settled):
    grep(notes, "embargo", "--mode", "lexical")
    with open_local(place_of(notes) / "index.mvx") as index:
        files = [document.metadata["file"] for document in index.get(hidden._bare_ids(index))]
    assert files == ["oil.md", "src/get.py", "sub/plague.txt", "oil.md"]


def test_a_search_does_not_wait_for_a_run_that_encodes(notes, settled, monkeypatch):
    grep(notes, "embargo", "--mode", "lexical")
    lock_file = fcntl.flock

    def refuse_to_wait(file, operation):
        assert operation & fcntl.LOCK_NB, "it waits"
        lock_file(file, operation)

    with (place_of(notes) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", refuse_to_wait)
        assert grep(notes, "embargo").stdout.startswith("oil.md:8: ")


def test_terms_of_english_are_stems(notes):
    assert [one["file"] for one in hits(notes, "rising embargoes", "--mode", "lexical")] == ["oil.md"]


def test_what_changes_in_the_folder_is_found_at_once(notes, settled):
    grep(notes, "embargo")
    write(
        notes, **{"sub/plague.txt": "Rats carried the fleas.\n", "new.md": "Cheese is made of milk.\n", "oil.md": None}
    )
    assert hits(notes, "embargo", "--mode", "lexical", code=1) == []
    assert [one["file"] for one in hits(notes, "fleas", "--mode", "lexical")] == ["sub/plague.txt"]
    assert hits(notes, "dairy product")[0]["file"] == "new.md"
    for file in notes.rglob("*.*"):
        file.unlink()
    assert "no file that can be read" in grep(notes, "cheese", code=1).stderr


def test_glob_searches_some_files_only(notes):
    files = {one["file"] for one in hits(notes, "the embargo of the server", "--mode", "lexical")}
    assert files == {"oil.md", "src/get.py", "sub/plague.txt"}
    for patterns, kept in (
        (("-g", "*.py"), {"src/get.py"}),
        (("-g", "!src/", "-g", "!*.md"), {"sub/plague.txt"}),
        (("-g", "s*/", "-g", "!*.py"), {"sub/plague.txt"}),
    ):
        found = hits(notes, "the embargo of the server", "--mode", "lexical", *patterns)
        assert {one["file"] for one in found} == kept
    assert hits(notes, "embargo", "-g", "*.rs", code=1) == []


def test_what_the_budget_leaves_is_found_by_words_and_encoded_by_a_later_run(notes, settled):
    done = grep(notes, "embargo", "--budget", "0")
    assert done.stdout.startswith("oil.md:8: ")
    assert "0 of 4 passages are found by meaning too" in done.stderr
    assert hits(notes, "epidemic disease", code=1) == []
    # What is new is encoded, what was deferred is not.
    write(notes, **{"new.md": "Cheese is made of milk.\n"})
    done = grep(notes, "dairy product")
    assert done.stdout.startswith("new.md:1: ") and "1 of 5 passages are found by meaning too" in done.stderr
    done = grep(notes, "epidemic disease of the middle ages", "--budget", "60")
    assert done.stdout.startswith("sub/plague.txt:1: ") and done.stderr == ""


def test_a_search_for_words_encodes_nothing_and_leaves_that_to_the_next(notes, settled, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(hidden.HiddenIndex, "_encode", None)
        assert grep(notes, "embargo", "--mode", "lexical").stderr == ""
    assert hits(notes, "epidemic disease of the middle ages")[0]["file"] == "sub/plague.txt"


def test_files_that_are_not_text_or_not_of_the_folder_are_left_out(notes, tmp_path):
    write(tmp_path, **{"secret.txt": "A secret embargo.\n"})
    write(
        notes,
        **{
            "ünïcode 日本.md": "Embargo on fish.\n",
            "a\nb.md": "The embargo.",
            "a.txt": b"embargo\0\1",
            ".hidden.md": "embargo",
        },
    )
    (notes / "link.txt").symlink_to(tmp_path / "secret.txt")
    (notes / "folder").symlink_to(tmp_path)
    (notes / "loop").symlink_to(notes)
    done = grep(notes, "embargo", "--mode", "lexical")
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines()) == ["oil.md", "ünïcode 日本.md"]
    assert "a.txt: holds a NUL" in done.stderr and "holds a control character; rejected" in done.stderr


def test_an_empty_folder_has_no_hits_until_a_file_comes(tmp_path, notes, settled):
    (tmp_path / "empty").mkdir()
    done = mvindex("grep", "embargo", "empty", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "empty: no file that can be read; left out: nothing\n"
    write(tmp_path / "empty", **{"a.md": "The embargo.\n"})
    assert ok(mvindex("grep", "embargo", "empty", cwd=tmp_path)).stdout == "empty/a.md:1: The embargo.\n"


def test_a_folder_without_permission_is_an_error_and_one_below_is_named(notes, settled, monkeypatch):
    listed = os.scandir

    def refuse(path):
        if os.path.basename(os.path.normpath(path)) == refused:
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    refused = "notes"
    assert "notes: cannot be read: Permission denied" in grep(notes, "plague", code=2).stderr
    refused = "sub"
    done = grep(notes, "plague came", "--mode", "lexical", code=1)
    assert "sub/: the folder cannot be read: Permission denied" in done.stderr
    refused = ""
    assert grep(notes, "plague", "--mode", "lexical").stdout == "sub/plague.txt:1: The plague came in 1348.\n"


def test_the_index_is_private_to_its_user(notes):
    grep(notes, "embargo")
    place = place_of(notes)
    assert place.parent.name == "grep"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place.parent, place)] == [0o700, 0o700]


@pytest.mark.parametrize("damaged", ["manifest.json", "deferred.json", "index.mvx/current.json", "index.mvx"])
def test_a_damaged_index_is_made_again(notes, settled, damaged):
    first = grep(notes, "embargo").stdout
    file = place_of(notes) / damaged
    if file.is_dir():
        file.rename(file.with_name("elsewhere"))
    else:
        file.write_text("{")
    again = grep(notes, "embargo")
    assert again.stdout == first
    assert ("the hidden index is made again: " in again.stderr) == (damaged == "index.mvx/current.json")


@pytest.mark.parametrize("is_changed", [False, True], ids=["same files", "other files"])
@pytest.mark.parametrize(
    "changed, message",
    [
        ({"lexical": "english"}, "expected terms of version 2, got 1"),
        ({"encoder": {"fingerprint": "old", "dim": 384}}, "expected views of the encoder .*, got those of old"),
    ],
    ids=["terms", "encoder"],
)
def test_an_index_of_an_older_version_is_made_again(notes, settled, changed, message, is_changed):
    first = grep(notes, "embargo").stdout
    [catalog_path] = place_of(notes).glob("index.mvx/*/catalog.sqlite")
    with closing(sqlite3.connect(catalog_path)) as connection, connection:
        schema.write_settings(connection, changed)
    if is_changed:
        write(notes, **{"other.md": "Nothing of it.\n"})
    again = grep(notes, "embargo")
    assert again.stdout == first
    assert re.search(f"the hidden index is made again: .*{message}", again.stderr), again.stderr
    assert "made again" not in grep(notes, "embargo").stderr


def start(notes, *args):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*COMMAND, "grep", *args]
    return subprocess.Popen(
        command,
        cwd=notes,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell has its background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_two_at_once_print_the_same(notes):
    write(notes, **{f"{number}.md": f"# Part {number}\n\nThe embargo of {number}.\n" for number in range(150)})
    both = [start(notes, "embargo", "--mode", "lexical") for _ in range(2)]
    (first, _), (second, _) = [each.communicate(timeout=300) for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert len(first.splitlines()) == 10 and first == second


def has_open(process, path):
    """Return whether a process has a file open."""
    try:
        return path in {entry.readlink() for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    except FileNotFoundError:  # one of them was closed meanwhile
        return False


def test_an_interrupted_run_is_completed_by_the_next(notes):
    write(notes, **{f"{number}.md": f"# Part {number}\n\nThe embargo of {number}.\n" for number in range(300)})
    lock = place_of(notes) / "lock"
    interrupted = 0
    for wait_s in (0, 0.3, 1):
        child = start(notes, "embargo")
        # A machine may be so quick that a run ends before it is seen to write.
        while child.poll() is None and not has_open(child, lock):
            time.sleep(0.02)
        time.sleep(wait_s)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=60)
        interrupted += child.returncode == 130
        # It may have printed all, and be leaving: Python gives the signal back to the system then.
        assert child.returncode in (0, 130, -signal.SIGINT) and "Traceback" not in told, told
    assert interrupted
    assert {one["file"] for one in hits(notes, "embargo", "-n", "400", "--mode", "lexical")} == {
        "oil.md",
        *(f"{number}.md" for number in range(300)),
    }


def test_a_terminal_shows_the_words_in_colour(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = "They retry.\n"
    cited = Citation(text=text, start=0, end=len(text), why={}, file="a.md", line=7)
    hit = Hit("a", 1.0, 0, (0, 12), text, text, "", {"file": "a.md", "line": 7}, citation=cited)
    shown = "\x1b[35ma.md\x1b[0m:\x1b[32m7\x1b[0m: They \x1b[1;31mretry\x1b[0m."
    assert _as_line(hit, "", {"retry"}) == shown
    assert _as_line(hit, "", {"retries"}) == shown.replace("\x1b[1;31mretry\x1b[0m", "retry")
