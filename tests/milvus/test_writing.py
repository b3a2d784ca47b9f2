"""Writes to Milvus: one writer, whole documents, limits by name, and nobody else's collections."""

import json
import secrets
import threading
import time

import numpy as np
import pytest
from milvus_documents import fill, topical

import mvindex
from mvindex import Document
from mvindex.errors import (
    ConfigError,
    DocumentError,
    IndexLocked,
    QueryError,
    StoreError,
    Unsupported,
)
from mvindex.index import embedded_store_of, store_of
from mvindex.testing import unit
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.collections import drop_store
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import special_record
from mvindex_connectors.milvus.reader import Reader


def client_of(index):
    return store_of(index).connection._client


def name_of(index):
    return store_of(index).connection.address.collection


def rows(*seeds, dim=8):
    return [unit(np.random.default_rng(seed).standard_normal((2, dim))) for seed in seeds]


def test_a_second_writer_is_refused_and_named(place):
    with mvindex.create(place, dim=8) as index:
        claim = {"host": "elsewhere", "pid": 77, "boot": "b", "started": "1", "until": time.time() + 60}
        client_of(index).upsert(name_of(index), [special_record(-5000, json.dumps(claim))])
        with pytest.raises(IndexLocked, match="process 77 on elsewhere"):
            index.add_views([Document("a", "a")], rows(1))
        assert len(index) == 0
        claim["until"] = time.time() - 1
        client_of(index).upsert(name_of(index), [special_record(-5000, json.dumps(claim))])
        index.add_views([Document("a", "a")], rows(1))
        assert len(index) == 1


