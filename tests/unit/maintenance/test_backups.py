"""Snapshots in folders and behind addresses, kept by count, and restored: all bytes checked, whole or not there."""

import json
import os
import shutil
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.maintenance import backups
from mvindex.maintenance.backups import MANIFEST, backup_names, restore, take_backup
from tests.helpers.s3_server import s3_bucket

fsspec = pytest.importorskip("fsspec")
DIM = 8


@pytest.fixture(params=[None, 2], ids=["one", "shards"])
def index(request, tmp_path):
    chosen = {} if request.param is None else {"shards": request.param}
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM, lexical="english", **chosen) as made:
        add(made, 0, 40)
        made.admin.build("flat")
        yield made


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.needs("s3"))])
def place(request, tmp_path):
    if request.param == "folder":
        yield str(tmp_path / "backups")
    elif request.param == "memory":
        yield "memory://backups"
        system = fsspec.filesystem("memory")
        if system.exists("/backups"):
            system.rm("/backups", recursive=True)
    else:
        yield request.getfixturevalue("bucket")


@pytest.fixture
def bucket():
    with s3_bucket() as name:
        yield f"s3://{name}/wiki"


def add(index, begin, end):
    views = np.random.default_rng(begin).standard_normal((end - begin, 2, DIM)).astype(np.float32)
    index.add_views([mvindex.Document(str(n), f"text {n}", metadata={"n": n}) for n in range(begin, end)], views)


def assert_equal(path, index):
    with mvindex.open(path) as restored:
        assert list(restored) == list(index)
        query = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
        assert restored.search(query, text="text 7") == index.search(query, text="text 7")
        assert restored.info().kind == index.info().kind
    assert mvindex.verify(path).is_sound


def test_a_snapshot_is_restored_from_where_it_was_written(index, place, tmp_path):
    written = index.admin.snapshot(place)
    report = restore(place, tmp_path / "again.mvx")
    assert (report.documents, report.version) == (written.documents, written.version) == (40, written.version)
    assert_equal(tmp_path / "again.mvx", index)
    with mvindex.open(tmp_path / "again.mvx") as again:
        add(again, 100, 101)  # an index like any other
        assert len(again) == 41
    with pytest.raises(ConfigError, match="exists already"):
        index.admin.snapshot(place)


def test_the_newest_are_kept_and_the_newest_is_restored(index, place, tmp_path):
    names = []
    for turn in range(4):
        add(index, 100 + turn, 101 + turn)
        report = take_backup(index.admin.snapshot, place, keep=2)
        assert list(report.removed) == ([] if turn < 2 else names[turn - 2 : turn - 1])
        names.append(backup_names(place)[-1])
    assert backup_names(place) == names[2:] == sorted(names[2:])
    restore(place, tmp_path / "again.mvx")
    assert_equal(tmp_path / "again.mvx", index)


def test_the_snapshots_of_another_index_are_refused_and_stay(index, place, tmp_path):
    name = take_backup(index.admin.snapshot, place, keep=1, index_id=index.info().index_id).path[-16:]
    with mvindex.create(tmp_path / "other.mvx", dim=DIM) as other:
        with pytest.raises(ConfigError, match=f"{name} is of another, {index.info().index_id}"):
            take_backup(other.admin.snapshot, place, keep=1, index_id=other.info().index_id)
    assert backup_names(place) == [name]
    report = take_backup(index.admin.snapshot, place, keep=1, index_id=index.info().index_id)
    assert report.removed == (name,)


def test_names_rise_even_if_the_clock_goes_back(index, tmp_path, monkeypatch):
    place = tmp_path / "backups"
    take_backup(index.admin.snapshot, place)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=400)

    monkeypatch.setattr(backups, "datetime", Clock)
    take_backup(index.admin.snapshot, place)
    first, second = backup_names(place)
    assert first < second and Clock.now(timezone.utc).strftime("%Y") not in (first[:4], second[:4])


