"""compact and snapshot: the same index in fewer bytes, and elsewhere."""

import base64
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.engines.device_views import DeviceConfig
from mvindex.engines.scan_torch import TorchScan
from mvindex.errors import ConfigError, DamagedIndex, IndexLocked
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.store.files import Current, network_of, write_current
from tests.helpers.index_examples import documents, vectors


def held(index):
    """Every document: title, text, metadata, ordinal, spans and views as stored, by id."""
    snapshot = embedded_store_of(index).snapshot
    rows = np.flatnonzero(snapshot.alive)
    with embedded_store_of(index).reading(snapshot) as reader:
        stored = reader.documents(rows.tolist())
    found = {}
    for row, document in stored.items():
        at = np.array([row])
        views = base64.b64encode(snapshot.views.fetch(at)[0].tobytes()).decode()
        place = {"ordinal": int(snapshot.views.ordinals(at)[0]), "spans": document.spans.tolist(), "views": views}
        found[document.id] = {"title": document.title, "text": document.text, "metadata": document.metadata, **place}
    return found


@pytest.fixture
def worn(index):
    """An index with replaced, deleted and updated documents."""
    index.add_views([mvindex.Document("3", "new 3"), mvindex.Document("10", "ten")], vectors(2, seed=5))
    index.delete(ids=["0", "7"])
    index.update("5", metadata={"lang": "de"})
    return index


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw"])
def test_a_compacted_index_holds_and_answers_the_same_in_fewer_rows(worn, kind):
    worn.admin.build(kind=kind)
    before, answers = held(worn), worn.search(vectors(1)[0], top_k=20, exact=True)
    report = worn.admin.compact()
    assert (report.documents, report.dropped, report.generation) == (9, 3, 2)
    assert held(worn) == before
    assert worn.search(vectors(1)[0], top_k=20, exact=True) == answers
    assert worn.info().num_deleted == 0 and worn.info().kind == kind
    assert embedded_store_of(worn).snapshot.views.ordinals(np.arange(9)).tolist() == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert sorted(os.listdir(worn.path)) == ["current.json", "generation-000002", "writer.lock"]
    worn.add_views([mvindex.Document("new", "t")], vectors(1, seed=8))
    assert held(worn)["new"]["ordinal"] == 11


def test_nothing_is_written_where_nothing_was_retired(index):
    report = index.admin.compact()
    assert (report.dropped, report.generation) == (0, 1)
    assert index.info().size_bytes == report.bytes_after


def test_an_old_reader_keeps_its_generation_until_it_refreshes(worn):
    worn.delete(ids="9")
    with mvindex.open(worn.path) as reader:
        worn.add_views([mvindex.Document("4", "newer 4")], vectors(1, seed=9))
        before = held(reader)
        assert worn.admin.compact().is_old_in_use
        assert held(reader) == before and reader.get("4").text == "text 4"
        assert len(reader.search(vectors(1)[0, 0], top_k=50).hits) == 8
        assert sorted(entry.name for entry in worn.path.glob("generation-*")) == [
            "generation-000001",
            "generation-000002",
        ]
        assert reader.refresh() and held(reader) == held(worn)
        worn.delete(ids="1")
        assert [entry.name for entry in worn.path.glob("generation-*")] == ["generation-000002"]


def test_a_closed_reader_gives_its_generation_up(worn):
    with mvindex.open(worn.path):
        assert worn.admin.compact().is_old_in_use
    worn.delete(ids="1")
    assert [entry.name for entry in worn.path.glob("generation-*")] == ["generation-000002"]


def test_a_torch_scan_gives_the_room_of_an_old_generation_back(worn):
    scan = TorchScan(DeviceConfig(cache_bytes=1 << 20))
    search_engine_of(worn).use_scan(lambda: scan)
    worn.search(vectors(1)[0], top_k=3)
    worn.admin.compact()
    worn.search(vectors(1)[0], top_k=3)
    # Private: which views a scan keeps in memory, no answer shows.
    assert [*scan._views._kept] == scan._views.spans(embedded_store_of(worn).snapshot)
    assert scan._views._generation == 2


def test_compacting_refuses_beside_another_writer(worn):
    with mvindex.open(worn.path) as other, embedded_store_of(worn).writing():
        with pytest.raises(IndexLocked):
            other.admin.compact()


