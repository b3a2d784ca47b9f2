"""Hits and documents are read whole, checked once and decoded on demand: nobody can tell but by the time it takes."""

import copy
import sqlite3
from dataclasses import asdict, replace

import numpy as np
import pytest

import mvindex
from mvindex.errors import DamagedIndex, QueryError
from mvindex.index import embedded_store_of
from mvindex.records import Hit, undecoded_hit
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import pack_spans

NUM_DOCUMENTS = 12
SPANS = pack_spans(np.array([[0, 5], [-1, -1], [6, 11]]))
TITLED = StoredDocument("d", "A title", "", "{}", None)
TEXT = StoredDocument("d", "A title", "north river", '{"page":[1,2]}', SPANS)


@pytest.mark.parametrize(
    ("stored", "slot", "expected"),
    [
        (TEXT, 0, Hit("d", 0.5, 0, (0, 5), "north", "north river", "A title", {"page": [1, 2]})),
        (TEXT, 1, Hit("d", 0.5, 1, None, None, "north river", "A title", {"page": [1, 2]})),
        (TEXT, 2, Hit("d", 0.5, 2, (6, 11), "river", "north river", "A title", {"page": [1, 2]})),
        (TITLED, 4, Hit("d", 0.5, 4, None, "A title", "", "A title", {})),
    ],
)
def test_a_hit_decoded_on_demand_is_that_hit(stored, slot, expected):
    def fresh():
        return undecoded_hit(stored, 0.5, slot)

    assert fresh() == expected and expected == fresh() and repr(fresh()) == repr(expected)
    for name in asdict(expected):
        assert getattr(fresh(), name) == getattr(expected, name)
    assert asdict(fresh()) == asdict(expected)
    for copied in (copy.copy(fresh()), copy.deepcopy(fresh())):
        assert copied == expected and type(copied) is Hit
    assert replace(fresh(), score=1.0) == replace(expected, score=1.0)
    hit = fresh()
    assert hit.metadata is hit.metadata
    with pytest.raises(AttributeError, match="snipet"):
        _ = hit.snipet
    with pytest.raises(AttributeError):
        hit.text = "other"


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        rng = np.random.default_rng(3)
        documents = [mvindex.Document(f"d{n}", f"text {n}", f"title {n}", {"n": n}) for n in range(NUM_DOCUMENTS)]
        index.add_views(documents, rng.standard_normal((NUM_DOCUMENTS, 2, 4)))
    return tmp_path / "x.mvx"


def change(path, statement):
    (catalog,) = path.rglob("catalog.sqlite")
    connection = sqlite3.connect(catalog)
    connection.execute(statement)
    connection.commit()
    connection.close()


QUERY = np.ones(4, dtype=np.float32)


@pytest.mark.parametrize("fields", [None, ("text",), ("metadata",), ()])
@pytest.mark.parametrize(
    ("damage", "place"),
    [("UPDATE texts SET text = 'forged' WHERE doc_row = 5", "d5"), ("UPDATE metadata SET json = '[]'", "metadata")],
)
def test_damage_is_named_at_the_first_read_whatever_is_asked_for(path, damage, place, fields):
    change(path, damage)
    with mvindex.open(path) as index, pytest.raises(DamagedIndex, match=place):
        index.search(QUERY, top_k=NUM_DOCUMENTS, fields=fields)


def test_what_was_read_is_not_checked_again(path, monkeypatch):
    with mvindex.open(path) as index:
        before = index.search(QUERY, top_k=NUM_DOCUMENTS)
        reader = "mvindex.store.reader.text_checksum"
        monkeypatch.setattr(reader, lambda *_: pytest.fail("a text was hashed again"))
        assert index.search(QUERY, top_k=NUM_DOCUMENTS) == before
        assert len(index.get([f"d{n}" for n in range(NUM_DOCUMENTS)])) == NUM_DOCUMENTS


def test_new_metadata_is_seen_and_checked(path):
    with mvindex.open(path) as index, mvindex.open(path) as writer:
        index.search(QUERY, top_k=NUM_DOCUMENTS)
        writer.update("d3", metadata={"n": "new"})
        found = {hit.id: hit.metadata for hit in index.search(QUERY, top_k=NUM_DOCUMENTS).hits}
        assert found == {f"d{n}": {"n": "new" if n == 3 else n} for n in range(NUM_DOCUMENTS)}
        change(path, "UPDATE metadata SET checksum = 1 WHERE doc_row = 4")
        writer.update("d5", metadata={})
        with pytest.raises(DamagedIndex, match="metadata of document 'd4'"):
            index.search(QUERY, top_k=NUM_DOCUMENTS)


def test_documents_added_later_are_checked_too(path):
    with mvindex.open(path) as index:
        index.search(QUERY, top_k=NUM_DOCUMENTS)
        index.add_views([mvindex.Document("late", "a late text")], 9 * np.ones((1, 1, 4)))
        assert index.search(QUERY, top_k=1).hits[0].id == "late"
        index.add_views([mvindex.Document("later", "a later text")], 2 * 9 * np.ones((1, 1, 4)))
        row = NUM_DOCUMENTS + 1
        change(path, f"UPDATE texts SET text = 'forged' WHERE doc_row = {row}")
        with pytest.raises(DamagedIndex, match="later"):
            index.search(QUERY, top_k=1)


def test_a_catalog_that_was_cut_is_named(path):
    with mvindex.open(path) as index:
        index.search(QUERY, top_k=2)
        catalog = embedded_store_of(index).snapshot.source.catalog.path
        with open(catalog, "r+b") as file:
            file.truncate(8192)
        with pytest.raises(DamagedIndex):
            index.search(QUERY, top_k=NUM_DOCUMENTS)


@pytest.mark.parametrize("fields", [("tekst",), "text", 5, (b"text",), ([],)])
def test_unknown_fields_are_refused(path, fields):
    with mvindex.open(path) as index, pytest.raises(QueryError, match="fields: expected .*text, title, metadata"):
        index.search(QUERY, fields=fields)


def test_fields_do_not_go_with_reranking(path):
    with mvindex.open(path) as index, pytest.raises(QueryError, match="rerank"):
        index.search(QUERY, text="a", fields=("text",), rerank=lambda question, hits: [0.0] * len(hits))
