"""Scanning the pages of a sound database finds what SELECT gives, whatever the values and the size of pages."""

import random
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery_databases import expected_of, expected_records, fill, found_records, make_catalog, make_database

from mvindex.errors import StoreError
from mvindex.store.recovery import Source, scan_records
from mvindex.store.recovery.pages import read_page
from mvindex.store.recovery.values import decode_record

PAGE_SIZES = [512 << power for power in range(8)]
COMMITTED = (Source.COMMITTED,)
ANY_VALUE = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [sign * 2**bits + more for bits in (7, 15, 23, 31, 47, 62) for sign in (-1, 1) for more in (-1, 0, 1)]
    ),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.integers(0, 5000).map(lambda count: "é" * count),
    st.integers(0, 5000).map(lambda count: b"\r\0\1" * count),
)


@pytest.mark.parametrize(("page_bytes", "num_rows"), [*zip(PAGE_SIZES, [300] * 8, strict=True), (4096, 2000)])
def test_a_catalog_is_found_record_by_record(tmp_path, page_bytes, num_rows):
    path = make_catalog(tmp_path / "x.sqlite", num_rows, page_bytes)
    scan = scan_records(path)
    assert {record.source for record in scan} == {Source.COMMITTED}
    assert scan.skipped_cells == 0
    assert found_records(path) == expected_of(path)


@pytest.mark.parametrize("page_bytes", [512, 4096, 65_536])
def test_payloads_of_every_size_about_the_limits_of_a_page_are_found(tmp_path, page_bytes):
    schema = ["CREATE TABLE a(x)", "CREATE TABLE b(x PRIMARY KEY) WITHOUT ROWID"]
    sizes = {limit + more for limit in _limits(page_bytes) for more in range(-6, 3)}
    with closing(make_database(tmp_path / "x.sqlite", schema, page_bytes)) as connection:
        rows = [(random.Random(size).randbytes(size),) for size in sorted(size for size in sizes if size >= 0)]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO a VALUES (?)", rows)
        connection.executemany("INSERT INTO b VALUES (?)", rows)
        connection.execute("COMMIT")
    assert found_records(tmp_path / "x.sqlite") == expected_of(tmp_path / "x.sqlite")


def _limits(page_bytes):
    """Payloads where a cell begins to overflow, by the file format's formulas, and where a chain grows by a page."""
    least = (page_bytes - 12) * 32 // 255 - 23
    for most in (page_bytes - 35, (page_bytes - 12) * 64 // 255 - 23):
        yield from (most, least, *(first + pages * (page_bytes - 4) for first in (least, most) for pages in (1, 2)))


def test_texts_of_up_to_a_megabyte_are_found_through_their_chains(tmp_path):
    texts = ["", "x", "é" * 100, "y" * 10_000, "漢" * 100_000, "z" * 1_000_000]
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"])) as connection:
        connection.executemany("INSERT INTO a VALUES (?)", [(text,) for text in texts])
    found = [record.values[0] for record in scan_records(tmp_path / "x.sqlite") if len(record.values) == 1]
    assert sorted(found, key=len) == texts


@given(rows=st.lists(st.tuples(ANY_VALUE, ANY_VALUE, ANY_VALUE), max_size=8), page_bytes=st.sampled_from(PAGE_SIZES))
@settings(max_examples=40, deadline=None)
def test_scanning_finds_any_values_that_selecting_gives(tmp_path_factory, rows, page_bytes):
    path = tmp_path_factory.mktemp("any") / "x.sqlite"
    schema = [
        "CREATE TABLE a(x, y, z)",
        "CREATE TABLE b(x, y, z, n PRIMARY KEY) WITHOUT ROWID",
        "CREATE INDEX c ON a(x, z)",
    ]
    with closing(make_database(path, schema, page_bytes)) as connection:
        for number, row in enumerate(rows):
            connection.execute("INSERT INTO a VALUES (?, ?, ?)", row)
            connection.execute("INSERT INTO b(n, x, y, z) VALUES (?, ?, ?, ?)", (number, *row))
        wanted = expected_records(connection)
    assert found_records(path) == wanted


@given(rowids=st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=40))
@settings(max_examples=30, deadline=None)
def test_rowids_of_either_sign_are_found(tmp_path_factory, rowids):
    path = tmp_path_factory.mktemp("rowids") / "x.sqlite"
    with closing(make_database(path, ["CREATE TABLE a(x)"])) as connection:
        connection.executemany("INSERT INTO a(rowid, x) VALUES (?, 'x')", [(rowid,) for rowid in rowids])
    assert {record.rowid for record in scan_records(path) if record.values == ("x",)} == rowids


