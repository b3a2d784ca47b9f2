"""A creation that is killed anywhere is completed by the same command; nothing of anyone else is taken for one."""

import subprocess
import sys
from pathlib import Path

import pytest
from milvus_documents import topical
from pymilvus import DataType, MilvusClient

import mvindex
from mvindex import Document
from mvindex.errors import ConfigError, StoreError
from mvindex.index.factory import index_exists
from mvindex.io.migrate import migrate
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.collections import drop_collection, make_collections
from mvindex_connectors.milvus.connection import Connection

# Calls in Lite: records, views and terms are created and get an index; the claim of a writer; the settings.
CREATING = 8
KILLED = Path(__file__).with_name("killed_creations.py")


def source_of(folder, lexical="unicode"):
    """Return the path of a small index."""
    path = folder / "source.mvx"
    with mvindex.create(path, dim=16, lexical=lexical) as index:
        index.add_views([Document(f"d{n}", f"text number {n}") for n in range(20)], topical(20, 2).values())
    return path


def kill(source, first, last, target):
    subprocess.run([sys.executable, KILLED, source, str(first), str(last), target], check=True, timeout=300)


def assert_completed(source, place):
    assert migrate(source, place, queries=2).moved == 20
    with mvindex.open(source) as here, mvindex.open(place) as there:
        assert sorted(here, key=lambda each: each.id) == sorted(there, key=lambda each: each.id)
        query = topical(20, 2)["d7"][0]
        assert here.search(query, text="number 7") == there.search(query, text="number 7")


@pytest.mark.needs("milvus-lite")
@pytest.mark.parametrize("steps", [(5, 6), pytest.param((1, CREATING), marks=pytest.mark.long)])
def test_a_migration_killed_at_any_step_of_the_creation_is_completed(steps, tmp_path):
    source, target = source_of(tmp_path), f"milvus-lite:{tmp_path}/{{}}.db"
    kill(source, *steps, target)
    for number in range(steps[0], steps[1] + 1):
        place = target.format(number)
        assert not index_exists(place)
        with pytest.raises(StoreError, match="expected a |no settings"):
            mvindex.open(place)
        assert_completed(source, place)


@pytest.mark.needs("milvus-server")
def test_a_server_completes_it_too(server, tmp_path):
    source = source_of(tmp_path, "none")
    with server.collection() as place:
        # The views are there, without an index.
        kill(source, 6, 6, place)
        assert_completed(source, place)


def refused(place, folder):
    assert index_exists(place)
    with pytest.raises(ConfigError, match="'.*' exists already"):
        mvindex.create(place, dim=16)
    with pytest.raises(StoreError, match="no settings|expected a collection that mvindex made"):
        migrate(source_of(folder), place)


@pytest.mark.needs("milvus-server")
def test_the_collections_of_a_bulk_import_are_not_taken_for_one(server, tmp_path):
    with server.collection() as place:
        connection = Connection(parse_address(place))
        make_collections(connection, 16)
        connection.close()
        refused(place, tmp_path)


@pytest.mark.needs("milvus-lite")
class TestIsNotTakenForOne:
    """Each is refused, and stays as it is."""

    def test_a_collection_of_others_without_rows(self, tmp_path):
        client = MilvusClient(str(tmp_path / "x.db"))
        schema = client.create_schema()
        schema.add_field("pk", DataType.INT64, is_primary=True)
        schema.add_field("vec", DataType.FLOAT_VECTOR, dim=2)
        client.create_collection("mvindex", schema=schema)
        client.close()
        refused(f"milvus-lite:{tmp_path}/x.db", tmp_path)

    def test_an_index_that_has_lost_its_settings(self, tmp_path):
        place = f"milvus-lite:{tmp_path}/x.db"
        with mvindex.create(place, dim=16) as index:
            index.add_views([Document("mine", "m")], [topical(1, 2)["d0"]])
        client = MilvusClient(str(tmp_path / "x.db"))
        client.load_collection("mvindex")
        client.delete("mvindex", ids=[-1])
        client.close()
        refused(place, tmp_path)
        client = MilvusClient(str(tmp_path / "x.db"))
        client.load_collection("mvindex")
        assert [row["id"] for row in client.query("mvindex", filter="pk >= 0", output_fields=["id"])] == ["mine"]
        client.close()

    def test_views_without_records(self, tmp_path):
        place = f"milvus-lite:{tmp_path}/x.db"
        mvindex.create(place, dim=16).close()
        connection = Connection(parse_address(place))
        drop_collection(connection, "mvindex")
        connection.close()
        with pytest.raises(ConfigError, match="'mvindex_views' exists already"):
            mvindex.create(place, dim=16)
