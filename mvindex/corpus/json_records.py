"""Records of JSON: an object, or a string as a text; in lines or in an array."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from mvindex.corpus.lines import Lines, decode_utf8, document_of, json_name
from mvindex.corpus.rows import (
    METADATA,
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
from mvindex.errors import DocumentError

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
    return Source(
        path=lines.path,
        format=options.format or (BEIR if form == JSONL and roles.id == "_id" else form),
        is_detected=options.format is None,
        id_field=roles.id,
        text_field=roles.text[0],
        more_text_fields=roles.text[1:],
        title_field=roles.title,
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
