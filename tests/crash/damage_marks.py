"""What a damage is, seen from outside: which bytes and documents it touches, whether anybody could notice it."""

import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from damage_cases import Case
from damage_files import Role, files_of
from damage_kinds import Damage, changed_bytes

_TABLES = ("settings", "files", "blocks", "documents", "texts", "metadata")
_FOREIGN = ("link", "directory", "pipe")
_OF_CATALOG = (Role.CATALOG, Role.LOG)


@dataclass(frozen=True, kw_only=True)
class Marks:
    """touched: document rows some of whose bytes are gone; area: what the first changed byte belonged to.

    is_changed: committed bytes are others. must_be_seen: verify has to name it; may_be_seen: it may.
    """

    touched: frozenset[int]
    area: str
    is_changed: bool
    must_be_seen: bool
    may_be_seen: bool


def marks_of(case: Case, damage: Damage, index: Path) -> Marks:
    """What the damage has done to the copy of the case's index."""
    is_changed = changed_bytes(case, index, damage.role)
    is_foreign = damage.kind in _FOREIGN
    touched: frozenset[int] = frozenset()
    area = ""
    for role in _files_of(case, damage):
        found = changed_bytes(case, index, role)
        touched |= frozenset(np.unique(case.places.owners[role][found]).tolist()) - {-1}
    if damage.role in _OF_CATALOG and is_changed.any() and not is_foreign:
        area = str(case.places.areas[damage.role][np.argmax(is_changed)])
    if damage.role in _OF_CATALOG and not is_foreign:
        must = content_of(index) != _sound_content(case.sound)
        may = must or (is_changed.any() and damage.role is Role.CATALOG)
    elif damage.role.is_transient:
        must = may = is_foreign
    elif damage.role is Role.ACKNOWLEDGED:
        must, may = not _is_acknowledgement(case, index), True
    elif damage.role is Role.CURRENT:
        must, may = is_foreign or _json_of(case, index) != _json_of(case, case.sound), True
    else:
        must = may = bool(is_changed.any()) or (damage.kind == "extended" and damage.role is Role.ENGINE)
    return Marks(
        touched=touched, area=area, is_changed=bool(is_changed.any()), must_be_seen=must, may_be_seen=bool(may)
    )


def _files_of(case: Case, damage: Damage) -> list[Role]:
    """The files that documents stand in, of those that the damage may change."""
    if damage.role is Role.VIEWS:
        return [Role.VIEWS]
    if damage.role is Role.CATALOG:
        return [role for role in _OF_CATALOG if case.file(role) is not None]
    return [Role.LOG] if damage.role is Role.LOG else []


def _is_acknowledgement(case: Case, index: Path) -> bool:
    """True when the file is sound and names no version that is later than the sound one's: that may happen."""
    path = index / case.file(Role.ACKNOWLEDGED).relative_to(case.sound)
    if not path.is_file() or path.is_symlink():
        return False
    found, sound = path.read_bytes(), case.file(Role.ACKNOWLEDGED).read_bytes()
    known = [sound, *(each.read_bytes() for each in case.folder.rglob(Role.ACKNOWLEDGED.value))]
    return found in known and found[:20] <= sound[:20]


def _json_of(case: Case, index: Path) -> Any:
    """What current.json says; its bytes where it is no JSON, None where it is gone."""
    path = index / case.file(Role.CURRENT).relative_to(case.sound)
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return path.read_bytes()


@lru_cache
def _sound_content(index: Path) -> list[list[tuple]] | str:
    return content_of(index)


def content_of(index: Path) -> list[list[tuple]] | str:
    """All rows of the catalog as SQLite reads them, table by table and by the indexes; or the error that it gives."""
    found = files_of(index)
    with tempfile.TemporaryDirectory(dir=index.parent) as folder:
        for role in (Role.CATALOG, Role.LOG):
            if role in found and not found[role].is_symlink():
                shutil.copyfile(found[role], Path(folder, role.value))
        try:
            with closing(sqlite3.connect(Path(folder, Role.CATALOG.value))) as connection:
                connection.text_factory = bytes
                parts = [connection.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall() for table in _TABLES]
                for state, name in (("alive", "documents_live"), ("NOT alive", "documents_deleted")):
                    query = f"SELECT id, doc_row FROM documents INDEXED BY {name} WHERE {state} ORDER BY id, doc_row"
                    parts.append(connection.execute(query).fetchall())
                parts.append(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())
                return parts
        except (sqlite3.Error, UnicodeDecodeError) as err:
            return str(err)
