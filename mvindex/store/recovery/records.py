"""What a scan finds: a record, and where it was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = int | float | str | bytes | None


class Kind(str, Enum):
    """The two kinds of b-tree: rows of a table; entries of an index or rows of a WITHOUT ROWID table."""

    TABLE = "table"
    INDEX = "index"


class Source(Enum):
    """Where a record was found; a row may be found in several places, and older copies of it too."""

    COMMITTED = "committed"  # the database with the committed part of its log; its free pages too
    UNVOUCHED = (
        "unvouched"  # the log behind the last commit that its checksums vouch for: newer, perhaps never committed
    )
    OUTDATED = "outdated"  # pages that the committed log replaces, and what is left of earlier runs of the log
    CARVED = "carved"  # bytes of a page whose own account of itself is wrong: right only where a checksum says so


@dataclass(frozen=True, slots=True)
class Record:
    """One record as SQLite stores it; rowid is None in an index.

    values: an INTEGER PRIMARY KEY stands in rowid and is None here; a REAL that is whole may be an int; columns added
    to a table later may be missing at the end; a WITHOUT ROWID table has its key columns first.
    page: the number of the page, the first being 1.
    """

    kind: Kind
    rowid: int | None
    values: tuple[Value, ...]
    page: int
    source: Source = Source.COMMITTED
