"""JSON and JSON Lines: records of objects, an array of them or an object that holds one, and JSON files of folders."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from mvindex.corpus.formats import TextFormat
from mvindex.corpus.inputs import UTF8_MARK, Input
from mvindex.corpus.json_values import JsonCursor, find_records
from mvindex.corpus.lines import (
    Lines,
    decode_utf8,
    document_of,
    json_name,
    reject_oversize,
    take_first_line,
    take_probe,
)
from mvindex.corpus.rows import (
    METADATA,
    TEXT_NAMES,
    VIEW_TEXTS,
    Columns,
    CorpusOptions,
    Reject,
    Roles,
    Row,
    Source,
    SourceLocation,
    find_roles,
    text_columns,
)
from mvindex.errors import CorpusError, DocumentError

JSONL = "jsonl"
BEIR = "beir"
_GLIMPSE_BYTES = 1000


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of the line; raise DocumentError for none, NaN, Infinity, or a field that occurs twice."""
    value = _parse(line)
    if not isinstance(value, dict):
        raise DocumentError(f"the row is {json_name(value)}; expected an object, one a line")
    return value


def read_record(location: SourceLocation, record: bytes, source: Source, roles: Roles) -> Row | Reject:
    """Return the row of a record; its bytes are a line of JSON. Where records have no ids, a string is a text."""
    try:
        value = _parse(record)
        if isinstance(value, str) and roles.id is None:
            value = {"text" if roles.is_row else roles.text[0]: value}
        if not isinstance(value, dict):
            raise DocumentError(f"the row is {json_name(value)}; expected an object")
        document = document_of(value, roles, source.ids, location.line)
        return Row(location, document, record, has_made_id=source.makes_content_ids)
    except DocumentError as err:
        return Reject(location, str(err), (record,))


def json_source(form: str, lines: Lines, probe: list[bytes], options: CorpusOptions) -> Source:
    """Return how the records of a file are read, from its first ones; `form` is the format where none is given.

    Raises:
        CorpusError: The format is detected, and the records lack a named field, or one that may be their text.

    """
    sample = list(_objects(probe))
    names = tuple(dict.fromkeys(name for fields in sample for name in fields))
    is_promised = options.format in (JSONL, BEIR)
    if names and not is_promised:
        roles = _found_roles(Columns(place=lines.path, kind="field", names=names, sample=lambda: sample), options)
    else:
        has_texts = not is_promised and any(record.lstrip()[:1] == b'"' for record in probe)
        roles = _promised_roles(options, names, None if has_texts else _json_id(_quoted_names(probe), options))
    return Source.of(
        lines.path,
        options.format or (BEIR if form == JSONL and roles.id == "_id" else form),
        options,
        roles,
        columns=tuple(name for name in names if name not in (METADATA, VIEW_TEXTS)),
        rejects_format=(BEIR if roles.id == "_id" else JSONL) if form != JSONL else None,
        ids=lines.ids,
    )


def _found_roles(columns: Columns, options: CorpusOptions) -> Roles:
    """Return the roles of the fields; later records may have a title even if the first have none."""
    roles = find_roles(columns, options)
    if roles.title is None and options.title_field is None and "title" not in columns.names:
        return Roles(id=roles.id, text=roles.text)
    return roles


def _promised_roles(options: CorpusOptions, names: tuple[str, ...], id_field: str | None) -> Roles:
    """Return the fields of a given format, which promises their names.

    A file of bad rows only, as rejects are, then gives them row by row.
    """
    text = text_columns(options.text_field, names) if options.text_field else ("text",)
    title = "title" if options.title_field is None and "title" not in text else options.title_field
    return Roles(id=id_field if options.id_field is None else options.id_field or None, text=text, title=title or None)


def _json_id(names: tuple[str, ...], options: CorpusOptions) -> str:
    if options.format == BEIR or (options.format is None and "id" not in names and "_id" in names):
        return "_id"
    return "id"


def _quoted_names(probe: list[bytes]) -> tuple[str, ...]:
    """Return the id fields that the first record seems to name; for files whose first rows are all bad or too large."""
    begin = probe[0][:_GLIMPSE_BYTES] if probe else b""
    return tuple(name for name in ("id", "_id") if f'"{name}"'.encode() in begin)


def _parse(line: bytes) -> Any:
    try:
        return _DECODER.decode(decode_utf8(line))
    except json.JSONDecodeError as err:
        raise DocumentError(f"invalid JSON at character {err.pos}: {err.msg}; expected a JSON object") from err
    except RecursionError as err:
        raise DocumentError("invalid JSON: nested too deeply") from err
    except ValueError as err:  # from _refuse_constant, and Python's limit on the digits of an integer
        raise DocumentError(f"invalid JSON: {err}") from err


