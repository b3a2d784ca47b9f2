"""Indexes on file systems that hosts share: they can be read, and only backups are written there."""

import os
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.store import files as networks
from mvindex.store.files import network_of
from tests.durability.faults.cases import found_by

# In the format of /proc/self/mountinfo: an NFS export with a local disk mounted inside it, a part of the export and a
# local folder mounted elsewhere (by --bind), names with a space and a backslash, a mount that another hides.
MOUNTS = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
24 22 0:22 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=813572k,mode=755,inode64
98 22 0:46 / /mnt/export rw,relatime shared:50 - nfs4 filer:/export rw,vers=4.2,rsize=1048576,hard,proto=tcp,sec=sys
99 98 259:3 / /mnt/export/scratch rw,relatime shared:51 - xfs /dev/nvme0n1p3 rw,attr2,inode64
120 22 0:46 /projects /home/ada/projects rw,relatime shared:50 - nfs4 filer:/export rw,vers=4.2
121 98 254:1 /var/local /mnt/export/local rw,relatime shared:1 - ext4 /dev/vda1 rw
130 22 0:50 / /mnt/win\040share rw,relatime shared:60 - cifs //server/all\040of\040it rw,vers=3.1.1,username=ada
131 22 0:51 / /mnt/back\134slash rw,relatime - nfs old:/x rw,vers=3
132 22 0:52 / /mnt/twice rw,relatime - nfs4 filer:/twice rw
133 132 0:53 / /mnt/twice rw,relatime - tmpfs none rw
134 22 0:54 / /mnt/again rw,relatime - tmpfs none rw
135 134 0:55 / /mnt/again rw,relatime - nfs4 filer:/again rw
140 22 0:60 / /afs rw,relatime - afs none rw
this line is none
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/srv/a.mvx", None),
        ("/mnt/export", "nfs4"),
        ("/mnt/export/a.mvx", "nfs4"),
        ("/mnt/exported/a.mvx", None),
        ("/mnt/export/scratch/a.mvx", None),
        ("/mnt/export/local/deep/a.mvx", None),
        ("/home/ada/projects/a.mvx", "nfs4"),
        ("/home/ada/a.mvx", None),
        ("/mnt/win share/a.mvx", "cifs"),
        ("/mnt/win/a.mvx", None),
        ("/mnt/back\\slash/a.mvx", "nfs"),
        ("/mnt/twice/a.mvx", None),
        ("/mnt/again/a.mvx", "nfs4"),
        ("/afs/cell/a.mvx", "afs"),
        ("/mnt/export/../a.mvx", None),
    ],
)
def test_the_mount_that_holds_a_path_says_whether_hosts_share_it(path, found):
    assert network_of(Path(path), MOUNTS) == found


