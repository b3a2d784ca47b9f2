"""Files as such: names, patterns, stdin, compression, damage, and what the progress bar is told."""

import gzip
import io
import os
import threading

import pytest
import zstandard

from mvindex.corpus import CorpusOptions, open_corpus, read_documents
from mvindex.errors import CorpusError

ROWS = b"id\ttext\n" + b"".join(b"%d\tdocument %d\n" % (number, number) for number in range(500))
IDS = [str(number) for number in range(500)]


def ids(paths, **options):
    return [document.id for document in read_documents(paths, CorpusOptions(**options))]


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


def write(path, content):
    path.write_bytes(content)
    return str(path)


class TestNames:
    def test_files_are_read_in_the_order_given(self, tmp_path):
        first = write(tmp_path / "b.tsv", b"id\ttext\n1\ta\n")
        second = write(tmp_path / "a.jsonl", b'{"id": 2, "text": "b"}\n')
        assert ids([first, second]) == ["1", "2"]

    def test_a_single_name_or_path_is_one_file(self, tmp_path):
        path = write(tmp_path / "a.tsv", ROWS)
        assert ids(path) == ids(tmp_path / "a.tsv") == IDS

    def test_a_pattern_is_expanded_and_sorted(self, tmp_path):
        for name in ("part-2.tsv", "part-1.tsv", "other.tsv"):
            write(tmp_path / name, b"id\ttext\n%s\ta\n" % name.encode())
        (tmp_path / "part-folder.tsv").mkdir()
        assert ids(str(tmp_path / "part-*.tsv")) == ["part-1.tsv", "part-2.tsv"]

    def test_a_file_whose_name_looks_like_a_pattern_wins(self, tmp_path):
        write(tmp_path / "a.tsv", b"id\ttext\n2\tb\n")
        literal = write(tmp_path / "[a].tsv", b"id\ttext\n1\ta\n")
        assert ids(literal) == ["1"]

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("missing.tsv", "no such file"),
            ("*.jsonl", "no file matches this pattern"),
            (".", "no file can be read; left out: none"),
        ],
    )
    def test_a_name_that_gives_no_file_is_told_when_opened(self, tmp_path, name, told):
        with pytest.raises(CorpusError, match=told):
            open_corpus(os.path.join(tmp_path, name))

    def test_a_dead_link_is_told(self, tmp_path):
        (tmp_path / "link").symlink_to("nowhere")
        with pytest.raises(CorpusError, match="no such file"):
            open_corpus(str(tmp_path / "link"))

    def test_a_file_without_permission_is_told(self, tmp_path, monkeypatch):
        path = write(tmp_path / "a.tsv", ROWS)
        monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
        with pytest.raises(CorpusError, match="permission denied"):
            open_corpus(path)

    def test_no_name_is_an_error(self):
        with pytest.raises(CorpusError, match="expected an input file"):
            open_corpus([])

    def test_the_same_file_twice_is_an_error(self, tmp_path):
        path = write(tmp_path / "a.tsv", ROWS)
        with pytest.raises(CorpusError, match="named twice"):
            open_corpus([path, str(tmp_path / "*.tsv")])

    def test_a_file_that_goes_away_is_told(self, tmp_path):
        path = write(tmp_path / "a.tsv", ROWS)
        with open_corpus(path) as corpus:
            os.unlink(path)
            with pytest.raises(CorpusError, match="cannot be read"):
                list(corpus)


class TestStdin:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
    def test_stdin_is_read_packed_or_plain(self, monkeypatch, pack):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pack(ROWS))))
        with open_corpus("-") as corpus:
            assert [row.document.id for row in corpus] == IDS
            assert corpus.bytes_total is None

    def test_places_name_stdin(self, monkeypatch):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id\ttext\n\ta\n")))
        with pytest.raises(CorpusError, match="^stdin:2: id is ''"):
            ids("-")

    def test_a_pipe_that_gives_a_byte_at_a_time_is_read(self, tmp_path):
        path = str(tmp_path / "pipe")
        os.mkfifo(path)
        packed = gzip.compress(b"id\ttext\n1\ta\n")

        def feed():
            with open(path, "wb", buffering=0) as pipe:
                for position in range(len(packed)):
                    pipe.write(packed[position : position + 1])

        writer = threading.Thread(target=feed)
        writer.start()
        assert ids(path) == ["1"]
        writer.join()


