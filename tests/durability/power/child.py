"""The program that runs under strace: operations in turn, each in its own folder; and ways to break their order.

    python -m tests.durability.power.child FOLDER CASES.json

CASES.json is a list of {"operation": name, "breakage": name or null}.

Case n works in FOLDER/n. FOLDER/../marks gets a line "n/ack STATE" for every acknowledgement and, from the announced
steps, lines "n/step MOMENT STEP PATH".
"""

import contextlib
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from mvindex.durable import EVENT
from mvindex.store.connections import ReadConnection
from tests.durability.operations import small_chunks
from tests.durability.power.operations import OPERATIONS


def marks_of(folder: Path) -> Path:
    """Return the file that gets the marks of cases in this folder."""
    return folder.with_name("marks")


class Marks:
    """Write lines, one call each, that the log of calls then contains."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(marks_of(folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.folder = folder
        self.case = 0

    def acknowledge(self, state: int) -> None:
        self._write(f"ack {state}")

    def hear(self, event: str, arguments: tuple) -> None:
        if event == EVENT:
            moment, step, path = arguments
            self._write(f"step {moment} {step} {_there(path)} {os.path.relpath(path, self.folder / str(self.case))}")

    def _write(self, text: str) -> None:
        os.write(self._handle, f"{self.case}/{text}\n".encode())


def _there(path: str) -> str:
    """Return what is at the path: folder, file, empty (file) or gone."""
    if not os.path.lexists(path):
        return "gone"
    return "folder" if os.path.isdir(path) else "file" if os.path.getsize(path) else "empty"


def main(folder: Path, cases: list[dict]) -> None:
    small_chunks()
    marks = Marks(folder)
    sys.addaudithook(marks.hear)
    for marks.case, case in enumerate(cases):
        with BREAKAGES[case["breakage"]]() if case["breakage"] else contextlib.nullcontext():
            OPERATIONS[case["operation"]].run(folder / str(marks.case), marks.acknowledge)


@contextlib.contextmanager
def no_fsync() -> Iterator[None]:
    """Let Python never fsync; SQLite still does."""
    with patch.object(os, "fsync", lambda handle: None):
        yield


@contextlib.contextmanager
def no_fsync_of_folders() -> Iterator[None]:
    """Fsync only files."""
    fsync = os.fsync

    def only_files(handle: int) -> None:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            fsync(handle)

    with patch.object(os, "fsync", only_files):
        yield


@contextlib.contextmanager
def no_flush() -> Iterator[None]:
    """Leave out the store's own fsyncs by name, of folders and of finished files, with their announcements."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("mvindex") and hasattr(module, "flush_to_disk"):
                stack.enter_context(patch.object(module, "flush_to_disk", lambda path: None))
        yield


@contextlib.contextmanager
def fsync_after_the_commit() -> Iterator[None]:
    """Fsync everything, but only after SQLite has committed."""
    fsync, waiting = os.fsync, []

    def committed() -> None:
        for handle in waiting:
            fsync(handle)
            os.close(handle)
        waiting.clear()

    with patch.object(os, "fsync", lambda handle: waiting.append(os.dup(handle))), _sqlite(after_commit=committed):
        yield


@contextlib.contextmanager
def no_sync_of_sqlite() -> Iterator[None]:
    """Let the kernel decide when SQLite's pages reach the disk."""
    with _sqlite(rewrite=lambda sql: sql.replace("synchronous=FULL", "synchronous=OFF")):
        yield


@contextlib.contextmanager
def _sqlite(
    rewrite: Callable[[str], str] = lambda sql: sql, after_commit: Callable[[], None] = lambda: None
) -> Iterator[None]:
    class Connection(ReadConnection):
        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            cursor = super().execute(rewrite(sql), *parameters)
            if sql == "COMMIT":
                after_commit()
            return cursor

    connect = sqlite3.connect
    with patch.object(sqlite3, "connect", lambda *args, **options: connect(*args, **options | {"factory": Connection})):
        yield


BREAKAGES = {
    breakage.__name__: breakage
    for breakage in (no_fsync, no_fsync_of_folders, no_flush, fsync_after_the_commit, no_sync_of_sqlite)
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
