"""Cases: a sound index, its answers and content now and after each kind of write."""

import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mvindex
from tests.durability.checks import stored_in, wrong_answers
from tests.durability.damage.answers import Answer, Error, ask
from tests.durability.damage.files import Role, files_of
from tests.durability.damage.kits import GENERATION, OLDER, SOUND, Kit
from tests.durability.documents import Stored, doc_id, dumped

# The writes that are tried on a damaged index; a snapshot makes the copy.
COPY = "copy.mvx"
Write = Callable[[Kit, mvindex.Index, Path], Any]
WRITES: dict[str, Write] = {
    "add": lambda kit, index, folder: kit.add(index, [1, 7, 200], version=4),
    "delete": lambda kit, index, folder: index.delete(ids=[doc_id(6)]),
    "update": lambda kit, index, folder: index.update(doc_id(10), metadata={"group": 2, "late": True}),
    "compact": lambda kit, index, folder: index.admin.compact(),
    "build": lambda kit, index, folder: index.admin.build(kind="flat"),
    "snapshot": lambda kit, index, folder: index.admin.snapshot(folder / COPY),
}


@dataclass(frozen=True, kw_only=True)
class State:
    """The answers of an index, and its content by id."""

    answers: Mapping[str, Answer]
    stored: Mapping[str, Stored]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A document row: its id, whether it is live, its content, and where its views are in their file, in bytes."""

    id: str
    is_alive: bool
    stored: Stored
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """A sound index. rows: its document rows by number; older: former contents by id."""

    kit: Kit
    folder: Path
    now: State
    after: Mapping[str, State]
    rows: Mapping[int, Row]
    older: Mapping[str, list[Stored]]

    @property
    def sound(self) -> Path:
        """Return the sound index, which is copied and never opened."""
        return self.folder / SOUND

    def file(self, role: Role, index: str = SOUND) -> Path | None:
        """Return the file of this index, or of another one beside it; None when it has none."""
        return files_of(self.folder / index).get(role)


def make_case(kit: Kit, folder: Path) -> Case:
    """Make the case and its indexes in the folder; raise RuntimeError when the sound one is not what it should be."""
    folder.mkdir(parents=True)
    kit.make(folder)
    older: dict[str, list[Stored]] = {}
    for donor in (GENERATION, OLDER, SOUND):
        with copied(folder / donor) as path:
            rows = read_rows(path)
        for row in rows.values():
            older.setdefault(row.id, []).append(row.stored)
    with copied(folder / SOUND) as path:
        _check(kit, path)
        now = _state(kit, path)
    if now.stored != {row.id: row.stored for row in rows.values() if row.is_alive}:
        raise RuntimeError(f"{folder}: expected the index to store what its files do")
    older = {key: [stored for stored in each if stored != now.stored.get(key)] for key, each in older.items()}
    after = {name: _state_after(kit, folder / SOUND, name) for name in WRITES}
    return Case(kit=kit, folder=folder, now=now, after=after, rows=rows, older=older)


@contextmanager
def copied(index: Path) -> Iterator[Path]:
    """Copy the index beside it for the duration of the context."""
    path = index.with_name("copied.mvx")
    shutil.copytree(index, path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _state_after(kit: Kit, sound: Path, name: str) -> State:
    with copied(sound) as path:
        with kit.open(path) as index:
            WRITES[name](kit, index, path.parent)
        state = _state(kit, path)
        if name == "snapshot":
            if _state(kit, path.parent / COPY) != state:
                raise RuntimeError(f"{sound}: expected its snapshot to be the same index")
            shutil.rmtree(path.parent / COPY)
        return state


def _check(kit: Kit, path: Path) -> None:
    """Raise RuntimeError where the sound index differs from brute force."""
    with kit.open(path) as index:
        faults = list(wrong_answers(index, stored_in(index)))
    if faults:
        raise RuntimeError(f"{path}: {faults}")


def _state(kit: Kit, path: Path) -> State:
    """Return the answers and the content of a sound index."""
    answers = ask(kit, path)
    refused = [answer for answer in answers.values() if isinstance(answer, Error)]
    if refused:
        raise RuntimeError(f"{path}: {refused[0]}")
    with kit.open(path) as index:
        return State(answers=answers, stored=stored_in(index))


def read_rows(index: Path) -> dict[int, Row]:
    """Read all document rows, live or deleted, directly from the files."""
    files = files_of(index)
    content = files[Role.VIEWS].read_bytes()
    with closing(sqlite3.connect(files[Role.CATALOG])) as connection:
        (dim,) = connection.execute("SELECT value FROM settings WHERE key = 'dim'").fetchone()
        found = connection.execute(
            "SELECT doc_row, id, alive, ordinal, title, text, json, spans, view_start, num_views "
            "FROM documents JOIN texts USING (doc_row) JOIN metadata USING (doc_row)"
        ).fetchall()
    size = int(dim) * (4 if files[Role.VIEWS].suffix == ".f32" else 2)
    rows = {}
    for number, key, is_alive, ordinal, title, text, metadata, spans, begin, count in found:
        pairs = struct.unpack(f"<{2 * count}i", spans) if spans else (-1,) * (2 * count)
        views = content[begin * size : (begin + count) * size]
        parts = (dumped(json.loads(metadata)), tuple(zip(pairs[::2], pairs[1::2], strict=True)), views)
        stored = Stored(ordinal, title, text, *parts)
        rows[number] = Row(
            id=key, is_alive=bool(is_alive), stored=stored, begin=begin * size, end=(begin + count) * size
        )
    return rows
