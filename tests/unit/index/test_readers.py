"""One writer, many readers: threads, processes, snapshots, an index made anew at its path."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mvindex
from mvindex.errors import (
    IndexLocked,
    StaleReader,
    StoreError,
)
from mvindex.index import embedded_store_of
from mvindex.index.factory import remove_untouched
from tests.helpers.index_examples import documents, vectors


def test_a_reader_keeps_its_snapshot_until_it_refreshes(index, tmp_path):
    with mvindex.open(tmp_path / "x.mvx") as reader:
        index.add_views([mvindex.Document("3", "new text")], vectors(1, seed=9))
        index.delete(ids="4")
        assert reader.get("3").text == "text 3"
        assert reader.get("4").text == "text 4"
        assert len(reader) == 10
        found = reader.search(np.ones(4), top_k=10)
        assert {hit.id: hit.text for hit in found.hits}["3"] == "text 3"
        assert reader.refresh()
        assert reader.get("3").text == "new text"
        assert reader.get("4") is None
        assert not reader.refresh()


def test_a_second_writer_of_this_process_is_refused_as_one(index, tmp_path):
    with mvindex.open(tmp_path / "x.mvx") as other, embedded_store_of(index).writing():
        with pytest.raises(IndexLocked, match="this process is writing to this index, in another thread or as another"):
            other.delete(ids="1")
    with mvindex.open(tmp_path / "x.mvx") as other:
        assert other.delete(ids="1") == 1


def test_the_lock_of_a_killed_writer_does_not_block(index, tmp_path):
    code = (
        "import mvindex, os, sys\n"
        "from mvindex.index import embedded_store_of\n"
        "index = mvindex.open(sys.argv[1])\n"
        "with embedded_store_of(index).writing():\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.mvx")], check=False)
    assert done.returncode == -9
    assert index.delete(ids="1") == 1


def test_searches_from_many_threads_agree(index):
    expected = index.search(np.ones(4), top_k=5)
    found = []

    def search():
        found.extend(index.search(np.ones(4), top_k=5) for _ in range(20))

    threads = [threading.Thread(target=search) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120 and all(result == expected for result in found)


def test_a_reader_in_another_process_never_sees_part_of_a_document(tmp_path):
    """A writer replaces documents over and over; text, title and views carry the version, and must agree."""
    with mvindex.create(tmp_path / "w.mvx", dim=2) as index:
        index.add_views(version(0), version_views(0))
        code = (
            "import mvindex, sys, time\n"
            "index = mvindex.open(sys.argv[1])\n"
            "seen = set()\n"
            "end = time.time() + 60\n"
            "while len(seen) < 12 and time.time() < end:\n"
            "    index.refresh()\n"
            "    result = index.search([1.0, 0.0], top_k=50)\n"
            "    assert len(result.hits) == 20, len(result.hits)\n"
            "    for hit in result.hits:\n"
            "        assert hit.text == hit.title == str(int(hit.score)), (hit.text, hit.title, hit.score)\n"
            "    assert len({hit.text for hit in result.hits}) == 1, 'a batch is seen whole or not at all'\n"
            "    seen.add(result.hits[0].text)\n"
            "print(len(seen))\n"
        )
        reader = subprocess.Popen([sys.executable, "-c", code, str(index.path)], stdout=subprocess.PIPE, text=True)
        number = 0
        while reader.poll() is None:
            number += 1
            index.add_views(version(number), version_views(number))
        out, _ = reader.communicate()
    assert reader.returncode == 0
    assert int(out) == 12


def version(number):
    return [mvindex.Document(str(n), str(number), str(number)) for n in range(20)]


def version_views(number):
    return np.full((20, 3, 2), [float(number), 0.0])


def test_a_reader_whose_engine_was_replaced_scans_its_snapshot(index, tmp_path):
    index.admin.build(kind="flat")
    with mvindex.open(tmp_path / "x.mvx") as reader:
        index.admin.build(kind="hnsw")
        result = reader.search(np.ones(4), top_k=10)
        assert len(result.hits) == 10 and result.exact
        assert reader.info().kind == "flat" and reader.refresh() and reader.info().kind == "hnsw"
        assert len(reader.search(np.ones(4), top_k=10).hits) == 10


def test_a_forked_child_reads_with_connections_of_its_own(index):
    expected = index.search(np.ones(4), top_k=3)
    child = os.fork()
    if child == 0:
        same = index.get("3") is not None and index.search(np.ones(4), top_k=3) == expected
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert index.search(np.ones(4), top_k=3) == expected


def test_a_child_that_was_forked_during_a_read_says_so_and_the_parent_reads_on(index):
    """There SQLite believes that it has the parent's locks."""
    documents_read = iter(index)
    next(documents_read)
    child = os.fork()
    if child == 0:
        try:
            index.get("3")
        except StoreError as err:
            os._exit(0 if "forked during a read" in str(err) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list(documents_read)) == 9 and index.get("3") is not None