@pytest.mark.parametrize("name", ["views-000001.f16", MANIFEST])
def test_an_upload_that_was_cut_is_not_restored(tmp_path, name, monkeypatch):
    """Whatever is uploaded last is missing: the manifest is the last of all."""
    system = fsspec.filesystem("memory")
    place = f"memory://cut-{name}"
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 40)
        whole = take_backup(index.admin.snapshot, place)
        add(index, 40, 50)
        put, pipe = type(system).put_file, type(system).pipe_file

        def cut(self, local, remote, *args, **options):
            if remote.endswith(name):
                raise OSError("the connection was cut")
            return put(self, local, remote, *args, **options)

        def cut_pipe(self, remote, *args, **options):
            if remote.endswith(name):
                raise OSError("the connection was cut")
            return pipe(self, remote, *args, **options)

        monkeypatch.setattr(type(system), "put_file", cut)
        monkeypatch.setattr(type(system), "pipe_file", cut_pipe)
        with pytest.raises(StoreError, match="cannot be written"):
            take_backup(index.admin.snapshot, place, keep=1)
    monkeypatch.undo()
    assert len(backup_names(place)) == 1
    assert restore(place, tmp_path / "again.mvx").documents == whole.documents == 40
    with mvindex.open(tmp_path / "corpus.mvx") as index:
        take_backup(index.admin.snapshot, place, keep=2)
    assert len(system.ls(f"/cut-{name}")) == len(backup_names(place)) == 2


@pytest.mark.needs("s3")
def test_a_bucket_that_does_not_exist_is_not_made(tmp_path, bucket):
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 4)
        with pytest.raises(StoreError, match="cannot be written"):
            index.admin.snapshot("s3://a-bucket-of-nobody/wiki")
    assert "a-bucket-of-nobody" not in fsspec.filesystem("s3").ls("")


def test_what_a_killed_process_left_is_removed_by_the_next(index, tmp_path):
    left = tmp_path / "backups" / ".20260101T000000Z.123.abcd.new"
    (left / "generation-000001").mkdir(parents=True)
    take_backup(index.admin.snapshot, tmp_path / "backups")
    assert not left.exists() and len(backup_names(tmp_path / "backups")) == 1


@pytest.fixture
def remote(tmp_path):
    """The address of a snapshot of an index with 40 documents."""
    address = f"memory://{tmp_path.name}/one"
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 40)
        index.admin.snapshot(address)
    return address


def content_of(address):
    system, path = fsspec.core.url_to_fs(address)
    return system.cat_file(path)


def put(address, content):
    system, path = fsspec.core.url_to_fs(address)
    system.pipe_file(path, content)


@pytest.mark.parametrize("harm", ["flip", "cut", "longer", "gone"])
def test_damage_of_any_file_is_named_and_nothing_is_left(remote, tmp_path, harm):
    names = list(json.loads(content_of(f"{remote}/{MANIFEST}"))["files"])
    assert len(names) >= 4
    for name in names:
        content = content_of(f"{remote}/{name}")
        if harm == "gone":
            system, path = fsspec.core.url_to_fs(f"{remote}/{name}")
            system.rm_file(path)
        else:
            changed = {"flip": bytes([content[0] ^ 1]) + content[1:], "cut": content[:-1], "longer": content + b"x"}
            put(f"{remote}/{name}", changed[harm])
        with pytest.raises(DamagedIndex, match=f"/one/{name}: expected"):
            restore(remote, tmp_path / "again.mvx")
        assert os.listdir(tmp_path) == ["corpus.mvx"]
        put(f"{remote}/{name}", content)
    assert restore(remote, tmp_path / "again.mvx").documents == 40


def test_any_changed_character_of_a_manifest_is_found(remote, tmp_path):
    content = content_of(f"{remote}/{MANIFEST}")
    for at in range(0, len(content), 5):
        put(f"{remote}/{MANIFEST}", content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :])
        with pytest.raises(DamagedIndex, match=MANIFEST):
            restore(remote, tmp_path / "again.mvx")
    assert os.listdir(tmp_path) == ["corpus.mvx"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"[" * 100_000, b"null", b"\xff", b'{"xxh3_128": null}'])
