"""Walks over files that another thread removes meanwhile."""

import shutil
import threading

import numpy as np
import pytest

import mvindex
from mvindex.corpus.folder import Folder, FolderOptions
from mvindex.store.files import file_bytes, size_of


@pytest.fixture
def churned(tmp_path):
    """A folder with 10 bytes that stay, in which a thread makes and removes folders of files all the time."""
    (tmp_path / "stays.txt").write_bytes(b"0123456789")
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            for number in range(20):
                folder = tmp_path / f"goes{number}" / "below"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "a.txt").write_bytes(b"x" * 1000)
            for number in range(20):
                shutil.rmtree(tmp_path / f"goes{number}", ignore_errors=True)

    thread = threading.Thread(target=churn)
    thread.start()
    yield tmp_path
    stop.set()
    thread.join()


def test_the_size_of_a_folder_is_that_of_the_files_that_are_there(churned):
    sizes = [size_of(churned) for _ in range(200)]
    assert min(sizes) >= 10 and max(sizes) <= 10 + 20 * 1000
    assert file_bytes(churned / "none") == file_bytes(churned / "stays.txt" / "none") == 0


def test_an_index_is_compacted_and_described_while_files_beside_its_own_vanish(churned):
    rows = np.random.default_rng(1).standard_normal((200, 1, 4)).astype(np.float32)
    with mvindex.create(churned / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document(f"d{n}", "text") for n in range(200)], rows)
        (churned / "x.mvx" / "old" / "below").mkdir(parents=True)
        for number in range(500):
            (churned / "x.mvx" / "old" / "below" / f"{number}.bin").write_bytes(b"x")
        index.delete(ids=[f"d{n}" for n in range(100)])
        removing = threading.Thread(target=shutil.rmtree, args=(churned / "x.mvx" / "old",))
        removing.start()
        report = index.admin.compact()
        assert report.documents == 100 and index.info().size_bytes > 0
        removing.join()


def test_a_folder_of_documents_is_walked_while_some_of_them_vanish(churned):
    for _ in range(30):
        folder = Folder(str(churned), FolderOptions(), has_reader=lambda name: True)
        assert "stays.txt" in [file.file for file in folder.files()] and not folder.unreadable
