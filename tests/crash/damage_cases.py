"""Cases: a sound index, what it answers and holds, now and after each kind of write, and what its bytes belong to."""

import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damage_answers import Answer, Error, ask
from damage_files import Role, files_of
from damage_kits import GENERATION, OLDER, SOUND, Kit
from damage_places import Places
from kill_checks import held_by, wrong_answers
from kill_documents import Held, doc_id, dumped

import mvindex

# What a damaged index is asked to write, and what is then looked at: itself or the copy.
COPY = "copy.mvx"
Write = Callable[[Kit, mvindex.Index, Path], Any]
WRITES: dict[str, Write] = {
    "add": lambda kit, index, folder: kit.add(index, [1, 7, 200], version=4),
    "delete": lambda kit, index, folder: index.delete(ids=[doc_id(6)]),
    "update": lambda kit, index, folder: index.update(doc_id(10), metadata={"group": 2, "late": True}),
    "compact": lambda kit, index, folder: index.compact(),
    "build": lambda kit, index, folder: index.build(kind="flat"),
    "snapshot": lambda kit, index, folder: index.snapshot(folder / COPY),
}


@dataclass(frozen=True, kw_only=True)
class State:
    """What an index answers, and what it holds by id."""

    answers: Mapping[str, Answer]
    held: Mapping[str, Held]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A document row: whose it is, whether it lives, and what it holds."""

    id: str
    is_alive: bool
    held: Held


@dataclass(frozen=True, kw_only=True)
class Case:
    """A sound index. rows: its document rows by number; older: what was ever held under an id, but now is not."""

    kit: Kit
    folder: Path
    now: State
    after: Mapping[str, State]
    rows: Mapping[int, Row]
    older: Mapping[str, list[Held]]
    places: Places

    @property
    def sound(self) -> Path:
        """The sound index, which is copied and never opened."""
        return self.folder / SOUND

    def file(self, role: Role, index: str = SOUND) -> Path | None:
        """Where the file of this index, or of one of the others beside it, stands; None when it has none."""
        return files_of(self.folder / index).get(role)


def make_case(kit: Kit, folder: Path) -> Case:
    """The case, its indexes in the folder; RuntimeError when they are not what their documents say."""
    folder.mkdir(parents=True)
    kit.make(folder)
    older: dict[str, list[Held]] = {}
    for donor in (GENERATION, OLDER, SOUND):
        with copied(folder / donor) as path:
            rows = read_rows(path)
        for row in rows.values():
            older.setdefault(row.id, []).append(row.held)
    with copied(folder / SOUND) as path:
        _check(kit, path)
        now, places = _state(kit, path), Places(path)
    if now.held != {row.id: row.held for row in rows.values() if row.is_alive}:
        raise RuntimeError(f"{folder}: the sound index does not hold what its files hold")
    older = {key: [held for held in each if held != now.held.get(key)] for key, each in older.items()}
    after = {name: _state_after(kit, folder / SOUND, name) for name in WRITES}
    return Case(kit=kit, folder=folder, now=now, after=after, rows=rows, older=older, places=places)


@contextmanager
def copied(index: Path) -> Iterator[Path]:
    """A copy of the index, beside it, that is gone afterwards."""
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
                raise RuntimeError(f"{sound}: its snapshot is another index")
            shutil.rmtree(path.parent / COPY)
        return state


def _check(kit: Kit, path: Path) -> None:
    """Nothing; RuntimeError where the sound index answers otherwise than brute force."""
    with kit.open(path) as index:
        faults = list(wrong_answers(index, held_by(index)))
    if faults:
        raise RuntimeError(f"{path}: {faults}")


def _state(kit: Kit, path: Path) -> State:
    """What a sound index answers and holds."""
    answers = ask(kit, path)
    refused = [answer for answer in answers.values() if isinstance(answer, Error)]
    if refused:
        raise RuntimeError(f"{path}: {refused[0]}")
    with kit.open(path) as index:
        return State(answers=answers, held=held_by(index))


def read_rows(index: Path) -> dict[int, Row]:
    """All document rows, living or retired, straight from the files."""
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
        rows[number] = Row(id=key, is_alive=bool(is_alive), held=Held(ordinal, title, text, *parts))
    return rows
