"""The things that add() takes: texts, dicts, documents and tables."""

import numpy as np
import pytest
import xxhash

import mvindex
from mvindex.corpus.rows import content_id
from mvindex.errors import DocumentError
from mvindex.ingest.items import item_entries
from mvindex.records import Document


def documents_of(items, **options):
    return [entry.document for entry in item_entries(items, **options)]


def test_texts_and_dicts_become_documents():
    given = [
        "A text.",
        {"text": "Another.", "title": "T", "year": 1973, "none": None},
        {"id": 7, "text": "x", "metadata": {"a": 1}, "b": 3},
        {"_id": "own", "title": "only a title"},
        Document("d", "A document."),
    ]
    found = list(documents_of(given))
    assert [one.id for one in found] == [content_id("", "A text."), content_id("T", "Another."), "7", "own", "d"]
    assert [one.metadata for one in found] == [{}, {"year": 1973}, {"a": 1, "b": 3}, {}, {}]
    assert (found[1].title, found[3].title, found[4]) == ("T", "only a title", given[4])


def test_a_title_may_come_after_dicts_without_one():
    given = [{"text": "one"}] * 300 + [{"text": "another", "title": "T"}]
    assert [(one.title, one.metadata) for one in documents_of(given)][-2:] == [("", {}), ("T", {})]


def test_the_same_content_without_an_id_is_one_document_and_ids_are_stable(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder=ones) as index:
        report = index.add(["a", "b", "a", {"text": "b"}])
        assert (report.added, report.repeated) == (2, 2)
        assert [one.id for one in index.scan()] == [content_id("", "a"), content_id("", "b")]
    assert content_id("", "a") == xxhash.xxh3_128_hexdigest(b"\na")


def test_the_same_id_twice_is_an_error_even_where_others_have_none(tmp_path):
    with (
        mvindex.create(tmp_path / "a.mvx", encoder=ones) as index,
        pytest.raises(DocumentError, match="document 3: id '1' occurs at document 1 already"),
    ):
        index.add([{"id": "1", "text": "a"}, "b", {"id": "1", "text": "c"}])


@pytest.mark.parametrize("single", ["One text.", {"text": "One text."}, Document("1", "One text.")])
def test_a_single_item_is_no_sequence_of_letters(single):
    [one] = documents_of(single)
    assert one.text == "One text."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["ok", 5], "document 2: expected a Document, a text or a dict with a text, got int"),
        (["ok", {"txt": "x"}], "documents: expected a field of texts, got txt"),
        ([{"text": "ok"}, {"txt": "x"}], "document 2: expected a text or a title, got txt"),
        ([{"text": 5}], 'document 1: "text" is a number; expected a string'),
        ([{"text": "x", "id": 1.5}], 'document 1: "id" is a number; expected a string or an integer'),
        ([{"text": "x", "metadata": {}}, {"text": "x", "metadata": [1]}], 'document 2: "metadata" is an array'),
        ([{"text": "x", "metadata": {"a": 1}, "a": 2}], 'document 1: "a" occurs both beside "metadata" and in it'),
        ([{"text": b"x"}], 'document 1: "text" is bytes; expected a string'),
        ([""], "document 1: expected a text or a title"),
        (5, "expected documents, texts, dicts or a table, got int"),
    ],
)
def test_other_things_are_named(given, message):
    with pytest.raises(DocumentError) as caught:
        list(documents_of(given))
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
def test_tables(kind):
    library = pytest.importorskip(kind)
    columns = {"id": ["a", "b"], "text": ["One.", "Two."], "year": [1973, 1974]}
    table = library.table(columns) if kind == "pyarrow" else library.DataFrame(columns)
    found = list(documents_of(table))
    assert [(one.id, one.text, one.metadata) for one in found] == [
        ("a", "One.", {"year": 1973}),
        ("b", "Two.", {"year": 1974}),
    ]


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars", "dicts"])
def test_fields_of_other_names_are_guessed_as_for_files(kind):
    rows = [{"sku": 7, "name": "Lamp", "description": "It glows.", "seller_note": "Mind the gap, please."}]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    library = None if kind == "dicts" else pytest.importorskip(kind)
    makers = {"pyarrow": "table", "pandas": "DataFrame", "polars": "DataFrame"}
    items = rows if library is None else getattr(library, makers[kind])(columns)
    [one] = documents_of(items)
    text = "sku: 7; name: Lamp; description: It glows.; seller_note: Mind the gap, please."
    assert (one.id, one.title, one.text) == (content_id("Lamp", text), "Lamp", text)
    assert one.metadata == rows[0]
    [one] = documents_of(items, text_field="description,seller_note")
    assert one.text == "It glows.\n\nMind the gap, please."


def ones(texts):
    return np.ones((len(texts), 4), dtype=np.float32)


def test_an_index_adds_them_and_shows_progress(tmp_path, capfd):
    with mvindex.create(tmp_path / "a.mvx", encoder=ones) as index:
        report = index.add(["One text.", {"text": "Two.", "year": 1973}], progress=True)
        assert (report.added, len(index)) == (2, 2)
        assert index.get(content_id("", "Two.")).metadata == {"year": 1973}
        assert index.add("One text.").unchanged == 1
        with pytest.raises(DocumentError, match="document 2"):
            index.add(["fine", 7])
    assert capfd.readouterr().out == ""


def test_a_notebook_has_a_bar_that_ends_as_a_number(tmp_path, monkeypatch, capfd):
    shown = []

    class Handle:
        def update(self, bar):
            shown.append(bar._repr_html_())

    def display(bar, display_id):
        shown.append(bar._repr_html_())
        return Handle()

    # The clock goes on by a second at each look, so that every document is shown.
    monkeypatch.setattr("mvindex.ingest.items.time.monotonic", iter(range(99)).__next__)
    monkeypatch.setattr("mvindex.ingest.items.find_display", lambda: display)
    with mvindex.create(tmp_path / "a.mvx", encoder=ones) as index:
        index.add(["One.", "Two."], progress=True)
        index.add(iter(["Three."]), progress=True)
    bar = '<progress max="2" value="{}"></progress> {} of 2 documents'.format
    assert shown[:4] == [bar(0, 0), bar(1, 1), bar(2, 2), "2 documents"]
    assert shown[4:] == ["<progress></progress> 0 documents", "<progress></progress> 1 documents", "1 documents"]
    assert capfd.readouterr().err == ""
