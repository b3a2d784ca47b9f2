"""PDF, Word, PowerPoint, Excel and EPUB as passages that know page or row; damaged files are named."""

import datetime
import io
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, Reject, open_corpus, read_documents
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command
from mvindex_connectors.files.word import convert_word
from tests.helpers.office_files import rewrite, write_docx, write_epub, write_pdf, write_pptx, write_xlsx

for name in ("pypdfium2", "markitdown", "openpyxl", "pptx", "fpdf"):
    pytest.importorskip(name)


def read(path, **options):
    return [
        (one.id.removeprefix(str(path)), one.title, one.text, {k: v for k, v in one.metadata.items() if k != "file"})
        for one in read_documents(path, CorpusOptions(**options))
    ]


class TestPdf:
    def test_pages_are_passages_that_know_their_number(self, tmp_path):
        write_pdf(tmp_path / "a.pdf", [["The embargo began.", "It was long."], [], ["Oil rose."]], title="Oil")
        assert read(tmp_path / "a.pdf") == [
            ("#page=1", "Oil", "The embargo began.\nIt was long.", {"page": 1}),
            ("#page=3", "Oil", "Oil rose.", {"page": 3}),
        ]

    def test_a_title_has_no_control_characters(self, tmp_path):
        write_pdf(tmp_path / "a.pdf", [["one"]], title="Oil\0 & gas\x07")
        assert [title for _, title, *_ in read(tmp_path / "a.pdf")] == ["Oil & gas"]

    def test_bookmarks_are_headings_of_the_pages_that_they_reach(self, tmp_path):
        marks = [(2, 0, "Prices", 1), (3, 1, "After", 0), (4, 0, "End", 1), (6, 0, "Index", 1), (6, 1, "Letters", 2)]
        pages = [["one"], ["two", "Prices"], ["After", "three"], ["four", "more"], ["five"], ["6", "Index", "a"]]
        write_pdf(tmp_path / "a.pdf", pages, bookmarks=marks)
        assert [metadata.get("headings") for *_, metadata in read(tmp_path / "a.pdf")] == [
            None,
            "Prices",  # nothing is named before it
            "Prices > After",
            "Prices > After",  # as far as it goes, "End" is below its first line
            "End",
            "Index",  # below the number of the page
        ]

    def test_a_long_page_is_split_between_sentences(self, tmp_path):
        write_pdf(tmp_path / "a.pdf", [["One two three.", "Four five six.", "Seven eight nine."]])
        found = read(tmp_path / "a.pdf", passage_words=6)
        assert [(doc_id, text) for doc_id, _, text, _ in found] == [
            ("#page=1", "One two three.\nFour five six."),
            ("#page=1:2", "Seven eight nine."),
        ]

    def test_the_first_bytes_decide_whatever_the_name(self, tmp_path):
        write_pdf(tmp_path / "a.dat", [["text"]])
        assert read(tmp_path / "a.dat")[0][2] == "text"

    def test_scans_encrypted_and_damaged_files_are_named_with_a_way_out(self, tmp_path):
        write_pdf(tmp_path / "scan.pdf", [[], []])
        write_pdf(tmp_path / "locked.pdf", [["text"]], password="secret")
        (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4\nzz")
        for name, told in (
            ("scan.pdf", "none of its 2 pages has any text, as in a scan; recognise it first"),
            ("locked.pdf", "is encrypted; save it without a password"),
            ("bad.pdf", "is damaged, or no PDF"),
        ):
            with pytest.raises(CorpusError, match=re.escape(f"{tmp_path / name}: {told}")):
                read(tmp_path / name)


class TestOffice:
    def test_word_keeps_headings(self, tmp_path):
        write_docx(tmp_path / "a.docx", ["# Oil", "intro", "## Prices", "It rose."])
        assert read(tmp_path / "a.docx") == [
            ("#oil", "Oil", "# Oil\n\nintro", {"headings": "Oil"}),
            ("#oil/prices", "Oil > Prices", "## Prices\n\nIt rose.", {"headings": "Oil > Prices"}),
        ]

    def test_cells_of_a_table_of_word_stand_in_their_columns(self, tmp_path):
        rows = [
            ["Region", "Kind", ("Price", 2, "")],
            [("North", 1, "restart"), "Balloon", "9", "euros"],
            [("", 1, "continue"), "Kite", "7", "euros"],
            [("South, all of it", 2, ""), "4", "euros"],
        ]
        write_docx(tmp_path / "a.docx", [rows])
        assert read(tmp_path / "a.docx")[0][2].split("\n") == [
            "| Region | Kind | Price |  |",
            "| --- | --- | --- | --- |",
            "| North | Balloon | 9 | euros |",
            "| North | Kite | 7 | euros |",
            "| South, all of it |  | 4 | euros |",
        ]

    def test_no_row_of_a_form_in_word_is_a_header(self, tmp_path):
        for rows in (
            [["Name", "Alice"], ["City", "Paris"]],
            [["This is one.", "That is two.", "Three."], ["a", "b", "c"]],
            [["One", "Two", "Three"]],
        ):
            write_docx(tmp_path / "a.docx", [rows])
            empty, rule, first, *_ = read(tmp_path / "a.docx")[0][2].split("\n")
            assert not empty.strip("| ") and not rule.strip("-| ")
            assert first == f"| {' | '.join(rows[0])} |"

    @settings(deadline=None, max_examples=50)
    @given(
        st.lists(
            st.lists(
                st.tuples(st.text("abc", max_size=3), st.integers(1, 70), st.sampled_from(["", "restart", "continue"])),
                min_size=1,
                max_size=4,
            ),
            min_size=1,
            max_size=5,
        )
    )
    def test_no_word_of_a_table_of_word_is_lost(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            write_docx(Path(folder, "a.docx"), ["begin", rows])
            text = convert_word(io.BytesIO(Path(folder, "a.docx").read_bytes()))
        # What a cell of the file goes on with from above has no text of its own that is shown.
        shown = Counter(word for row in rows for word, _, merge in row if merge != "continue" and word)
        assert not shown - Counter(re.findall("[a-c]+", text.partition("begin")[2]))

    def test_slides_know_their_number(self, tmp_path):
        write_pptx(tmp_path / "a.pptx", [("Oil", "It began."), ("Prices", "They rose.")])
        assert read(tmp_path / "a.pptx") == [
            ("#page=1/oil", "Oil", "# Oil\nIt began.", {"headings": "Oil", "page": 1}),
            ("#page=2/prices", "Oil > Prices", "# Prices\nThey rose.", {"headings": "Prices", "page": 2}),
        ]

    def test_chapters_of_a_book_are_sections(self, tmp_path):
        write_epub(tmp_path / "a.epub", "Oil book", ["<h1>One</h1><p>It began.</p>", "<h1>Two</h1><p>It rose.</p>"])
        assert [(title, text) for _, title, text, _ in read(tmp_path / "a.epub")] == [
            ("Oil book > One", "# One\n\nIt began."),
            ("Oil book > Two", "# Two\n\nIt rose."),
        ]

    def test_rows_of_a_sheet_name_their_columns_and_know_their_number(self, tmp_path):
        rows = [["year", "price"], [1973, 3.0], [None, None], [1974, "12\nto 13"]]
        write_xlsx(tmp_path / "a.xlsx", {"Oil": rows, "Empty": [], "More": [["x"], [True]]})
        assert read(tmp_path / "a.xlsx") == [
            (
                "#oil/row-2",
                "a.xlsx > Oil",
                "year: 1973; price: 3",
                {"year": 1973, "price": 3, "headings": "Oil", "line": 2},
            ),
            (
                "#oil/row-4",
                "a.xlsx > Oil",
                "year: 1974; price: 12 to 13",
                {"year": 1974, "price": "12\nto 13", "headings": "Oil", "line": 4},
            ),
            ("#more/row-1", "a.xlsx > More", "x", {"headings": "More", "line": 1}),
            ("#more/row-2", "a.xlsx > More", "true", {"headings": "More", "line": 2}),
        ]

    @pytest.mark.parametrize(
        ("rows", "found"),
        [
            ([["a", "b"], [1, 2], [3, None]], [(2, "a: 1; b: 2"), (3, "a: 3")]),
            # A heading above the table, a blank row, a header that lacks a name.
            (
                [["Stock of May"], [], ["part", None, "n"], ["PX-1", "x", 2]],
                [(1, "Stock of May"), (4, "part: PX-1; column 2: x; n: 2")],
            ),
            ([["land", 2019, 2020], ["Peru", 1, 2]], [(2, "land: Peru; 2019: 1; 2020: 2")]),
            # No header: numbers, or a value that occurs again below.
            ([["PX-1", 5], ["PX-2", 6]], [(1, "PX-1; 5"), (2, "PX-2; 6")]),
            ([["PX-1", "red"], ["PX-2", "red"]], [(1, "PX-1; red"), (2, "PX-2; red")]),
            # A value that is the name of its column, and a header that comes again.
            (
                [["term", "kind"], ["ball", "toy"], ["age", "kind"], ["term", "kind"], ["oil", "fuel"]],
                [(2, "term: ball; kind: toy"), (3, "term: age; kind: kind"), (5, "term: oil; kind: fuel")],
            ),
            ([["One note."], ["Another note."]], [(1, "One note."), (2, "Another note.")]),
            ([["a", "a"], [1, 2]], [(2, "a: 1; a: 2")]),
            ([["a", "b"]], [(1, "a; b")]),
            (
                [["day", "at"], [datetime.date(2024, 5, 1), datetime.time(7, 30)]],
                [(2, "day: 2024-05-01; at: 07:30:00")],
            ),
            ([["x", "y"], [0.1 + 0.2, 7.0]], [(2, "x: 0.3; y: 7")]),
        ],
    )
    def test_a_header_is_found_where_there_is_one(self, tmp_path, rows, found):
        write_xlsx(tmp_path / "a.xlsx", {"S": rows})
        assert [(metadata["line"], text) for *_, text, metadata in read(tmp_path / "a.xlsx")] == found

    def test_a_large_sheet_is_read_in_parts(self, tmp_path, monkeypatch):
        monkeypatch.setattr("mvindex_connectors.files.sheets._SAMPLE_ROWS", 3)
        write_xlsx(tmp_path / "a.xlsx", {"S": [["n", "m"], *([number, "x"] for number in range(2, 9))]})
        found = [(metadata["line"], text) for *_, text, metadata in read(tmp_path / "a.xlsx")]
        assert found == [(row, f"n: {row}; m: x") for row in range(2, 9)]

    def test_columns_of_equal_names_and_those_of_a_place_are_kept(self, tmp_path):
        write_xlsx(tmp_path / "a.xlsx", {"S": [["a", "a", "line", "headings"], [1, 2, 3, 4]]})
        [(*_, metadata)] = read(tmp_path / "a.xlsx")
        own = {"line": 2, "headings": "S"}
        assert metadata == {"a": 1, "a 2": 2, "column_line": 3, "column_headings": 4, **own}

    def test_sheets_of_the_same_slug_do_not_collide(self, tmp_path):
        write_xlsx(tmp_path / "a.xlsx", {"A b": [["x"]], "A-b": [["x"]]})
        assert [doc_id for doc_id, *_ in read(tmp_path / "a.xlsx")] == ["#a-b/row-1", "#a-b-2/row-1"]

    @pytest.mark.parametrize("row", ["1048576", "999999999"])
    def test_cells_far_apart_are_read_or_named_at_once(self, tmp_path, row):
        path = tmp_path / "a.xlsx"
        write_xlsx(path, {"S": [["head"], ["last"]]})
        rewrite(path, "xl/worksheets/sheet1.xml", {'"A2"': f'"XFD{row}"', 'r="2"': f'r="{row}"'})
        started = time.process_time()
        if row == "1048576":
            assert [metadata["line"] for *_, metadata in read(path)] == [1, 1048576]
        else:
            with pytest.raises(CorpusError, match="a.xlsx: sheet 'S', row 1048577: expected at most 1,048,576 rows"):
                read(path)
        assert time.process_time() - started < 2

    def test_what_is_no_office_file_is_named(self, tmp_path):
        (tmp_path / "a.docx").write_bytes(b"PK\x03\x04 cut")
        (tmp_path / "b.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1")
        with pytest.raises(CorpusError, match="a.docx: is damaged, or not of the kind that its name says"):
            read(tmp_path / "a.docx")
        with pytest.raises(CorpusError, match="b.xlsx: is encrypted, or of an Office before 2007"):
            read(tmp_path / "b.xlsx")


def test_without_the_extra_a_folder_names_the_file_and_a_named_file_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "notes"
    folder.mkdir()
    write_pdf(folder / "a.pdf", [["text"]])
    (folder / "b.md").write_text("b")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    told = f"needs the package 'pypdfium2': {install_command('files')}"
    with pytest.raises(ExtraMissing, match=re.escape(told)):
        read(folder / "a.pdf")
    with open_corpus(str(folder)) as corpus:
        reject, row = corpus
    assert isinstance(reject, Reject) and told in reject.reason and row.document.text == "b"


@pytest.mark.parametrize("suffix", ["docx", "xlsx"])
def test_texts_have_no_soft_hyphens_and_ligatures(tmp_path, suffix):
    path, text = tmp_path / f"a.{suffix}", "The refrig\u00aderator, \ufb01nance"
    if suffix == "docx":
        write_docx(path, [text])
    else:
        write_xlsx(path, {"sheet": [["name"], [text]]})
    assert "The refrigerator, finance" in read(path)[-1][2]
