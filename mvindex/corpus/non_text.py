"""Recognises files that are no text by their first bytes, and says what to do with them."""

from __future__ import annotations

from mvindex.errors import CorpusError

_PIPE = "decompress it first, for example: {} {{}} | mvindex ingest -"
_MAGICS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it and name the file inside"),
    (b"PK\x05\x06", "an empty zip archive", "it holds no files"),
    (b"\xfd7zXZ\0", "compressed with xz", _PIPE.format("xzcat")),
    (b"\x04\x22\x4d\x18", "compressed with lz4", _PIPE.format("lz4cat")),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it and name the file inside"),
    (b"\x1f\x8b", "compressed twice with gzip", _PIPE.format("zcat")),
    (b"\x28\xb5\x2f\xfd", "compressed twice with zstd", _PIPE.format("zstdcat")),
    (b"\x1f\x9d", "compressed with compress (.Z)", _PIPE.format("zcat")),
    (b"PAR1\x15", "Parquet inside a compressed file", "decompress it first; Parquet compresses by itself"),
    (b"ARROW1\0", "an Arrow file inside a compressed file", "decompress it first"),
    (b"SQLite format 3\0", "an SQLite database", "write its table as JSON Lines"),
    (b"\x93NUMPY", "a NumPy array", "a corpus is text; vectors are added with index.add_views"),
    (b"\x89HDF", "an HDF5 file", "write its documents as JSON Lines"),
    (b"%PDF-", "a PDF", "extract its text first"),
    (b"\x7fELF", "a program", "name a corpus file"),
    (b"{\\rtf", "a rich text document", "write its text as JSON Lines"),
)
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_PROBE_BYTES = 4096
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\v\b\x1b")


def reject_non_text(path: str, begin: bytes) -> None:
    """Raise CorpusError, with the kind of the file, unless its first line may be one of a text corpus."""
    for magic, what, way_out in _MAGICS:
        if begin.startswith(magic):
            raise CorpusError(f"{path}: is {what}; {way_out.format(path)}")
    if begin.startswith(b"BZh") and begin[4:10] == b"1AY&SY":
        raise CorpusError(f"{path}: is compressed with bzip2; {_PIPE.format('bzcat').format(path)}")
    if begin[257:262] == b"ustar":
        raise CorpusError(f"{path}: is a tar archive; unpack it and name the file inside")
    if begin[:1] == b"\x80" and begin[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        raise CorpusError(f"{path}: is a pickle, which can run code when it is read; write its documents as JSON Lines")
    probe = begin[:_PROBE_BYTES]
    if begin.startswith(_UTF16_BOMS) or _has_utf16_zeros(probe):
        raise CorpusError(f"{path}: is UTF-16 or UTF-32; convert it: iconv -f utf-16 -t utf-8")
    if _is_binary(probe):
        raise CorpusError(f"{path}: is binary data; expected text, or a format of docs/how-to/files.md")


def _has_utf16_zeros(probe: bytes) -> bool:
    """Return whether nearly every second byte is zero, as in Western text in UTF-16 without a byte order mark."""
    halves = (probe[0::2], probe[1::2])
    return len(probe) >= 8 and any(half.count(0) > 0.9 * len(half) for half in halves)


def _is_binary(probe: bytes) -> bool:
    # One byte in nine is a control character in compressed or machine data. A few may be a bad row in a good file.
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in probe)
    return controls > 8 and controls > 0.05 * len(probe)
