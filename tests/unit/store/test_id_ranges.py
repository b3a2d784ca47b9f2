"""Ranges of ids: an id that is not found is proven not to be there, or the index is damaged, whatever its size."""

import random
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.errors import DamagedIndex
from mvindex.store import id_ranges
from mvindex.store.generation import Generation
from mvindex.store.rows import ids_checksum, row_checksum
from mvindex.store.schema import settings_checksum

DIM = 4
# As many as make the SQL index of ids a tree of two levels, and several ranges.
IDS = [f"{number:06d}" for number in range(0, 6000, 2)]


def add(index, ids):
    """Add documents of these ids."""
    index.add_views([mvindex.Document(each, "t") for each in ids], np.full((len(ids), 1, DIM), 0.5, dtype=np.float32))


def catalog_of(path):
    """Return the catalog of an index whose log is empty."""
    return max(path.glob("generation-*/catalog.sqlite"))


def ranges_of(path):
    """Return the ranges in order, and the live ids with their rows."""
    with closing(sqlite3.connect(catalog_of(path))) as connection:
        ranges = connection.execute("SELECT first, ids, ids_checksum FROM id_ranges ORDER BY first").fetchall()
        return ranges, connection.execute("SELECT doc_row, id FROM documents WHERE alive").fetchall()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranges") / "i.mvx"
    with mvindex.create(path, dim=DIM) as index:
        shuffled = random.Random(1).sample(IDS, len(IDS))
        for begin in range(0, len(IDS), 700):
            add(index, shuffled[begin : begin + 700])
    return path


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made, tmp_path / "i.mvx")


def test_ranges_hold_the_live_ids_after_additions_replacements_deletions_and_a_compaction(path):
    with mvindex.open(path) as index:
        for change in (
            lambda: index.delete(ids=IDS[100:1500]),
            lambda: add(index, [*IDS[:300], *(f"{number:06d}x" for number in range(40))]),
            lambda: index.delete(ids=["nowhere", *IDS[-2:]]),
            index.admin.compact,
        ):
            change()
            ranges, rows = ranges_of(path)
            firsts = [first for first, _, _ in ranges]
            assert firsts[0] == ""
            for (first, count, checksum), end in zip(ranges, [*firsts[1:], chr(0x10FFFF)], strict=True):
                within = [row for row in rows if first <= row[1] < end]
                assert (count, checksum % (1 << 64)) == (len(within), ids_checksum(within))
                assert count <= 512
            assert index.admin.verify().is_sound


def test_a_new_id_has_one_range_checked_and_not_all_ids(path, monkeypatch):
    with mvindex.open(path) as index:
        monkeypatch.setattr(Generation, "check_ids", lambda *given: pytest.fail("all ids were checked"))
        assert index.get("000001") is None
        add(index, ["000003", "000005"])
        assert len(index) == len(IDS) + 2


def id_places(content, doc_id):
    """Return where the bytes of an id are in a file."""
    places, at = [], content.find(doc_id)
    while at >= 0:
        places.append(at)
        at = content.find(doc_id, at + 1)
    return places


@pytest.mark.parametrize("character", [b"!", b"x"])
@pytest.mark.parametrize("share", [0.0, 0.17, 0.5, 0.83, 0.999])
def test_no_id_is_missed_silently_where_an_id_is_damaged_wherever_it_stands(path, share, character):
    """A byte of one id is changed at each place of the catalog; that id and its neighbours are looked for."""
    catalog, number = catalog_of(path), int(share * len(IDS))
    sound, found = catalog.read_bytes(), 0
    near = IDS[max(0, number - 3) : number + 4]
    for place in id_places(sound, IDS[number].encode()):
        for byte in (1, 4):
            damaged = bytearray(sound)
            damaged[place + byte : place + byte + 1] = character
            if damaged == sound:
                continue
            catalog.write_bytes(damaged)
            for doc_id in near:
                try:
                    with mvindex.open(path) as index:
                        assert index.get(doc_id).id == doc_id
                except DamagedIndex:
                    found += 1
    assert found


def test_a_key_within_the_tree_that_is_damaged_misses_no_id_behind_it(path):
    """The keys of the root lead to all other pages; each is changed so that look-ups go past it."""
    catalog = catalog_of(path)
    with closing(sqlite3.connect(catalog)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'documents_live'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    sound, seen = catalog.read_bytes(), 0
    begin = (root - 1) * size
    keys = [key for key in IDS if begin <= sound.find(key.encode(), begin) < begin + size]
    assert len(keys) >= 5
    for key in keys[:: max(1, len(keys) // 3)]:
        place, number = sound.find(key.encode(), begin), IDS.index(key)
        for digits in (b"005999", IDS[max(0, number - 20)].encode()):
            catalog.write_bytes(sound[:place] + digits + sound[place + 6 :])
            for other in range(max(0, number - 40), min(len(IDS), number + 40), 7):
                try:
                    with mvindex.open(path) as index:
                        # One range is checked; what it says of its other ids holds.
                        assert index.get("000001" if other % 2 else IDS[other] + "x") is None
                        assert index.get(IDS[other]).id == IDS[other]
                except DamagedIndex:
                    seen += 1
    assert seen


def test_damaged_ranges_are_named_and_ids_that_are_sound_are_still_found(path, caplog):
    with closing(sqlite3.connect(catalog_of(path))) as connection:
        connection.execute("UPDATE id_ranges SET ids_checksum = ids_checksum + 1 WHERE first = ''")
        connection.commit()
    with mvindex.open(path) as index:
        assert index.get("nowhere") is None
        assert "all ids are checked" in caplog.text
        (problem,) = index.admin.verify().problems
        assert "ranges of ids" in problem.what and not problem.is_derived
        with pytest.raises(DamagedIndex, match="ranges of ids"):
            add(index, ["000001"])
        assert len(index) == len(IDS)
        index.delete(ids=IDS[-1:])
        index.admin.compact()
        assert index.admin.verify().is_sound
        add(index, ["000001"])


def test_a_table_of_ranges_that_cannot_be_read_or_lacks_its_lowest_leaves_sound_ids(path, tmp_path, caplog):
    with closing(sqlite3.connect(catalog_of(path))) as connection:
        rows = connection.execute("SELECT first, ids, ids_checksum FROM id_ranges WHERE first = ''").fetchall()
        connection.execute(
            "UPDATE id_ranges SET first = '!', checksum = ? WHERE first = ''", (row_checksum("!", *rows[0][1:]),)
        )
        connection.commit()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'id_ranges'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with mvindex.open(path) as index:
        assert "have no first one" in index.admin.verify().problems[0].what
        with pytest.raises(DamagedIndex, match="have no first one"):
            index.admin.snapshot(tmp_path / "copy.mvx")
    with open(catalog_of(path), "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with mvindex.open(path) as index:
        assert index.get("nowhere") is None
        assert "all ids are checked" in caplog.text


def test_an_index_of_an_older_version_has_no_ranges_and_gets_them_by_compact(path):
    with closing(sqlite3.connect(catalog_of(path))) as connection:
        connection.execute("DROP TABLE id_ranges")
        connection.execute("DELETE FROM settings WHERE key = ?", (id_ranges.ID_RANGES_KEY,))
        stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != 'checksum'"))
        connection.execute("UPDATE settings SET value = ? WHERE key = 'checksum'", (settings_checksum(stored),))
        connection.commit()
    with mvindex.open(path) as index:
        add(index, ["000001"])
        assert index.get("nowhere") is None
        assert index.admin.verify().is_sound
        index.delete(ids=IDS[:1])
        index.admin.compact()
        assert len(ranges_of(path)[0]) > 3
