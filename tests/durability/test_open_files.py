"""No call of the index keeps files open. Operations with too few open files are in the table of test_faults.py."""

import gc
import os
import threading

import numpy as np
import pytest

import mvindex
from mvindex.errors import MvindexError
from mvindex.store import reader as store_reader
from tests.helpers.marks import long

DIM, NUM_DOCUMENTS = 4, 20


def descriptors():
    """Return the open files of this process by descriptor."""
    gc.collect()
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


def mapped(path):
    """Return how many parts of this process's memory are files in the directory."""
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)


@pytest.fixture
def path(tmp_path):
    views = np.random.default_rng(0).standard_normal((NUM_DOCUMENTS, 1, DIM))
    with mvindex.create(tmp_path / "i.mvx", dim=DIM) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(NUM_DOCUMENTS)], views)
        index.admin.build("flat")
    return tmp_path / "i.mvx"


def look(path):
    with mvindex.open(path) as index:
        assert len(index.search(np.ones(DIM), top_k=3).hits) == 3
        assert index.get("3").text == "t"


@pytest.mark.parametrize("times", [100, long(300)])
def test_opening_searching_and_closing_repeatedly_keeps_no_file_open(path, times):
    look(path)
    before = descriptors()
    for _ in range(times):
        look(path)
    assert descriptors() == before and mapped(path) == 0


def test_writing_compacting_copying_and_verifying_keep_nothing_open(path, tmp_path):
    def write(number):
        with mvindex.open(path) as index:
            index.add_views([mvindex.Document("3", f"text {number}")], np.full((1, 1, DIM), number + 1.0))
            index.update("4", metadata={"number": number})
            index.admin.build(("flat", "hnsw", "exact")[number % 3])
            assert index.admin.compact().dropped == 1
            index.admin.snapshot(tmp_path / f"{number}.mvx")
        assert mvindex.verify(path).is_sound
        mvindex.salvage(path, tmp_path / f"saved-{number}.mvx")

    write(0)
    before = descriptors()
    for number in range(1, 7):
        write(number)
    assert descriptors() == before and mapped(tmp_path) == 0


def test_an_index_that_stays_open_keeps_no_more_after_twenty_changes_than_after_one(path):
    with mvindex.open(path) as index, mvindex.open(path) as reader:

        def change(number):
            index.add_views([mvindex.Document("3", f"text {number}")], np.full((1, 1, DIM), number + 1.0))
            if number % 10 == 0:
                index.admin.compact()
            assert reader.refresh() and reader.search(np.ones(DIM), top_k=1).hits
            assert reader.get("3").text == f"text {number}"

        change(0)
        before = len(descriptors()), mapped(path)
        for number in range(1, 21):
            change(number)
        assert (len(descriptors()), mapped(path)) == before


def test_searches_in_many_threads_keep_no_more_open_than_their_number(path):
    with mvindex.open(path) as index:
        before = len(descriptors())

        def work():
            for _ in range(20):
                index.search(np.ones(DIM), top_k=3, filter={"id": {"in": ["1", "2", "3"]}})

        for _ in range(3):
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # A connection has the database, its log and its lock file open.
        assert len(descriptors()) - before <= 8 * 3


def test_two_threads_may_use_their_first_filter_at_the_same_time(path, monkeypatch):
    def search():
        return [hit.id for hit in index.search(np.ones(DIM), top_k=20, filter={"id": {"in": ["1", "2", "3"]}}).hits]

    def checksum(*row):
        # The other thread begins after this one, and ends before this one goes on.
        if not found:
            found.append([])
            other = threading.Thread(target=lambda: found.append(search()))
            other.start()
            other.join()
        return checked(*row)

    found: list[list[str]] = []
    checked = store_reader.metadata_checksum
    monkeypatch.setattr(store_reader, "metadata_checksum", checksum)
    with mvindex.open(path) as index:
        assert sorted(search()) == ["1", "2", "3"]
    assert sorted(found[1]) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "name", ["current.json", "catalog.sqlite", "views-000001.f16", "rows-000001.bin", "acknowledged"]
)
def test_opening_what_is_damaged_keeps_nothing_open(path, name):
    (file,) = path.rglob(name)
    before = descriptors()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for _ in range(5):
        with pytest.raises(MvindexError):
            look(path)
    assert len(mvindex.verify(path).problems) > 0
    assert descriptors() == before and mapped(path) == 0
