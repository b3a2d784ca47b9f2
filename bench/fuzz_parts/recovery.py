"""Recovery without SQLite: every record that SQLite finds in a database that it calls sound is found, and no sizes or
chains of a damaged one take more than its bytes' worth of time and memory.

An input's first byte chooses the database, the second which of its two files is changed, the third how: see _FATES.
"""  # noqa: D205, D400 - the first sentence takes two lines

import sqlite3
from contextlib import closing
from pathlib import Path

from fuzz_parts.index_kits import CATALOG, make_kits
from fuzz_parts.patches import patch, patched, resealed
from fuzz_parts.target import Limits, require
from mvindex.errors import StoreError
from mvindex.store.recovery import Kind, scan_records

_FATES = ("patched", "patched", "content", "sealed", "gone")
_VALUES = (int, float, str, bytes, type(None))
_PAGES = (512, 1024, 4096)
_SCHEMA = """
CREATE TABLE a(n INTEGER PRIMARY KEY, x, y);
CREATE TABLE b(x TEXT PRIMARY KEY, y) WITHOUT ROWID;
CREATE INDEX a_x ON a(x, y);
"""


def open_target(name: str, folder: Path):
    return Recovery(folder)


class Recovery(Limits):
    """A database and its log, changed, scanned with and without SQLite."""

    name = "recovery"
    refusals = (StoreError,)
    extra_mib = 64
    tokens = (b"\x0d", b"\x05", b"\x0a", b"\x02", b"\0\0\0\2", b"\0\0\0\3", b"\xff\xff\xff\x7f", b"\x81\x80\x00",
              b"\xff" * 9, b"\x82\x7f", b"\x10\0", b"\0\1", b"\x37\x7f\x06\x82")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        (folder / "kits").mkdir()
        kits = make_kits(folder / "kits")
        names = [(kit, kit.name_of(CATALOG) if kit.path.stem != "log" else None) for kit in kits.values()]
        self._databases = [[kit.files[name], b""] for kit, name in names if name]
        self._databases += [
            [content for name, content in kit.files.items() if CATALOG in name] for kit, name in names if not name
        ]
        self._databases += [_made(folder / f"{size}", size) for size in _PAGES]
        self._path = folder / "changed"
        self._log = folder / "changed-wal"

    def seeds(self) -> list[bytes]:
        found = []
        for number, files in enumerate(self._databases):
            for which, content in enumerate(files):
                head = [bytes([number, which, fate]) for fate in range(len(_FATES))]
                found += [head[0] + patch(place, b"\xff") for place in range(0, len(content), 131)]
                found += [head[0] + patch(place, b"\1", 4) for place in range(8, len(content), 131)]
                found += [head[3] + patch(place, b"\1", 4) for place in range(60, len(content), 997)]
                found += [head[2] + content, head[4]]
        return found

    def check(self, data: bytes) -> None:
        number, which, fate = (*data[:3], 0, 0, 0)[:3]
        files = list(self._databases[number % len(self._databases)])
        files[which % 2] = _changed(files[which % 2], _FATES[fate % len(_FATES)], data[3:])
        for path, content in zip((self._path, self._log), files, strict=True):
            path.write_bytes(content) if content else path.unlink(missing_ok=True)
        scan = scan_records(self._path)
        rows, entries = set(), set()
        for record in scan:
            require(all(isinstance(value, _VALUES) for value in record.values), "values", record)
            require(record.page >= 0 and scan.skipped_cells >= 0, "page", record)
            # Where the schema is damaged, SQLite may know fewer columns than rows have.
            heads = [record.values[:size] for size in range(1, len(record.values) + 1)]
            if record.kind is Kind.TABLE:
                rows |= {(record.rowid, head) for head in heads}
            else:
                entries |= set(heads)
        for wanted, known in zip(_read(self._path), (rows, entries), strict=True):
            require(wanted <= known, "SQLite reads, and the scan does not:", list(wanted - known)[:2])


def _changed(content: bytes, fate: str, data: bytes) -> bytes:
    if fate in ("content", "gone"):
        return data if fate == "content" else b""
    found = patched(content, data)
    return resealed(found) if fate == "sealed" else found


def _read(path: Path) -> tuple[set, set]:
    """What SQLite reads of a database that it calls sound: rows of tables, rows of those without row numbers."""
    rows, entries = set(), set()
    if not path.exists() or _is_of_another_kind(path.read_bytes()):
        return rows, entries
    try:
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return set(), set()
            if _has_missing_pages(connection, path):
                return set(), set()
            tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            for name, sql in tables:
                _read_table(connection, name.replace('"', '""'), "WITHOUT ROWID" in sql, (rows, entries))
    except (sqlite3.Error, UnicodeDecodeError, AttributeError):
        return set(), set()
    return rows, entries


def _has_missing_pages(connection: sqlite3.Connection, path: Path) -> bool:
    """True when the log claims a database of more pages than there are: SQLite takes those for zeros."""
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    log = path.with_name(f"{path.name}-wal")
    frames = log.read_bytes() if log.exists() else b""
    numbers = [int.from_bytes(frames[at : at + 4], "big") for at in range(32, len(frames) - size, size + 24)]
    held = set(numbers) | set(range(1, path.stat().st_size // size + 1))
    return not held >= set(range(1, pages + 1))


def _read_table(connection: sqlite3.Connection, name: str, has_no_rowid: bool, found: tuple[set, set]) -> None:
    rows, entries = found
    if has_no_rowid:
        entries |= set(connection.execute(f'SELECT * FROM "{name}" NOT INDEXED'))  # noqa: S608 - quoted
        return
    columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
    for rowid, *values in connection.execute(f'SELECT rowid, * FROM "{name}" NOT INDEXED'):  # noqa: S608 - quoted
        # The one that stands for the row number is stored as nothing.
        pairs = zip(columns, values, strict=True)
        stored = [None if column[5] and column[2] == "INTEGER" else value for column, value in pairs]
        rows.add((rowid, tuple(stored)))


def _is_of_another_kind(content: bytes) -> bool:
    """True for texts in UTF-16, and for bytes reserved at the end of pages, which no catalog has."""
    return content[20:21] != b"\0" or content[56:60] != b"\0\0\0\1"


def _made(path: Path, page_bytes: int) -> list[bytes]:
    """A database and its log with all that the format knows: overflow pages, inner pages, free pages, each type."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={page_bytes}")
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.executescript(_SCHEMA)
        values = [None, 0, 1, -1, 127, 1 << 20, 1 << 40, -(1 << 62), 1.5, "ü", "x" * 700, b"\0" * 9]
        for number, value in enumerate(values * 2):
            connection.execute("INSERT INTO a VALUES (?, ?, ?)", (number * 3 or -5, value, "y" * number))
        connection.execute("DELETE FROM a WHERE n % 5 = 3")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(8):
            connection.execute("INSERT INTO b VALUES (?, ?)", (f"key {number}", "z" * number * 90))
        connection.execute("UPDATE a SET y = 'changed' WHERE n < 9")
        log = path.with_name(f"{path.name}-wal")
        return [path.read_bytes(), log.read_bytes()]
