"""JSON Lines: one object a line, with `id` (jsonl) or `_id` (beir)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from mvindex.corpus.fields import METADATA, decode_utf8, document_of, json_name, missing_field, reject_oversize
from mvindex.corpus.formats import TextFormat
from mvindex.corpus.lines import Lines, take_first_line
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.rows import Reject, Row, Source
from mvindex.errors import CorpusError, DocumentError

JSONL = "jsonl"
BEIR = "beir"
_PROBE_LINES = 100
_PROBE_BYTES = 2**20
_GLIMPSE_BYTES = 1000


def open_jsonl(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first lines, and its rows in order; blank lines are skipped."""
    first, blank = take_first_line(lines)
    probe = _probe_lines(lines, first)
    source = _json_source(lines.path, probe, options)
    lines.push_back(blank + b"".join(probe), 0)
    return source, _read_rows(lines, source)


def is_json(first_line: bytes) -> bool:
    """Return whether the line begins an object or an array."""
    return first_line.lstrip()[:1] in (b"{", b"[")


# A file of either is opened as JSON Lines, which tells BEIR by its field _id.
FORMATS = (
    TextFormat(name=JSONL, matches=is_json, open=open_jsonl),
    TextFormat(name=BEIR, matches=lambda first_line: False, open=open_jsonl),
)


def _read_rows(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif not line.isspace():
            yield _read_row(lines, line, source)


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of the line; raise DocumentError for none, NaN, Infinity, or a field that occurs twice."""
    try:
        value = _DECODER.decode(decode_utf8(line))
    except json.JSONDecodeError as err:
        raise DocumentError(f"invalid JSON at character {err.pos}: {err.msg}; expected a JSON object") from err
    except RecursionError as err:
        raise DocumentError("invalid JSON: nested too deeply") from err
    except ValueError as err:  # from _refuse_constant, and Python's limit on the digits of an integer
        raise DocumentError(f"invalid JSON: {err}") from err
    if not isinstance(value, dict):
        raise DocumentError(f"the row is {json_name(value)}; expected an object, one a line")
    return value


def _read_row(lines: Lines, line: bytes, source: Source) -> Row | Reject:
    try:
        return Row(lines.location, document_of(parse_object(line), source), line)
    except DocumentError as err:
        return Reject(lines.location, str(err), (line,))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DocumentError(f'"{twice}" occurs twice in one object; keep one')
    return fields


def _probe_lines(lines: Lines, first: bytes) -> list[bytes]:
    """Take the first lines, enough to see a file's fields even if some rows are bad."""
    probe, num_bytes = [first], len(first)
    while len(probe) < _PROBE_LINES and num_bytes < _PROBE_BYTES:
        # A line that was cut off must stay the last one taken, so that its rest can still be read.
        if lines.is_cut or not (line := lines.take()):
            break
        probe.append(line)
        num_bytes += len(line)
    return probe


def _json_source(path: str, probe: list[bytes], options: CorpusOptions) -> Source:
    if options.format is None:
        _reject_spread_json(path, probe[0])
    objects = list(_parse_all(probe))
    columns = tuple(dict.fromkeys(name for fields in objects for name in fields))
    id_field = options.id_field or _json_id(columns or _quoted_names(probe[0]), options)
    file_format = options.format or (BEIR if id_field == "_id" else JSONL)
    source = Source(
        path=path,
        format=file_format,
        is_detected=options.format is None,
        id_field=id_field,
        text_field=options.text_field or "text",
        title_field=("title" if options.title_field is None else options.title_field) or None,
        columns=tuple(name for name in columns if name != METADATA),
    )
    # A given format promises the names, so that a file of bad rows only, as rejects are, gives them row by row.
    if objects and options.format is None:
        _reject_missing_fields(source, options)
    return source


def _reject_spread_json(path: str, first: bytes) -> None:
    begin = first.strip()
    if begin.startswith(b"["):
        raise CorpusError(f"{path}: is a JSON array; expected one object a line: jq -c '.[]' {path}")
    if begin == b"{":
        raise CorpusError(f"{path}: holds JSON objects over several lines; expected one object a line: jq -c . {path}")


def _parse_all(probe: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in probe:
        try:
            yield parse_object(line)
        except DocumentError:  # the reader rejects this row when it gets there
            continue


def _quoted_names(first: bytes) -> tuple[str, ...]:
    """Return the id fields that a line seems to name; for files whose first rows are all bad or too large."""
    return tuple(name for name in ("id", "_id") if f'"{name}"'.encode() in first[:_GLIMPSE_BYTES])


def _json_id(columns: tuple[str, ...], options: CorpusOptions) -> str:
    if options.format == BEIR or (options.format is None and "id" not in columns and "_id" in columns):
        return "_id"
    return "id"


def _reject_missing_fields(source: Source, options: CorpusOptions) -> None:
    """Raise CorpusError where no row has a field: it has another name, and the rows would lose their text."""
    needed = [source.id_field]
    if options.text_field or source.metadata_columns:
        needed.append(source.text_field)
    if options.title_field:
        needed.append(options.title_field)
    for name in needed:
        if name not in source.columns:
            raise CorpusError(missing_field(source.path, "field", name, source.columns))


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)
