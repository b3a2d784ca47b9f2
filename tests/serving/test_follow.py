"""A server that follows snapshots: no read fails while it goes on to the next, whatever becomes of snapshots."""

import os
import signal
import threading
import time
import urllib.request

import numpy as np
import pytest
from serving_tools import fill, served, start, vectors, wait_for

import mvindex
from mvindex import Document
from mvindex.errors import MvindexError, StoreError, Unsupported
from mvindex.maintenance.backups import backup_names, take_backup
from mvindex_connectors.remote import CallSettings, IndexClient
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.maintenance import FollowedIndex

fsspec = pytest.importorskip("fsspec")

from tests.helpers.cli import mvindex as command  # noqa: E402 - needs fsspec
from tests.helpers.s3_server import s3_bucket  # noqa: E402 - as above


class SnapshotFolder:
    """The dated snapshots of a place."""

    def __init__(self, place):
        self._place = place

    def place_of(self, name):
        return f"{self._place}/{name}"

    def complete(self):
        return backup_names(self._place)

    def newest(self):
        return max(self.complete(), default=None)

    def take(self, snapshot, keep):
        return take_backup(snapshot, self._place, keep)


NO_RETRY = CallSettings(retry_s=0)


@pytest.fixture
def index(tmp_path):
    fill(tmp_path / "a.mvx")
    with mvindex.open(tmp_path / "a.mvx") as index:
        yield index


@pytest.fixture
def snapshots(index, tmp_path):
    """The folder of the snapshots of a; it has one of 50 documents."""
    folder = SnapshotFolder(tmp_path / "kept" / "a")
    folder.take(index.admin.snapshot, keep=5)
    return folder


def grow(index, count=10):
    """Add documents whose number is in the metadata of all: a state is whole when they agree."""
    generation = len(index)
    index.add_views([Document(f"g{generation}-{n}", "t") for n in range(count)], vectors(count).reshape(count, 1, 16))


def following(tmp_path, *more, source=None):
    source = source or tmp_path / "kept"
    options = ["--follow", str(source), "--follow-every", "1s", "--http", "0", *more]
    return served(f"--index=a={tmp_path / 'local'}", *options)


def metric(serving, name):
    with urllib.request.urlopen(f"{serving.http}/metrics") as response:
        lines = response.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name + "{")), 0.0)


def copies(tmp_path):
    return sorted(name for name in os.listdir(tmp_path / "local") if name != "writer.lock")


