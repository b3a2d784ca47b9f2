"""An index in Milvus behind a server: the results of a directory, and acknowledged writes after a kill."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving_tools import ServedHere, start, vectors, wait_for

import mvindex
from mvindex import Document
from mvindex.errors import Unsupported
from mvindex_connectors.remote import Access, IndexClient


def documents(count, first=0):
    return [Document(f"d{n}", f"text {n}", f"title {n}", {"n": n}) for n in range(first, first + count)]


def answers(index, queries):
    options = [{}, {"scoring": "drpq"}, {"filter": {"n": {"gte": 40}}, "exact": True}]
    found = [result for chosen in options for result in index.search(queries, 7, **chosen)]
    return [
        [(hit.id, pytest.approx(hit.score, abs=1e-6), hit.slot, hit.metadata) for hit in result.hits]
        for result in found
    ]


@pytest.mark.full
@pytest.mark.needs("milvus-lite")
def test_a_served_milvus_lite_returns_what_a_directory_returns_and_survives_a_kill(tmp_path):
    address = f"milvus-lite:{tmp_path / 'a.db'}"
    views, queries = vectors(400).reshape(200, 2, 16), vectors(5, seed=9)
    mvindex.create(address, dim=16).close()
    with mvindex.create(tmp_path / "a.mvx", dim=16) as local:
        local.add_views(documents(200), views)
        local.delete(ids=["d3", "d5"])
        local.update("d7", metadata={"n": 7000})
        serving = start(f"--index=a={address}")
        try:
            with IndexClient(serving.url()) as remote:
                assert remote.add_views(documents(200), views).added == 200
                assert remote.delete(ids=["d3", "d5"]) == 2
                remote.update("d7", metadata={"n": 7000})
                assert answers(remote, queries) == answers(local, queries)
                assert remote.get("d7") == local.get("d7") and remote.get("d3") is None
                assert sorted(remote, key=lambda one: one.id) == sorted(local, key=lambda one: one.id)
                with ThreadPoolExecutor(8) as threads:
                    asked = threads.map(lambda n: remote.search(queries[n % 5], 3), range(100))
                    stored = threads.submit(remote.add_views, documents(200, 200), vectors(200, seed=4))
                    assert [len({hit.id for hit in result.hits}) for result in asked] == [3] * 100
                    assert stored.result().added == 200
            serving.process.send_signal(signal.SIGKILL)
            serving.process.wait()
        finally:
            serving.close()
    serving = start(f"--index=a={address}")
    try:
        with IndexClient(serving.url()) as remote:
            assert len(remote) == 398 and remote.get("d399").title == "title 399"
        assert serving.stop() == 0
    finally:
        serving.close()


@pytest.mark.needs("milvus-lite")
def test_a_server_that_writes_shows_what_others_write_to_milvus(tmp_path):
    address, query, since = f"milvus-lite:{tmp_path / 'a.db'}", vectors(1)[0], {"filter": {"n": {"gte": 1}}}
    mvindex.create(address, dim=16).close()
    serving = ServedHere([("a", address)], is_read_only=False)
    try:
        with IndexClient(f"{serving.addresses[0]}/a") as remote, mvindex.open(address) as other:
            assert remote.search(query, 9).hits == remote.search(query, 9, **since).hits == ()
            other.add_views(documents(3), vectors(3))
            wait_for(lambda: len(remote.search(query, 9).hits) == 3)
            wait_for(lambda: {hit.id for hit in remote.search(query, 9, **since).hits} == {"d1", "d2"})
            remote.add_views(documents(2, 3), vectors(2))
            other.delete(ids=["d1"])
            wait_for(lambda: {hit.id for hit in remote.search(query, 9, **since).hits} == {"d2", "d3", "d4"})
    finally:
        serving.close()


@pytest.mark.needs("milvus-lite")
def test_a_token_with_a_filter_needs_an_index_in_a_directory(tmp_path):
    address, (tenant, everyone) = f"milvus-lite:{tmp_path / 'a.db'}", ("a" * 24, "b" * 24)
    with mvindex.create(address, dim=16) as index:
        index.add_views(documents(3), vectors(3))
    (tmp_path / "tokens").write_text(f'read-write {tenant} ann filter={{"n": 1}}\nread-write {everyone}\n')
    (tmp_path / "tokens").chmod(0o600)
    serving = ServedHere([("a", address)], is_read_only=False, token_file=tmp_path / "tokens")
    try:
        url = f"{serving.addresses[0]}/a"
        with IndexClient(url, access=Access(token=everyone)) as remote:
            assert len(remote) == 3
        with (
            pytest.raises(Unsupported, match="a token with filter= needs an index in a directory"),
            IndexClient(url, access=Access(token=tenant)) as remote,
        ):
            remote.search(vectors(1)[0], 3)
    finally:
        serving.close()
