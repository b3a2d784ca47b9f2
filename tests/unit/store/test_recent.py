"""Documents shown lately are hits again without being read; what was committed since is seen, and memory is bounded."""

import gc

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store import reader
from mvindex.store.reader import RecentDocuments, SnapshotReader

NUM_DOCUMENTS = 12
QUERY = np.ones(4, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        documents = [mvindex.Document(f"d{n}", f"text {n}", f"title {n}", {"n": n}) for n in range(NUM_DOCUMENTS)]
        index.add_views(documents, np.random.default_rng(3).standard_normal((NUM_DOCUMENTS, 2, 4)))
    return tmp_path / "x.mvx"


def found(index, **options):
    return index.search(QUERY, top_k=NUM_DOCUMENTS, **options).hits


def test_hits_shown_again_are_equal_and_are_not_read(path, monkeypatch):
    with mvindex.open(path) as index:
        assert index.info().text_bytes == 0
        before = found(index)
        assert NUM_DOCUMENTS * 200 < index.info().text_bytes < NUM_DOCUMENTS * 1000
        read = []
        monkeypatch.setattr(SnapshotReader, "documents", lambda self, rows, fields: read.append(len(rows)) or {})
        assert found(index) == before and not read


def test_what_is_kept_does_not_lengthen_collections_of_garbage(path):
    with mvindex.open(path) as index:
        found(index)
        gc.collect()
        assert index.info().text_bytes > 0
        tuples = (each for each in gc.get_objects() if issubclass(type(each), tuple))
        assert not [each for each in tuples if any(type(part) is str and part == "title 3" for part in each)]


def test_documents_without_all_fields_are_not_kept(path):
    with mvindex.open(path) as index:
        assert {hit.text for hit in found(index, fields=["title"])} == {""}
        assert index.info().text_bytes == 0
        assert {hit.text for hit in found(index)} == {f"text {n}" for n in range(NUM_DOCUMENTS)}


def test_a_commit_is_seen_and_a_snapshot_stays(path):
    with mvindex.open(path) as index, mvindex.open(path) as writer:
        before = found(index)
        writer.update("d3", metadata={"n": "new"})
        assert {hit.metadata["n"] for hit in found(index)} == {"new", *range(NUM_DOCUMENTS)} - {3}
        writer.delete(ids="d1")
        writer.add_views([mvindex.Document("d2", "another text")], np.ones((1, 2, 4)))
        assert {(hit.id, hit.text) for hit in found(index)} == {(hit.id, hit.text) for hit in before}
        index.refresh()
        texts = {hit.id: hit.text for hit in found(index)}
        assert "d1" not in texts and texts["d2"] == "another text" and len(texts) == NUM_DOCUMENTS - 1


def test_ids_are_found_in_a_snapshot_while_they_are_live(path):
    with mvindex.open(path) as index, mvindex.open(path) as writer:
        store = embedded_store_of(index)
        with store.reading(store.snapshot) as reader:
            assert reader.find_live(["d1", "d2", "d3"]).tolist() == [1, 2, 3]
        writer.add_views([mvindex.Document("d2", "another text")], np.ones((1, 2, 4)))
        writer.delete(ids="d1")
        with store.reading(store.snapshot) as reader:
            assert reader.find_live(["d1", "d2", "d3"]).tolist() == [3]


def test_what_is_asked_for_again_outlives_the_rest(monkeypatch):
    monkeypatch.setattr(reader, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(reader, "_OPEN", set())
    documents = RecentDocuments()
    for row in range(1, 400):
        documents.add({row: (str(row), "", "t" * 9_000, "{}", None)})
        documents.add({} if documents.find([0]) else {0: ("0", "", "often", "{}", None)})
        assert documents.size_bytes <= 1 << 20
    assert documents.find([0, 1, 399]).keys() == {0, 399}
    held = documents.size_bytes
    documents.add({500: ("500", "", "t" * (1 << 20), "{}", None)})
    assert not documents.find([500]) and documents.size_bytes == held


def test_all_open_indexes_share_the_room(path, monkeypatch):
    with mvindex.open(path) as index, mvindex.open(path) as other:
        found(other)
        monkeypatch.setattr(reader, "_MOST_BYTES", 2 * len(reader._OPEN) * other.info().text_bytes - 1)
        found(index)
        assert index.info().text_bytes == 0 < other.info().text_bytes


def test_texts_in_memory_are_counted_over_shards(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=2, shards=2) as index:
        index.add_views([mvindex.Document(str(number), "text") for number in range(8)], np.ones((8, 1, 2)))
        assert index.info().text_bytes == 0
        index.search(np.ones(2, np.float32), 8)
        assert index.info().text_bytes > 0