def test_no_read_fails_while_the_server_takes_one_snapshot_after_another(index, snapshots, tmp_path):
    stopped, failed, counts = threading.Event(), [], []

    def read(url):
        with IndexClient(url, settings=NO_RETRY) as client:
            while not stopped.is_set():
                try:
                    before = len(client)
                    counts.append(before)
                    assert len(client.search(vectors(1)[0], top_k=50).hits) == 50
                    assert len(list(client.scan())) >= before
                    assert client.get("d7").metadata == {"n": 7}
                except (MvindexError, AssertionError) as err:
                    failed.append(repr(err))

    with following(tmp_path) as serving:
        readers = [threading.Thread(target=read, args=(serving.url(),)) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(4):
                grow(index)
                snapshots.take(index.admin.snapshot, keep=2)
                wait_for(lambda: counts and counts[-1] == len(index), 60)
                wait_for(lambda: copies(tmp_path) == [snapshots.newest()], 60)
        finally:
            stopped.set()
            for reader in readers:
                reader.join()
        assert metric(serving, "mvindex_follow_failures_total") == 0
        with IndexClient(serving.url()) as client, pytest.raises(Unsupported, match="read-only"):
            client.delete(ids="d1")
    assert failed == [] and {50, 60, 70, 80, 90} <= set(counts)


def test_a_long_read_goes_on_in_the_snapshot_that_it_began_in(index, tmp_path):
    """The old one is removed only when it has ended."""
    index.add_views([Document(f"x{n}", "x" * 5000) for n in range(4000)], np.ones((4000, 1, 16), np.float32))
    snapshots = SnapshotFolder(tmp_path / "kept" / "a")
    snapshots.take(index.admin.snapshot, keep=5)
    first = snapshots.newest()
    with following(tmp_path) as serving, IndexClient(serving.url()) as client:
        documents = client.scan()
        begun = [next(documents) for _ in range(10)]
        grow(index)
        snapshots.take(index.admin.snapshot, keep=5)
        wait_for(lambda: len(client) == 4060, 60)
        assert copies(tmp_path) == [first, snapshots.newest()]
        assert len(begun) + len(list(documents)) == 4050
        wait_for(lambda: copies(tmp_path) == [snapshots.newest()], 60)


def test_a_damaged_snapshot_is_not_served_and_the_next_good_one_is(index, snapshots, tmp_path):
    with following(tmp_path) as serving, IndexClient(serving.url()) as client:
        grow(index)
        report = snapshots.take(index.admin.snapshot, keep=5)
        (views,) = (tmp_path / report.path).rglob("views-*")
        views.write_bytes(bytes(100) + views.read_bytes()[100:])
        wait_for(lambda: metric(serving, "mvindex_follow_failures_total") >= 2, 60)
        assert len(client) == 50 and len(copies(tmp_path)) == 1
        assert any("snapshot not followed, to be tried again" in line for line in serving.log)
        grow(index)
        snapshots.take(index.admin.snapshot, keep=5)
        wait_for(lambda: len(client) == 70, 60)


def test_a_server_whose_snapshots_are_gone_starts_with_what_it_has(index, snapshots, tmp_path):
    with following(tmp_path):
        pass
    (tmp_path / "kept" / "a").rename(tmp_path / "away")
    (tmp_path / "kept" / "a").write_text("in the way")
    with following(tmp_path) as serving, IndexClient(serving.url()) as client:
        assert len(client) == 50
        grow(index)
        SnapshotFolder(tmp_path / "away").take(index.admin.snapshot, keep=5)
        (tmp_path / "kept" / "a").unlink()
        (tmp_path / "away").rename(tmp_path / "kept" / "a")
        wait_for(lambda: len(client) == 60, 60)


def test_without_a_snapshot_the_server_does_not_start(tmp_path):
    with pytest.raises(RuntimeError, match="there is no complete snapshot to follow yet"):
        start(f"--index=a={tmp_path / 'local'}", "--follow", tmp_path / "kept")


def test_two_servers_do_not_share_a_local_folder(snapshots, tmp_path):
    with following(tmp_path), pytest.raises(RuntimeError, match="local: process"):
        start(f"--index=a={tmp_path / 'local'}", "--follow", tmp_path / "kept")


def test_a_follower_never_goes_back_and_removes_older_copies(index, snapshots, tmp_path):
    grow(index)
    snapshots.take(index.admin.snapshot, keep=5)
    followed = FollowedIndex("a", str(tmp_path / "kept" / "a"), tmp_path / "local")
    followed.start()
    newest = followed.served
    mvindex.restore(snapshots.place_of(snapshots.complete()[0]), tmp_path / "local" / snapshots.complete()[0])
    mvindex.restore(tmp_path / "a.mvx", tmp_path / "local" / ".20260101T000000Z.1.abcd.new")
    (tmp_path / "kept" / "a" / newest).rename(tmp_path / "away")
    assert not followed.restore_next() and followed.served == newest
    again = FollowedIndex("a", str(tmp_path / "kept" / "a"), tmp_path / "local")
    again.start()
    assert again.served == newest and copies(tmp_path) == [newest]


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    mounts = f"36 35 98:0 / / rw - ext4 /dev/sda rw\n37 36 0:40 / {tmp_path} rw - nfs4 host:/x rw\n"
    monkeypatch.setattr("mvindex.store.files._read_mounts", lambda: mounts)
    with pytest.raises(StoreError, match="is on nfs4"):
        FollowedIndex("a", "memory://nothing", tmp_path / "local")
    assert not (tmp_path / "local").exists()


@pytest.mark.parametrize("more", [["--snapshots", "x", "--snapshot-every", "1h"], ["--follow-every", "0s"]])
def test_wrong_options_are_refused(tmp_path, more):
    done = command("serve", f"--index=a={tmp_path / 'local'}", "--follow", tmp_path / "kept", *more, cwd=tmp_path)
    assert done.returncode and "--follow" in done.stderr, done


def test_a_server_that_follows_is_read_only():
    with pytest.raises(MvindexError, match="expected a read-only server"):
        ServerConfig(indexes=[("a", "x")], follow="y")


@pytest.mark.needs("s3")
@pytest.mark.long
def test_a_writer_and_a_follower_meet_in_a_bucket_and_the_follower_may_be_killed(index, tmp_path):
    index.close()
    with s3_bucket() as bucket:
        place = f"s3://{bucket}/snapshots"
        schedule = ["--snapshots", place, "--snapshot-every", "1s", "--snapshot-keep", "3"]
        with served(f"--index=a={tmp_path / 'a.mvx'}", *schedule) as writer:
            wait_for(lambda: SnapshotFolder(f"{place}/a").newest(), 60)
            with IndexClient(writer.url()) as client:
                for number in range(3):
                    options = ["--follow", place, "--follow-every", "1s", "--http", "0"]
                    follower = start(f"--index=a={tmp_path / 'local'}", *options)
                    try:
                        client.add_views([Document(f"new{number}", "t")], np.ones((1, 1, 16), np.float32))
                        with IndexClient(follower.url()) as reader:
                            wait_for(lambda: len(reader) == 51 + number, 60)  # noqa: B023 - used at once
                    finally:
                        time.sleep(0.1 * number)
                        follower.process.send_signal(signal.SIGKILL)
                        follower.process.wait()
                        follower.close()
    assert all(mvindex.verify(tmp_path / "local" / name).is_sound for name in copies(tmp_path) if name[0] != ".")