class TestCompression:
    @pytest.mark.parametrize("pack", [gzip.compress, zstd])
    def test_it_is_told_by_content_and_not_by_name(self, tmp_path, pack):
        assert ids(write(tmp_path / "corpus.tsv", pack(ROWS))) == IDS
        assert ids(write(tmp_path / "plain.tsv.gz", ROWS)) == IDS

    @pytest.mark.parametrize("pack", [gzip.compress, zstd])
    def test_members_that_were_joined_are_all_read(self, tmp_path, pack):
        packed = b"".join(pack(ROWS[begin : begin + 7]) for begin in range(0, len(ROWS), 7))
        assert ids(write(tmp_path / "a", packed)) == IDS

    def test_gzip_padded_with_zeros_is_whole(self, tmp_path):
        assert ids(write(tmp_path / "a", gzip.compress(ROWS) + b"\0" * 10_000)) == IDS

    def test_zstd_that_begins_with_a_frame_to_skip_is_read(self, tmp_path):
        skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
        assert ids(write(tmp_path / "a", skipped + zstd(ROWS))) == IDS

    @pytest.mark.parametrize("pack", [gzip.compress, zstd])
    @pytest.mark.parametrize("missing", [1, 5, 200])
    def test_a_file_cut_short_is_told(self, tmp_path, pack, missing):
        path = write(tmp_path / "a", pack(os.urandom(20_000).hex().encode().join([b"1\t", b"\n"]))[:-missing])
        with pytest.raises(CorpusError, match=r"a:\d: cannot be read: (gzip|zstd) data is cut short after byte \d+"):
            ids(path)

    def test_the_rows_before_the_damage_are_given_and_its_line_is_told(self, tmp_path):
        path = write(tmp_path / "a", gzip.compress(ROWS) + gzip.compress(b"500\tmore\n")[:-3])
        found = []
        with pytest.raises(CorpusError, match="a:503: cannot be read: gzip data is cut short"):
            for document in read_documents(path):
                found.append(document.id)
        assert found == [*IDS, "500"]  # only the checksum behind row 500, in line 502, is missing

    def test_changed_bytes_are_told(self, tmp_path):
        packed = bytearray(gzip.compress(ROWS))
        packed[len(packed) // 2] ^= 0xFF
        with pytest.raises(CorpusError, match="gzip data is damaged near byte"):
            ids(write(tmp_path / "a", bytes(packed)))

    def test_bytes_after_the_end_are_told(self, tmp_path):
        with pytest.raises(CorpusError, match="damaged"):
            ids(write(tmp_path / "a", gzip.compress(ROWS) + b"garbage"))


class TestEmpty:
    @pytest.mark.parametrize(
        "content",
        [b"", b"\n\r\n", b"\xef\xbb\xbf", gzip.compress(b""), zstd(b"")],
        ids=["no bytes", "line ends", "byte order mark", "gzip", "zstd"],  # a gzip header holds the time
    )
    def test_an_empty_file_is_an_error(self, tmp_path, content):
        with pytest.raises(CorpusError, match="is empty: no documents"):
            ids(write(tmp_path / "a", content))

    def test_a_file_of_blank_lines_is_refused_without_reading_it_all(self, tmp_path):
        path = write(tmp_path / "a", b"\n" * 3_000_000)
        with open_corpus(path) as corpus:
            with pytest.raises(CorpusError, match="blank lines: no documents"):
                list(corpus)
            assert corpus.bytes_read < 2_000_000

    @pytest.mark.parametrize("content", [b"id\ttext\n", b"id\ttext", b"id\ttext\n\n"])
    def test_a_header_alone_is_an_error(self, tmp_path, content):
        with pytest.raises(CorpusError, match="has no documents, only a header"):
            ids(write(tmp_path / "a", content))


class TestProgress:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
    def test_stored_bytes_are_counted_over_all_files(self, tmp_path, pack):
        paths = [write(tmp_path / name, pack(ROWS)) for name in ("a", "b")]
        with open_corpus(paths) as corpus:
            assert (corpus.bytes_read, corpus.bytes_total) == (0, 2 * len(pack(ROWS)))
            list(corpus)
            assert corpus.bytes_read == corpus.bytes_total

    def test_each_source_is_told_before_its_rows(self, tmp_path):
        first = write(tmp_path / "a.tsv", b"id\ttext\n1\ta\n")
        second = write(tmp_path / "b.jsonl", b'{"id": 2, "text": "b"}\n')
        told = []
        with open_corpus([first, second], on_source=told.append) as corpus:
            rows = iter(corpus)
            assert told == []
            one = next(rows)
            assert [source.format for source in told] == ["dpr"]
            next(rows)
            assert [source.format for source in told] == ["dpr", "jsonl"]
            assert corpus.source_of(one.location).format == "dpr"


class TestOnce:
    def test_a_second_pass_is_an_error_and_not_empty(self, tmp_path):
        with open_corpus(write(tmp_path / "a.tsv", ROWS)) as corpus:
            list(corpus)
            with pytest.raises(CorpusError, match="open the corpus again"):
                list(corpus)

    def test_a_closed_corpus_gives_nothing_more(self, tmp_path):
        corpus = open_corpus(write(tmp_path / "a.tsv", ROWS))
        next(iter(corpus))
        corpus.close()
        with pytest.raises(CorpusError, match="closed"):
            iter(corpus)

    def test_reading_may_pause_and_go_on(self, tmp_path):
        with open_corpus(write(tmp_path / "a.tsv", ROWS)) as corpus:
            first = next(iter(corpus))
            assert [first.document.id] + [row.document.id for row in corpus] == IDS
