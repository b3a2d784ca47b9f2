"""Damage costs the records whose own bytes it hits, and no others; nothing makes the scan fail or go on for ever."""

import ast
import os
import random
import struct
import time
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recovery_databases import expected_of, found_records, make_catalog, make_database

from mvindex.store.recovery import Source, scan_records

PAGE_BYTES = 1024
LEAF_TYPES = {0x0D: 8, 0x0A: 8, 0x02: 12}  # type byte of a page with records -> bytes of its header


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The path of a catalog of many small pages, with interior pages and chains of overflow pages."""
    return make_catalog(tmp_path_factory.mktemp("sound") / "x.sqlite", 16, PAGE_BYTES, longest=2000)


@pytest.fixture(scope="module")
def expected(sound):
    return expected_of(sound)


@pytest.fixture(scope="module")
def short_records(sound):
    """Records that stand on one page, the number of which comes first."""
    keys = [(record.page, (record.kind.value, record.rowid, repr(record.values))) for record in scan_records(sound)]
    return [(page, key) for page, key in keys if pages_of(*key) == 1]


def damaged(tmp_path, content):
    (tmp_path / "x.sqlite").write_bytes(content)
    return tmp_path / "x.sqlite"


def pages_with_records(content):
    """Offset and header's size of each page that lists records; the first page has the file's header before it."""
    starts = [100, *range(PAGE_BYTES, len(content), PAGE_BYTES)]
    return [(at, LEAF_TYPES[content[at]]) for at in starts if content[at] in LEAF_TYPES]


def test_each_page_zeroed_costs_the_records_that_stand_on_it_and_no_others(sound, expected, tmp_path):
    content = sound.read_bytes()
    assert {2, 5, 10, 13} <= set(content[PAGE_BYTES::PAGE_BYTES])
    times_lost = Counter()
    for at in range(0, len(content), PAGE_BYTES):
        path = damaged(tmp_path, content[:at] + bytes(PAGE_BYTES) + content[at + PAGE_BYTES :])
        times_lost += expected - found_records(path)
    assert times_lost == {key: count * pages_of(*key) for key, count in expected.items()}


def pages_of(kind, _, values):
    """On how many pages a record stands, from the file format's formulas worked out plainly."""
    types_and_sizes = [type_and_size(value) for value in ast.literal_eval(values)]
    header = 1 + sum(1 + (serial >= 128) + (serial >= 16_384) for serial, _ in types_and_sizes)
    size = header + sum(size for _, size in types_and_sizes)
    most = PAGE_BYTES - 35 if kind == "table" else (PAGE_BYTES - 12) * 64 // 255 - 23
    least = (PAGE_BYTES - 12) * 32 // 255 - 23
    if size <= most:
        return 1
    local = least + (size - least) % (PAGE_BYTES - 4)
    local = local if local <= most else least
    return 1 + -(-(size - local) // (PAGE_BYTES - 4))


def type_and_size(value):
    if isinstance(value, (str, bytes)):
        size = len(value.encode() if isinstance(value, str) else value)
        return 12 + 2 * size + isinstance(value, str), size
    if value in (None, 0, 1):
        return 0, 0
    return 1, next(size for size in (1, 2, 3, 4, 6, 8) if -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size - 1))


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\r", b"noise"])
def test_headers_and_cell_pointers_of_all_pages_destroyed_cost_no_record(sound, expected, tmp_path, filler):
    content = bytearray(sound.read_bytes())
    for at, header in pages_with_records(content):
        (num_cells,) = struct.unpack_from(">H", content, at + 3)
        size = header + 2 * num_cells
        content[at : at + size] = (filler * size)[:size] if filler != b"noise" else random.Random(at).randbytes(size)
    assert expected <= found_records(damaged(tmp_path, content))


