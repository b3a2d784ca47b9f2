"""A collection that is released is loaded, and a server that restarts between reads and writes loses nothing."""

import threading
import time

import numpy as np
import pytest
from milvus_documents import fill, topical
from milvus_rows import DIM, create, documents

import mvindex
from mvindex import Document
from mvindex.errors import MvindexError
from mvindex.index import store_of
from mvindex_connectors.adopted import adopt_milvus
from mvindex_connectors.milvus.connection import views_of


def release(index):
    connection = store_of(index).connection
    for name in (connection.address.collection, views_of(connection.address.collection)):
        connection._client.release_collection(name)


def test_a_released_index_is_loaded_by_the_next_call_and_when_it_is_opened(place):
    views = topical(40, 2)
    with mvindex.create(place, dim=16) as index:
        fill(index, views)
        wanted = index.search(views["d1"][0], 5).hits
        release(index)
        assert index.search(views["d1"][0], 5).hits == wanted
        release(index)
    with mvindex.open(place) as index:
        assert index.search(views["d1"][0], 5).hits == wanted
        release(index)
        index.add_views([Document("more", "m")], [views["d1"]])
        assert len(index) == 41


@pytest.mark.needs("milvus-lite")
def test_a_released_collection_of_others_is_loaded(tmp_path):
    place = create(tmp_path / "old.db", documents(5), "IP")
    with adopt_milvus(place) as index:
        index._store._source._collection._connection._client.release_collection("chunks")
        assert len(index.search(np.ones(DIM), 5, exact=True).hits) == 5


class Callers:
    """A reader and a writer of one index, each in a thread; the writer writes again what was not acknowledged."""

    def __init__(self, place, index, query):
        self._place, self._index, self._query = place, index, query
        self._views, self._done = topical(400, 2, seed=6), threading.Event()
        self.written, self.refused, self.wrong = [], [], []
        self._threads = [threading.Thread(target=each) for each in (self._read, self._write)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _read(self):
        with mvindex.open(self._place) as index:
            while not self._done.is_set():
                try:
                    ids = [hit.id for hit in index.search(self._query, 5).hits]
                except MvindexError as err:
                    self.wrong.append(repr(err))
                    return
                if len(set(ids)) != 5 or ids[0] != "d1":
                    self.wrong.append(ids)

    def _write(self):
        while not self._done.is_set() and len(self.written) < len(self._views):
            number = len(self.written)
            try:
                self._index.add_views([Document(f"more{number}", "m")], [self._views[f"d{number}"]])
                self.written.append(f"more{number}")
            except MvindexError as err:
                self.refused.append(repr(err))
                self._done.wait(0.5)

    def wait(self, count):
        """Wait until so many documents are acknowledged."""
        deadline = time.monotonic() + 120
        while len(self.written) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(self.written) >= count, self.refused


@pytest.mark.needs("milvus-server")
def test_a_reader_and_a_writer_go_on_over_a_restart_and_nothing_acknowledged_is_lost(server):
    views = topical(40, 2)
    with server.collection("?timeout=120") as place, mvindex.create(place, dim=16) as index:
        fill(index, views)
        with Callers(place, index, views["d1"][0]) as callers:
            callers.wait(3)
            server.kill()
            server.start()
            callers.wait(len(callers.written) + 3)
        assert not callers.wrong
        # A restart may take longer than the claim of a writer holds.
        assert all(each.startswith("IndexLocked") for each in callers.refused), callers.refused
        with mvindex.open(place) as again:
            found = {document.id for document in again}
            assert {*views, *callers.written} <= found <= {*views, *callers.written, f"more{len(callers.written)}"}
            assert again.admin.verify().is_sound
