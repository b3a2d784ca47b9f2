"""The files of an index by what they are for, whatever their generation is numbered."""

from enum import Enum
from pathlib import Path


class Role(Enum):
    """What a file of an index is for."""

    CURRENT = "current.json"
    LOCK = "writer.lock"
    ACKNOWLEDGED = "acknowledged"
    CATALOG = "catalog.sqlite"
    LOG = "catalog.sqlite-wal"
    LOG_INDEX = "catalog.sqlite-shm"
    VIEWS = "views"
    ROWS = "rows"
    ENGINE = "engine"

    @property
    def is_derived(self) -> bool:
        """True for what `mvindex build` makes again."""
        return self in (Role.CURRENT, Role.ACKNOWLEDGED, Role.ROWS, Role.ENGINE)

    @property
    def is_transient(self) -> bool:
        """True for what nobody reads when the index is opened: a lock's text, what SQLite makes of its log."""
        return self in (Role.LOCK, Role.LOG_INDEX)


_NAMED = {role.value: role for role in Role}
_BEGUN = {"views-": Role.VIEWS, "rows-": Role.ROWS}


def files_of(index: Path) -> dict[Role, Path]:
    """Where the files of an index with one generation are."""
    return {role: path for path in sorted(index.rglob("*")) if path.is_file() and (role := role_of(path)) is not None}


def role_of(path: Path) -> Role | None:
    """What the file is for; None for one that is no part of an index."""
    if path.parent.name.startswith("engine-"):
        return Role.ENGINE
    for beginning, role in _BEGUN.items():
        if path.name.startswith(beginning):
            return role
    return _NAMED.get(path.name)
