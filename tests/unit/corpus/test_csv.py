"""CSV and its relatives: delimiters, headers, guessed columns, numbers, rejects."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, RejectsWriter, Row, Source, open_corpus, read_documents
from mvindex.corpus.rows import content_id
from mvindex.errors import CorpusError
from mvindex.records import Document

ROWS = b"id,title,text,year\n1,Oil,The crisis began.,1973\n2,Gas,It ended later.,1980\n"


def write(tmp_path, content, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def documents(tmp_path, content, name="table.csv", **options):
    return list(read_documents(write(tmp_path, content, name), CorpusOptions(**options)))


def source_of(tmp_path, content, name="table.csv", **options) -> Source:
    with open_corpus(write(tmp_path, content, name), CorpusOptions(**options)) as corpus:
        next(iter(corpus))
        return corpus.source


def error_of(tmp_path, content, name="table.csv", **options):
    with pytest.raises(CorpusError) as caught:
        documents(tmp_path, content, name, **options)
    return str(caught.value)


def rejects_of(tmp_path, content, name="table.csv", **options):
    with open_corpus(write(tmp_path, content, name), CorpusOptions(**options)) as corpus:
        return [(row.location.line, row.reason, b"".join(row.raw)) for row in corpus if not isinstance(row, Row)]


def place(tmp_path, line):
    return {"file": f"{tmp_path}/table.csv", "line": line}


class TestDelimiters:
    @pytest.mark.parametrize("delimiter", [b",", b";", b"\t", b"|"])
    def test_the_delimiter_is_found_in_the_header(self, tmp_path, delimiter):
        assert documents(tmp_path, ROWS.replace(b",", delimiter)) == [
            Document("1", "The crisis began.", "Oil", {"year": 1973}),
            Document("2", "It ended later.", "Gas", {"year": 1980}),
        ]

    @pytest.mark.parametrize("name", ["table.csv", "table", "table.tsv"])
    def test_lone_carriage_returns_end_lines_where_nothing_else_does(self, tmp_path, name):
        delimiter = b"\t" if name.endswith("tsv") else b","
        rows = ROWS.replace(b"\n", b"\r").replace(b",", delimiter)
        found = documents(tmp_path, rows, name)
        assert [(one.id, one.text, one.title) for one in found] == [
            ("1", "The crisis began.", "Oil"),
            ("2", "It ended later.", "Gas"),
        ]
        assert (
            documents(tmp_path, rows + b'"3"' + delimiter + b"a" + delimiter + b"b" + delimiter + b"1", name)[2].id
            == "3"
        )

    def test_a_quoted_name_may_hold_another_delimiter(self, tmp_path):
        assert documents(tmp_path, b'id,text,"a;b;c;d"\n1,x y,z\n') == [Document("1", "x y", "", {"a;b;c;d": "z"})]

    def test_the_line_that_excel_reads_names_it(self, tmp_path):
        rows = b"\xef\xbb\xbfsep=;\r\nid;text,with comma;a,b\r\n1;x;y\r\n"
        source = source_of(tmp_path, rows, text_field="text,with comma")
        assert source.columns == ("id", "text,with comma", "a,b")
        assert documents(tmp_path, rows, text_field="text,with comma") == [Document("1", "x", "", {"a,b": "y"})]

    def test_a_header_that_two_delimiters_split_alike_is_an_error(self, tmp_path):
        message = error_of(tmp_path, b"a;b,c\n1;2,3\n")
        assert "as many cells with ',' as with ';'" in message and "sep=," in message

    @pytest.mark.parametrize("delimiter", [",", ";", "|"])
    def test_blanks_around_delimiters_are_no_part_of_cells_where_the_header_has_them(self, tmp_path, delimiter):
        rows = 'id , text, "the, year"\n1,x , 1973\n2 , "a, ""b""\n c" ,1980\n3, " d ", x"y\n'.replace(",", delimiter)
        assert documents(tmp_path, rows.encode()) == [
            Document("1", "x", "", {f"the{delimiter} year": "1973"}),
            Document("2", f'a{delimiter} "b"\n c', "", {f"the{delimiter} year": "1980"}),
            Document("3", " d ", "", {f"the{delimiter} year": 'x"y'}),
        ]

    def test_numbers_behind_blanks_are_numbers(self, tmp_path):
        assert documents(tmp_path, b"id, text, n\n1, x, 2\n")[0].metadata == {"n": 2}

    def test_blanks_are_part_of_cells_where_the_header_has_none(self, tmp_path):
        assert documents(tmp_path, b"id,text,n\n1, x, 2\n") == [Document("1", " x", "", {"n": " 2"})]

    def test_one_column_needs_no_delimiter(self, tmp_path):
        assert documents(tmp_path, b"text\nOne text.\n") == [Document(f"{tmp_path}/table.csv#row-2", "One text.")]


class TestCells:
    def test_quoted_cells_hold_line_ends_delimiters_and_quotes(self, tmp_path):
        rows = b'id,text\r\n1,"He said ""hi"",\r\nand left."\r\n2,plain\r\n'
        path = write(tmp_path, rows)
        with open_corpus(path) as corpus:
            first, second = corpus
        assert first.document == Document("1", 'He said "hi",\r\nand left.')
        assert (first.location.line, second.location.line) == (2, 4)
        assert first.raw == b'1,"He said ""hi"",\r\nand left."\r\n'

    def test_blank_lines_and_rows_of_empty_cells_are_skipped(self, tmp_path):
        assert [one.id for one in documents(tmp_path, b"id,text\n\n1,a\n,\n\r\n2,b\n,\n\n")] == ["1", "2"]

    def test_an_empty_cell_is_no_metadata(self, tmp_path):
        first, second = documents(tmp_path, b"id,text,tag\n1,a,x\n2,b,\n")
        assert (first.metadata, second.metadata) == ({"tag": "x"}, {})

    @given(st.lists(st.tuples(*[st.text(st.sampled_from('ab",;\n\r \u2028é'), max_size=6)] * 2), min_size=1))
    def test_what_the_csv_module_writes_is_read_back(self, rows):
        text = io.StringIO()
        writer = csv.writer(text, delimiter=";")
        writer.writerow(["id", "text", "title"])
        writer.writerows([[str(number), "x" + body, title] for number, (body, title) in enumerate(rows)])
        with tempfile.TemporaryDirectory() as folder:
            found = documents(Path(folder), text.getvalue().encode())
        assert found == [Document(str(number), "x" + body, title) for number, (body, title) in enumerate(rows)]


class TestNumbers:
    def test_a_column_of_numbers_becomes_numbers(self, tmp_path):
        rows = b"id,text,year,price,zip,code\n1,a,1973,9.50,01234,7\n2,b,-4,1e3,94103,\n3,c,,,,x7\n"
        assert source_of(tmp_path, rows).numbers == ("year", "price")
        assert [one.metadata for one in documents(tmp_path, rows)] == [
            {"year": 1973, "price": 9.5, "zip": "01234", "code": "7"},
            {"year": -4, "price": 1000.0, "zip": "94103"},
            {"code": "x7"},
        ]

    def test_ids_and_texts_stay_as_they_stand(self, tmp_path):
        assert documents(tmp_path, b"id,text\n007,1.50\n") == [Document("007", "1.50")]

    def test_numbers_of_more_than_18_digits_and_infinite_ones_are_strings(self, tmp_path):
        (one,) = documents(tmp_path, b"id,text,a,b\n1,x,1234567890123456789,1e999\n")
        assert one.metadata == {"a": "1234567890123456789", "b": "1e999"}

    def test_a_later_cell_that_is_no_number_stays_a_string(self, tmp_path):
        rows = b"id,text,year\n" + b"".join(b"%d,a,1973\n" % number for number in range(2000)) + b"x,a,about 1973\n"
        assert documents(tmp_path, rows)[-1].metadata == {"year": "about 1973"}


class TestColumns:
    @pytest.mark.parametrize("name", ["ID", "docid", "pid", "url"])
    @pytest.mark.parametrize("text", ["Text", "body", "abstract", "CONTENT"])
    def test_known_names_are_found_in_any_case(self, tmp_path, name, text):
        rows = f"{text},other,{name},Subject\na b,c,d,e\n".encode()
        assert documents(tmp_path, rows) == [Document("d", "a b", "e", {"other": "c"})]

    def test_sentences_among_short_columns_are_the_text_where_no_name_is_known(self, tmp_path):
        rows = b"question,answer,link\nWhy?,It was so from the beginning and not otherwise.,http://example.org/a/long/one\n"
        source = source_of(tmp_path, rows)
        assert (source.id_field, source.text_field, source.metadata_columns) == (None, "answer", ("question", "link"))
        assert "id = (from file and row), text = answer, title = (none), metadata = question, link" in str(source)

    def test_of_many_columns_only_the_first_are_named(self, tmp_path):
        names = [f"k{n}" for n in range(1200)]
        rows = f"id,text,{','.join(names)}\n1,a text,{','.join(names)}\n".encode()
        shown = str(source_of(tmp_path, rows))
        assert "metadata = k0, k1, " in shown and shown.endswith("k19, ... (1,200 in all)")

    def test_titles_alone_are_the_texts(self, tmp_path):
        assert documents(tmp_path, b"id,title\n1,Oil\n") == [Document("1", "Oil")]
        assert "expected a column of texts" in error_of(tmp_path, b"id,title\n1,Oil\n", title_field="title")

    def test_an_id_that_repeats_in_the_first_rows_is_none(self, tmp_path):
        rows = b"key,text\nx,One text.\nx,Another one.\n"
        first, second = documents(tmp_path, rows)
        assert first.id.endswith("table.csv#row-2") and second.metadata == {"key": "x"}

    def test_several_fields_make_the_text(self, tmp_path):
        rows = b"id,name,body,note\n1,Lamp,It glows.,Mind it.\n2,Chair,,Sit.\n"
        found = documents(tmp_path, rows, text_field="name, body,note")
        assert [(one.title, one.text) for one in found] == [
            ("", "Lamp\n\nIt glows.\n\nMind it."),
            ("", "Chair\n\nSit."),
        ]
        assert "text = name + body + note, title = (none)" in str(
            source_of(tmp_path, rows, text_field="name,body,note")
        )

    def test_an_empty_id_field_makes_ids(self, tmp_path):
        rows = b"id,text\n1,One text.\n"
        assert documents(tmp_path, rows, id_field="") == [
            Document(f"{tmp_path}/table.csv#row-2", "One text.", "", {"id": 1})
        ]

    def test_a_column_of_numbers_without_a_name_is_left_out(self, tmp_path):
        rows = b",id,text\n0,a,x y\n"
        assert documents(tmp_path, rows) == [Document("a", "x y")]
        assert str(source_of(tmp_path, rows)).endswith("left out = column 1")

    @pytest.mark.parametrize("field", ["id_field", "text_field", "title_field"])
    def test_a_named_column_that_is_not_there_lists_those_that_are(self, tmp_path, field):
        assert 'no column "x" (columns: id, title, text, year)' in error_of(tmp_path, ROWS, **{field: "x"})


class TestRowsOfAllColumns:
    """Where no column is clearly prose, all of them make the text of a row."""

    PARTS = (
        b"part,maker,stock,note\nPX-1,Orbitex,583,fragile\nPX-2,,97,recalled in May\nPX-3,Haldor,0,recalled in May\n"
    )

    def test_a_row_is_a_document_with_its_place(self, tmp_path):
        path = f"{tmp_path}/table.csv"
        first, second, third = documents(tmp_path, self.PARTS)
        assert first == Document(
            f"{path}#row-2",
            "part: PX-1; maker: Orbitex; stock: 583; note: fragile",
            "",
            {"part": "PX-1", "maker": "Orbitex", "stock": 583, "note": "fragile", "file": path, "line": 2},
        )
        assert (second.id, second.text) == (f"{path}#row-3", "part: PX-2; stock: 97; note: recalled in May")
        assert third.text == "part: PX-3; maker: Haldor; stock: 0; note: recalled in May"

    def test_the_text_of_a_row_has_no_soft_hyphens_and_ligatures(self, tmp_path):
        content = "part,note\nPX-1,re\u00adfriger\u00adator\nPX-2,\ufb01xed\n".encode()
        assert [one.text for one in documents(tmp_path, content)] == [
            "part: PX-1; note: refrigerator",
            "part: PX-2; note: fixed",
        ]

    def test_equal_rows_are_documents_of_their_own(self, tmp_path):
        found = documents(tmp_path, b"a,b\nx,y\nx,y\n")
        assert [one.id.rpartition("#")[2] for one in found] == ["row-2", "row-3"]

    @pytest.mark.parametrize(
        "header",
        [b"sku,colour,description", b"sku,description,summary", b"comment,x,y", b"a,body,c", b"body,content,abstract"],
    )
    def test_few_words_that_repeat_are_no_prose_whatever_their_name(self, tmp_path, header):
        rows = header + b"\n" + b"".join(b"P%d,dark red,recalled in May\n" % number for number in range(9))
        assert source_of(tmp_path, rows).text_field == "*"

    @pytest.mark.parametrize(
        ("header", "text"), [(b"part,description", "description"), (b"part,review", "review"), (b"x,body", "body")]
    )
    def test_sentences_are_the_text(self, tmp_path, header, text):
        rows = (
            header
            + b",stock\n"
            + b"".join(b"P%d,Pump %d moves water from the cellar uphill.,7\n" % (n, n) for n in range(9))
        )
        assert source_of(tmp_path, rows).text_field == text

    def test_two_columns_of_sentences_are_both_searched(self, tmp_path):
        (one,) = documents(
            tmp_path, b"front,back\nWhat is this small thing here for?,It holds the door open when it is hot.\n"
        )
        assert one.text == "front: What is this small thing here for?; back: It holds the door open when it is hot."

    def test_a_named_text_is_the_text(self, tmp_path):
        assert documents(tmp_path, self.PARTS, text_field="note")[0].text == "fragile"

    def test_a_star_names_all_columns(self, tmp_path):
        assert documents(tmp_path, b"id,text,n\n1,One text.,2\n", text_field="*") == [
            Document("1", "id: 1; text: One text.; n: 2", "", {"text": "One text.", "n": 2, **place(tmp_path, 2)})
        ]

    def test_a_title_is_also_part_of_the_text(self, tmp_path):
        (one,) = documents(tmp_path, b"sku,name,price\nA1,Lamp,9.50\n")
        assert (one.title, one.text) == ("Lamp", "sku: A1; name: Lamp; price: 9.50")
        assert one.metadata == {"sku": "A1", "name": "Lamp", "price": 9.5, **place(tmp_path, 2)}

    def test_a_cell_of_several_lines_is_one_line_and_the_place_is_that_of_the_row(self, tmp_path):
        first, second = documents(tmp_path, b'part,note\nA,"one\n  two"\nB,three\n')
        assert first.text == "part: A; note: one two"
        assert (second.id.rpartition("#")[2], second.metadata["line"]) == ("row-4", 4)

    def test_columns_named_as_the_place_of_a_row_keep_their_values(self, tmp_path):
        (one,) = documents(tmp_path, b"order,line,file\nA,7,x.step\n")
        assert one.metadata == {"order": "A", "column_line": 7, "column_file": "x.step", **place(tmp_path, 2)}
        assert one.text == "order: A; line: 7; file: x.step"

    def test_a_column_of_texts_without_a_name_is_kept(self, tmp_path):
        (one,) = documents(tmp_path, b",price,stock\nPX-1,5,3\n")
        assert one.text == "column 1: PX-1; price: 5; stock: 3"

    def test_rows_of_stdin_get_ids_of_their_content(self, tmp_path, monkeypatch):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"text,n\nOne text.,1\n")))
        (one,) = read_documents("-", CorpusOptions(format="csv"))
        assert one.id == content_id("", "One text.")

    def test_rejected_rows_are_read_again_as_rows_of_all_columns(self, tmp_path):
        path = write(tmp_path, b"part,note\nA,x\nB\n")
        with open_corpus(path) as corpus, RejectsWriter(tmp_path / "t") as writer:
            for row in corpus:
                if not isinstance(row, Row):
                    writer.write(row, corpus.source)
        ((rejects, source),) = writer.sources.items()
        rejects.write_text("part,note\nB,y\n")
        (one,) = read_documents(str(rejects), source.options_again())
        assert one.text == "part: B; note: y"


class TestHeader:
    @pytest.mark.parametrize(
        "content",
        [
            b"1,The oil crisis began.,Oil\n2,It ended.,Gas\n",
            b"apple,red,fruit\npear,green,fruit\n",
            b"The crisis began in October.\nIt ended in March.\n",
            b"http://example.org,x\nhttp://example.com,y\n",
        ],
    )
    def test_a_file_without_a_header_is_refused_with_the_way_out(self, tmp_path, content):
        message = error_of(tmp_path, content)
        assert "expected a first line that names the columns" in message and "id,text,title" in message

    def test_two_columns_of_one_name_are_an_error(self, tmp_path):
        assert "a name of its own" in error_of(tmp_path, b"id,text,note,note\n1,a b,x,y\n")

    def test_a_header_over_two_lines_is_an_error(self, tmp_path):
        assert "table.csv:1: the header has a quote" in error_of(tmp_path, b'id,"the\ntext"\n1,a\n')

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"", "is empty"),
            (b"id,text\n", "only a header"),
            (b"sep=,\nid,text\n", "only a header"),
            (b"PK\x03\x04\x14\0", "zip archive"),
            (b"\0\1\2\3\4\5\6\7\n\0\1", "names the columns"),
            ("id,text\n1,café\n".encode("latin-1"), "iconv"),
            ("id,text,année\n1,a,b\n".encode("latin-1"), "iconv"),
            ("id,text\n1,café\n".encode("utf-16"), "UTF-16"),
        ],
    )
    def test_what_is_no_table_is_told(self, tmp_path, content, told):
        assert told in error_of(tmp_path, content)

    def test_a_header_that_repeats_is_skipped_as_cat_leaves_it(self, tmp_path):
        assert [one.id for one in documents(tmp_path, b"id,text\n1,a\nid,text\n2,b\n")] == ["1", "2"]


class TestMessages:
    @pytest.mark.parametrize(
        "content",
        [
            b"id,text," + b"a" * 50_000 + b"," + b"a" * 50_000 + b"\n1,x,y,z\n",
            b"id,text," + b",".join(b"k%d" % number for number in range(9_000)) + b"\n1,x\n",
            b"x " * 50_000,
            b"\r".join([b"no tab"] * 50_000),
            b"one,two\x00" * 50_000,
            b'{"id": 1, "' + b"k" * 50_000 + b'": 1, "' + b"k" * 50_000 + b'": 2}',
            b" " * 50_000 + b",text\n" + b"\t" * 50_000 + b",x\n",
        ],
    )
    def test_no_message_quotes_a_whole_file(self, tmp_path, content):
        for name in ("table.csv", "table.tsv", "table.jsonl", "table"):
            try:
                documents(tmp_path, content, name)
            except CorpusError as err:
                assert len(str(err)) < 2_500


class TestDetection:
    def test_commas_with_a_known_name_are_found_without_an_ending(self, tmp_path):
        assert source_of(tmp_path, ROWS, "table").format == "csv"
        assert source_of(tmp_path, ROWS, "table", id_field="year").format == "csv"

    def test_tabs_with_three_columns_or_more_are_a_table(self, tmp_path):
        rows = b"pid\tpassage\theading\n1\tThe crisis began.\tOil\n"
        assert documents(tmp_path, rows, "table.tsv") == [Document("1", "The crisis began.", "Oil")]
        assert source_of(tmp_path, rows, "table.tsv").format == "csv"

    def test_tabs_with_id_and_text_stay_dpr(self, tmp_path):
        rows = ROWS.replace(b",", b"\t")
        assert source_of(tmp_path, rows, "table.tsv").format == "dpr"
        assert documents(tmp_path, rows, "table.tsv")[0].metadata == {"year": "1973"}
        assert documents(tmp_path, rows, "table.tsv", format="csv")[0].metadata == {"year": 1973}

    def test_the_ending_decides_below_that_of_compression(self, tmp_path):
        import gzip

        assert source_of(tmp_path, gzip.compress(b"remark\nIt rains.\n"), "t.csv.gz").text_field == "remark"

    def test_json_in_a_csv_file_is_refused(self, tmp_path):
        assert "names the columns" in error_of(tmp_path, b'{"id": "1", "text": "It rains."}\n')


class TestRejects:
    @pytest.mark.parametrize(
        ("row", "told"),
        [
            (b"9,a,b\n", "expected 4 columns (id, title, text, year), got 3"),
            (b"9,a,b,c,d\n", "expected 4 columns"),
            (b'9,"a, b",c,1,d\n', "more than 4 columns"),
            (b'9,"a,b,c\n', "column 2: the quote that begins it is never closed"),
            (b'9,"a" x,b,c\n', "column 2: text after the closing quote"),
            (b"9,caf\xe9,b,c\n", "invalid UTF-8 at byte 5 of the row (0xe9)"),
            (b",a,b,c\n", "id is ''"),
            (b"9,,,1973\n", "text and title are both empty"),
        ],
    )
    def test_a_bad_row_is_rejected_alone(self, tmp_path, row, told):
        ((line, reason, raw),) = rejects_of(tmp_path, ROWS + row + b"3,x,y,1\n")
        assert (line, raw) == (4, row) and told in reason

    def test_rejects_stand_below_header_and_delimiter_and_can_be_mended(self, tmp_path):
        rows = b'sep=;\nid;body,all;year\n1;a;1973\n2;b\n3;"c;1\n4;d;2\n'
        path = write(tmp_path, rows)
        with open_corpus(path, CorpusOptions(text_field="body,all")) as corpus, RejectsWriter(tmp_path / "t") as writer:
            for row in corpus:
                if not isinstance(row, Row):
                    writer.write(row, corpus.source)
        ((rejects, source),) = writer.sources.items()
        assert rejects.name == "t.rejects.csv"
        assert rejects.read_bytes() == b'sep=;\nid;body,all;year\n2;b\nsep=;\nid;body,all;year\n3;"c;1\n'.replace(
            b"2;b\nsep=;\nid;body,all;year\n", b"2;b\n"
        )
        again = rejects_of(tmp_path, rejects.read_bytes(), "again.csv", format="csv", text_field="body,all")
        assert [raw for _, _, raw in again] == [b"2;b\n", b'3;"c;1\n']
        rejects.write_bytes(rejects.read_bytes().replace(b"2;b", b"2;b;1974").replace(b'"c', b"c"))
        assert list(read_documents(str(rejects), source.options_again())) == [
            Document("2", "b", "", {"year": 1974}),
            Document("3", "c", "", {"year": 1}),
        ]

    def test_a_row_over_the_limit_is_rejected(self, tmp_path):
        large = b"2," + b"x" * 500 + b"\n"
        ((line, reason, raw),) = rejects_of(tmp_path, b"id,text\n1,a\n" + large + b"3,b\n", max_row_bytes=100)
        assert (line, raw) == (3, large) and "over 100 bytes" in reason


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("name", ["c", '"c"', ""])
def test_a_header_of_too_many_columns_is_named_as_that(tmp_path, delimiter, name):
    path = tmp_path / "a.csv"
    path.write_text(delimiter.join([name] * 100_000) + "\n" + delimiter.join("1" * 100_000) + "\n")
    with pytest.raises(CorpusError, match=r"a.csv:1: expected a header of at most 10,000 columns, got more"):
        list(read_documents(path))


@pytest.mark.parametrize("cells", ["x" + ",y" * 100_000, '"x"' + ',"y"' * 100_000])
def test_a_row_of_too_many_cells_is_a_reject(tmp_path, cells):
    path = tmp_path / "a.csv"
    path.write_text(f"id,text\n1,{cells}\n2,z\n")
    with open_corpus(path) as corpus:
        reject, row = corpus
    assert reject.reason == "expected 2 columns (id, text), got 100002"
    assert row.document.text == "z"
