"""A folder is synced into a collection as into a directory."""

import pytest

import mvindex
from tests.helpers.folders import Counting, documents_of, held, note, write


@pytest.mark.needs("milvus-lite")
def test_a_folder_is_synced_into_a_collection(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    notes = tmp_path / "notes"
    write(notes, **{f"{number}.md": note(number) for number in range(30)})
    with mvindex.create(f"milvus-lite:{tmp_path / 'i.db'}", encoder=Counting().encoder()) as index:
        assert mvindex.sync_folder(index, notes).is_complete
        write(notes, **{"1.md": note(1, 2), "2.md": None, "3.md": note(3).partition("## More")[0]})
        report = mvindex.sync_folder(index, notes)
        assert report.is_complete and (report.changed, report.deleted, report.removed) == (2, 1, 3)
        assert held(index) == documents_of(notes)
