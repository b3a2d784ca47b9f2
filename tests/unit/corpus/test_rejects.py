"""Rejects files: what is in them, how they are named, and that they can be read again."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, Reject, RejectsWriter, Row, SourceLocation, open_corpus
from mvindex.errors import CorpusError

DPR = b"id\ttext\ttitle\n"


def split(path, **options):
    """Good documents, and (reason, bytes) of each reject."""
    good, bad = [], []
    with open_corpus(str(path), CorpusOptions(**options)) as corpus:
        for row in corpus:
            if isinstance(row, Row):
                good.append(row.document)
            else:
                bad.append((row.reason, b"".join(row.raw)))
    return good, bad


def reject_all(paths, stem, **options):
    """The writer, closed, after every reject of these files was written."""
    with open_corpus(paths, CorpusOptions(**options)) as corpus, RejectsWriter(stem) as writer:
        for row in corpus:
            if isinstance(row, Reject):
                writer.write(row, corpus.source)
    return writer


def write(path, content):
    path.write_bytes(content)
    return str(path)


class TestFiles:
    def test_rows_stand_below_their_header_as_they_stood(self, tmp_path):
        rows = DPR + b'1\ta\tb\n2\t\t\r\n3\tcaf\xe9\tb\n\t"x\ny"\tb'
        writer = reject_all(write(tmp_path / "corpus.tsv", rows), tmp_path / "corpus")
        assert writer.paths == [tmp_path / "corpus.rejects.tsv"]
        assert writer.paths[0].read_bytes() == DPR + b'2\t\t\r\n3\tcaf\xe9\tb\n\t"x\ny"\tb\n'

    def test_reasons_name_file_line_and_reason(self, tmp_path):
        path = write(tmp_path / "corpus.tsv", DPR + b"1\ta\tb\n2\ta\n\ta\tb\n")
        writer = reject_all(path, tmp_path / "corpus")
        assert writer.reasons_path == tmp_path / "corpus.rejects.reasons.jsonl"
        entries = [json.loads(line) for line in writer.reasons_path.read_text().splitlines()]
        assert entries == [
            {"path": path, "line": 3, "reason": "expected 3 columns (id, text, title), got 2"},
            {"path": path, "line": 4, "reason": "id is ''; every document needs a non-empty id"},
        ]
        assert writer.count == 2

    def test_without_a_reject_there_is_no_file(self, tmp_path):
        writer = reject_all(write(tmp_path / "corpus.tsv", DPR + b"1\ta\tb\n"), tmp_path / "corpus")
        assert (writer.count, writer.paths, writer.reasons_path) == (0, [], None)
        assert [path.name for path in tmp_path.iterdir()] == ["corpus.tsv"]

    def test_nothing_is_overwritten(self, tmp_path):
        path = write(tmp_path / "corpus.tsv", DPR + b"1\ta\n")
        for _ in range(3):
            reject_all(path, tmp_path / "corpus")
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "corpus.rejects-2.reasons.jsonl",
            "corpus.rejects-2.tsv",
            "corpus.rejects-3.reasons.jsonl",
            "corpus.rejects-3.tsv",
            "corpus.rejects.reasons.jsonl",
            "corpus.rejects.tsv",
            "corpus.tsv",
        ]

    def test_each_format_and_header_has_a_file_of_its_own(self, tmp_path):
        paths = [
            write(tmp_path / "a.tsv", DPR + b"1\ta\n"),
            write(tmp_path / "b.tsv", b"text\tid\na\n"),
            write(tmp_path / "c.tsv", b"0\tgood text\n1\n"),
            write(tmp_path / "d.jsonl", b'{"id": 1, "text": "a"}\n{"id": 2}\n'),
            write(tmp_path / "e.jsonl", b'{"_id": 1, "text": "a"}\n{"_id": 2}\n'),
            write(tmp_path / "f.tsv", DPR + b"2\ta\n"),
        ]
        writer = reject_all(paths, tmp_path / "all")
        assert {path.name: (kind, path.read_bytes()) for path, kind in writer.formats.items()} == {
            "all.rejects.tsv": ("dpr", DPR + b"1\ta\n2\ta\n"),
            "all.rejects-2.tsv": ("dpr", b"text\tid\na\n"),
            "all.rejects-3.tsv": ("msmarco", b"1\n"),
            "all.rejects.jsonl": ("jsonl", b'{"id": 2}\n'),
            "all.rejects-2.jsonl": ("beir", b'{"_id": 2}\n'),
        }

    def test_a_row_that_is_too_large_is_written_whole(self, tmp_path):
        large = b"2\t" + b"x" * 3_000_000 + b"\ty\n"
        path = write(tmp_path / "corpus.tsv", DPR + b"1\ta\tb\n" + large + b"3\ta\tb\n")
        writer = reject_all(path, tmp_path / "corpus", max_row_bytes=1000)
        assert writer.paths[0].read_bytes() == DPR + large

    def test_a_folder_that_cannot_be_written_is_told(self, tmp_path):
        path = write(tmp_path / "corpus.tsv", DPR + b"1\ta\n")
        with pytest.raises(CorpusError, match="rejects cannot be written"):
            reject_all(path, tmp_path / "missing" / "corpus")

    def test_what_is_flushed_is_on_disk(self, tmp_path):
        path = write(tmp_path / "corpus.tsv", DPR + b"1\ta\n")
        with open_corpus(path) as corpus, RejectsWriter(tmp_path / "corpus") as writer:
            writer.write(next(iter(corpus)), corpus.source)
            writer.flush()
            assert writer.paths[0].read_bytes() == DPR + b"1\ta\n"
            assert writer.reasons_path.read_bytes().count(b"\n") == 1

    def test_a_file_name_that_is_not_unicode_is_written_as_json(self, tmp_path):
        with open_corpus(write(tmp_path / "a.tsv", DPR + b"1\ta\n")) as corpus:
            (reject,) = corpus
            source = corpus.source
        with RejectsWriter(tmp_path / "a") as writer:
            writer.write(Reject(SourceLocation("caf\udce9", 2), reject.reason, reject.raw), source)
        assert json.loads(writer.reasons_path.read_bytes())["path"] == "caf\udce9"


class TestReadAgain:
    @pytest.mark.parametrize(
        ("content", "bad", "mended"),
        [
            (DPR + b'1\ta\tb\n2\t"a\tb\n3\ta\tb\n', b'2\t"a\tb', b"2\ta\tb"),
            (DPR + b'1\ta\tb\n2\t"a\nb "c" d"\tb\n', b'b "c" d"', b'b ""c"" d"'),
            (b"0\tgood text\n1\tbad\ttext\n", b"bad\ttext", b"bad text"),
            (b'{"id": 1, "text": "a"}\n{"id": 2, "text": 7}\n', b"7", b'"7"'),
        ],
    )
    def test_the_same_rejects_unmended_and_documents_mended(self, tmp_path, content, bad, mended):
        path = write(tmp_path / "corpus", content)
        writer = reject_all(path, tmp_path / "corpus")
        ((rejects, file_format),) = writer.formats.items()
        assert split(rejects, format=file_format) == ([], split(path)[1])
        rejects.write_bytes(rejects.read_bytes().replace(bad, mended))
        documents, rest = split(rejects, format=file_format)
        assert rest == []
        assert [document.id for document in documents] == ["1" if content.startswith(b"0") else "2"]

    def test_open_quotes_do_not_swallow_the_next_reject(self, tmp_path):
        # One below the other, the first two rejects would read as one good row.
        content = DPR + b'1\t"open\n7\tgood "row"\tT\n\tbad"\tT\n'
        path = write(tmp_path / "corpus.tsv", content)
        writer = reject_all(path, tmp_path / "corpus")
        documents, rejects = split(path)
        assert [document.id for document in documents] == ["7"] and len(rejects) == 2
        assert split(writer.paths[0]) == ([], rejects)


def without_last_blanks(rejects):
    """Blank lines that end a file are skipped, so one that has become the last is no reject any more."""
    while rejects and rejects[-1][1] in (b"\n", b"\r\n", b"\r"):
        rejects = rejects[:-1]
    return rejects


ROW_BYTES = st.text(st.sampled_from('a1"\t\n\r é'), max_size=40).map(str.encode)
PIECES = [b"a", b"1", b'"', b"\t", b"\n", b"\r\n", b"\xff", b"\0", b'\t"']
BAD_BYTES = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
WITH_HEADERS = st.lists(st.sampled_from([*PIECES, b"id\ttext\n"]), max_size=40).map(b"".join)


class TestLaws:
    @given(ROW_BYTES | BAD_BYTES, st.sampled_from([8, 20, 2**20]))
    def test_every_byte_of_a_tsv_is_in_one_row_or_reject(self, content, max_row_bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "corpus.tsv", b"id\ttext\n" + b"1\tx\n" + content)
            raws = []
            with open_corpus(path, CorpusOptions(max_row_bytes=max(9, max_row_bytes))) as corpus:
                for row in corpus:
                    raws.append(row.raw if isinstance(row, Row) else b"".join(row.raw))
        missing = (b"1\tx\n" + content)[len(b"".join(raws)) :]
        assert b"".join(raws) + missing == b"1\tx\n" + content
        assert missing.strip(b"\r\n") == b""  # blank lines at the end are no rows

    @given(ROW_BYTES | WITH_HEADERS)
    def test_rejects_of_a_tsv_are_rejected_again_as_they_were(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "corpus.tsv", b"id\ttext\n" + b"1\tx\n" + content)
            writer = reject_all(path, Path(folder) / "corpus")
            rejects = without_last_blanks(split(path)[1])
            if rejects:
                documents, again = split(writer.paths[0])
                ended = [(reason, raw if raw.endswith(b"\n") else raw + b"\n") for reason, raw in rejects]
                assert (documents, without_last_blanks(again)) == ([], ended)
