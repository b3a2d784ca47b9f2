"""`mvindex migrate` and `mvindex export`: an index goes to Milvus and back, and stays the same."""

import json

import numpy as np
import pytest
from milvus_documents import assert_equal, embedded, fill, topical

import mvindex
from mvindex import Document
from mvindex.errors import ConfigError, StoreError
from mvindex.index import store_of
from mvindex.io.export import export_index
from mvindex.io.files import import_vectors
from mvindex.io.import_ import Target
from mvindex.io.migrate import migrate
from mvindex.store.embedded import EmbeddedStore
from mvindex_connectors.milvus.bulk import export_bulk
from mvindex_connectors.milvus.bulk_import import import_bulk


def quiet(what, done, total):
    pass


def source_index(tmp_path):
    """An index with a gap in its rows and ordinals, a replaced document, metadata and spans."""
    views = topical(230, 4)
    index = embedded(tmp_path, views, {"d5": {"lang": "de", "n": [1, 2.5, None]}}, temperature=0.2)
    index.delete(ids=["d0", "d7", "d229"])
    index.add_views([Document("d9", "new", "t")], [views["d3"]])
    return index, views


def assert_same_index(one, other, *, has_hashes=True):
    assert sorted(one, key=lambda each: each.id) == sorted(other, key=lambda each: each.id)
    for query in np.random.default_rng(4).standard_normal((4, 16)).astype(np.float32):
        for scoring in ("max", "drpq"):
            assert_equal(other.search(query, 50, scoring=scoring), one.search(query, 50, scoring=scoring))
    assert [each.ordinal for each in known(one)] == [each.ordinal for each in known(other)]
    if has_hashes:  # an export has none: they are of the vectors as they were given, before they were stored
        assert [each.content_hash for each in known(one)] == [each.content_hash for each in known(other)]


def known(index):
    ids = sorted(document.id for document in index)
    found = store_of(index).known(ids)
    return [found[doc_id] for doc_id in ids]


def test_an_index_goes_to_milvus_and_back_unchanged(place, tmp_path):
    index, _ = source_index(tmp_path)
    with index:
        report = migrate(index.path, place, queries=10)
        assert (report.documents, report.moved, report.queries) == (227, 227, 10)
        assert migrate(index.path, place).moved == 0
        with mvindex.open(place) as there:
            assert_same_index(index, there)
            assert there.temperature == 0.2
            assert there.admin.verify().is_sound
        back = tmp_path / "back.mvx"
        assert migrate(place, back, queries=10).moved == 227
        with mvindex.open(back) as again:
            assert_same_index(index, again)
            again.add_views([Document("next", "n")], [topical(1, 2)["d0"]])
            index.add_views([Document("next", "n")], [topical(1, 2)["d0"]])
            assert_same_index(index, again)


def test_an_export_of_an_index_in_milvus_is_imported_into_another(place, tmp_path):
    index, _ = source_index(tmp_path)
    with index:
        migrate(index.path, place)
        with mvindex.open(place) as there:
            assert export_index(there, tmp_path / "from-milvus", "npy").documents == 227
        assert import_vectors([tmp_path / "from-milvus"], Target(path=str(tmp_path / "back.mvx"))).imported == 227
        with mvindex.open(tmp_path / "back.mvx") as back:
            assert_same_index(index, back, has_hashes=False)
        with pytest.raises(ConfigError, match="exists already, and was not begun by this import"):
            import_vectors([tmp_path / "from-milvus"], Target(path=place))


def test_an_export_of_a_directory_is_imported_into_milvus(place, tmp_path):
    index, _ = source_index(tmp_path)
    with index:
        export_index(index, tmp_path / "out", "jsonl")
        assert import_vectors([tmp_path / "out"], Target(path=place)).imported == 227
        with mvindex.open(place) as there:
            assert_same_index(index, there, has_hashes=False)
        assert import_vectors([tmp_path / "out"], Target(path=place)).imported == 0