def test_what_is_no_manifest_is_refused(remote, tmp_path, content):
    put(f"{remote}/{MANIFEST}", content)
    with pytest.raises(DamagedIndex, match=f"{MANIFEST}: expected a"):
        restore(remote, tmp_path / "again.mvx")


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["files"].update({"../outside": manifest["files"].popitem()[1]}),
        lambda manifest: manifest["files"].update({"/tmp/outside": manifest["files"].popitem()[1]}),
        lambda manifest: manifest["files"].update({"a\0b": manifest["files"].popitem()[1]}),
        lambda manifest: manifest.update(files=[1]),
        lambda manifest: manifest.update(format=2),
        lambda manifest: manifest.pop("documents"),
        lambda manifest: manifest["files"].popitem(),
    ],
    ids=["outside", "absolute", "zero", "no files", "format", "no documents", "a file less"],
)
def test_a_manifest_of_others_is_refused(remote, tmp_path, change):
    manifest = json.loads(content_of(f"{remote}/{MANIFEST}"))
    del manifest["xxh3_128"]
    change(manifest)
    # Private: a forged manifest has a checksum that fits.
    put(f"{remote}/{MANIFEST}", json.dumps(manifest | {"xxh3_128": backups._checksum(manifest)}).encode())
    with pytest.raises(StoreError):
        restore(remote, tmp_path / "again.mvx")
    assert os.listdir(tmp_path) == ["corpus.mvx"]


def test_damage_before_the_upload_is_found_by_the_index_itself(tmp_path):
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 40)
        index.admin.snapshot(tmp_path / "copy")
    views = next((tmp_path / "copy").rglob("views-*"))
    views.write_bytes(b"\1" + views.read_bytes()[1:])

    def write(target, on_progress):
        shutil.copytree(tmp_path / "copy", target)
        return backups.SnapshotReport(path="", documents=40, version=1, size_bytes=1)

    address = f"memory://{tmp_path.name}/one"
    backups.write_snapshot(write, address)
    for source in (address, tmp_path / "copy"):
        with pytest.raises(DamagedIndex):
            restore(source, tmp_path / "again.mvx")
    assert sorted(os.listdir(tmp_path)) == ["copy", "corpus.mvx"]


def test_secrets_of_an_address_are_in_no_message(tmp_path):
    pytest.importorskip("aiohttp", reason="NOT RUN: needs aiohttp (the extra files)")
    with pytest.raises(StoreError) as told:
        restore("http://someone:hidden@127.0.0.1:1/one", tmp_path / "again.mvx")
    assert "hidden" not in str(told.value) and "http://127.0.0.1:1/one" in str(told.value)


def test_a_file_address_is_a_directory_of_this_machine(tmp_path):
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 4)
        index.admin.snapshot(f"file://{tmp_path}/a%20b")
        assert mvindex.verify(tmp_path / "a b").is_sound
        with pytest.raises(ConfigError, match="got host 'other'"):
            index.admin.snapshot("file://other/x")
    assert restore(f"file://localhost{tmp_path}/a%20b", tmp_path / "again.mvx").documents == 4


def test_what_a_killed_upload_left_among_temporary_files_is_removed(remote, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    (scratch / ".mvindex-snapshot.123.abcd.new" / "index.mvx").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with mvindex.open(tmp_path / "corpus.mvx") as index:
        index.admin.snapshot(f"{remote}-again")
    assert os.listdir(scratch) == []


def test_what_is_no_snapshot_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "none", "memory://nothing"):
        with pytest.raises(StoreError, match="expected a snapshot"):
            restore(source, tmp_path / "again.mvx")
    with pytest.raises(ConfigError, match="keep 1 snapshot or more, got 0"):
        take_backup(shutil.copytree, tmp_path / "backups", keep=0)
    with mvindex.create(tmp_path / "there.mvx", dim=DIM), pytest.raises(ConfigError, match="exists already"):
        restore(tmp_path / "empty", tmp_path / "there.mvx")
