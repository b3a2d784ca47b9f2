"""Snapshots that a server makes on a schedule."""

import time

import pytest
from serving_tools import fill, served, vectors, wait_for

import mvindex
from mvindex import Document
from mvindex.errors import ConfigError
from mvindex.maintenance.backups import backup_names
from mvindex.measure.planning.units import parse_seconds
from mvindex_connectors.remote import ServerAdmin
from mvindex_connectors.server.config import Snapshots

DIM = 16


def messages(serving, text):
    return [line for line in list(serving.log) if text in line]


def test_snapshots_are_taken_kept_by_count_and_restored(tmp_path):
    fill(tmp_path / "a.mvx", dim=DIM)
    place = tmp_path / "kept"
    with served(
        "--index", f"a={tmp_path / 'a.mvx'}", "--snapshots", place, "--snapshot-every", "1s", "--snapshot-keep", "2"
    ) as serving:
        with mvindex.open(serving.url()) as index:
            number = 0
            while len(messages(serving, "a: snapshot taken")) < 4:
                index.add_views([Document(f"more{number}", "x")], vectors(1, DIM, number).reshape(1, 1, DIM))
                number += 1
                time.sleep(0.05)
            written = len(index)
            taken = len(messages(serving, "a: snapshot taken"))
            wait_for(lambda: len(messages(serving, "a: snapshot taken")) > taken + 1)
        names = backup_names(place / "a")
        assert 2 <= len(names) <= 3, names
        restored = mvindex.restore(place / "a", tmp_path / "again.mvx")
        assert restored.documents == written == 50 + number
    assert mvindex.verify(tmp_path / "again.mvx").is_sound


def test_a_place_that_cannot_be_written_is_logged_and_the_server_goes_on(tmp_path):
    fill(tmp_path / "a.mvx", dim=DIM)
    (tmp_path / "file").write_text("no folder")
    with served(
        "--index", f"a={tmp_path / 'a.mvx'}", "--snapshots", tmp_path / "file", "--snapshot-every", "1s", "--read-only"
    ) as serving:
        wait_for(lambda: len(messages(serving, "a: snapshot failed")) > 1)
        with mvindex.open(serving.url()) as index:
            assert len(index.search(vectors(1, DIM)[0]).hits) == 10


def test_a_fresh_snapshot_is_not_taken_again_at_the_start(tmp_path):
    fill(tmp_path / "a.mvx", dim=DIM)
    options = ("--index", f"a={tmp_path / 'a.mvx'}", "--snapshots", tmp_path / "kept", "--snapshot-every", "1d")
    with served(*options) as serving:
        wait_for(lambda: messages(serving, "a: snapshot taken"))
    with served(*options) as serving:
        time.sleep(1.5)
        assert not messages(serving, "snapshot")


def test_an_index_of_the_name_of_one_that_was_dropped_has_its_own_schedule(tmp_path):
    options = ("--admin-folder", tmp_path / "admin", "--snapshots", tmp_path / "kept", "--snapshot-every", "1d")
    with served(*options) as serving, ServerAdmin(serving.url("made")) as made:
        made.create(dim=4).wait(60)
        wait_for(lambda: len(messages(serving, "made: snapshot taken")) == 1)
        made.drop("made").wait(60)
        # A fresh snapshot is not taken again.
        (tmp_path / "kept" / "made").rename(tmp_path / "first")
        made.create(dim=4).wait(60)
        wait_for(lambda: len(messages(serving, "made: snapshot taken")) == 2)


def test_wrong_schedules_are_refused():
    for text in ("0s", "hourly", "5 weeks", "-1h"):
        with pytest.raises(ConfigError, match="expected a time of at least a second"):
            parse_seconds("--snapshot-every", text)
    assert [parse_seconds("x", text) for text in ("90s", "15m", "6h", "1d")] == [90, 900, 21_600, 86_400]
    with pytest.raises(ConfigError, match="--snapshot-keep"):
        Snapshots(place="x", every_s=1, keep=0)
