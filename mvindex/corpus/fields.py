"""Helpers that all formats share: decode text, make documents from fields, reject rows that are too large."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from mvindex.corpus.ids import FileIds, content_id
from mvindex.corpus.lines import Lines
from mvindex.corpus.roles import METADATA, VIEW_TEXTS, Roles, list_names
from mvindex.corpus.row_texts import cell_text, place_row, row_text
from mvindex.corpus.rows import Reject
from mvindex.errors import DocumentError
from mvindex.records import MAX_ID_CHARS, Document, ViewText, require_text, short_repr

_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def decode_utf8(raw: bytes) -> str:
    """Decode UTF-8; raise DocumentError with the position of the first byte that is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as err:
        raise DocumentError(
            f"invalid UTF-8 at byte {err.start} of the row (0x{raw[err.start]:02x}); "
            "convert the file, for example: iconv -f latin1 -t utf-8"
        ) from err


def document_of(fields: Mapping[str, Any], roles: Roles, ids: FileIds | None = None, number: int = 0) -> Document:
    """Return the document that the fields of a JSON object or a row of a table make; DocumentError for a bad row.

    A null text or title is empty; "view_texts" are strings or objects of text and span; fields without a role become
    metadata.

    Args:
        fields: The values by name.
        roles: Which of them are id, text and title.
        ids: Makes the ids of the file; None for rows of no file.
        number: The number of the row, or of its line.

    """
    metadata = _merge_metadata(fields.get(METADATA), {n: value for n, value in fields.items() if n not in roles.taken})
    if roles.is_row:
        title = "" if roles.title is None else cell_text(fields.get(roles.title))
        text = row_text((name, value) for name, value in fields.items() if name not in (METADATA, VIEW_TEXTS))
        metadata = metadata if ids is None else place_row(metadata, file=ids.file, line=number)
    else:
        title = "" if roles.title is None else _read_text(fields, roles.title)
        text = roles.join_text([_read_text(fields, name) for name in roles.text])
    if roles.id is None:
        doc_id = (ids and ids.of_row(number)) or content_id(title, text)
    else:
        doc_id = _read_id(fields, roles.id) if ids is None else ids.of_key(_read_id(fields, roles.id))
    return require_text(Document(doc_id, text, title, metadata, _read_view_texts(fields.get(VIEW_TEXTS))))


def reject_oversize(lines: Lines, begin: bytes) -> Reject:
    """Return the reject of the line that begins with `begin`; the rest of its raw bytes is read on demand."""
    reason = f"the row is over {lines.max_bytes:,} bytes (max_row_bytes)"
    return Reject(lines.location, reason, itertools.chain((begin,), lines.rest(lines.number)))


def json_name(value: object) -> str:
    """Return what JSON calls a value of this type."""
    return "a number" if type(value) in (int, float) else _JSON_NAMES.get(type(value), type(value).__name__)


def _wrong(name: str, value: object, expected: str) -> DocumentError:
    got = "" if value is None else f", got {short_repr(value)}"
    return DocumentError(f'"{name}" is {json_name(value)}; expected {expected}{got}')


def _read_id(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        raise DocumentError(f'no field "{name}"; the row has {list_names(tuple(fields)) or "none"}')
    value = fields[name]
    if isinstance(value, str):
        return value
    # Python refuses to write integers far longer than an id.
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 4 * MAX_ID_CHARS:
        return str(value)
    raise _wrong(name, value, "a string or an integer")


def _read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _wrong(name, value, "a string")


def _read_view_texts(value: object) -> tuple[str | ViewText, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple | np.ndarray):
        raise DocumentError(f'"{VIEW_TEXTS}" is {json_name(value)}; expected an array')
    return tuple(_read_view_text(item) for item in value)


def _read_view_text(item: object) -> str | ViewText:
    if isinstance(item, str | ViewText):
        return item
    if isinstance(item, dict) and isinstance(item.get("text"), str) and item.keys() <= {"text", "span"}:
        span = item.get("span")
        if span is None or isinstance(span, list | np.ndarray):
            return ViewText(item["text"], None if span is None else tuple(span))
    raise DocumentError(f'"{VIEW_TEXTS}": expected strings, or objects of text and span, got {short_repr(item)}')


def _merge_metadata(metadata: object, extra: dict[str, Any]) -> dict[str, Any]:
    if metadata is None:
        return extra
    if not isinstance(metadata, Mapping):
        raise _wrong(METADATA, metadata, "an object")
    for name in extra:
        if name in metadata:
            raise DocumentError(f'"{name:.60}" occurs both beside "{METADATA}" and in it; keep one')
    return {**metadata, **extra}
