"""The files of an index by their role, whatever the number of their generation."""

from enum import Enum
from pathlib import Path


class Role(Enum):
    """The role of a file of an index."""

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
        """Return whether `mvindex build` makes it again."""
        return self in (Role.CURRENT, Role.ACKNOWLEDGED, Role.ROWS, Role.ENGINE)

    @property
    def is_transient(self) -> bool:
        """Return whether it is not read when the index is opened: the text of the lock, SQLite's index of its log."""
        return self in (Role.LOCK, Role.LOG_INDEX)


_NAMED = {role.value: role for role in Role}
_BEGUN = {"views-": Role.VIEWS, "rows-": Role.ROWS}


def files_of(index: Path) -> dict[Role, Path]:
    """Return the files of an index with one generation."""
    return {role: path for path in sorted(index.rglob("*")) if path.is_file() and (role := role_of(path)) is not None}


def role_of(path: Path) -> Role | None:
    """Return the role of the file, None for one that is not part of an index."""
    if path.parent.name.startswith("engine-"):
        return Role.ENGINE
    for beginning, role in _BEGUN.items():
        if path.name.startswith(beginning):
            return role
    return _NAMED.get(path.name)
