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
        made.build("flat")
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
    written = index.snapshot(place)
    report = restore(place, tmp_path / "again.mvx")
    assert (report.documents, report.version) == (written.documents, written.version) == (40, written.version)
    assert_equal(tmp_path / "again.mvx", index)
    with mvindex.open(tmp_path / "again.mvx") as again:
        add(again, 100, 101)  # an index like any other
        assert len(again) == 41
    with pytest.raises(ConfigError, match="exists already"):
        index.snapshot(place)


def test_the_newest_are_kept_and_the_newest_is_restored(index, place, tmp_path):
    names = []
    for turn in range(4):
        add(index, 100 + turn, 101 + turn)
        report = take_backup(index.snapshot, place, keep=2)
        assert list(report.removed) == ([] if turn < 2 else names[turn - 2 : turn - 1])
        names.append(backup_names(place)[-1])
    assert backup_names(place) == names[2:] == sorted(names[2:])
    restore(place, tmp_path / "again.mvx")
    assert_equal(tmp_path / "again.mvx", index)


def test_names_rise_even_if_the_clock_goes_back(index, tmp_path, monkeypatch):
    place = tmp_path / "backups"
    take_backup(index.snapshot, place)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=400)

    monkeypatch.setattr(backups, "datetime", Clock)
    take_backup(index.snapshot, place)
    first, second = backup_names(place)
    assert first < second and Clock.now(timezone.utc).strftime("%Y") not in (first[:4], second[:4])


@pytest.mark.parametrize("name", ["views-000001.f16", MANIFEST])
def test_an_upload_that_was_cut_is_not_restored(tmp_path, name, monkeypatch):
    """Whatever is uploaded last is missing: the manifest is the last of all."""
    system = fsspec.filesystem("memory")
    place = f"memory://cut-{name}"
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 40)
        whole = take_backup(index.snapshot, place)
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
            take_backup(index.snapshot, place, keep=1)
    monkeypatch.undo()
    assert len(backup_names(place)) == 1
    assert restore(place, tmp_path / "again.mvx").documents == whole.documents == 40
    with mvindex.open(tmp_path / "corpus.mvx") as index:
        take_backup(index.snapshot, place, keep=2)
    assert len(system.ls(f"/cut-{name}")) == len(backup_names(place)) == 2


@pytest.mark.needs("s3")
def test_a_bucket_that_does_not_exist_is_not_made(tmp_path, bucket):
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 4)
        with pytest.raises(StoreError, match="cannot be written"):
            index.snapshot("s3://a-bucket-of-nobody/wiki")
    assert "a-bucket-of-nobody" not in fsspec.filesystem("s3").ls("")


def test_what_a_killed_process_left_is_removed_by_the_next(index, tmp_path):
    left = tmp_path / "backups" / ".20260101T000000Z.123.abcd.new"
    (left / "generation-000001").mkdir(parents=True)
    take_backup(index.snapshot, tmp_path / "backups")
    assert not left.exists() and len(backup_names(tmp_path / "backups")) == 1


def test_damage_on_the_way_is_told(tmp_path):
    place = tmp_path / "snapshot"
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 40)
        index.snapshot(f"file://{place}")
    views = next(place.rglob("views-*"))
    content = bytearray(views.read_bytes())
    content[5] ^= 1
    views.write_bytes(content)
    with pytest.raises(DamagedIndex, match=r"views-.*: expected \d+ bytes of checksum"):
        restore(f"file://{place}", tmp_path / "again.mvx")
    assert not (tmp_path / "again.mvx").exists()
    # As a directory it is an index whose own checksums tell.
    (place / MANIFEST).unlink()
    with pytest.raises(DamagedIndex):
        restore(place, tmp_path / "again.mvx")
    assert not (tmp_path / "again.mvx").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["files"].update({"../outside": manifest["files"].popitem()[1]}),
        lambda manifest: manifest["files"].update({"/tmp/outside": manifest["files"].popitem()[1]}),
        lambda manifest: manifest.update(files=[1]),
        lambda manifest: manifest.update(format=2),
        lambda manifest: manifest.pop("documents"),
        lambda manifest: manifest["files"].popitem(),
    ],
    ids=["outside", "absolute", "no files", "format", "no documents", "a file less"],
)
def test_a_manifest_of_others_is_refused(tmp_path, change):
    place = tmp_path / "snapshot"
    with mvindex.create(tmp_path / "corpus.mvx", dim=DIM) as index:
        add(index, 0, 4)
        index.snapshot(f"file://{place}")
    manifest = json.loads((place / MANIFEST).read_text())
    change(manifest)
    (place / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StoreError):
        restore(f"file://{place}", tmp_path / "again.mvx")
    assert sorted(os.listdir(tmp_path)) == ["corpus.mvx", "snapshot"]


def test_what_is_no_snapshot_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "none", "memory://nothing"):
        with pytest.raises(StoreError, match="expected a snapshot"):
            restore(source, tmp_path / "again.mvx")
    with pytest.raises(ConfigError, match="keep 1 snapshot or more, got 0"):
        take_backup(shutil.copytree, tmp_path / "backups", keep=0)
    with mvindex.create(tmp_path / "there.mvx", dim=DIM), pytest.raises(ConfigError, match="exists already"):
        restore(tmp_path / "empty", tmp_path / "there.mvx")
