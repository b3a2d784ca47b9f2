"""JSON arrays, objects around one, and records without ids."""

import json
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, RejectsWriter, Row, open_corpus, read_documents
from mvindex.corpus.json_values import JsonCursor
from mvindex.errors import CorpusError
from mvindex.records import Document

RECORDS = [{"id": 1, "text": "a", "title": "T", "year": 1973}, {"id": "2", "text": 'b ] } , "', "tags": [[], {}]}]
FOUND = [Document("1", "a", "T", {"year": 1973}), Document("2", 'b ] } , "', "", {"tags": [[], {}]})]


def write(tmp_path, content, name="records.json"):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def documents(tmp_path, content, **options):
    return list(read_documents(write(tmp_path, content), CorpusOptions(**options)))


def error_of(tmp_path, content, **options):
    with pytest.raises(CorpusError) as caught:
        documents(tmp_path, content, **options)
    return str(caught.value)


def split(path, **options):
    good, bad = [], []
    with open_corpus(path, CorpusOptions(**options)) as corpus:
        for row in corpus:
            if isinstance(row, Row):
                good.append(row.document)
            else:
                bad.append((row.location.line, row.reason, b"".join(row.raw)))
        return good, bad, corpus.source


class TestShapes:
    @pytest.mark.parametrize("indent", [None, 2])
    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n \r\n"])
    def test_an_array_is_read_printed_anyhow(self, tmp_path, indent, mark):
        assert documents(tmp_path, mark + json.dumps(RECORDS, indent=indent).encode()) == FOUND

    @pytest.mark.parametrize("indent", [None, 2])
    @pytest.mark.parametrize("after", [{}, {"count": 2, "more": {"a": [1, "x"]}}])
    def test_an_object_may_hold_the_array(self, tmp_path, indent, after):
        whole = {"version": "1.1", "columns": ["id", "text"], "none": [], "rows": RECORDS, **after}
        assert documents(tmp_path, json.dumps(whole, indent=indent).encode()) == FOUND

    def test_an_object_with_the_array_over_lines_of_records(self, tmp_path):
        rows = b'{"rows": [\n' + b",\n".join(json.dumps(record).encode() for record in RECORDS) + b"\n]}\n"
        assert documents(tmp_path, rows) == FOUND

    def test_strings_are_texts(self, tmp_path):
        path = tmp_path / "records.json"
        assert documents(tmp_path, b'["One text.", "T\\u00e9xt"]') == [
            Document(f"{path}#row-1", "One text."),
            Document(f"{path}#row-2", "Téxt"),
        ]

    def test_one_row_of_jsonl_that_holds_an_array_stays_a_row(self, tmp_path):
        rows = b'{"id": "1", "authors": [{"name": "A"}], "text": "a"}\n'
        assert documents(tmp_path, rows) == [Document("1", "a", "", {"authors": [{"name": "A"}]})]

    def test_two_rows_of_jsonl_that_begin_with_an_array_stay_rows(self, tmp_path):
        rows = b'{"authors": [{"name": "A"}], "text": "a b"}\n' * 2
        assert [one.metadata for one in documents(tmp_path, rows)] == [{"authors": [{"name": "A"}]}] * 2

    def test_records_are_numbered_and_the_fields_are_reported(self, tmp_path):
        rows = [{"docid": f"x{number}", "body": "a b", "heading": "H"} for number in range(20)]
        path = write(tmp_path, json.dumps([*rows, {"docid": 1.5}]).encode())
        good, bad, source = split(path)
        assert str(source).endswith("records.json: json (detected): id = docid, text = body, title = heading")
        assert good == [Document(f"x{number}", "a b", "H") for number in range(20)]
        assert bad == [(21, '"docid" is a number; expected a string or an integer, got 1.5', b'{"docid": 1.5}\n')]

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"[]", "has no documents"),
            (b'[{"id": 1, "text": "a"}', "record 1: expected a comma or ] behind it, the file ends"),
            (b'[{"id": 1, "text": "a"} {"id": 2}]', "record 1: expected a comma or ] behind it, got '{'"),
            (b'[{"id": 1, "text": "a"}] x', "expected the end of the file behind the array, got b'x'"),
            (b'{"a": [{"id": 1, "text": "a"}], "b": [{"id": 2}]}', 'another array of objects beside "a"'),
            (b'{"a": [{"id": 1, "text": "a"}], "text": "b c"}', "or is a document itself"),
            (b'{"a": [{"id": 1, "text": "a"}]', "is cut short behind record 1"),
            (b'{\n"id": 1,\n"text": "a"\n}\n{\n"id": 2\n}\n', "jq -c ."),
            (b'[{"id": 1, "tag": null}]', "expected a field of texts, got id, tag"),
        ],
    )
    def test_what_is_not_read_is_told(self, tmp_path, content, told):
        assert told in error_of(tmp_path, content)

    def test_a_given_format_needs_an_array(self, tmp_path):
        assert "--format jsonl" in error_of(tmp_path, b'{"id": 1, "text": "a"}\n', format="json")


