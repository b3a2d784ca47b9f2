"""JSON files of one array of records, or of an object that holds one, streamed record by record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from mvindex.corpus.formats import TextFormat
from mvindex.corpus.inputs import UTF8_MARK
from mvindex.corpus.json_records import json_source, read_record
from mvindex.corpus.json_values import JsonCursor, find_records
from mvindex.corpus.lines import Lines
from mvindex.corpus.rows import TEXT_NAMES, CorpusOptions, Reject, Row, Source, SourceLocation
from mvindex.errors import CorpusError

JSON = "json"
_PROBE_RECORDS = 1000
_PROBE_BYTES = 2**20
# Of a record, and not of an object around records.
RECORD_FIELDS = frozenset(("id", "_id", *TEXT_NAMES))
# A record of a rejects file is one line. A tab is as right or wrong inside JSON as a line end.
_ONE_LINE = bytes.maketrans(b"\n\r", b"\t\t")


def open_json(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first records, and its records in order."""
    records = _Records(lines)
    probe, num_bytes = [], 0
    for record in records:
        probe.append(record)
        num_bytes += len(record) if isinstance(record, bytes) else _PROBE_BYTES
        if len(probe) == _PROBE_RECORDS or num_bytes >= _PROBE_BYTES:
            break
    source = json_source(JSON, lines, [record for record in probe if isinstance(record, bytes)], options)
    return source, _read_rows(itertools.chain(probe, records), source)


def holds_records(begin: bytes) -> bool:
    """Return whether the beginning of a file is an array, or an object around an array of records."""
    cursor = JsonCursor(iter((begin,)))
    return cursor.take(b"[") or (cursor.take(b"{") and find_records(cursor, RECORD_FIELDS) is not None)


FORMATS = (TextFormat(name=JSON, matches=lambda first_line: first_line.lstrip()[:1] == b"[", open=open_json),)


class _Records:
    """The records of the array of a file: the bytes of each, or its Reject where it is too large."""

    def __init__(self, lines: Lines) -> None:
        self._path, self._max_bytes = lines.path, lines.max_bytes
        pieces = lines.pieces()
        first = next(pieces, b"")
        self._cursor = JsonCursor(itertools.chain((first.removeprefix(UTF8_MARK),), pieces))
        self._name = self._find_array()
        self._number = 0
        self._records = self._read_all()

    def __iter__(self) -> Iterator[bytes | Reject]:
        return self._records

    def _find_array(self) -> str | None:
        """Go into the array; return its name where an object is around it."""
        cursor = self._cursor
        if cursor.take(b"["):
            return None
        name = find_records(cursor, RECORD_FIELDS) if cursor.take(b"{") else None
        if name is None:
            raise CorpusError(
                f"{self._path}: expected an array of JSON objects, or an object that holds one; "
                "for objects of one line each give --format jsonl"
            )
        return name

    def _read_all(self) -> Iterator[bytes | Reject]:
        cursor = self._cursor
        if not cursor.take(b"]"):
            yield from self._read_array()
        if self._name is not None:
            self._check_rest_of_object()
        if cursor.peek():
            raise CorpusError(f"{self._path}: expected the end of the file behind the array, got {cursor.peek()!r}")

    def _read_array(self) -> Iterator[bytes | Reject]:
        cursor = self._cursor
        while True:
            self._number += 1
            pieces = cursor.value()
            yield self._read_record(pieces)
            for _ in pieces:  # of a record that is too large, what was not asked for
                pass
            if cursor.take(b"]"):
                return
            if not cursor.take(b","):
                got = f"got {cursor.peek().decode(errors='replace')!r}" if cursor.peek() else "the file ends"
                raise CorpusError(f"{self._path}: record {self._number}: expected a comma or ] behind it, {got}")

    def _read_record(self, pieces: Iterator[bytes]) -> bytes | Reject:
        record = bytearray()
        for piece in pieces:
            record += piece
            if len(record) > self._max_bytes:
                reason = f"the record is over {self._max_bytes:,} bytes (max_row_bytes)"
                rest = itertools.chain((bytes(record),), pieces)
                return Reject(SourceLocation(self._path, self._number), reason, map(_one_line, rest))
        return _one_line(bytes(record).rstrip() or b",") + b"\n"

    def _check_rest_of_object(self) -> None:
        """Raise CorpusError where the object around the array holds more records, or is a record itself."""
        cursor = self._cursor
        if cursor.take(b",") and find_records(cursor, RECORD_FIELDS) is not None:
            raise CorpusError(
                f'{self._path}: holds another array of objects beside "{self._name}"; write the one of the documents '
                f"into a file of its own: jq '.{self._name}' {self._path}"
            )
        if not cursor.take(b"}"):
            raise CorpusError(
                f'{self._path}: expected the object around "{self._name}" to end with }} and to have no field of a '
                f"document; it is cut short behind record {self._number}, or is a document itself"
            )


def _one_line(piece: bytes) -> bytes:
    return piece.translate(_ONE_LINE)


def _read_rows(records: Iterator[bytes | Reject], source: Source) -> Iterator[Row | Reject]:
    roles = source.roles
    for number, record in enumerate(records, start=1):
        location = SourceLocation(source.path, number)
        yield record if isinstance(record, Reject) else read_record(location, record, source, roles)