def test_a_path_counts_as_where_its_links_lead(tmp_path):
    (tmp_path / "here").symlink_to("/mnt/export")
    assert network_of(tmp_path / "here" / "a.mvx", MOUNTS) == "nfs4"


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder with an index of given vectors, whose mount is reported as nfs4."""
    folder = tmp_path / "shared"
    folder.mkdir()
    with mvindex.create(folder / "a.mvx", dim=4) as index:
        index.add_views([mvindex.Document(str(n), f"text {n}", "", {"n": n}) for n in range(8)], np.eye(8, 4) + 0.5)
        index.delete(ids="7")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}150 22 0:70 / {folder} rw,relatime shared:70 - nfs4 filer:/a rw,vers=4.2\n")
    monkeypatch.setattr(networks, "_MOUNTS", mounts)
    return folder


def content(folder):
    """Return every entry below the folder with its bytes, except those that readers make too."""
    found = {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    ends = [name for name, data in found.items() if name.endswith("-shm") or (name.endswith("-wal") and data == b"")]
    return {name: data for name, data in found.items() if name not in ends}


def on_index(call):
    def run(folder):
        with mvindex.open(folder / "a.mvx") as index:
            call(index)

    return run


WRITES = {
    "create": lambda folder: mvindex.create(folder / "new.mvx", dim=4),
    "create in new folders": lambda folder: mvindex.create(folder / "deep" / "new.mvx", dim=4),
    "add": on_index(lambda index: index.add_views([mvindex.Document("new", "t")], np.ones((1, 1, 4)))),
    "replace": on_index(lambda index: index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 4)))),
    "delete": on_index(lambda index: index.delete(ids="1")),
    "delete by filter": on_index(lambda index: index.delete(filter={"n": {"gte": 3}})),
    "update": on_index(lambda index: index.update("1", metadata={"n": 9})),
    "build": on_index(lambda index: index.admin.build(kind="exact")),
    "compact": on_index(lambda index: index.admin.compact()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_where_hosts_share_the_disk(write, shared):
    before = content(shared)
    with pytest.raises(StoreError, match=r"shared.* is on nfs4.* snapshot"):
        write(shared)
    assert content(shared) == before


def test_no_file_is_repaired_there(shared):
    (shared / "a.mvx" / "current.json").unlink()
    before = content(shared)
    with pytest.raises(StoreError, match="nfs4"):
        mvindex.repair(shared / "a.mvx")
    assert content(shared) == before


def test_an_index_there_is_read_verified_and_copied_away(shared, tmp_path):
    with mvindex.open(shared / "a.mvx") as index:
        assert [hit.id for hit in index.search([1, 0, 0, 0], top_k=1).hits] == ["0"]
        assert index.get("3").text == "text 3" and not index.refresh()
        index.admin.snapshot(tmp_path / "local.mvx")
    assert mvindex.verify(shared / "a.mvx").is_sound
    assert mvindex.salvage(shared / "a.mvx", tmp_path / "saved.mvx").documents == 7
    with mvindex.open(tmp_path / "local.mvx") as index:
        assert index.delete(ids="1") == 1


def test_a_backup_may_be_written_there_and_read(shared, tmp_path):
    """One process writes it under its own name and renames it: its locks exclude no other."""
    with mvindex.open(shared / "a.mvx") as index:
        index.admin.snapshot(shared / "backup.mvx")
    mvindex.salvage(shared / "a.mvx", shared / "saved.mvx")
    assert sorted(os.listdir(shared)) == ["a.mvx", "backup.mvx", "saved.mvx"]
    for name in ("backup.mvx", "saved.mvx"):
        assert mvindex.verify(shared / name).is_sound
        with mvindex.open(shared / name) as copy:
            assert len(copy) == 7 and copy.search([1, 0, 0, 0], top_k=1).hits[0].id == "0"
            with pytest.raises(StoreError, match="nfs4"):
                copy.delete(ids="1")


def test_real_mounts_count_as_the_system_resolves_them(tmp_path):
    """Mounts bound elsewhere, nested, hidden by a later one, with a space; ramfs stands in for a network."""
    found = found_by("disks", "real_mounts", tmp_path, is_mounting=True)
    is_network = {"net", "net/part", "with space", "bound", "over", "over/deep"}
    is_refused = {name for name, outcome in found.items() if "is on ramfs" in outcome.get("message", "")}
    assert is_refused == is_network
    assert all(outcome == {"result": True} for name, outcome in found.items() if name not in is_network)


def test_a_real_network_file_system_is_refused():
    """This needs a machine with such a mount, whose folder is in an environment variable."""
    place = os.environ.get("MVINDEX_TEST_NFS")
    if not place:
        pytest.skip("NOT RUN: needs a mounted NFS or CIFS folder, named in MVINDEX_TEST_NFS")
    with pytest.raises(StoreError, match=r"is on (nfs|cifs|smb)"):
        mvindex.create(Path(place) / "mvindex-test.mvx", dim=3)
    assert not (Path(place) / "mvindex-test.mvx").exists()
