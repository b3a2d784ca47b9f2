"""Opening plain and compressed files, and reading their lines."""

import gzip
import io
import os
import threading
import tracemalloc

import pytest
import zstandard

from mvindex.corpus.inputs import open_bytes, read_lines
from mvindex.errors import CorpusError

TEXT = b"".join(b"line %d of the file\n" % number for number in range(20_000))
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"

PACKERS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip of two members": lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:]),
    "zstd": zstandard.compress,
    "zstd of two frames": lambda data: zstandard.compress(data[:1000]) + zstandard.compress(data[1000:]),
    "zstd after a skippable frame": lambda data: SKIPPABLE_FRAME + zstandard.compress(data),
}


@pytest.fixture(params=PACKERS.values(), ids=PACKERS)
def pack(request):
    return request.param


def write(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def read_all(path):
    with open_bytes(path) as stream:
        return stream.read()


def test_the_first_bytes_tell_the_compression_whatever_the_name(tmp_path, pack):
    assert read_all(write(tmp_path, pack(TEXT), name="questions.jsonl")) == TEXT


def test_lines_are_numbered_from_1_without_their_ends(tmp_path, pack):
    lines = list(read_lines(write(tmp_path, pack(TEXT))))
    assert lines[0] == (1, "line 0 of the file")
    assert lines[-1] == (20_000, "line 19999 of the file")
    assert len(lines) == 20_000


def test_a_named_pipe_is_read_without_seeking(tmp_path, pack):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)

    def feed():
        with open(path, "wb", buffering=0) as pipe:
            packed = pack(TEXT)
            for begin in [0, 1, 3]:  # the first bytes come one and two at a time
                pipe.write(packed[begin : [1, 3, None][[0, 1, 3].index(begin)]])

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert read_all(path) == TEXT
    feeder.join()


def test_a_line_that_a_pipe_holds_comes_before_the_pipe_ends():
    outlet, inlet = os.pipe()
    closing = threading.Timer(10, os.close, [inlet])  # so that a reader that waits for more fails and does not hang
    closing.start()
    os.write(inlet, b"first line\n")
    lines = read_lines(f"/dev/fd/{outlet}")
    assert next(lines) == (1, "first line")
    assert closing.is_alive()
    closing.cancel()
    lines.close()
    os.close(inlet)
    os.close(outlet)


def test_a_dash_reads_stdin_and_leaves_it_open(monkeypatch, pack):
    stdin = io.TextIOWrapper(io.BytesIO(pack(TEXT)))
    monkeypatch.setattr("sys.stdin", stdin)
    assert read_all("-") == TEXT
    assert not stdin.buffer.closed


def test_an_empty_file_has_no_lines(tmp_path, pack):
    assert list(read_lines(write(tmp_path, pack(b"")))) == []


def test_the_last_line_needs_no_end_and_windows_ends_are_dropped(tmp_path):
    assert list(read_lines(write(tmp_path, b"one\r\ntwo\r\n\nfour"))) == [(1, "one"), (2, "two"), (3, ""), (4, "four")]


def test_a_byte_order_mark_is_dropped_at_the_start_alone(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert list(read_lines(path)) == [(1, "one"), (2, "\ufefftwo")]


@pytest.mark.parametrize("packer", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("kept", [6, 0.5, -1], ids=["in the header", "in the middle", "by one byte"])
def test_a_compressed_file_cut_short_is_an_error_that_names_it(tmp_path, packer, kept):
    packed = packer(os.urandom(300_000))  # random bytes do not shrink, so that half a file is half its data
    path = write(tmp_path, packed[: int(kept * len(packed)) if isinstance(kept, float) else kept])
    with pytest.raises(CorpusError, match=f"^{path}: cannot be read: "):
        read_all(path)


@pytest.mark.parametrize(
    "packer", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress], ids=["gzip", "zstd"]
)
def test_damaged_compressed_data_is_an_error_that_names_the_file(tmp_path, packer):
    packed = bytearray(packer(TEXT))
    packed[len(packed) // 2 : len(packed) // 2 + 8] = b"\xff" * 8
    path = write(tmp_path, bytes(packed))
    with pytest.raises(CorpusError, match=f"^{path}: cannot be read: "):
        read_all(path)


def test_a_very_compressible_zstd_file_passes_in_pieces(tmp_path):
    frame = zstandard.ZstdCompressor().compressobj()
    packed = b"".join([frame.compress(bytes(1 << 20)) for _ in range(256)]) + frame.flush()  # 256 MiB in some 10 kB
    path = write(tmp_path, packed)
    tracemalloc.start()
    with open_bytes(path) as stream:
        assert sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b"")) == 256 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 160 << 20


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), (".", "Is a directory")])
def test_a_path_that_cannot_be_opened_is_named_with_the_reason(tmp_path, name, reason):
    with pytest.raises(CorpusError, match=f"cannot be (opened|read): .*{reason}"):
        read_all(f"{tmp_path}/{name}")


def test_a_line_may_be_as_long_as_the_limit_and_no_longer(tmp_path):
    path = write(tmp_path, b"1234567890\n12345678901\nx\n")
    lines = read_lines(path, max_bytes=10)
    assert next(lines) == (1, "1234567890")
    with pytest.raises(CorpusError, match=f"^{path}:2: expected a line of at most 10 bytes"):
        next(lines)


def test_invalid_utf8_and_nul_are_named_by_line_and_position(tmp_path):
    with pytest.raises(CorpusError, match="file:2: byte 3 of the line is 0xff, which is not valid UTF-8"):
        list(read_lines(write(tmp_path, b"ok\nab\xffc\n")))
    with pytest.raises(CorpusError, match="file:1: holds a NUL at character 2"):
        list(read_lines(write(tmp_path, b"a\0b\n")))