class TestJsonLines:
    def test_rows_without_ids_get_one_from_file_and_line(self, tmp_path):
        rows = b'{"content": "alpha beta", "year": 1}\n{"content": "gamma"}\n'
        path = write(tmp_path, rows, "rows.jsonl")
        good, bad, source = split(path)
        assert good == [
            Document(f"{path}#row-1", "alpha beta", "", {"year": 1}),
            Document(f"{path}#row-2", "gamma"),
        ]
        assert (bad, source.format, source.id_field, source.text_field) == ([], "jsonl", None, "content")
        with open_corpus(path) as corpus:
            assert [row.has_made_id for row in corpus] == [False, False]

    def test_a_row_that_lacks_the_id_of_the_others_is_bad(self, tmp_path):
        good, bad, _ = split(write(tmp_path, b'{"id": "1", "text": "a"}\n{"text": "b"}\n'))
        assert len(good) == 1 and bad[0][1] == 'no field "id"; the row has text'

    def test_a_given_format_promises_its_names(self, tmp_path):
        good, bad, _ = split(write(tmp_path, b'{"text": "a"}\n'), format="jsonl")
        assert good == [] and 'no field "id"' in bad[0][1]
        assert len(split(write(tmp_path, b'{"text": "a"}\n'), format="jsonl", id_field="")[0]) == 1

    def test_several_fields_make_the_text(self, tmp_path):
        rows = b'{"id": 1, "a": "x", "b": null, "c": "y"}\n{"id": 2, "a": "x", "b": 7}\n'
        good, bad, _ = split(write(tmp_path, rows), text_field="a,b,c")
        assert [one.text for one in good] == ["x\n\ny"]
        assert bad[0][1] == '"b" is a number; expected a string, got 7'


class TestBadRecords:
    @pytest.mark.parametrize(
        ("record", "told"),
        [
            (b'{"id": 9, "text": "a\nb"}', "invalid JSON"),
            (b'{"id": 9, "text": a}', "invalid JSON"),
            (b'{"id": 9, "id": 8}', "occurs twice"),
            (b'{"id": 9, "n": NaN}', "NaN is not a JSON value"),
            (b"[1, [2]]", "an array; expected an object"),
            (b'"text"', "a string; expected an object"),
            (b"null", "null; expected an object"),
            (b"", "invalid JSON"),
            (b'{"id": 9, "text": "\xff"}', "invalid UTF-8"),
        ],
    )
    def test_a_bad_record_is_rejected_alone(self, tmp_path, record, told):
        path = write(tmp_path, b'[{"id": 1, "text": "a"},\n' + record + b',{"id": 2, "text": "b"}]')
        good, bad, _ = split(path)
        assert [one.id for one in good] == ["1", "2"]
        ((number, reason, raw),) = bad
        assert number == 2 and told in reason
        assert raw.endswith(b"\n") and raw.count(b"\n") == 1

    def test_rejects_are_lines_that_can_be_mended(self, tmp_path):
        path = write(tmp_path, b'[{"docid": "1", "body": "a b"}, {\n  "docid": "2",\n  "body": 7\n}]')
        with open_corpus(path) as corpus, RejectsWriter(tmp_path / "r") as writer:
            for row in corpus:
                if not isinstance(row, Row):
                    writer.write(row, corpus.source)
        ((rejects, source),) = writer.sources.items()
        assert rejects.name == "r.rejects.jsonl"
        assert rejects.read_bytes() == b'{\t  "docid": "2",\t  "body": 7\t}\n'
        assert split(str(rejects), format="jsonl", id_field="docid", text_field="body")[0] == []
        rejects.write_bytes(rejects.read_bytes().replace(b"7", b'"mended"'))
        assert list(read_documents(str(rejects), source.options_again())) == [Document("2", "mended")]

    def test_a_record_over_the_limit_is_passed_over_or_written_whole(self, tmp_path):
        large = b'{"id": 2, "text": "' + b"x" * 3_000_000 + b'"}'
        path = write(tmp_path, b'[{"id": 1, "text": "a"}, ' + large + b', {"id": 3, "text": "b"}]')
        good, bad, _ = split(path, max_row_bytes=1000)
        assert [one.id for one in good] == ["1", "3"]
        assert (bad[0][0], bad[0][2]) == (2, large) and "over 1,000 bytes" in bad[0][1]
        with open_corpus(path, CorpusOptions(max_row_bytes=1000)) as corpus:
            assert [row.location.line for row in corpus] == [1, 2, 3]

    def test_a_large_array_is_not_held_in_memory(self, tmp_path):
        path = tmp_path / "large.json"
        with open(path, "wb") as file:
            file.write(b"[")
            for number in range(30_000):
                file.write(b'%s{"id": %d, "text": "%s"}' % (b"," if number else b"", number, b"x" * 1000))
            file.write(b"]")
        tracemalloc.start()
        assert sum(1 for _ in read_documents(str(path), CorpusOptions(max_row_bytes=10_000))) == 30_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 << 20


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\[]{},:\n\té'), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class TestLaws:
    @given(st.lists(VALUES, min_size=1, max_size=4), st.integers(1, 7), st.sampled_from([None, 1]))
    def test_the_values_of_any_array_are_found_in_any_pieces(self, values, piece_bytes, indent):
        text = json.dumps(values, indent=indent).encode()
        cursor = JsonCursor(text[at : at + piece_bytes] for at in range(0, len(text), piece_bytes))
        assert cursor.take(b"[")
        found = []
        while True:
            found.append(json.loads(b"".join(cursor.value())))
            if not cursor.take(b","):
                break
        assert cursor.take(b"]") and cursor.peek() == b""
        assert found == values

    @given(st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b'"id"', b"1"])))
    def test_no_array_crashes_the_reader(self, parts):
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), b'[{"id": 1, "text": "a"},' + b"".join(parts))
            try:
                good, bad, _ = split(path)
            except CorpusError:
                return
            assert good[0] == Document("1", "a")
