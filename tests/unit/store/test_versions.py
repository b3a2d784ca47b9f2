"""Documents that were replaced often: a reader finds the version of its snapshot, and reads no other."""

import numpy as np

import mvindex
from mvindex import Document
from mvindex.store import reader

VIEWS = np.eye(1, 4, dtype=np.float32)[None]


def test_the_version_of_an_older_snapshot_is_found_without_reading_the_others(tmp_path, monkeypatch):
    path = tmp_path / "a.mvx"
    with mvindex.create(path, dim=4) as index:
        for number in range(30):
            index.add_views([Document("often", f"version {number}")], VIEWS)
        with mvindex.open(path) as older:
            for number in range(30, 40):
                index.add_views([Document("often", f"version {number}")], VIEWS)
            checked = []

            def count(row):
                checked.append(row[0])
                check(row)

            check = reader.check_document
            monkeypatch.setattr(reader, "check_document", count)
            assert older.get("often").text == "version 29"
            assert set(checked) == {29}
            assert index.get("often").text == "version 39"


def test_a_document_deleted_before_the_snapshot_is_not_found_and_one_deleted_after_it_is(tmp_path):
    path = tmp_path / "a.mvx"
    with mvindex.create(path, dim=4) as index:
        for number in range(3):
            index.add_views([Document(doc_id, f"version {number}") for doc_id in ("gone", "going")], VIEWS.repeat(2, 0))
        index.delete(ids=["gone"])
        with mvindex.open(path) as older:
            index.delete(ids=["going"])
            assert older.get("gone") is None
            assert older.get("going").text == "version 2"
            index.add_views([Document("gone", "again")], VIEWS)
            assert older.get("gone") is None
        assert index.get("gone").text == "again"
        assert index.get("going") is None
