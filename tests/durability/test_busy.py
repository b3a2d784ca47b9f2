"""Another program has the catalog open: a forgotten sqlite3 shell with a transaction."""

import contextlib
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.store import connections

SHELL = (
    "import sqlite3, sys\n"
    "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    "for statement in sys.argv[2:]:\n"
    "    connection.execute(statement).fetchall()\n"
    "print('open', flush=True)\n"
    "sys.stdin.read()\n"
)
WAIT_MS = 200


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An index of ten documents, with a wait of a fifth of a second for its catalog."""
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document(str(n), f"text {n}") for n in range(10)], np.eye(10, 4) + 0.25)
    monkeypatch.setattr(connections, "_BUSY_TIMEOUT_MS", WAIT_MS)
    return tmp_path / "x.mvx"


@contextlib.contextmanager
def busy(path, *statements):
    """Run the statements on the catalog in another process that keeps it open, for the context."""
    file = path / "generation-000001" / "catalog.sqlite"
    command = [sys.executable, "-c", SHELL, str(file), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout.readline() == "open\n"
        try:
            yield
        finally:
            shell.communicate()


def new(name, text="new"):
    return [mvindex.Document(name, text)], np.ones((1, 1, 4))


WRITES = {
    "add": lambda index: index.add_views(*new("11")),
    "replace": lambda index: index.add_views(*new("3")),
    "delete": lambda index: index.delete(ids="3"),
    "update": lambda index: index.update("3", metadata={"a": 1}),
    "build": lambda index: index.admin.build(kind="flat"),
}


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_writer_waits_then_says_that_the_catalog_is_locked_and_nothing_is_lost(path, begin, write):
    with mvindex.open(path) as index:
        before = [(document.id, document.text, document.metadata) for document in index]
        with busy(path, begin):
            with pytest.raises(StoreError, match=r"catalog.sqlite: database is locked"):
                write(index)
            assert [(document.id, document.text, document.metadata) for document in index] == before
            with mvindex.open(path) as other:
                assert [document.id for document in other] == [document.id for document in index]
        write(index)
    assert mvindex.verify(path).is_sound
    assert not list(path.glob("generation-*/*gone-*"))


def test_readers_do_not_wait_for_a_forgotten_writer(path, tmp_path):
    with mvindex.open(path) as before, busy(path, "BEGIN IMMEDIATE", "DELETE FROM documents"):
        assert len(before.search(np.ones(4), top_k=20).hits) == 10 and not before.refresh()
        with mvindex.open(path) as index:
            assert index.get("3").text == "text 3"
            assert index.admin.snapshot(tmp_path / "s.mvx").documents == 10
        assert mvindex.verify(path).is_sound
    with mvindex.open(path) as index:
        assert len(index) == 10


def test_a_writer_that_waits_long_enough_goes_on(path, monkeypatch):
    monkeypatch.setattr(connections, "_BUSY_TIMEOUT_MS", 30_000)
    file = path / "generation-000001" / "catalog.sqlite"
    command = [sys.executable, "-c", SHELL.replace("sys.stdin.read()", "__import__('time').sleep(0.5)"), str(file)]
    with subprocess.Popen([*command, "BEGIN IMMEDIATE"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout.readline() == "open\n"
        with mvindex.open(path) as index:
            assert index.delete(ids="3") == 1
            assert len(index) == 9


def test_a_forgotten_reader_keeps_the_log_and_blocks_no_writer(path):
    log = path / "generation-000001" / "catalog.sqlite-wal"
    with busy(path, "BEGIN", "SELECT * FROM documents"):
        with mvindex.open(path) as index:
            for number in range(5):
                index.add_views(*new("3", f"text {number}"))
            assert index.admin.compact().dropped == 5
            assert index.get("3").text == "text 4"
    with mvindex.open(path) as index:
        index.delete(ids="4")
        assert len(index) == 9 and index.get("3").text == "text 4"
    assert not log.exists()  # with its generation


def test_a_program_that_locks_readers_out_too_is_named_after_the_wait(path):
    # With commits in the log: they would be missed by reading the database alone.
    with busy(path, "PRAGMA locking_mode=EXCLUSIVE", "UPDATE metadata SET json = json"):
        with pytest.raises(StoreError, match=r"catalog.sqlite.*locked"):
            with mvindex.open(path) as index:
                index.search(np.ones(4))
    with mvindex.open(path) as index:
        assert len(index.search(np.ones(4), top_k=20).hits) == 10


def test_a_catalog_that_another_program_changed_is_not_written_over(path):
    """Delete a document in a shell: the live documents no longer match their checksum."""
    connection = sqlite3.connect(path / "generation-000001" / "catalog.sqlite")
    with connection:
        connection.execute("DELETE FROM documents WHERE id = '3'")
    connection.close()
    with pytest.raises(mvindex.errors.DamagedIndex, match=r"catalog.sqlite"):
        with mvindex.open(path) as index:
            [document.id for document in index]
