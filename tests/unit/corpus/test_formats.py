"""Each format's good rows become documents; formats and fields are detected."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, Row, Source, open_corpus, read_documents
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document


def write(tmp_path, content, name="corpus.tsv"):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def documents(tmp_path, content, **options):
    return list(read_documents(write(tmp_path, content), CorpusOptions(**options)))


def source_of(tmp_path, content, **options) -> Source:
    seen = []
    with open_corpus(write(tmp_path, content), CorpusOptions(**options), seen.append) as corpus:
        next(iter(corpus))
        assert corpus.source == seen[0]
    return seen[0]


def error_of(tmp_path, content, **options):
    with pytest.raises(CorpusError) as caught:
        documents(tmp_path, content, **options)
    return str(caught.value)


class TestDpr:
    def test_columns_are_found_by_their_names(self, tmp_path):
        rows = b"title\tid\ttext\nOil\t1\tThe crisis.\n"
        assert documents(tmp_path, rows) == [Document("1", "The crisis.", "Oil")]

    def test_the_title_column_is_optional(self, tmp_path):
        assert documents(tmp_path, b"id\ttext\n1\tThe crisis.\n") == [Document("1", "The crisis.")]

    def test_other_columns_become_metadata_strings(self, tmp_path):
        rows = b"id\ttext\ttitle\turl\tyear\n1\ta\tb\thttp://x\t1973\n"
        assert documents(tmp_path, rows) == [Document("1", "a", "b", {"url": "http://x", "year": "1973"})]

    def test_quoted_cells_hold_doubled_quotes_tabs_and_newlines(self, tmp_path):
        rows = b'id\ttext\ttitle\n1\t"He said ""hi""\tand\nleft."\tA "b" c\n2\tplain\t""\n'
        assert documents(tmp_path, rows) == [
            Document("1", 'He said "hi"\tand\nleft.', 'A "b" c'),
            Document("2", "plain", ""),
        ]

    def test_a_quote_inside_an_unquoted_cell_is_a_character(self, tmp_path):
        assert documents(tmp_path, b'id\ttext\n1\ta 4" bolt\n') == [Document("1", 'a 4" bolt')]

    def test_the_header_may_be_quoted(self, tmp_path):
        assert documents(tmp_path, b'"id"\t"text"\n1\ta\n') == [Document("1", "a")]

    def test_a_row_is_placed_at_the_line_where_it_begins(self, tmp_path):
        path = write(tmp_path, b'id\ttext\n1\t"a\nb\nc"\n2\td\n')
        with open_corpus(path) as corpus:
            rows = list(corpus)
        assert [str(row.location) for row in rows] == [f"{path}:2", f"{path}:5"]
        assert rows[0].raw == b'1\t"a\nb\nc"\n'

    def test_a_repeated_header_is_skipped_as_cat_leaves_it(self, tmp_path):
        part = b"id\ttext\n%d\ta\n"
        assert [doc.id for doc in documents(tmp_path, part % 1 + part % 2)] == ["1", "2"]

    def test_an_empty_text_with_a_title_is_a_document(self, tmp_path):
        assert documents(tmp_path, b"id\ttext\ttitle\n1\t\tOil\n") == [Document("1", "", "Oil")]

    def test_ids_stay_strings_as_they_stand(self, tmp_path):
        assert [doc.id for doc in documents(tmp_path, b"id\ttext\n007\ta\nn00001740\tb\n")] == ["007", "n00001740"]

    @given(st.lists(st.tuples(*[st.text(st.sampled_from('ab"\t\n\r \u2028é'), max_size=6)] * 2), min_size=1))
    def test_what_the_csv_module_writes_is_read_back(self, rows):
        text = io.StringIO()
        writer = csv.writer(text, delimiter="\t")
        writer.writerow(["id", "text", "title"])
        writer.writerows([[str(number), "x" + body, title] for number, (body, title) in enumerate(rows)])
        found = read_stdin(text.getvalue().encode())
        assert found == [Document(str(number), "x" + body, title) for number, (body, title) in enumerate(rows)]


def read_stdin(content):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return list(read_documents("-"))


class TestMsMarco:
    def test_two_columns_without_a_header_are_id_and_text(self, tmp_path):
        rows = b"0\tThe presence of communication.\n1\tThe Manhattan Project.\n"
        assert documents(tmp_path, rows) == [
            Document("0", "The presence of communication."),
            Document("1", "The Manhattan Project."),
        ]

    def test_quotes_are_characters(self, tmp_path):
        rows = b'0\t"Open quote here\n1\t"all" of ""it""\n'
        assert [doc.text for doc in documents(tmp_path, rows)] == ['"Open quote here', '"all" of ""it""']

    def test_a_first_text_that_is_quoted_whole_stays_quoted(self, tmp_path):
        assert documents(tmp_path, b'0\t"Quoted."\n') == [Document("0", '"Quoted."')]


class TestJson:
    def test_beir_rows(self, tmp_path):
        rows = b'{"_id": "d1", "title": "T", "text": "a", "metadata": {"year": 1963}}\n'
        assert source_of(tmp_path, rows).format == "beir"
        assert documents(tmp_path, rows) == [Document("d1", "a", "T", {"year": 1963})]

    def test_fields_without_a_role_join_the_metadata(self, tmp_path):
        rows = b'{"id": "1", "text": "a", "url": "u", "metadata": {"tags": ["x", null]}}\n'
        assert documents(tmp_path, rows) == [Document("1", "a", "", {"tags": ["x", None], "url": "u"})]

    def test_an_integer_id_is_its_decimal_string(self, tmp_path):
        assert documents(tmp_path, b'{"id": 17, "text": "a"}\n') == [Document("17", "a")]

    def test_null_is_the_same_as_absent(self, tmp_path):
        rows = b'{"id": 1, "text": null, "title": "T", "metadata": null}\n{"id": 2, "text": "a", "title": null}\n'
        assert documents(tmp_path, rows) == [Document("1", "", "T"), Document("2", "a")]

    def test_a_title_alone_is_a_document(self, tmp_path):
        assert documents(tmp_path, b'{"id": 1, "title": "T"}\n') == [Document("1", "", "T")]

    def test_blank_lines_are_skipped_but_counted(self, tmp_path):
        path = write(tmp_path, b'\n{"id": 1, "text": "a"}\n  \r\n\n{"id": 2, "text": "b"}\n\n')
        with open_corpus(path) as corpus:
            assert [row.location.line for row in corpus] == [2, 5]

    def test_only_a_newline_ends_a_line(self, tmp_path):
        text = "a\u2028b\u0085c\x1cd"
        rows = '{"id": 1, "text": "a\u2028b\u0085c\\u001cd"}\n'.encode()
        assert documents(tmp_path, rows) == [Document("1", text)]


@pytest.mark.parametrize(
    "rows", [b"id\ttext\r\n1\ta\r\n2\tb\r\n", b"1\ta thing\r\n2\tb thing\r\n", b'{"id":"1","text":"a"}\r\n']
)
def test_windows_line_ends_are_no_part_of_the_text(tmp_path, rows):
    assert not any("\r" in doc.text for doc in documents(tmp_path, rows))


@pytest.mark.parametrize("rows", [b"id\ttext\n1\ta", b"1\tword a", b'{"id":"1","text":"a"}'])
def test_the_last_line_needs_no_newline(tmp_path, rows):
    (document,) = documents(tmp_path, rows)
    assert document.id == "1" and document.text.endswith("a")


@pytest.mark.parametrize("rows", [b"id\ttext\n1\ta\n", b"1\tword a\n", b'{"id":"1","text":"a"}\n'])
def test_a_byte_order_mark_is_dropped(tmp_path, rows):
    assert [doc.id for doc in documents(tmp_path, b"\xef\xbb\xbf" + rows)] == ["1"]


class TestDetection:
    def test_the_source_tells_format_fields_and_header(self, tmp_path):
        source = source_of(tmp_path, b"\xef\xbb\xbfid\ttext\ttitle\turl\r\n1\ta\tb\tc\r\n")
        assert (source.format, source.is_detected) == ("dpr", True)
        assert (source.id_field, source.text_field, source.title_field) == ("id", "text", "title")
        assert source.metadata_columns == ("url",)
        assert source.header == b"id\ttext\ttitle\turl\n"
        assert str(source).endswith("corpus.tsv: dpr (detected): id = id, text = text, title = title, metadata = url")

    def test_a_given_format_is_told_as_given(self, tmp_path):
        source = source_of(tmp_path, b"id\ttext\n", format="msmarco")
        assert (source.format, source.is_detected, source.header) == ("msmarco", False, None)

    def test_a_given_format_turns_a_header_into_a_document(self, tmp_path):
        assert documents(tmp_path, b"id\ttext\n", format="msmarco") == [Document("id", "text")]

    @pytest.mark.parametrize(
        "header", [b"pid\tpassage\n", b"id\tcontents\n", b"docid\tThe body\n", b"key\tbody text\n"]
    )
    def test_a_header_of_unknown_names_is_never_a_document(self, tmp_path, header):
        message = error_of(tmp_path, header + b"1\tThe crisis began.\n")
        assert "looks like a header" in message and "--text-field" in message and "--format msmarco" in message

    @pytest.mark.parametrize("first", [b"n00001740\tentity", b"0\tpassage", b"D-17\tShort text", b"MARCO_D1\tbody"])
    def test_an_id_with_a_digit_is_no_header(self, tmp_path, first):
        assert [doc.id for doc in documents(tmp_path, first + b"\n")] == [first.split(b"\t")[0].decode()]

    def test_fields_may_be_named(self, tmp_path):
        rows = b"pid\tpassage\theading\ttitle\n1\ta\tb\tc\n"
        fields = {"id_field": "pid", "text_field": "passage", "title_field": "heading"}
        assert documents(tmp_path, rows, **fields) == [Document("1", "a", "b", {"title": "c"})]

    def test_json_fields_may_be_named(self, tmp_path):
        rows = b'{"docid": "d", "contents": "a", "text": "b"}\n'
        options = {"id_field": "docid", "text_field": "contents"}
        assert documents(tmp_path, rows, **options) == [Document("d", "a", "", {"text": "b"})]

    def test_an_empty_title_field_takes_no_title(self, tmp_path):
        rows = b"id\ttext\ttitle\n1\ta\tB000X\n"
        assert documents(tmp_path, rows, title_field="") == [Document("1", "a", "", {"title": "B000X"})]
        rows = b'{"id": 1, "text": "a", "title": "B000X"}\n'
        assert documents(tmp_path, rows, title_field="") == [Document("1", "a", "", {"title": "B000X"})]

    @pytest.mark.parametrize("field", ["id_field", "text_field", "title_field"])
    def test_a_named_column_that_is_not_there_lists_those_that_are(self, tmp_path, field):
        message = error_of(tmp_path, b"id\ttext\ttitle\n1\ta\tb\n", **{field: "pid"})
        assert 'no column "pid" (columns: id, text, title)' in message

    @pytest.mark.parametrize("field", ["id_field", "text_field", "title_field"])
    def test_a_named_field_that_is_not_there_lists_those_that_are(self, tmp_path, field):
        message = error_of(tmp_path, b'{"id": 1, "text": "a"}\n', **{field: "body"})
        assert 'no field "body" (fields: id, text)' in message

    def test_json_without_a_text_is_named(self, tmp_path):
        message = error_of(tmp_path, b'{"id": 1, "title": "T", "tag": null}\n')
        assert "expected a field of texts, got id, title, tag" in message and "--text-field" in message

    def test_a_bad_first_row_does_not_hide_the_fields(self, tmp_path):
        path = write(tmp_path, b'{"_id": "1", "text": \n{"_id": "2", "text": "b"}\n')
        with open_corpus(path) as corpus:
            first, second = corpus
        assert first.reason.startswith("invalid JSON") and isinstance(second, Row)

    def test_a_first_row_that_is_too_large_does_not_hide_the_fields(self, tmp_path):
        large = b'{"_id": "1", "text": "' + b"x" * 500 + b'"}\n'
        path = write(tmp_path, large + b'{"_id": "2", "text": "b"}\n')
        with open_corpus(path, CorpusOptions(max_row_bytes=100)) as corpus:
            first, second = corpus
        assert "over 100 bytes" in first.reason and second.document.id == "2"

    def test_a_header_that_lacks_a_column_is_an_error(self, tmp_path):
        message = error_of(tmp_path, b"1\tThe crisis began.\n", format="dpr")
        assert 'no column "id" (columns: 1, The crisis began.)' in message

    def test_a_header_with_a_column_twice_is_an_error(self, tmp_path):
        assert "a name of its own" in error_of(tmp_path, b"id\ttext\ttext\n1\ta\tb\n")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"1\tThe oil crisis.\tOil\n", "no header"),
            (b"What is oil?\t17\n", "not an id and a text"),
            (b"just prose, a little\n", "no tab and no JSON object"),
            (b"just prose, a little\n", "--format csv"),
            (b'{\n  "id": 1,\n  "text": "a"\n}\n', "jq -c ."),
        ],
    )
    def test_other_text_is_refused_with_the_way_out(self, tmp_path, content, told):
        assert told in error_of(tmp_path, content)

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"PK\x03\x04\x14\0", "zip archive"),
            (b"SQLite format 3\0\x10\0", "SQLite"),
            (b"\x80\x04\x95\x0b\0\0", "pickle"),
            (b"BZh91AY&SY\0\0", "bzcat"),
            (b"\xfd7zXZ\0\0\x04", "xzcat"),
            (b"\x93NUMPY\x01\0", "NumPy"),
            ("id\ttext\n1\tGrüße\n".encode("utf-16"), "UTF-16"),
            ("id\ttext\n1\tGrüße\n".encode("utf-16-le"), "UTF-16"),
            ("id\ttext\n1\tGrüße\n".encode("utf-16-be"), "UTF-16"),
            (b"corpus.tsv" + b"\0" * 247 + b"ustar\x0000", "tar archive"),
            (bytes(range(256)), "binary"),
        ],
    )
    def test_binary_files_are_told_for_what_they_are(self, tmp_path, content, told):
        assert told in error_of(tmp_path, content)

    def test_one_zero_byte_does_not_make_a_file_binary(self, tmp_path):
        path = write(tmp_path, b"1\ta\0b\n2\tgood text\n")
        with open_corpus(path) as corpus:
            first, second = corpus
        assert "NUL" in first.reason and second.document.id == "2"


class TestOptions:
    def test_ms_marco_has_no_fields_to_name(self):
        with pytest.raises(ConfigError, match="no header"):
            CorpusOptions(format="msmarco", id_field="pid")

    def test_two_roles_need_two_fields(self):
        with pytest.raises(ConfigError, match="must differ"):
            CorpusOptions(id_field="x", text_field="x")

    @pytest.mark.parametrize("options", [{"text_field": ""}, {"text_field": " , "}, {"max_row_bytes": 0}])
    def test_values_that_mean_nothing_are_refused(self, options):
        with pytest.raises(ConfigError):
            CorpusOptions(**options)
