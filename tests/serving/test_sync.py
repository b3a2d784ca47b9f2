"""A folder is synced into an index behind a server as into one of this process."""

import pytest
from serving_tools import served

import mvindex
from tests.helpers.folders import documents_of, held, note, write


@pytest.mark.full
def test_a_folder_is_synced_into_a_served_index(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    notes = tmp_path / "notes"
    write(notes, **{f"{number}.md": note(number) for number in range(4)})
    mvindex.create(tmp_path / "i.mvx", encoder="minilm-views").close()
    with served(f"--index=a={tmp_path / 'i.mvx'}", "--http", "0") as server, mvindex.open(server.url("a")) as index:
        assert mvindex.sync_folder(index, notes).is_complete
        write(notes, **{"1.md": note(1, 2), "2.md": None, "3.md": note(3).partition("## More")[0]})
        report = mvindex.sync_folder(index, notes)
        assert report.is_complete and (report.changed, report.deleted, report.removed) == (2, 1, 3)
        assert held(index) == documents_of(notes)
