"""Network faults: what is safe is retried; else one line names server and step, without noise of pymilvus."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from milvus_documents import fill, topical

import mvindex
from mvindex import Document
from mvindex.errors import ConfigError, EngineUnavailable, StoreError

COMMAND = [sys.executable, "-m", "mvindex"]


def told(*args, env=None, cwd=None):
    """Return the output of the command in its own process, where nothing has silenced pymilvus before."""
    return subprocess.run(
        [*COMMAND, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def one_line(done):
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("mvindex: ")
    return line


@pytest.mark.needs("milvus-lite")
class TestWithoutAServer:
    def test_a_server_that_is_down_is_named_in_one_line(self):
        line = one_line(told("info", "--index", "milvus://someone:s3cret@127.0.0.1:1/corpus?timeout=2"))
        assert "milvus://127.0.0.1:1/corpus: connecting" in line
        assert "s3cret" not in line

    def test_a_server_that_is_not_reached_is_named_within_seconds(self):
        with pytest.raises(EngineUnavailable):
            mvindex.open("milvus://127.0.0.1:1/corpus")  # imports pymilvus
        with socket.socket() as full, contextlib.ExitStack() as waiting:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            # Its queue is full: further connections are neither opened nor refused.
            for _ in range(3):
                each = waiting.enter_context(socket.socket())
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            started = time.monotonic()
            with pytest.raises(EngineUnavailable, match=f"127.0.0.1:{full.getsockname()[1]}/corpus: connecting"):
                mvindex.open(f"milvus://127.0.0.1:{full.getsockname()[1]}/corpus")
            # Of 4 s, and not the 60 s of a response.
            assert time.monotonic() - started < 10

    def test_a_database_that_is_open_elsewhere_is_named_in_one_line(self, tmp_path):
        place = f"milvus-lite:{tmp_path / 'x.db'}"
        with mvindex.create(place, dim=4):
            assert "another process has this database open" in one_line(told("info", "--index", place))

    def test_an_index_that_is_not_there_is_named(self, tmp_path):
        place = f"milvus-lite:{tmp_path / 'x.db'}"
        assert "expected a Milvus Lite database with an index" in one_line(told("query", "a text", "--index", place))
        assert list(tmp_path.iterdir()) == []
        with mvindex.create(f"{place}?collection=other", dim=4):
            pass
        assert "expected a collection 'mvindex'" in one_line(told("query", "a text", "--index", place))

    @pytest.mark.parametrize(
        ("address", "what"),
        [
            ("milvus://host:1/bad-name", "collection name: expected letters, .* got 'bad-name'"),
            ("milvus://host:port/name", "no host and port"),
            ("milvus:///name", "no host"),
            ("milvus://u:pw@host/name?colour=red", "got 'colour'"),
            ("milvus://host/name?timeout=soon", "timeout: expected seconds, from 1 to 86400, got 'soon'"),
            ("milvus://host/name?consistency=some", "consistency: expected one of .* got 'some'"),
            ("milvus://host/name?tls=/no/such.pem", "no such file"),
            ("milvus-lite:", "expected milvus-lite:PATH"),
            ("milvus-lite:corpus", "ends in .db"),
            ("milvus-lite:/no/such/folder/x.db", "expected an existing directory"),
            ("milvus-lite:x.db?tls=1", "belongs to a server"),
        ],
    )
    def test_a_wrong_address_is_refused_by_its_part(self, address, what):
        with pytest.raises((ConfigError, StoreError), match=what) as error:
            mvindex.open(address)
        assert "pw" not in str(error.value)

    def test_secrets_come_from_the_environment_and_are_not_shown(self, monkeypatch):
        from mvindex_connectors.milvus.address import parse_address

        monkeypatch.setenv("MVINDEX_MILVUS_USER", "u")
        monkeypatch.setenv("MVINDEX_MILVUS_PASSWORD", "pw")
        assert parse_address("milvus://host/name").token == "u:pw"
        monkeypatch.setenv("MVINDEX_MILVUS_TOKEN", "tok")
        assert parse_address("milvus://host/name").token == "tok"
        assert parse_address("milvus://a:b%40@host/name").token == "a:b@"
        assert "tok" not in repr(parse_address("milvus://host/name"))
        assert parse_address("milvus://t@host:7/name").shown == "milvus://host:7/name"


@pytest.mark.needs("milvus-server")
class TestWithAServer:
    def test_a_server_that_goes_away_and_comes_back_is_waited_for(self, server):
        views = topical(40, 2)
        with server.collection("?timeout=60") as place, mvindex.create(place, dim=16) as index:
            fill(index, views)
            wanted = index.search(views["d1"][0], 5)
            server.cut()
            mending = threading.Timer(3, server.mend)
            mending.start()
            try:
                assert index.search(views["d1"][0], 5).hits == wanted.hits
                index.add_views([Document("more", "m")], [views["d1"]])
            finally:
                mending.join()
            assert len(index) == 41

    def test_a_server_that_stays_away_is_named_with_the_step(self, server):
        views = topical(40, 2)
        with server.collection("?timeout=3") as place, mvindex.create(place, dim=16) as index:
            fill(index, views)
            server.cut()
            try:
                with pytest.raises(EngineUnavailable, match="searching"):
                    index.search(views["d1"][0], 5)
                with pytest.raises(EngineUnavailable, match="milvus://127.0.0.1"):
                    index.add_views([Document("more", "m")], [views["d1"]])
            finally:
                server.mend()
            time.sleep(3)
            assert index.add_views([Document("more", "m")], [views["d1"]]).added == 1

    def test_a_server_that_does_not_answer_in_time_is_named(self, server):
        views = topical(40, 2)
        with server.collection("?timeout=3") as place, mvindex.create(place, dim=16) as index:
            fill(index, views)
            server.pause()
            started = time.monotonic()
            try:
                with pytest.raises(EngineUnavailable, match="no answer within 3 s"):
                    index.search(views["d1"][0], 5)
            finally:
                server.resume()
            assert time.monotonic() - started < 20
            assert len(index.search(views["d1"][0], 5).hits) == 5

    def test_a_batch_beyond_the_size_of_a_request_is_split(self, server):
        """64 MB is what a request of this server may have: here are 100 MB of views."""
        rows = np.random.default_rng(1).standard_normal((6_400, 4, 1024)).astype(np.float32)
        with server.collection("?timeout=120") as place, mvindex.create(place, dim=1024) as index:
            index.add_views([Document(f"d{number}", "t") for number in range(1_000)], rows[:1_000])
            assert len(index) == 1_000
            big = rows[1_000:].reshape(-1, 1024)[: 4 * 1_024].reshape(1, -1, 1024)
            index.add_views([Document("big", "t")], big)
            assert index.search(rows[3, 1], 1).hits[0].id == "d3"
