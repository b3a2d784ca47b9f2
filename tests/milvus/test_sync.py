"""A folder is synced into a collection as into a directory."""

import pytest

import mvindex
from mvindex.encoder import load_encoder
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


def many_letters(texts):
    return [[*map(float, text.encode()[:16].ljust(16))] for text in texts]


def test_of_a_changed_document_only_new_views_are_encoded(place):
    first, second = (" ".join(f"{each} {n} rose in May." for n in range(1000, 1030)) for each in ("Oil", "Gas"))
    encoder = load_encoder(many_letters, name="letters", max_views="auto")
    changed = [mvindex.Document("1", first + " It fell."), mvindex.Document("2", first, metadata={"n": 2})]
    with mvindex.create(place, encoder=encoder) as index:
        index.add([mvindex.Document("1", first), mvindex.Document("2", second)])
        report = index.add(changed)
        assert (report.replaced, report.views_encoded, report.views_reused) == (2, 1, 60)
        expected = encoder.encode_documents(changed).rows.astype("f2").astype("f4")
        assert [*index.views("1").vectors, *index.views("2").vectors] == pytest.approx(expected)