def test_damage_stops_a_compaction_and_leaves_all_as_it_was(worn):
    views = next(worn.path.glob("generation-000001/views-*"))
    content = bytearray(views.read_bytes())
    content[2 * 2 * 4 * 5] ^= 1  # a view of document 5, two views of 4 dims in fp16 each
    views.write_bytes(content)
    with pytest.raises(DamagedIndex, match="document row 5"):
        worn.admin.compact()
    assert sorted(os.listdir(worn.path)) == ["current.json", "generation-000001", "writer.lock"]
    assert worn.get("4").text == "text 4"


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_a_snapshot_is_the_index_as_it_was(worn, tmp_path, kind):
    worn.admin.build(kind=kind)
    report = worn.admin.snapshot(tmp_path / "s.mvx")
    before, answers = held(worn), worn.search(vectors(1)[0], top_k=20)
    worn.delete(ids="10")
    with mvindex.open(tmp_path / "s.mvx") as copy:
        assert held(copy) == before and len(before) == report.documents
        assert copy.search(vectors(1)[0], top_k=20) == answers and copy.info().kind == kind
        copy.add_views([mvindex.Document("only here", "t")], vectors(1, seed=4))
        assert "only here" not in worn
    assert mvindex.verify(tmp_path / "s.mvx").is_sound


def test_a_snapshot_is_refused_where_something_is_or_inside_the_index(worn, tmp_path):
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "there", worn.path / "inside"):
        with pytest.raises(ConfigError, match=str(target)):
            worn.admin.snapshot(target)
    assert not (worn.path / "inside").exists()


def test_a_snapshot_never_copies_damage(worn, tmp_path):
    worn.admin.build(kind="flat")
    for pattern in ("views-*", "engine-*/index.faiss"):
        file = next(worn.path.glob(f"generation-000001/{pattern}"))
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with mvindex.open(worn.path) as damaged, pytest.raises(DamagedIndex, match=file.name):
            damaged.admin.snapshot(tmp_path / "s.mvx")
        assert not (tmp_path / "s.mvx").exists() and not list(tmp_path.glob(".*"))
        content[-1] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_format_is_refused_with_both_versions_and_the_way_out(index, version):
    current = json.loads((index.path / "current.json").read_text())
    write_current(index.path, Current(format_version=version, generation=1, index_id=current["index_id"]), {})
    index.close()
    before = sorted(index.path.rglob("*"))
    message = f"expected format version 3, got format version {version}. Make the index again"
    for call in (mvindex.open, mvindex.verify, mvindex.repair, lambda path: mvindex.salvage(path, path.parent / "s")):
        with pytest.raises(mvindex.errors.StoreError, match=re.escape(message)):
            call(index.path)
    assert sorted(index.path.rglob("*")) == before


def test_a_catalog_at_the_top_of_the_directory_is_of_format_version_1(tmp_path):
    (tmp_path / "old.mvx").mkdir()
    (tmp_path / "old.mvx" / "catalog.sqlite").write_bytes(bytes(68) + b"mvix" + bytes(4096))
    with pytest.raises(mvindex.errors.StoreError, match="expected format version 3, got format version 1"):
        mvindex.open(tmp_path / "old.mvx")


def test_half_made_indexes_of_dead_processes_are_removed_by_the_next(tmp_path):
    (tmp_path / ".a.mvx.99999.abcd.new").mkdir()
    with mvindex.create(tmp_path / "a.mvx", dim=4) as made:
        made.add_views(documents(1), vectors(1))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mvx"]


@pytest.mark.parametrize(
    ("path", "found"),
    [("/data/x.mvx", "nfs4"), ("/data/local/x.mvx", None), ("/home/x.mvx", None), ("/mnt/a b/x.mvx", "cifs")],
)
def test_the_mount_that_holds_an_index_tells_whether_hosts_share_it(path, found):
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:40 / /data rw,relatime shared:3 - nfs4 host:/export rw,vers=4.2\n"
        "3 2 8:2 / /data/local rw - xfs /dev/sdb1 rw\n"
        "4 1 0:41 / /mnt/a\\040b rw - cifs //host/share rw\n"
    )
    assert network_of(Path(path), mounts) == found


def test_a_snapshot_is_one_state_whatever_is_written_meanwhile(worn, tmp_path, monkeypatch):
    """A writer replaces, deletes, adds and compacts between the steps of the copy, a page of the catalog each."""
    monkeypatch.setattr("mvindex.maintenance.snapshot._PAGES", 1)
    before, steps = held(worn), []
    with mvindex.open(worn.path) as writer:

        def write(size_bytes):
            number = len(steps)
            steps.append(size_bytes)
            new = [mvindex.Document(doc_id, f"of step {number}") for doc_id in ("3", f"n{number}")]
            writer.add_views(new, vectors(2, seed=number))
            if number % 5 == 4:
                writer.admin.compact()

        report = worn.admin.snapshot(tmp_path / "s.mvx", write)
    assert len(steps) > 8 and report.documents == len(before)
    with mvindex.open(tmp_path / "s.mvx") as copy:
        assert held(copy) == before
    assert mvindex.verify(tmp_path / "s.mvx").is_sound
    assert worn.refresh() and worn.get("3").text == f"of step {len(steps) - 1}"
    assert mvindex.verify(worn.path).is_sound
