"""The table of corpus formats, and how the format of a file is found. Another format is a file and its names here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import PurePath
from typing import TypeAlias

from mvindex.corpus import csv_files, json_files, tables
from mvindex.corpus.formats import BinaryFormat, TextFormat
from mvindex.corpus.inputs import COMPRESSED_SUFFIXES, Input
from mvindex.corpus.json_files import holds_rows
from mvindex.corpus.lines import Lines, take_first_line
from mvindex.corpus.passages import html, mail, markdown, notebook, plain
from mvindex.corpus.rows import CorpusOptions, Reject, Row, Source
from mvindex.errors import ConfigError, CorpusError

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


GROUP = "mvindex.corpus_formats"
CorpusFormat: TypeAlias = "TextFormat | BinaryFormat"

# Detected in this order, those of other packages first; tsv matches any text and so comes last.
_FORMATS: tuple[CorpusFormat, ...] = (
    *tables.PARQUET_FORMATS,
    *tables.ARROW_FORMATS,
    *markdown.FORMATS,
    *html.FORMATS,
    *plain.FORMATS,
    *notebook.FORMATS,
    *mail.FORMATS,
    *json_files.FORMATS,
    *json_files.LINE_FORMATS,
    *csv_files.FORMATS,
    *csv_files.TSV_FORMATS,
)
# Endings of formats that are detected by their content where a file is named; in a folder the ending decides.
_ROW_SUFFIXES = (".tsv", ".json", ".jsonl", ".ndjson", ".parquet")


def find_format(name: str) -> CorpusFormat:
    """Return the format of this name; raise ConfigError, with the names of all, where there is none."""
    formats = {one.name: one for one in _all_formats()}
    if name not in formats:
        raise ConfigError(f"expected a corpus format ({', '.join(sorted(formats))}), got {name!r:.40}")
    return formats[name]


def open_rows(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how an open file is read, by the given format or the one detected, and its rows.

    A format is detected by the first bytes of a binary file, else by the ending of the name, else by the first line. In
    a folder, JSON that holds no rows is text.

    Raises:
        CorpusError: The file has another format than given, or none that is known.

    """
    given = None if options.format is None else find_format(options.format)
    for one in _all_formats():
        if isinstance(one, BinaryFormat) and one.matches(file.head):
            if given not in (None, one):
                raise CorpusError(f"{file.name}: is of the format {one.name}, not {options.format}; leave --format out")
            return one.open(file, options)
    named = given or _format_of_name(file.name)
    if file.ids.in_folder and named is None and _suffix(file.name) == ".json" and not holds_rows(file):
        named = plain.CODE
    if isinstance(named, BinaryFormat) and named.suffixes:
        return named.open(file, options)
    lines = Lines(file.stream(), file.name, options.max_row_bytes, file.ids)
    first, blank = take_first_line(lines)
    if lines.has_returns(first):
        lines.push_back(blank + first, 0)
        lines.end_at_returns()
        first, blank = take_first_line(lines)
    reject_non_text(lines.path, first)
    if isinstance(named, BinaryFormat):
        raise CorpusError(f"{file.name}: does not begin as a file of the format {named.name} does")
    lines.push_back(blank + first, 0)
    texts = (one for one in _all_formats() if isinstance(one, TextFormat))
    chosen = named or next(one for one in texts if one.matches(first))
    return chosen.open(lines, options)


def has_reader(path: str) -> bool:
    """Return whether a file of this name is read where its folder is."""
    return _format_of_name(path) is not None or _suffix(path) in _ROW_SUFFIXES


def _format_of_name(path: str) -> CorpusFormat | None:
    """Return the format of a file's name, below an ending of compression; None where no ending decides."""
    suffix = _suffix(path)
    return next((one for one in _all_formats() if suffix and suffix in one.suffixes), None)


def _suffix(path: str) -> str:
    """Return the ending of a name, below an ending of compression; "" for none."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@cache
def _all_formats() -> tuple[CorpusFormat, ...]:
    return (*_load_entry_points(), *_FORMATS)


def _load_entry_points() -> Iterator[CorpusFormat]:
    names = {one.name for one in _FORMATS}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        loaded = entry.load()
        if not isinstance(loaded, TextFormat | BinaryFormat) or loaded.name != entry.name:
            raise ConfigError(
                f"entry point {entry.name} of {GROUP}: expected a TextFormat or BinaryFormat of this name"
            )
        if loaded.name in names:
            raise ConfigError(f"entry point {entry.name} of {GROUP}: {loaded.name} is the name of another format")
        names.add(loaded.name)
        yield loaded
