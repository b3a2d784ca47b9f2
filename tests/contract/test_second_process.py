"""Beside a writer: readers in other processes see whole versions, a second writer is refused, a dead one forgotten."""

import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import mvindex
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.errors import IndexLocked
from mvindex.index import search_engine_of
from mvindex.ingest import CHUNK_DOCUMENTS
from tests.contract.second_process import CORE, QUERY
from tests.contract.second_process_rounds import ENOUGH, Rounds, watched

HOLDER = """
import sys
import numpy as np
import mvindex

def documents():
    for number in range(1500):
        yield mvindex.Document(f"held {number}", "text")
    print("holding", flush=True)
    sys.stdin.read()

with mvindex.open(sys.argv[1]) as index:
    print(index.add_views(documents(), np.ones((1500, 1, 2))).added)
"""


def one_view(texts):
    return np.array([[len(text), 1.0] for text in texts])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with mvindex.create(tmp_path_factory.mktemp("shared") / "x.mvx", encoder=one_view) as index:
        index.add([mvindex.Document("mine", "text", metadata={"lang": "en"})])
        yield index


def end(process):
    """Kill the process by signal 9, and close its pipes."""
    process.kill()
    process.communicate()


def hold(path):
    """A process in the middle of a long add_views()."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "holding\n"
    return holder


@pytest.fixture(scope="module")
def holder(shared):
    process = hold(shared.path)
    yield process
    end(process)


HOWS = ("refresh", "keep", "reopen", "threads", "copy")


@pytest.mark.full
def test_readers_in_other_processes_see_one_whole_version_whatever_is_written(tmp_path):
    told, done = watched(tmp_path / "w.mvx", HOWS, 1, "numpy")
    for how, seen in zip(HOWS, told, strict=True):
        assert (seen["mixes"], seen["missing"], seen["errors"]) == ([], [], []), how
        if how == "keep":
            assert seen["versions"] == [0] and seen["reads"]["search"] >= ENOUGH
        else:
            assert len(seen["versions"]) >= ENOUGH, how
    assert done["builds of flat"] and done["builds of hnsw"] and done["compactions"]


def test_a_snapshot_taken_beside_a_writer_is_one_state(tmp_path):
    """At each stretch that is copied the writer goes on: a new version, guests, engines, a new generation."""
    with mvindex.create(tmp_path / "w.mvx", dim=2, dtype="fp32") as index, mvindex.open(index.path) as other:
        rounds = Rounds(index)
        while "builds of hnsw" not in rounds.done:
            rounds.round()
        version = rounds.version
        # The first stretches are of the engine, which a snapshot takes as it then is.
        told = []
        other.admin.snapshot(tmp_path / "copy.mvx", lambda size: told.append(size) or len(told) > 2 and rounds.round())
        assert rounds.version > version and rounds.done["compactions"]
        with mvindex.open(tmp_path / "copy.mvx") as copy:
            search_engine_of(copy).use_scan(NumpyScan)
            hits = copy.search(QUERY, top_k=100, filter={"group": "core"}).hits
            assert sorted(hit.id for hit in hits) == sorted(CORE)
            assert {hit.title for hit in hits} == {str(version)} and {hit.score for hit in hits} == {version}
            assert copy.info().kind == "hnsw"
        assert mvindex.verify(tmp_path / "copy.mvx").problems == ()


def test_verify_beside_a_writer_finds_nothing_wrong(tmp_path):
    """Whenever bytes were read, the writer goes on: what it then makes new or removes is no damage."""
    with mvindex.create(tmp_path / "w.mvx", dim=2, dtype="fp32") as index:
        rounds = Rounds(index)
        rounds.build("flat")
        told = []
        report = mvindex.verify(index.path, lambda size: told.append(size) or rounds.round())
        assert rounds.version >= 3 and rounds.done["builds of hnsw"]
        assert report.problems == ()


# In an order in which one after the other can be done.
WRITES = {
    "add": lambda index: index.add([mvindex.Document("new", "text")]),
    "add_views": lambda index: index.add_views([mvindex.Document("new", "text")], np.ones((1, 2))),
    "update": lambda index: index.update("mine", metadata={"lang": "de"}),
    "build of exact": lambda index: index.admin.build("exact"),
    "build of flat": lambda index: index.admin.build("flat"),
    "build of hnsw": lambda index: index.admin.build("hnsw"),
    "delete by ids": lambda index: index.delete(ids="mine"),
    "delete by filter": lambda index: index.delete(filter={"lang": "en"}),
    "delete of nothing": lambda index: index.delete(ids="nobody"),
    "compact": lambda index: index.admin.compact(),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_second_writer_is_refused_with_the_holder_named(shared, holder, name):
    named = f"process {holder.pid} on {socket.gethostname()} is writing"
    with pytest.raises(IndexLocked, match=named):
        WRITES[name](shared)
    with mvindex.open(shared.path, encoder=one_view) as other, pytest.raises(IndexLocked, match=named):
        WRITES[name](other)


def test_readers_go_on_beside_a_writer(shared, holder):
    """They see the batches that are stored, and of those nothing is missing."""
    with mvindex.open(shared.path) as reader:
        search_engine_of(reader).use_scan(NumpyScan)
        assert len(reader) == 1 + CHUNK_DOCUMENTS
        assert reader.get("mine").metadata == {"lang": "en"}
        assert len(reader.search([1.0, 1.0], top_k=2000).hits) == 1 + CHUNK_DOCUMENTS


def test_after_the_holder_is_killed_the_next_writer_goes_on_at_once(shared, holder):
    end(holder)
    assert holder.returncode == -9
    begin = time.monotonic()
    assert shared.delete(ids="nobody") == 0
    assert time.monotonic() - begin < 5
    assert len(shared) == 1 + CHUNK_DOCUMENTS
    with mvindex.open(shared.path, encoder=one_view) as other:
        for write in WRITES.values():
            write(other)
        assert {"new", "held 0", f"held {CHUNK_DOCUMENTS - 1}"} <= {document.id for document in other}
        assert len(other) == 1 + CHUNK_DOCUMENTS


def test_after_the_holder_is_done_the_next_writer_goes_on(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        holder = hold(index.path)
        with pytest.raises(IndexLocked):
            index.delete(ids="held 0")
        output, _ = holder.communicate()
        assert (holder.returncode, output) == (0, "1500\n")
        assert index.delete(ids=["held 0", "held 1499"]) == 2
        assert len(index) == 1498