def _objects(probe: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for record in probe:
        try:
            yield parse_object(record)
        except DocumentError:  # the reader rejects this row when it gets there
            continue


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DocumentError(f'"{twice:.60}" occurs twice in one object; keep one')
    return fields


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)


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


def open_jsonl(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first lines, and its rows in order; blank lines are skipped.

    An object of several lines, or the only one of the file, may hold an array of records, which is opened as json.
    """
    first, blank = take_first_line(lines)
    probe = take_probe(lines, first)
    is_records = options.format is None and not _is_lines(probe) and holds_records(b"".join(probe))
    if options.format is None and not is_records and first.strip() == b"{":
        raise CorpusError(
            f"{lines.path}: holds JSON objects over several lines; expected one object a line, or an array: "
            f"jq -c . {lines.path}"
        )
    source = None if is_records else json_source(JSONL, lines, probe, options)
    lines.push_back(blank + b"".join(probe), 0)
    return open_json(lines, options) if source is None else (source, _read_lines(lines, source))


# A file of either is opened as JSON Lines, which tells BEIR by its field _id.
LINE_FORMATS = (
    TextFormat(name=JSONL, matches=lambda first_line: first_line.lstrip()[:1] == b"{", open=open_jsonl),
    TextFormat(name=BEIR, matches=lambda first_line: False, open=open_jsonl),
)


def _is_lines(probe: list[bytes]) -> bool:
    """Return whether the first line is a whole object, and not the only one."""
    try:
        parse_object(probe[0])
    except DocumentError:
        return False
    return any(not line.isspace() for line in probe[1:])


def _read_lines(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    roles = source.roles
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif not line.isspace():
            yield read_record(lines.location, line, source, roles)


_BEGIN_BYTES = 2**20
# A string or comment that is not closed runs to the end, so that each character is looked at once.
_STRING = r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
# Of an object around an array of records, the array is at least this share.
_RECORDS_SHARE = 0.5


def holds_rows(file: Input) -> bool:
    """Return whether a .json file of a folder holds rows; False where it is a text.

    Raises:
        CorpusError: It is no JSON, also without comments, such as a file that was cut short.

    """
    begin = _read_begin(file)
    try:
        text = begin[:_BEGIN_BYTES].decode("utf-8-sig")
    except UnicodeDecodeError:
        return len(begin) <= _BEGIN_BYTES or _begins_rows(begin)
    if len(begin) > _BEGIN_BYTES:
        return _begins_rows(begin)
    try:
        return _are_rows(json.loads(text), text)
    except RecursionError:
        return False
    except ValueError as err:
        if _is_object(text.lstrip().partition("\n")[0]) or text.lstrip().startswith("["):
            return not _is_commented(text)
        if _is_commented(text):
            return False
        if not isinstance(err, json.JSONDecodeError):
            raise CorpusError(f"{file.name}: expected JSON: {err}") from err
        at = f"line {err.lineno}, column {err.colno}"
        raise CorpusError(
            f"{file.name}:{err.lineno}: expected JSON, got what is damaged or cut at {at}: {err.msg}"
        ) from err


def _read_begin(file: Input) -> bytes:
    """Return the first bytes of a file, decompressed; it is read from its beginning after that."""
    try:
        with file.stream() as stream:
            begin = stream.read(_BEGIN_BYTES + 1)
        file.rewind()
    except (OSError, EOFError) as err:
        raise CorpusError(f"{file.name}: cannot be read: {err}") from err
    return begin


def _begins_rows(begin: bytes) -> bool:
    """Return whether the beginning of a large file is that of JSON Lines, or of an array of records."""
    return _is_object(begin.partition(b"\n")[0].decode(errors="replace")) or holds_records(begin)


def _are_rows(value: Any, text: str) -> bool:
    if isinstance(value, list):
        return not value or isinstance(value[0], dict | str)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("text"), str) and "\n" not in text.strip():
        return True  # JSON Lines of one document
    if any(name.casefold() in RECORD_FIELDS for name in value):
        return False
    arrays = [one for one in value.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
    return len(arrays) == 1 and len(json.dumps(arrays[0])) >= _RECORDS_SHARE * len(json.dumps(value))


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_commented(text: str) -> bool:
    """Return whether it is JSON once comments and last commas are taken away, as settings of editors have them."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or " ", text)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
