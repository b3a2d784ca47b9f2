"""What the write-ahead log adds: its committed part as SQLite reads it, and the rest as a source of its own."""

import random
import shutil
import struct
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery_databases import catalog_schema, expected_of, expected_records, fill, found_records, make_database

from mvindex.store.recovery import Source

COMMITTED = (Source.COMMITTED,)
PAGE_BYTES = 1024
FRAME_BYTES = 24 + PAGE_BYTES


def copied(path, target):
    """The path of a copy of the database and its log, as another process finds them after a power cut."""
    target.mkdir(parents=True)
    for name in (path.name, path.name + "-wal"):
        if path.with_name(name).exists():
            shutil.copyfile(path.with_name(name), target / name)
    return target / path.name


def log_of(path):
    return path.with_name(path.name + "-wal")


def seen_by_sqlite(path, target):
    """What SQLite finds in a copy; nothing where it finds no database."""
    return expected_of(copied(path, target))


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The path of a catalog: 30 rows of each table in the database, 30 more in its log in three commits."""
    directory = tmp_path_factory.mktemp("logged")
    with closing(make_database(directory / "x.sqlite", catalog_schema(directory / "made"), PAGE_BYTES)) as connection:
        fill(connection, range(30), longest=800)
        connection.execute("PRAGMA journal_mode=WAL")
        for begin in (30, 40, 50):
            fill(connection, range(begin, begin + 10), longest=800)
        return copied(directory / "x.sqlite", directory / "copy")


@pytest.fixture(scope="module")
def expected(logged, tmp_path_factory):
    return seen_by_sqlite(logged, tmp_path_factory.mktemp("seen") / "copy")


def changed(logged, tmp_path, log):
    """The path of a copy that has these bytes for its log."""
    path = tmp_path / "x.sqlite"
    shutil.copyfile(logged, path)
    log_of(path).write_bytes(log)
    return path


def test_rows_that_stand_in_the_log_alone_are_found_as_committed(logged, expected):
    assert found_records(logged, COMMITTED) == expected
    assert not expected <= found_records_without_log(logged)


def found_records_without_log(logged):
    alone = logged.with_name("alone.sqlite")
    shutil.copyfile(logged, alone)
    return found_records(alone)


def test_pages_of_the_database_that_the_log_replaces_are_offered_as_outdated(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"], PAGE_BYTES)) as connection:
        connection.execute("INSERT INTO a VALUES ('old')")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("UPDATE a SET x = 'new'")
        path = copied(tmp_path / "x.sqlite", tmp_path / "copy")
    assert found_records(path, COMMITTED)["table", 1, "('new',)"] == 1
    assert found_records(path, COMMITTED)["table", 1, "('old',)"] == 0
    assert found_records(path, (Source.OUTDATED,))["table", 1, "('old',)"] == 1


def test_rows_that_were_never_committed_are_found_as_unvouched_only(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"], PAGE_BYTES)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("INSERT INTO a VALUES ('committed')")
        connection.execute("PRAGMA cache_size=2")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO a VALUES (?)", [(f"open {row} {'x' * 500}",) for row in range(100)])
        path = copied(tmp_path / "x.sqlite", tmp_path / "copy")
    assert found_records(path, COMMITTED) == seen_by_sqlite(path, tmp_path / "seen")
    unvouched = [values for _, _, values in found_records(path, (Source.UNVOUCHED,)) if "open" in values]
    assert len(unvouched) > 50


@given(flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), max_size=2), cut=st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_of_a_damaged_log_as_much_is_committed_as_sqlite_itself_believes(logged, tmp_path_factory, flips, cut):
    log = bytearray(log_of(logged).read_bytes())
    for at, bit in flips:
        log[at % len(log)] ^= 1 << bit
    if cut % 2:
        del log[cut % len(log) :]
    directory = tmp_path_factory.mktemp("log")
    path = changed(logged, directory, log)
    assert found_records(path, COMMITTED) == seen_by_sqlite(path, directory / "seen")


def test_a_destroyed_frame_header_costs_at_most_the_records_whose_overflow_page_it_names(logged, expected, tmp_path):
    log = log_of(logged).read_bytes()
    short = Counter({key: count for key, count in expected.items() if len(key[2]) < 50})
    for at in range(32, len(log), 8 * FRAME_BYTES):
        noise = random.Random(at).randbytes(24)
        assert short <= found_records(changed(logged, tmp_path, log[:at] + noise + log[at + 24 :])), at
        assert expected <= found_records(changed(logged, tmp_path, log[: at + 8] + noise[8:] + log[at + 24 :])), at


@pytest.mark.parametrize("field", [0, 4, 8, 12, 16, 24])
def test_a_log_whose_header_is_destroyed_costs_no_record(logged, expected, tmp_path, field):
    log = bytearray(log_of(logged).read_bytes())
    log[field : field + 4] = b"\x17\x2a\x99\x01"
    path = changed(logged, tmp_path, log)
    assert found_records(path, COMMITTED) == seen_by_sqlite(path, tmp_path / "seen") != expected
    assert expected <= found_records(path)


def test_a_log_beside_a_database_that_is_gone_is_read_alone(logged, tmp_path):
    shutil.copyfile(log_of(logged), tmp_path / "x.sqlite-wal")
    rows = {int(rowid) for kind, rowid, values in found_records(tmp_path / "x.sqlite", COMMITTED) if kind == "table"}
    assert rows >= set(range(30, 60))


def test_a_log_without_a_header_tells_the_page_size_by_its_pages(logged, tmp_path):
    log = log_of(logged).read_bytes()
    (tmp_path / "x.sqlite-wal").write_bytes(bytes(32) + log[32:])
    rows = {rowid for kind, rowid, _ in found_records(tmp_path / "x.sqlite") if kind == "table"}
    assert rows >= set(range(30, 60))


def test_a_database_whose_pages_are_destroyed_is_read_from_what_the_log_still_holds_of_them(tmp_path):
    schema = ["CREATE TABLE a(x)", "CREATE TABLE b(x)"]
    with closing(make_database(tmp_path / "x.sqlite", schema, PAGE_BYTES)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executemany("INSERT INTO a VALUES (?)", [(f"{row} {'text ' * 300}",) for row in range(20)])
        expected = expected_records(connection)
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        connection.execute("INSERT INTO b VALUES ('of the next run')")
        path = copied(tmp_path / "x.sqlite", tmp_path / "copy")
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    assert found_records(path, COMMITTED)["table", 1, "('of the next run',)"] == 1
    found = found_records(path, (Source.OUTDATED,))
    assert len([key for key in expected if "text" in key[2] and found[key]]) >= 19


def test_a_log_with_checksums_of_the_other_byte_order_is_read_too(logged, expected, tmp_path):
    path = changed(logged, tmp_path, turned(log_of(logged).read_bytes()))
    assert seen_by_sqlite(path, tmp_path / "seen") == expected
    assert found_records(path, COMMITTED) == expected


def turned(log):
    """The same log with all checksums worked out in the other byte order, which the magic number tells."""
    (magic,) = struct.unpack_from(">I", log)
    order = "<" if magic & 1 else ">"
    head = struct.pack(">I", magic ^ 1) + log[4:24]
    sums = checksum((0, 0), head, order)
    parts = [head, struct.pack(">2I", *sums)]
    for at in range(32, len(log), FRAME_BYTES):
        page = log[at + 24 : at + FRAME_BYTES]
        sums = checksum(sums, log[at : at + 8] + page, order)
        parts += [log[at : at + 16], struct.pack(">2I", *sums), page]
    return b"".join(parts)


def checksum(sums, data, order):
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    first, second = sums
    for row in range(0, len(words), 2):
        first = (first + words[row] + second) % 2**32
        second = (second + words[row + 1] + first) % 2**32
    return first, second
