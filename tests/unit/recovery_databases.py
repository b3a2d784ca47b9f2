"""Real SQLite databases for the tests of recovery, and what must be found in them, by SQLite's own SELECT."""

import random
import sqlite3
from collections import Counter
from contextlib import closing

from mvindex.store import catalog
from mvindex.store.recovery import Source, scan_records

SETTINGS = {"dim": 4, "dtype": "fp16", "note": "ünïcode"}


def catalog_schema(directory):
    """The statements that make a catalog, as they stand in one."""
    directory.mkdir()
    catalog.create(directory, SETTINGS)
    with closing(sqlite3.connect(directory / catalog.FILE_NAME)) as connection:
        return [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]


def make_database(path, schema, page_bytes=4096):
    """A connection to a new database; freed bytes are zeroed, so that no build of SQLite leaves old copies."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size={page_bytes}")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA synchronous=OFF")
    for statement in schema:
        connection.execute(statement)
    return connection


def make_catalog(path, num_rows, page_bytes=4096, longest=200):
    """The path of a database with the catalog's schema and that many rows in each table."""
    schema = catalog_schema(path.with_suffix(".made"))
    with closing(make_database(path, schema, page_bytes)) as connection:
        fill(connection, range(num_rows), longest)
    return path


def fill(connection, rows, longest):
    """Nothing; each table holds these rows too, the columns filled by their types."""
    rng = random.Random(longest)
    connection.execute("BEGIN")
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        marks = ",".join("?" * len(columns))
        values = [[_made(column, row, rng, longest) for column in columns] for row in rows]
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    connection.execute("COMMIT")


def _made(column, row, rng, longest):
    _, name, kind, _, _, key = column
    if name == "alive":
        return int(row % 5 > 0)
    if kind == "INTEGER":
        return row if key else rng.getrandbits(64) - 2**63 >> rng.choice((0, 17, 40, 63))
    if kind == "BLOB":
        return rng.randbytes(rng.randint(0, longest // 4))
    text = "".join(rng.choices("aé漢😀 \n\0", k=rng.randint(0, longest // 4)))
    return f"{row}-{text}" if key or name == "id" else text


def expected_records(connection):
    """How often each record must be found: (kind, rowid, repr of the values, so that 1 is not 1.0) -> times."""
    schema = connection.execute("SELECT rowid, type, name, tbl_name, rootpage, sql FROM sqlite_schema").fetchall()
    found = Counter(("table", row[0], repr(row[1:])) for row in schema)
    for _, kind, name, table, _, sql in schema:
        found.update(_rows(connection, name, sql) if kind == "table" else _entries(connection, name, table, sql))
    return found


def _rows(connection, table, sql):
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    if sql.endswith("WITHOUT ROWID"):
        names = ", ".join(column[1] for column in sorted(columns, key=lambda column: column[5] or len(columns) + 1))
        return [("index", None, repr(row)) for row in connection.execute(f"SELECT {names} FROM {table}")]
    alias = [bool(column[5]) and column[2] == "INTEGER" for column in columns]
    return [
        ("table", rowid, repr(tuple(None if is_rowid else value for is_rowid, value in zip(alias, row, strict=True))))
        for rowid, *row in connection.execute(f"SELECT rowid, * FROM {table}")
    ]


def _entries(connection, index, table, sql):
    columns = ", ".join(row[2] for row in connection.execute(f"PRAGMA index_info({index})"))
    where = sql.partition(" WHERE ")[2] or "true"
    rows = connection.execute(f"SELECT {columns}, rowid FROM {table} NOT INDEXED WHERE {where}")
    return [("index", None, repr(row)) for row in rows]


def expected_of(path):
    """The same, of a database that SQLite can read."""
    with closing(sqlite3.connect(path)) as connection:
        return expected_records(connection)


def found_records(path, sources=tuple(Source)):
    """How often each record was found in these sources."""
    records = (record for record in scan_records(path) if record.source in sources)
    return Counter((record.kind.value, record.rowid, repr(record.values)) for record in records)