@pytest.mark.parametrize("page_type", LEAF_TYPES)
def test_any_bit_of_a_page_header_or_of_its_cell_pointers_flipped_costs_no_record(tmp_path, page_type):
    schema = ["CREATE TABLE a(x)", "CREATE TABLE b(x PRIMARY KEY) WITHOUT ROWID"]
    with closing(make_database(tmp_path / "small.sqlite", schema, 512)) as connection:
        for table in "ab":
            connection.executemany(f"INSERT INTO {table} VALUES (?)", [(f"{row} {'text ' * 14}",) for row in range(8)])
    expected, content = expected_of(tmp_path / "small.sqlite"), (tmp_path / "small.sqlite").read_bytes()
    at = next(at for at in range(512, len(content), 512) if content[at] == page_type)
    (num_cells,) = struct.unpack_from(">H", content, at + 3)
    for bit in range(8 * (LEAF_TYPES[page_type] + 2 * num_cells)):
        changed = bytearray(content)
        changed[at + bit // 8] ^= 1 << bit % 8
        assert expected <= found_records(damaged(tmp_path, changed)), bit


def test_a_cell_pointer_that_names_another_cell_of_the_same_size_hides_no_record(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"], PAGE_BYTES)) as connection:
        connection.executemany("INSERT INTO a VALUES (?)", [("one",), ("two",), ("six",)])
    content = bytearray((tmp_path / "x.sqlite").read_bytes())
    content[PAGE_BYTES + 8 : PAGE_BYTES + 10] = content[PAGE_BYTES + 10 : PAGE_BYTES + 12]
    records = list(scan_records(damaged(tmp_path, content)))
    assert {record.values for record in records} >= {("one",), ("two",), ("six",)}


def test_rows_of_either_sign_and_of_long_numbers_are_carved(tmp_path):
    rowids = {sign * 2**bits for bits in range(0, 63, 7) for sign in (-1, 1)}
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"], 4096)) as connection:
        connection.executemany("INSERT INTO a(rowid, x) VALUES (?, 'text')", [(rowid,) for rowid in rowids])
    content = bytearray((tmp_path / "x.sqlite").read_bytes())
    content[4096:4104] = bytes(8)
    found = {record.rowid for record in scan_records(damaged(tmp_path, content)) if record.values == ("text",)}
    assert found >= rowids


def test_records_of_a_destroyed_header_are_marked_as_carved(sound, tmp_path):
    content = bytearray(sound.read_bytes())
    at, _ = pages_with_records(content)[5]
    content[at] = 0
    carved = {record.page for record in scan_records(damaged(tmp_path, content)) if record.source is Source.CARVED}
    assert carved == {at // PAGE_BYTES + 1}


@pytest.mark.parametrize("page_bytes", [512 << power for power in range(8)])
def test_with_the_first_page_destroyed_the_size_of_pages_is_found_out(tmp_path, page_bytes):
    path = make_catalog(tmp_path / "x.sqlite", 200, page_bytes)
    expected, content = expected_of(path), path.read_bytes()
    schema = {key: count for key, count in expected.items() if "CREATE" in key[2]}
    for filler in (bytes(page_bytes), random.Random(0).randbytes(page_bytes)):
        assert expected - Counter(schema) <= found_records(damaged(tmp_path, filler + content[page_bytes:]))


@pytest.mark.parametrize("said", [0, 1, 4095, *(512 << power for power in range(7))])
def test_a_wrong_page_size_in_the_header_is_not_believed(sound, expected, tmp_path, said):
    content = bytearray(sound.read_bytes())
    struct.pack_into(">H", content, 16, said)
    assert found_records(damaged(tmp_path, content)) == expected


@given(cut=st.integers(0, 2**20))
@example(cut=100)
@example(cut=108)
@example(cut=PAGE_BYTES + 7)
@settings(max_examples=25, deadline=None)
def test_a_file_cut_anywhere_keeps_the_records_of_the_pages_before_the_cut(sound, short_records, tmp_path_factory, cut):
    content = sound.read_bytes()
    cut %= len(content)
    path = damaged(tmp_path_factory.mktemp("cut"), content[:cut])
    assert found_records(path) >= Counter(key for page, key in short_records if page <= cut // PAGE_BYTES)


@given(
    flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), max_size=30),
    stretches=st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=2000)), max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_damage_anywhere_raises_nothing_ends_and_leaves_whole_pages_readable(
    sound, short_records, tmp_path_factory, flips, stretches
):
    content = bytearray(sound.read_bytes())
    for at, bit in flips:
        content[at % len(content)] ^= 1 << bit
    for at, stretch in stretches:
        at %= len(content)
        content[at : at + len(stretch)] = stretch[: len(content) - at]
    before = sound.read_bytes()
    pages = range(0, len(before), PAGE_BYTES)
    whole = {at // PAGE_BYTES + 1 for at in pages if before[at : at + PAGE_BYTES] == content[at : at + PAGE_BYTES]}
    found = found_records(damaged(tmp_path_factory.mktemp("damaged"), content))
    assert sum(found.values()) <= 3 * len(content)
    assert found >= Counter(key for page, key in short_records if page in whole)


@given(st.binary(max_size=5000), st.binary(max_size=5000))
@settings(max_examples=50, deadline=None)
def test_bytes_that_are_no_database_at_all_raise_nothing(tmp_path_factory, content, log):
    path = damaged(tmp_path_factory.mktemp("noise"), content)
    path.with_name("x.sqlite-wal").write_bytes(log)
    assert sum(found_records(path).values()) <= 3 * (len(content) + len(log))


def test_a_chain_of_overflow_pages_that_runs_in_a_circle_is_no_record(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"], 512)) as connection:
        connection.execute("INSERT INTO a VALUES (?)", ("x" * 5000,))
        connection.execute("INSERT INTO a VALUES ('y')")
    content = bytearray((tmp_path / "x.sqlite").read_bytes())
    chain = [at for at in range(1024, len(content), 512) if b"x" * 300 in content[at : at + 512]]
    struct.pack_into(">I", content, chain[5], chain[2] // 512 + 1)
    scan = scan_records(damaged(tmp_path, content))
    assert [record.values for record in scan][-1] == ("y",)
    assert scan.skipped_cells == 1


def test_many_cells_that_share_one_long_chain_take_a_bounded_time(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"])) as connection:
        connection.execute("INSERT INTO a VALUES (?)", (b"x" * 4_000_000,))
    content = bytearray((tmp_path / "x.sqlite").read_bytes())
    (cell,) = struct.unpack_from(">H", content, 4096 + 8)
    num_cells = (cell - 8) // 2
    struct.pack_into(">H", content, 4096 + 3, num_cells)
    struct.pack_into(f">{num_cells}H", content, 4096 + 8, *[cell] * num_cells)
    begin = time.process_time()
    assert 1 <= sum(len(record.values) == 1 for record in scan_records(damaged(tmp_path, content))) <= 64
    assert num_cells > 900
    assert time.process_time() - begin < 20


def test_text_that_is_not_utf8_is_skipped_and_counted(tmp_path):
    with closing(make_database(tmp_path / "x.sqlite", ["CREATE TABLE a(x)"])) as connection:
        connection.execute("INSERT INTO a VALUES (CAST(x'41ff42' AS TEXT)), ('good')")
    scan = scan_records(tmp_path / "x.sqlite")
    assert [record.values for record in scan if len(record.values) == 1] == [("good",)]
    assert scan.skipped_cells == 1


def test_pages_that_the_disk_will_not_give_cost_their_own_records_only(sound, expected, monkeypatch, tmp_path):
    content = bytearray(sound.read_bytes())
    read, (first, _) = os.pread, pages_with_records(content)[5]

    def failing(handle, size, at):
        if at < first + PAGE_BYTES and at + size > first:
            raise OSError(5, "Input/output error")
        return read(handle, size, at)

    content[first : first + PAGE_BYTES] = bytes(PAGE_BYTES)
    wanted = found_records(damaged(tmp_path, content)) & expected
    monkeypatch.setattr(os, "pread", failing)
    assert found_records(sound) & expected == wanted
    assert wanted < expected
