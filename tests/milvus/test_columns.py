"""Rows upserted by columns are those that pymilvus writes of the same rows; what a run has written is known."""

import numpy as np
from milvus_documents import topical

import mvindex
from mvindex import Document
from mvindex.index import store_of
from mvindex.ingest import Entry, IngestHooks, IngestReport
from mvindex.ingest.pipeline import ingest_chunk
from mvindex_connectors.milvus import writes
from mvindex_connectors.milvus.layout import id_hash
from mvindex_connectors.milvus.writes import WrittenIds


def stored(index):
    """All rows of both collections of the index."""
    client, name = store_of(index).connection._client, store_of(index).connection.address.collection
    found = []
    for each, fields in ((name, ["*"]), (f"{name}_views", ["pk", "doc", "vec"])):
        rows = client.query(each, filter="pk >= 0", output_fields=fields, consistency_level="Strong")
        plain = [{name: np.asarray(value).tolist() for name, value in row.items()} for row in rows]
        found.append(sorted(plain, key=lambda row: row["pk"]))
    return found


def test_columns_and_rows_of_pymilvus_store_the_same(place, monkeypatch):
    """Texts of many characters, an empty one, negative checksums; vectors of every sign."""
    views = topical(40, 3)
    texts = {"d0": "", "d1": "Ünï\u2603\U0001f600" * 50, "d2": "a\nb\x7fc"}
    documents = [Document(doc_id, texts.get(doc_id, "t"), metadata={"n": [doc_id]}) for doc_id in views]
    with mvindex.create(place, dim=16) as index:
        assert writes.is_known()
        index.add_views(documents, list(views.values()))
        by_column = stored(index)
        assert [len(rows) for rows in by_column] == [40, 120]
        assert any(row["views_checksum"] < 0 for row in by_column[0])
        index.delete(ids=list(views))
        monkeypatch.setattr(writes, "_KNOWN", ("0.0.",))
        assert not writes.is_known()
        index.add_views(documents, list(views.values()))
        by_row = stored(index)
    moved = ("pk", "doc", "ordinal", "checksum")
    for one, other in zip(by_column, by_row, strict=True):
        for row in (*one, *other):
            for name in moved:
                row.pop(name, None)
    assert by_column == by_row


def test_what_was_written_is_found_and_nearly_nothing_else():
    written = WrittenIds()
    parts = [[f"{part}-{number}" for number in range(size)] for part, size in enumerate((5, 1, 9))]
    assert written.among(["0-0"]) == []
    for part in parts:
        written.add(part)
    assert written.among(["new", *parts[0], "3-0", *parts[2], *parts[1]]) == [*parts[0], *parts[2], *parts[1]]
    assert written.among([]) == []


def test_ids_that_share_a_hash_are_looked_up(monkeypatch):
    monkeypatch.setattr("mvindex_connectors.milvus.writes.id_hash", lambda doc_id: id_hash(doc_id[:1]))
    written = WrittenIds()
    written.add(["apple"])
    assert written.among(["ant", "bee"]) == ["ant"]


def test_a_run_on_an_empty_index_replaces_what_it_wrote_itself(place):
    """One writing() with two commits of the same id: the second one is a new version of the same document."""
    views, report = topical(2, 3), IngestReport()
    with mvindex.create(place, dim=16) as index:
        with store_of(index).writing() as writer:
            for text in ("first", "second"):
                for doc_id, rows in views.items():
                    entry = Entry("here", Document(doc_id, text), rows)
                    ingest_chunk(writer, [entry], None, report, IngestHooks())
        assert (report.added, report.replaced) == (2, 2)
        assert [(document.id, document.text) for document in index] == [("d0", "second"), ("d1", "second")]
        with store_of(index).writing() as writer:
            assert [known.doc_row for known in writer.known(["d0", "d1"]).values()] == [0, 1]
        assert index.info().views == 6
        assert index.admin.verify().is_sound