def test_closed_readers_leave_no_descriptor_while_another_is_open(index, tmp_path):
    def num_open():
        links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        return sum(str(tmp_path) in link for link in links)

    with mvindex.open(tmp_path / "x.mvx") as kept:
        kept.search(np.ones(4), top_k=3)
        # Between reads there may be no connection at all.
        before = num_open()
        readers = [mvindex.open(tmp_path / "x.mvx") for _ in range(20)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda reader: len(reader.search(np.ones(4), top_k=3).hits), readers))
        assert found == [3] * 20 and num_open() > before + 20
        reading = iter(kept)
        next(reading)
        for reader in readers:
            reader.close()
        assert len(list(reading)) == 9
        assert num_open() <= before
        assert len(kept.search(np.ones(4), top_k=3).hits) == 3


@pytest.mark.parametrize("is_removed", [False, True], ids=["moved", "removed"])
def test_an_index_that_was_moved_or_removed_while_open_says_so(index, tmp_path, is_removed):
    if is_removed:
        shutil.rmtree(tmp_path / "x.mvx")
    else:
        (tmp_path / "x.mvx").rename(tmp_path / "y.mvx")
    for use in (
        lambda: index.search(np.ones(4)),
        lambda: index.get("3"),
        lambda: list(index),
        lambda: index.info(),
        lambda: index.refresh(),
        lambda: index.delete(ids="3"),
        lambda: index.update("3", metadata={}),
        lambda: index.add_views([mvindex.Document("old", "t")], vectors(1)),
        lambda: index.admin.build("flat"),
        lambda: index.admin.compact(),
        lambda: index.admin.verify(),
        lambda: index.admin.snapshot(tmp_path / "z.mvx"),
    ):
        with pytest.raises(StaleReader, match=r"x.mvx.*: this index was moved or removed since it was opened"):
            use()
    assert repr(index).startswith(f"<Index {tmp_path / 'x.mvx'}")
    assert not (tmp_path / "z.mvx").exists()


def test_an_index_made_anew_at_the_same_path_is_never_mixed_with_the_old_one(index, tmp_path):
    shutil.rmtree(tmp_path / "x.mvx")
    with mvindex.create(tmp_path / "x.mvx", dim=4) as new:
        new.add_views([mvindex.Document("new", "t")], vectors(1, seed=5))
        for use in (
            lambda: index.search(np.ones(4)),
            lambda: index.get("3"),
            lambda: index.refresh(),
            lambda: index.delete(ids="new"),
            lambda: index.add_views([mvindex.Document("old", "t")], vectors(1)),
        ):
            with pytest.raises(StaleReader, match="another index was made here"):
                use()
        assert [document.id for document in new] == ["new"]


def test_an_untouched_index_is_removed_only_if_nobody_stored_anything(tmp_path):
    alone = mvindex.create(tmp_path / "a.mvx", dim=4)
    remove_untouched(alone)
    assert not (tmp_path / "a.mvx").exists()
    first = mvindex.create(tmp_path / "b.mvx", dim=4)
    with mvindex.open(tmp_path / "b.mvx") as second:
        second.add_views(documents(2), vectors(2))
        remove_untouched(first)
        assert len(second.search(np.ones(4)).hits) == 2


def test_a_refresh_in_another_thread_never_brings_an_older_state_back(index):
    stop = threading.Event()

    def refresh():
        while not stop.is_set():
            index.refresh()

    threads = [threading.Thread(target=refresh) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(60):
            index.add_views([mvindex.Document(f"n{number}", "t")], vectors(1, seed=number))
            assert f"n{number}" in index
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(index) == 70