def test_of_two_writers_at_once_each_batch_is_whole_or_refused(place):
    with mvindex.create(place, dim=8) as index:
        fill(index, {"first": rows(0)[0]})
        other = index if place.startswith("milvus-lite") else mvindex.open(place)
        outcomes = {}

        def write(number, target):
            try:
                target.add_views([Document(f"w{number}", "text")], rows(number))
                outcomes[number] = "done"
            except IndexLocked:
                outcomes[number] = "locked"

        threads = [threading.Thread(target=write, args=(n, t)) for n, t in enumerate((index, other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        index.refresh()
        kept = {f"w{number}" for number, outcome in outcomes.items() if outcome == "done"}
        assert {document.id for document in index} == {"first", *kept}
        assert len(outcomes) == 2
        if other is not index:
            other.close()


@pytest.mark.parametrize(
    ("document", "views", "what"),
    [
        (Document("long text", "é" * 40_000), 2, "text: expected at most 65,535 bytes in Milvus, got 80,000"),
        (Document("long title", "t", "x" * 70_000), 2, "title"),
        (Document("much metadata", "t", "", {"a": "x" * 70_000}), 2, "metadata"),
        (Document("many views", "t"), 4097, "got 4,097"),
    ],
)
def test_what_milvus_cannot_hold_is_refused_by_name_before_anything_is_written(place, document, views, what):
    many = unit(np.random.default_rng(0).standard_normal((views, 8)))
    with mvindex.create(place, dim=8) as index:
        with pytest.raises(DocumentError, match=what) as told:
            index.add_views([Document("ok", "ok"), document], [*rows(1), many])
        assert document.id in str(told.value)
        assert len(index) == 0
        written = {"filter": "pk >= 0", "output_fields": ["pk"], "consistency_level": "Strong"}
        assert client_of(index).query(f"{name_of(index)}_views", **written) == []


def test_a_foreign_collection_is_refused_and_left_alone(place):
    with mvindex.create(place, dim=8) as index:
        client = client_of(index)
        name = f"{name_of(index)}_foreign"
        client.create_collection(name, dimension=4)
        try:
            client.insert(name, [{"id": 1, "vector": [1.0, 0.0, 0.0, 0.0]}])
            foreign = f"{place}?collection={name}" if place.startswith("milvus-lite") else f"{place}_foreign"
            if place.startswith("milvus-lite"):
                index.close()
            with pytest.raises(StoreError, match="expected a collection that mvindex made"):
                mvindex.open(foreign)
            with pytest.raises(ConfigError, match="exists already"):
                mvindex.create(foreign, dim=8)
            with pytest.raises(ConfigError, match="exists already"):
                mvindex.create(place, dim=8)
        finally:
            client = store_of(mvindex.open(place)).connection._client
            client.load_collection(name)
            assert client.query(name, filter="id == 1", output_fields=["id"], consistency_level="Strong")
            client.drop_collection(name)


@pytest.mark.needs("milvus-server")
def test_tenants_with_a_database_each_see_their_own_index_only(server):
    client, names = server._client(30), [f"t{secrets.token_hex(4)}" for _ in range(2)]
    places = [server.url("corpus", f"?db={name}") for name in names]
    try:
        for number, name in enumerate(names):
            client.create_database(name)
            with mvindex.create(places[number], dim=16) as index:
                fill(index, {f"of {name}": topical(1, 2)["d0"]})
        for place, name in zip(places, names, strict=True):
            with mvindex.open(place) as index:
                assert [hit.id for hit in index.search(topical(1, 2)["d0"][0], 5).hits] == [f"of {name}"]
        with pytest.raises(StoreError, match="expected a collection 'corpus', got none"):
            mvindex.open(server.url("corpus"))
        with pytest.raises(StoreError, match="expected a collection 'corpus' in database 'none_such'"):
            mvindex.open(server.url("corpus", "?db=none_such"))
    finally:
        for place, name in zip(places, names, strict=True):
            connection = Connection(parse_address(place))
            drop_store(connection)
            connection.close()
            client.drop_database(name)
        client.close()


def test_an_index_of_another_metric_is_refused(place):
    with mvindex.create(place, dim=8) as index:
        fill(index, topical(20, 2, dim=8))
        client, name = client_of(index), f"{name_of(index)}_views"
        client.release_collection(name)
        client.drop_index(name, "vec")
        parameters = client.prepare_index_params()
        parameters.add_index("vec", index_type="FLAT", metric_type="L2", index_name="vec")
        client.create_index(name, parameters)
    with pytest.raises(StoreError, match="expected an index of '.*_views' with metric IP, got L2"):
        mvindex.open(place)


def test_an_index_of_another_format_is_refused(place):
    with mvindex.create(place, dim=8) as index:
        client, name = client_of(index), name_of(index)
        settings = {**store_of(index).snapshot.settings, "format_version": 99}
        client.upsert(name, [special_record(-1, json.dumps(settings))])
        with pytest.raises(Unsupported, match="format version 99"):
            index.refresh()


def test_what_a_dead_writer_left_is_not_shown_and_swept(place):
    """Views without a record, as between the first and second step of a commit; and a record beyond the settings."""
    with mvindex.create(place, dim=8) as index:
        fill(index, {"a": rows(1)[0], "b": rows(2)[0]})
        client, name = client_of(index), name_of(index)
        orphan = [{"pk": (7 << 32) + slot, "doc": 7, "vec": 5 * rows(3)[0][0]} for slot in range(3)]
        old = [{"pk": (1 << 32) + (9 << 12), "doc": 1, "vec": 5 * rows(3)[0][0]}]
        client.upsert(f"{name}_views", orphan + old)
        found = index.search(rows(3)[0][0], 5)
        assert ({hit.id for hit in found.hits}, found.exact) == ({"a", "b"}, True)
        assert index.admin.verify().is_sound
        assert index.admin.compact().dropped == 4
        assert index.admin.compact().dropped == 0
        assert (
            len(client.query(f"{name}_views", filter="pk >= 0", output_fields=["pk"], consistency_level="Strong")) == 4
        )


def test_numbers_of_a_batch_that_was_not_counted_are_not_given_again(place):
    with mvindex.create(place, dim=8) as index:
        fill(index, {"a": rows(1)[0]})
        before = store_of(index).snapshot.settings
        fill(index, {"b": rows(2)[0]})
        client_of(index).upsert(name_of(index), [special_record(-1, json.dumps(before)) | {"version": before["epoch"]}])
        index.refresh()
        fill(index, {"c": rows(3)[0]})
        assert {document.id for document in index} == {"a", "b", "c"}
        found = store_of(index).known(["a", "b", "c"])
        assert [found[doc_id].ordinal for doc_id in "abc"] == [0, 1, 2]


@pytest.mark.needs("milvus-lite")
def test_metadata_is_read_again_for_a_filter_only_after_a_commit(tmp_path, monkeypatch):
    place, reads, each = f"milvus-lite:{tmp_path / 'x.db'}", [], Reader.each

    def reading(reader, end, fields=(), **options):
        reads.append(fields)
        return each(reader, end, fields, **options)

    with mvindex.create(place, dim=8) as index, mvindex.open(place) as other:
        index.add_views([Document("a", "a"), Document("b", "b", "", {"n": 2})], rows(1, 2))
        monkeypatch.setattr(Reader, "each", reading)
        for writer, number in ((index, 5), (other, 6)):
            writer.update("a", metadata={"n": number})
            del reads[:]
            for _ in range(3):
                index.refresh()
                assert [hit.id for hit in index.search(rows(1)[0][0], 5, filter={"n": number}).hits] == ["a"]
            assert len(reads) == 1


@pytest.mark.needs("milvus-lite")
def test_a_refresh_during_a_write_does_not_bring_back_older_settings(tmp_path, monkeypatch):
    with mvindex.create(f"milvus-lite:{tmp_path / 'x.db'}", dim=8) as index:
        store, commits = store_of(index), []
        read = store._read

        def commit(writer):
            commits.append(writer)
            writer.change_settings()

        def read_while_written():
            settings = read()
            commit(writer)
            return settings

        with store.writing() as writer:
            monkeypatch.setattr(store, "_read", read_while_written)
            store.refresh()
            commit(writer)
        assert read()["version"] == len(commits)


def test_damage_is_named_and_never_answered_from(place):
    with mvindex.create(place, dim=8) as index:
        fill(index, {"good": rows(1)[0], "bad": rows(2)[0]})
        wrong = {"pk": 1 << 32, "doc": 1, "vec": 9 * rows(3)[0][0]}
        client_of(index).upsert(f"{name_of(index)}_views", [wrong])
        index.refresh()
        with pytest.raises(StoreError, match="do not match"):
            index.search(rows(3)[0][0], 2)
        report = index.admin.verify()
        assert [problem.document for problem in report.problems] == ["bad"]


def test_a_second_reader_sees_a_document_before_or_after_its_replacement_never_between(place):
    """The text names the version, and so does the only score that its views can give."""
    if place.startswith("milvus-lite"):
        pytest.skip("a Lite database has one client")
    query = np.eye(8)[0].astype(np.float32)
    versions = 12
    others = {f"o{number}": each for number, each in enumerate(topical(40, 2, dim=8).values())}
    with mvindex.create(place, dim=8) as index:
        fill(index, others)
        index.add_views([Document("x", "0")], [np.tile(10 * query, (3, 1))])
        seen, problems, stop = [], [], threading.Event()

        def read():
            with mvindex.open(place) as reader:
                while not stop.is_set():
                    result = reader.search(query, 1)
                    [hit] = result.hits
                    if hit.id != "x" or hit.score != 10 + int(hit.text):
                        problems.append(hit)
                    seen.append(int(hit.text))

        thread = threading.Thread(target=read)
        thread.start()
        for version in range(1, versions):
            index.add_views([Document("x", str(version))], [np.tile((10 + version) * query, (3 + version % 3, 1))])
        time.sleep(1)
        stop.set()
        thread.join()
    assert problems == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 1


def test_a_document_that_is_replaced_while_it_is_explained_is_explained_whole(place, monkeypatch):
    """Its title is never that of one version, and its views those of another."""
    query, ids, find, replacements = np.array([1.0, 0.0]), ["x", "y"], Reader.find, ["a title that is longer"]
    with mvindex.create(place, encoder=lengths) as index:
        index.add([Document("x", "", "a title"), Document("y", "", "another")])
        before = index.explain_all(query, ids)

        def found_then_replaced(reader, ids, *fields):
            found = find(reader, ids, *fields)
            if "x" in ids and replacements:
                index.add([Document("x", "", replacements.pop())])
            return found

        monkeypatch.setattr(Reader, "find", found_then_replaced)
        meanwhile = index.explain_all(query, ids)
        assert not replacements
        index.refresh()
        after = index.explain_all(query, ids)
    assert [each["x"][0].snippet for each in (before, after)] == ["a title", "a title that is longer"]
    assert before["x"][0].score != after["x"][0].score
    assert meanwhile in (before, after)


def lengths(texts):
    return np.array([[[len(text), 1.0]] for text in texts])


def test_wrong_arguments_are_refused_as_by_any_index(place):
    with mvindex.create(place, dim=8) as index:
        with pytest.raises(QueryError, match="takes one of"):
            index.delete()
        with pytest.raises(QueryError, match="no document"):
            index.update("nope", metadata={})
        with pytest.raises(QueryError, match="no document"):
            index.explain(np.ones(8), "nope")
        for call in (lambda: index.admin.snapshot("x"), lambda: embedded_store_of(index), lambda: index.path):
            with pytest.raises(Unsupported):
                call()