def test_an_interrupted_migration_goes_on(place, tmp_path, monkeypatch):
    index, _ = source_index(tmp_path)
    whole = EmbeddedStore.batches

    def cut(self, size=1024):
        for number, batch in enumerate(whole(self, 50)):
            if number == 2:
                raise KeyboardInterrupt
            yield batch

    with index:
        monkeypatch.setattr(EmbeddedStore, "batches", cut)
        with pytest.raises(KeyboardInterrupt):
            migrate(index.path, place)
        monkeypatch.undo()
        assert migrate(index.path, place, queries=5).moved == 127
        with mvindex.open(place) as there:
            assert_same_index(index, there)


def test_a_migration_onto_something_else_is_refused(place, tmp_path):
    index, views = source_index(tmp_path)
    with index, mvindex.create(place, dim=16) as other:
        fill(other, {"mine": views["d1"]})
        other.close()
        with pytest.raises(ConfigError, match="was not made from"):
            migrate(index.path, place)
        with mvindex.open(place) as there:
            assert [document.id for document in there] == ["mine"]


def test_answers_that_differ_are_told(place, tmp_path):
    index, views = source_index(tmp_path)
    with index:
        migrate(index.path, place)
        with mvindex.open(place) as there:
            there.add_views([Document("d1", "text of d1", "title")], [-views["d1"]])
        with pytest.raises(StoreError, match="answers otherwise|has 2"):
            with mvindex.open(place) as there:
                there.add_views([Document("more", "m")], [views["d1"]])
            migrate(index.path, place, queries=5)


def test_an_export_is_imported_by_a_real_server(tmp_path, request):
    server = request.getfixturevalue("server")
    index, _ = source_index(tmp_path)
    with index, server.collection() as place:
        report = export_bulk(index, tmp_path / "bulk", quiet)
        assert (report.documents, report.shards, report.written) == (227, 1, 1)
        imported = import_bulk(tmp_path / "bulk", place, on_progress=quiet)
        assert (imported.documents, imported.views, imported.imported) == (227, report.views, 2)
        with mvindex.open(place) as there:
            assert_same_index(index, there)
            assert there.admin.verify().is_sound
            assert there.admin.compact().dropped == 0
            fill(there, {"fresh": topical(1, 2)["d0"]})
            assert len(there) == 228


test_an_export_is_imported_by_a_real_server = pytest.mark.needs("milvus-server")(
    test_an_export_is_imported_by_a_real_server
)


def test_an_interrupted_export_goes_on_and_writes_the_same(tmp_path, monkeypatch):
    from mvindex_connectors.milvus import bulk

    index, _ = source_index(tmp_path)
    monkeypatch.setattr(bulk, "SHARD_BATCHES", 1)
    whole = EmbeddedStore.batches
    monkeypatch.setattr(EmbeddedStore, "batches", lambda self, size=1024: whole(self, 60))
    with index:
        assert export_bulk(index, tmp_path / "whole", quiet).shards == 4
        write = bulk._write_shard

        def dies(directory, number, batches, first):
            if number == 2:
                raise KeyboardInterrupt
            return write(directory, number, batches, first)

        monkeypatch.setattr(bulk, "_write_shard", dies)
        with pytest.raises(KeyboardInterrupt):
            export_bulk(index, tmp_path / "cut", quiet)
        assert not (tmp_path / "cut" / "settings.json").exists()
        monkeypatch.setattr(bulk, "_write_shard", write)
        assert export_bulk(index, tmp_path / "cut", quiet).written == 2
        assert export_bulk(index, tmp_path / "cut", quiet).written == 0
        for path in sorted((tmp_path / "whole").rglob("*.*")):
            other = tmp_path / "cut" / path.relative_to(tmp_path / "whole")
            if path.name not in ("manifest.json", "settings.json"):
                assert other.read_bytes() == path.read_bytes()
        kept = json.loads((tmp_path / "cut" / "manifest.json").read_text())
        assert [shard["documents"] for shard in kept["shards"]] == [60, 60, 60, 47]
        index.delete(ids=["d9"])
        with pytest.raises(ConfigError, match="older state"):
            export_bulk(index, tmp_path / "cut", quiet)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "mine.txt").write_text("mine")
        with pytest.raises(ConfigError, match="not empty"):
            export_bulk(index, tmp_path / "full", quiet)
