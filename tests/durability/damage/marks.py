"""The effect of a damage, computed from outside: the documents it touches, and whether it can be noticed."""

import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.durability.damage.cases import Case
from tests.durability.damage.files import Role, files_of
from tests.durability.damage.kinds import Damage, changed_bytes

_OF_DOCUMENTS = ("documents", "texts", "metadata")
_OTHERS = ("settings", "files", "blocks", "id_ranges")
_FOREIGN = ("link", "directory", "pipe")
_OF_CATALOG = (Role.CATALOG, Role.LOG)


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The effect of a damage.

    touched: document rows that differ, as SQLite reads them, or whose views do; all where SQLite reads no catalog.
    changed: those of them that are still there. is_readable: SQLite reads the whole catalog. must_be_seen: verify must
    report it; may_be_seen: it may.
    """

    touched: frozenset[int]
    changed: frozenset[int]
    is_readable: bool
    must_be_seen: bool
    may_be_seen: bool


@dataclass(frozen=True, kw_only=True)
class Content:
    """The rows of a catalog as SQLite reads them: of documents by table and number, and all others."""

    rows: dict[tuple[str, int], tuple]
    others: list[list[tuple]]


def marks_of(case: Case, damage: Damage, index: Path) -> Marks:
    """Return what the damage amounts to on this copy of the case's index."""
    role, is_foreign = damage.role, damage.kind in _FOREIGN
    is_changed = changed_bytes(case, index, role)
    touched = changed = frozenset[int]()
    is_readable = True
    if role is Role.VIEWS:
        touched = changed = frozenset(
            number for number, row in case.rows.items() if is_changed[row.begin : row.end].any()
        )
    if role in _OF_CATALOG and not is_foreign:
        content, sound = content_of(index), _sound_content(case.sound)
        is_readable = content is not None
        must, may = content != sound, content != sound or (is_changed.any() and role is Role.CATALOG)
        touched, changed = _touched(content, sound)
    elif role in _OF_CATALOG:
        must, may, is_readable, touched = True, True, False, frozenset(case.rows)
    elif role.is_transient:
        must = may = is_foreign
    elif role is Role.ACKNOWLEDGED:
        must, may = not _is_acknowledgement(case, index), True
    elif role is Role.CURRENT:
        must, may = is_foreign or _json_of(case, index) != _json_of(case, case.sound), True
    else:
        must = may = is_changed.any() or (damage.kind == "extended" and role is Role.ENGINE)
    return Marks(
        touched=touched,
        changed=changed,
        is_readable=is_readable,
        must_be_seen=bool(must),
        may_be_seen=bool(may),
    )


def _touched(content: Content | None, sound: Content) -> tuple[frozenset[int], frozenset[int]]:
    """Return the document rows that differ from the sound ones, and those of them that are still complete."""
    if content is None:
        return frozenset(number for _, number in sound.rows), frozenset()
    numbers = {number for _, number in {*sound.rows, *content.rows}}
    touched = {
        number
        for number in numbers
        if any(content.rows.get((table, number)) != sound.rows.get((table, number)) for table in _OF_DOCUMENTS)
    }
    complete = {number for number in touched if all((table, number) in content.rows for table in _OF_DOCUMENTS)}
    return frozenset(touched), frozenset(complete & {number for _, number in sound.rows})


def _is_acknowledgement(case: Case, index: Path) -> bool:
    """Return whether the file is sound and names no later version than the sound one, which may happen."""
    path = index / case.file(Role.ACKNOWLEDGED).relative_to(case.sound)
    if not path.is_file() or path.is_symlink():
        return False
    found, sound = path.read_bytes(), case.file(Role.ACKNOWLEDGED).read_bytes()
    known = [sound, *(each.read_bytes() for each in case.folder.rglob(Role.ACKNOWLEDGED.value))]
    return found in known and found[:20] <= sound[:20]


def _json_of(case: Case, index: Path) -> Any:
    """Return the value of current.json, its bytes where it is not JSON, None where it is gone."""
    path = index / case.file(Role.CURRENT).relative_to(case.sound)
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return path.read_bytes()


@lru_cache
def _sound_content(index: Path) -> Content:
    content = content_of(index)
    if content is None:
        raise RuntimeError(f"{index}: expected a sound catalog")
    return content


def content_of(index: Path) -> Content | None:
    """Read all rows of the catalog with SQLite, by tables and by indexes; return None where it cannot read them."""
    found = files_of(index)
    with tempfile.TemporaryDirectory(dir=index.parent) as folder:
        for role in _OF_CATALOG:
            if role in found and not found[role].is_symlink():
                shutil.copyfile(found[role], Path(folder, role.value))
        try:
            with closing(sqlite3.connect(Path(folder, Role.CATALOG.value))) as connection:
                connection.text_factory = bytes
                rows, repeated = {}, []
                for table in _OF_DOCUMENTS:
                    for number, *row in connection.execute(f"SELECT doc_row, * FROM {table} NOT INDEXED"):
                        # What a damaged page holds behind its cells may look like another row of that number.
                        if (table, number) in rows:
                            repeated.append((table, number))
                        else:
                            rows[table, number] = tuple(row)
                others = [
                    repeated,
                    *(connection.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall() for table in _OTHERS),
                ]
                for state, name in (("alive", "documents_live"), ("NOT alive", "documents_deleted")):
                    query = f"SELECT id, doc_row FROM documents INDEXED BY {name} WHERE {state} ORDER BY id, doc_row"
                    others.append(connection.execute(query).fetchall())
                others.append(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())
                return Content(rows=rows, others=others)
        except (sqlite3.Error, UnicodeDecodeError):
            return None