def test_whole_numbers_of_a_real_column_and_columns_added_later_are_found_as_they_are_stored(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x REAL)"])) as connection:
        connection.execute("INSERT INTO a VALUES (3.0)")
        connection.execute("ALTER TABLE a ADD COLUMN y DEFAULT 7")
        connection.execute("INSERT INTO a VALUES (1.5, 8)")
    assert {repr(record.values) for record in scan_records(tmp_path / "x.sqlite")} >= {"(3,)", "(1.5, 8)"}


def test_after_deletes_and_updates_all_living_rows_are_found_and_after_vacuum_only_they(tmp_path):
    path = make_catalog(tmp_path / "x.sqlite", 900)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM documents WHERE doc_row % 3 = 0")
        connection.execute("UPDATE texts SET text = text || 'more text' WHERE doc_row % 7 = 1")
        connection.execute("DELETE FROM texts WHERE doc_row BETWEEN 200 AND 800")
        fill(connection, range(900, 960), longest=300)
        assert expected_records(connection) <= found_records(path, COMMITTED)
        assert not found_records(path, (Source.CARVED,))
        connection.execute("VACUUM")
    assert found_records(path) == expected_of(path)


def test_every_page_of_a_sound_database_adds_up_after_deletes_and_with_the_smallest_of_cells(tmp_path):
    path = make_catalog(tmp_path / "x.sqlite", 300, 1024)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE tiny(x PRIMARY KEY) WITHOUT ROWID")
        connection.execute("INSERT INTO tiny VALUES (0), (1)")
        connection.execute("DELETE FROM texts WHERE doc_row % 2 = 0")
        connection.execute("UPDATE metadata SET json = json || 'more' WHERE doc_row % 3 = 0")
    content = path.read_bytes()
    pages = [read_page(content[at : at + 1024], at // 1024 + 1, 1024) for at in range(0, len(content), 1024)]
    assert {page.adds_up for page in pages if page} == {True}
    assert sum(len(page.cells) for page in pages if page) > 1000


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\1",  # no value at all
        b"\2",  # the header is longer than the payload
        b"\2\1",  # the value is missing
        b"\2\x08\0",  # a byte too many
        b"\2\x0a",  # a reserved type
        b"\2\x0b",
        b"\2\x81\0",  # the header ends inside a serial type
        b"\x82\xb8\x83" + bytes(40_000),  # more columns than SQLite can make
    ],
)
def test_bytes_that_are_not_exactly_a_record_are_refused(payload):
    with pytest.raises((ValueError, IndexError)):
        decode_record(payload)


def test_where_neither_database_nor_log_is_a_file_there_is_nothing_to_recover_from(tmp_path):
    (tmp_path / "link.sqlite").symlink_to(make_catalog(tmp_path / "x.sqlite", 1))
    for path in (tmp_path / "none.sqlite", tmp_path, tmp_path / "link.sqlite"):
        with pytest.raises(StoreError, match="nothing to recover from"):
            list(scan_records(path))
    (tmp_path / "empty.sqlite").touch()
    assert list(scan_records(tmp_path / "empty.sqlite")) == []
