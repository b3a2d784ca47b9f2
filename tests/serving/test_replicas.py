"""Several servers of one index, read through one client that knows them all, also while they are restarted."""

import contextlib
import subprocess
import sys
import threading
import time

import pytest
from serving_tools import ServedHere, Serving, fill, served, start, vectors, wait_for

import mvindex
from mvindex.errors import ServerUnavailable
from mvindex_connectors.remote import CallSettings, ShardedClient

DIM, SERVERS = 16, 3
# Commits a document every few milliseconds, until its stdin is closed.
WRITE = """
import sys, threading, time
import numpy as np
import mvindex
from mvindex import Document

ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
rng, number = np.random.default_rng(9), 0
with mvindex.open(sys.argv[1]) as index:
    while not ended.wait(0.02):
        index.add_views([Document(f"new{number}", f"new text {number}")], rng.standard_normal((1, 1, 16)).astype("f4"))
        number += 1
print(number)
"""


def port_of(serving):
    return serving.target.rpartition(":")[2]


def test_a_rolling_restart_beside_a_writer_loses_no_read(tmp_path):
    path = tmp_path / "a.mvx"
    rows = fill(path, dim=DIM)
    with mvindex.open(path) as index:
        index.admin.enable_lexical("english")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    servers = [start("--index", f"a={path}", "--read-only", "--drain", "5") for _ in range(SERVERS)]
    ended, failures, reads = threading.Event(), [], []

    def read(index, number):
        count = 0
        while not ended.is_set():
            document = (number + count) % len(rows)
            try:
                result = index.search(
                    rows[document, 0], text=f"text {document}", top_k=3, mode=("dense", "hybrid")[count % 2]
                )
                assert len(result.hits) == 3 and index.get(f"d{document}").text == f"text {document}"
            except Exception as err:  # noqa: BLE001 - every one is a failed read
                failures.append(err)
            count += 1
            time.sleep(0.01)
        reads.append(count)

    try:
        with mvindex.open([serving.url() for serving in servers]) as index:
            assert index.info().shards is None and index.info().documents >= len(rows)
            threads = [threading.Thread(target=read, args=(index, 7 * number)) for number in range(4)]
            for thread in threads:
                thread.start()
            for place in range(SERVERS):
                port = port_of(servers[place])
                assert servers[place].stop() == 0
                servers[place] = start("--index", f"a={path}", "--read-only", "--drain", "5", "--port", port)
                time.sleep(0.5)
            ended.set()
            for thread in threads:
                thread.join(60)
        written = int(writer.communicate("", timeout=60)[0])
        assert failures == [] and sum(reads) > 100 and written > 20
        for serving in servers:
            with mvindex.open(serving.url()) as one:
                wait_for(lambda one=one: len(one) == len(rows) + written, seconds=5)
    finally:
        ended.set()
        writer.kill()
        writer.communicate()
        for serving in servers:
            serving.close()


def test_servers_of_one_index_are_its_replicas_and_of_two_are_two(tmp_path):
    rows = fill(tmp_path / "a.mvx", dim=DIM)
    with mvindex.open(tmp_path / "a.mvx") as index:
        index.admin.snapshot(tmp_path / "copy.mvx")
        expected = index.search(rows[3, 0], top_k=5)
    fill(tmp_path / "b.mvx", dim=DIM, seed=8, count=5)
    with (
        served("--index", f"a={tmp_path / 'a.mvx'}", "--index", f"b={tmp_path / 'b.mvx'}") as one,
        served("--index", f"a={tmp_path / 'copy.mvx'}") as two,
    ):
        with mvindex.open([one.url(), two.url()]) as both:
            assert len(both) == 50 and both.search(rows[3, 0], top_k=5) == expected
            assert [document.id for document in both.scan(limit=3)] == ["d0", "d1", "d2"]
        # The ids of one are in the other, too: two indexes, not one.
        with mvindex.open([one.url("a"), one.url("b")]) as both:
            assert len(both) == 55


def test_a_scan_goes_to_the_server_that_can_be_reached(tmp_path):
    fill(tmp_path / "a.mvx", dim=DIM)
    index = [("a", str(tmp_path / "a.mvx"))]
    with contextlib.closing(ServedHere(index)) as one:
        two = ServedHere(index)
        urls = [f"{address}/a" for address in one.addresses + two.addresses]
        # Servers of several addresses in their turn, which know of no ordinals.
        through = ServedHere(*[[("a", ",".join(urls))]] * 2)
        try:
            with mvindex.open([f"{address}/a" for address in through.addresses]) as both:
                assert [document.id for document in both.scan(limit=3, after="d4")] == ["d5", "d6", "d7"]
        finally:
            through.close()
        with ShardedClient(urls, settings=CallSettings(retry_s=0.1)) as both:
            two.close()
            # The first to be asked is taken by chance.
            assert all(len(list(both.scan())) == 50 for _ in range(20))
            one.close()
            with pytest.raises(ServerUnavailable, match="cannot be reached"):
                list(both.scan())


def test_a_client_that_is_opened_during_a_restart_waits_for_the_server(tmp_path):
    fill(tmp_path / "a.mvx", dim=DIM)
    one, two = (start("--index", f"a={tmp_path / 'a.mvx'}", "--read-only") for _ in range(2))
    urls, port = [one.url(), two.url()], port_of(two)
    assert two.stop() == 0
    later: list[Serving] = []
    starter = threading.Timer(
        1.0, lambda: later.append(start("--index", f"a={tmp_path / 'a.mvx'}", "--read-only", "--port", port))
    )
    starter.start()
    try:
        # A busy machine may take longer than the default to start a server.
        with ShardedClient(urls, settings=CallSettings(retry_s=60)) as both:
            assert len(both.search(vectors(1, DIM)[0]).hits) == 10
    finally:
        starter.join(60)
        for serving in (one, *later):
            serving.close()
