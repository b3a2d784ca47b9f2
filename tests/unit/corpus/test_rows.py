"""Each kind of bad row: its reason, its place, its bytes; the rows around it are not lost."""

import itertools
import tracemalloc

import pytest

from mvindex.corpus import CorpusOptions, Reject, Row, open_corpus, read_documents
from mvindex.errors import CorpusError

DPR = b"id\ttext\ttitle\n"
UNCLOSED = "the quote that begins it is never closed"


def read(tmp_path, content, **options):
    """Good ids, and (line, reason, bytes) of each reject."""
    path = tmp_path / "corpus"
    path.write_bytes(content)
    good, bad = [], []
    with open_corpus(str(path), CorpusOptions(**options)) as corpus:
        for row in corpus:
            if isinstance(row, Row):
                good.append(row.document.id)
            else:
                bad.append((row.location.line, row.reason, b"".join(row.raw)))
    return good, bad


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b"\ta\tb\n", "id is ''"),
        (b" \ta\tb\n", "id is ' '"),
        (b"9\t\t\n", "text and title are both empty"),
        (b"9\t \xe2\x80\x8b\t\n", "text and title are both empty"),
        (b"9\ta\n", "expected 3 columns (id, text, title), got 2"),
        (b"9\n", "expected 3 columns"),
        (b"9\ta\tb\tc\n", "expected 3 columns"),
        (b'9\t"a"\tb\tc\n', "expected 3 columns"),
        (b'9\t"a" b\tc\n', "column 2: text after the closing quote"),
        (b'9\t"a\tb\n', f"column 2: {UNCLOSED}"),
        (b"9\tcaf\xe9\tb\n", "invalid UTF-8 at byte 5 of the row (0xe9)"),
        (b'9\t"caf\xe9\n"\tb\n', "invalid UTF-8 at byte 6 of the row (0xe9)"),
        (b"9\ta\0\tb\n", "text holds a NUL character at position 1"),
        (b"9\xc2\x85\ta\tb\n", "control character"),
        (b"\n", "blank line"),
        (b"\r\n", "blank line"),
    ],
)
def test_a_bad_tsv_row_is_rejected_alone(tmp_path, row, told):
    good, bad = read(tmp_path, DPR + b"1\ta\tb\n" + row + b'2\t"c"\td\n')
    assert good == ["1", "2"]
    ((line, reason, raw),) = bad
    assert (line, raw) == (3, row)
    assert told in reason


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b"9\n", "expected 2 columns (id, text), got 1"),
        (b"9\ta\tb\n", "expected 2 columns (id, text), got 3"),
        (b"9\t\n", "both empty"),
        (b"\n", "blank line"),
    ],
)
def test_a_bad_ms_marco_row_is_rejected_alone(tmp_path, row, told):
    good, bad = read(tmp_path, b"1\tfirst text\n" + row + b"2\tsecond text\n")
    assert good == ["1", "2"]
    ((line, reason, raw),) = bad
    assert (line, raw) == (2, row)
    assert told in reason


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b'{"text": "a"}', 'no field "id"; the row has text'),
        (b'{"id": null, "text": "a"}', '"id" is null; expected a string or an integer'),
        (b'{"id": true, "text": "a"}', '"id" is a boolean'),
        (b'{"id": 1.0, "text": "a"}', '"id" is a number; expected a string or an integer'),
        (b'{"id": "", "text": "a"}', "id is ''"),
        (b'{"id": "9", "text": ["a"]}', '"text" is an array; expected a string'),
        (b'{"id": "9", "text": "a", "title": 7}', '"title" is a number; expected a string'),
        (b'{"id": "9", "text": "a", "metadata": "m"}', '"metadata" is a string; expected an object'),
        (b'{"id": "9", "text": "a", "url": 1, "metadata": {"url": 2}}', '"url" occurs both beside "metadata"'),
        (b'{"id": "9", "id": "8", "text": "a"}', '"id" occurs twice in one object'),
        (b'{"id": "9"}', "both empty"),
        (b'{"id": "9", "text": "", "title": ""}', "both empty"),
        (b'{"id": "9", "text": "a"', "invalid JSON at character"),
        (b'{"id": "9", "text": "a"} x', "invalid JSON at character 25: Extra data"),
        (b'{"id": "9", "text": "a", "score": NaN}', "invalid JSON: NaN is not a JSON value"),
        (b'{"id": "9", "text": "a", "score": -Infinity}', "invalid JSON: -Infinity is not a JSON value"),
        (
            b'{"id": "9", "text": "a", "score": 1e999}',
            "document '9': metadata: 'score': expected a finite number, got inf",
        ),
        (b'{"id": "9", "text": "a\tb"}', "invalid JSON at character"),
        (b'{"id": "9", "text": "\\ud800"}', "text holds a lone surrogate at position 0"),
        (b'{"id": "9", "text": "a\\u0000"}', "text holds a NUL character at position 1"),
        (b'{"id": "9", "text": "\xff"}', "invalid UTF-8 at byte 21 of the row (0xff)"),
        (b"[1]", "the row is an array; expected an object"),
        (b"null", "the row is null; expected an object"),
        (b"17", "the row is a number; expected an object"),
        (b'{"id": "9", "text": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_a_bad_json_row_is_rejected_alone(tmp_path, row, told):
    good, bad = read(tmp_path, b'{"id": "1", "text": "a"}\n' + row + b'\n{"id": "2", "text": "b"}\n')
    assert good == ["1", "2"]
    ((line, reason, raw),) = bad
    assert (line, raw) == (2, row + b"\n")
    assert told in reason


def test_a_huge_integer_is_a_document_or_a_reject_never_a_crash(tmp_path):
    row = b'{"id": "9", "text": "a", "n": ' + b"9" * 5000 + b"}\n"
    good, bad = read(tmp_path, row + b'{"id": "2", "text": "b"}\n')
    assert "2" in good and len(good) + len(bad) == 2


class TestBrokenQuotes:
    def test_only_the_line_of_an_open_quote_is_lost(self, tmp_path):
        rows = DPR + b'1\t"open\tT\n2\tb\tT\n3\t"c\nd"\tT\n4\te\tT\n'
        good, bad = read(tmp_path, rows)
        assert good == ["2", "3", "4"]
        assert bad == [(2, bad[0][1], b'1\t"open\tT\n')]

    def test_an_open_quote_in_the_last_row(self, tmp_path):
        good, bad = read(tmp_path, DPR + b'1\ta\tb\n2\t"open')
        assert good == ["1"]
        assert [(line, raw) for line, _, raw in bad] == [(3, b'2\t"open')]

    def test_open_quotes_one_below_the_other(self, tmp_path):
        good, bad = read(tmp_path, DPR + b'1\t"a\tT\n2\t"b\tT\n3\t"c\tT\n4\td\tT\n')
        assert good == ["4"]
        assert [line for line, _, _ in bad] == [2, 3, 4]
        assert all(UNCLOSED in reason for _, reason, _ in bad)

    def test_the_search_for_the_end_of_a_quote_is_bounded(self, tmp_path):
        # The quote would close in line 4, but the row would then be longer than is allowed.
        rows = DPR + b'1\t"open\n2\tbbbbbbbbbbbbbbbbbbbbbb\tT\n3\tccccccccccc"\tT\n'
        good, bad = read(tmp_path, rows, max_row_bytes=40)
        assert good == ["2", "3"]
        assert [line for line, _, _ in bad] == [2]
        assert read(tmp_path, rows, max_row_bytes=80) == (["1"], [])

    def test_a_header_ends_an_open_quote(self, tmp_path):
        good, bad = read(tmp_path, DPR + b'1\t"open\tT\n' + DPR + b'2\tclosed"\tT\n')
        assert good == ["2"]
        assert [line for line, _, _ in bad] == [2]

    def test_a_bad_row_of_several_lines_is_rejected_whole(self, tmp_path):
        good, bad = read(tmp_path, DPR + b'\t"a\nb"\tT\n2\tc\tT\n')
        assert good == ["2"]
        assert [(line, raw) for line, _, raw in bad] == [(2, b'\t"a\nb"\tT\n')]

    def test_rejects_far_apart_take_no_more_than_one_pass(self, tmp_path):
        # Each line leaves a quote open which the next one closes and opens again: a search without an end would
        # read the rest of the file for each of them.
        good, bad = read(tmp_path, DPR + b'x"\t"a\n' * 20_000)
        assert (len(good), len(bad)) == (0, 20_000)


class TestBlankLines:
    def test_at_the_end_they_are_skipped(self, tmp_path):
        assert read(tmp_path, DPR + b"1\ta\tb\n\n\r\n\n") == (["1"], [])

    def test_elsewhere_each_is_a_reject(self, tmp_path):
        good, bad = read(tmp_path, DPR + b"\n1\ta\tb\n\n\r\n2\ta\tb\n\n")
        assert good == ["1", "2"]
        assert [(line, raw) for line, _, raw in bad] == [(2, b"\n"), (4, b"\n"), (5, b"\r\n")]

    def test_a_blank_line_before_ms_marco_rows_is_a_reject(self, tmp_path):
        good, bad = read(tmp_path, b"\n1\tsome text\n")
        assert (good, [line for line, _, _ in bad]) == (["1"], [1])


class TestLargeRows:
    FORMATS = [
        ("dpr", b"id\ttext\n", b"9\t" + b"x" * 5000 + b"\n", b"1\tab\n"),
        ("msmarco", b"", b"9\t" + b"x" * 5000 + b"\n", b"1\tab\n"),
        ("jsonl", b"", b'{"id": 9, "text": "' + b"x" * 5000 + b'"}\n', b'{"id": 1, "text": "ab"}\n'),
    ]

    @pytest.mark.parametrize(("file_format", "header", "large", "small"), FORMATS)
    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_row_over_the_limit_is_rejected_whole(self, tmp_path, file_format, header, large, small, is_first):
        rows = header + (large + small if is_first else small + large + small)
        good, bad = read(tmp_path, rows, max_row_bytes=100)
        assert set(good) == {"1"}
        ((_, reason, raw),) = bad
        assert reason == "the row is over 100 bytes (max_row_bytes)"
        assert raw == large

    def test_a_row_at_the_limit_is_read(self, tmp_path):
        row = b"1\t" + b"x" * 97 + b"\n"
        assert read(tmp_path, b"id\ttext\n" + row, max_row_bytes=99) == (["1"], [])
        assert read(tmp_path, b"id\ttext\n" + row[:-1], max_row_bytes=99) == (["1"], [])
        assert read(tmp_path, b"id\ttext\n" + row, max_row_bytes=98)[0] == []

    @pytest.mark.parametrize("num_pieces", [0, 1])
    def test_what_is_not_taken_of_a_large_row_is_skipped(self, tmp_path, num_pieces):
        path = tmp_path / "corpus.tsv"
        path.write_bytes(b"id\ttext\n1\t" + b"x" * 5_000_000 + b"\n2\tb\n")
        with open_corpus(str(path), CorpusOptions(max_row_bytes=100)) as corpus:
            rows = iter(corpus)
            reject = next(rows)
            assert len(list(itertools.islice(reject.raw, num_pieces))) == num_pieces
            assert next(rows).document.id == "2"
            assert sum(map(len, reject.raw)) <= 101  # the file has moved on: nothing of another row

    def test_a_large_last_row_without_a_newline(self, tmp_path):
        good, bad = read(tmp_path, b"id\ttext\n1\ta\n2\t" + b"x" * 500, max_row_bytes=100)
        assert good == ["1"] and bad[0][2] == b"2\t" + b"x" * 500

    def test_a_large_row_inside_an_open_quote_is_its_own_reject(self, tmp_path):
        good, bad = read(tmp_path, b'id\ttext\n1\t"a\n2\t' + b"x" * 500 + b"\n3\tc\n", max_row_bytes=100)
        assert good == ["3"]
        assert [(line, len(raw)) for line, _, raw in bad] == [(2, 5), (3, 503)]

    def test_a_header_over_the_limit_is_an_error_of_the_file(self, tmp_path):
        with pytest.raises(CorpusError, match="header"):
            read(tmp_path, b"id\ttext\t" + b"x" * 500 + b"\n1\ta\tb\n", max_row_bytes=100)

    def test_a_line_of_50_mb_is_read(self, tmp_path):
        path = tmp_path / "corpus.tsv"
        path.write_bytes(b'id\ttext\ttitle\n1\t"' + b"word " * 10_000_000 + b'"\tT\n2\tb\tT\n')
        lengths = [
            len(document.text) for document in read_documents(str(path), CorpusOptions(max_document_chars=10**8))
        ]
        assert lengths == [50_000_000, 1]

    def test_a_row_over_the_limit_is_never_held_whole(self, tmp_path):
        path = tmp_path / "corpus.tsv"
        with path.open("wb") as file:
            file.write(b"id\ttext\n1\t")
            for _ in range(100):
                file.write(b"x" * 1_000_000)
            file.write(b"\n2\tb\n")
        tracemalloc.start()
        good, total = [], 0
        with open_corpus(str(path), CorpusOptions(max_row_bytes=2**20)) as corpus:
            for row in corpus:
                if isinstance(row, Reject):
                    total = sum(map(len, row.raw))
                else:
                    good.append(row.document.id)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (good, total) == (["2"], 100_000_003)
        assert peak_bytes < 10 * 2**20


def test_the_first_reject_stops_the_plain_stream_of_documents(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_bytes(DPR + b"1\ta\tb\n\ta\tb\n")
    stream = read_documents(str(path))
    assert next(stream).id == "1"
    with pytest.raises(CorpusError, match=r"corpus\.tsv:3: id is ''"):
        next(stream)
