"""A bulk import that is killed, on either side, continues; rows that are missing are told."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from milvus_documents import assert_equal, embedded, topical
from milvus_server import QUICK, MilvusServer

import mvindex
from mvindex.errors import ConfigError, EngineUnavailable, MvindexError, StoreError
from mvindex.records import no_progress
from mvindex_connectors.milvus import bulk, bulk_import
from mvindex_connectors.milvus.bulk import export_bulk
from mvindex_connectors.milvus.bulk_import import import_bulk

pytestmark = pytest.mark.needs("milvus-server")
DOCUMENTS = 6_000


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """An index, and its export in several shards."""
    monkeypatch.setattr(bulk, "SHARD_BATCHES", 1)
    with embedded(tmp_path, topical(DOCUMENTS, 4)) as index:
        report = export_bulk(index, tmp_path / "bulk", no_progress)
        assert report.shards >= 4
        yield index, tmp_path / "bulk"


def importing(directory, place):
    command = [sys.executable, "-m", "mvindex", "import", "milvus-bulk", str(directory), "--index", place, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def num_imported(server, place):
    """Return how many imports of views the server has completed."""
    client, name = server._client(30), f"{place.rpartition('/')[2].partition('?')[0]}_views"
    try:
        tasks = client._get_connection().list_bulk_insert_tasks(0, name) if client.has_collection(name) else ()
        return sum(task.state_name == "Completed" for task in tasks)
    finally:
        client.close()


def test_an_import_continues_after_a_kill_of_the_client_and_touches_no_index(exported, server):
    index, directory = exported
    with server.collection("?timeout=60") as place:
        first = importing(directory, place)
        while not num_imported(server, place):
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.1)
        first.kill()
        first.communicate()
        report = import_bulk(directory, place, on_progress=no_progress)
        assert report.documents == DOCUMENTS and report.imported < report.files
        with pytest.raises(ConfigError, match="there is an index already"):
            import_bulk(directory, place, on_progress=no_progress)
        assert_imported(place, index)


@pytest.mark.long
def test_a_kill_of_the_server_is_told_and_loses_nothing(exported, tmp_path, monkeypatch):
    """Milvus 2.3.5 may wait for ever for a segment that a kill took; then there is no index, and dropping helps."""
    index, directory = exported
    monkeypatch.setattr(bulk_import, "_STALLED_S", 15.0)
    (tmp_path / "server").mkdir()
    with MilvusServer(tmp_path / "server", QUICK) as server, ThreadPoolExecutor(1) as pool:
        place = server.url("corpus", "?timeout=60")
        running = pool.submit(import_bulk, directory, place, on_progress=no_progress)
        time.sleep(5)
        server.kill()
        server.start()
        try:
            running.result()
        except EngineUnavailable as err:
            assert "Restart the server" in str(err)
            with pytest.raises(MvindexError):
                mvindex.open(place)
            server.drop("corpus")
            assert import_bulk(directory, place, on_progress=no_progress).documents == DOCUMENTS
        assert_imported(place, index)


def assert_imported(place, index):
    with mvindex.open(place) as there:
        assert len(there) == DOCUMENTS and there.admin.verify().is_sound
        for query in np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32):
            assert_equal(there.search(query, 50), index.search(query, 50))


def test_rows_that_the_server_does_not_have_are_told(exported, server):
    _, directory = exported
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["shards"][1]["views"] += 1
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with server.collection() as place:
        with pytest.raises(StoreError, match=r"views-00001/pk.npy: expected \d+ rows, got \d+"):
            import_bulk(directory, place, on_progress=no_progress)
        with pytest.raises(StoreError):
            mvindex.open(place)


def test_an_unfinished_export_is_refused(tmp_path, server):
    with pytest.raises(ConfigError, match=r"expected the manifest of an export, got no such file"):
        import_bulk(tmp_path, server.url("none"), on_progress=no_progress)
