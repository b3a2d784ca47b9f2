"""What the formats share: bytes -> text, JSON-like fields -> Document, and the reject of a row that is too large."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from mvindex.corpus.lines import Lines
from mvindex.corpus.rows import Reject, Source
from mvindex.errors import DocumentError
from mvindex.records import Document, require_text

METADATA = "metadata"
_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def decode_utf8(raw: bytes) -> str:
    """The bytes as text; DocumentError with the position of the first byte that is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as err:
        raise DocumentError(
            f"invalid UTF-8 at byte {err.start} of the row (0x{raw[err.start]:02x}); "
            "convert the file, for example: iconv -f latin1 -t utf-8"
        ) from err


def document_of(fields: Mapping[str, Any], source: Source) -> Document:
    """The document that the fields of one JSON object or Parquet row make.

    null text or title are empty; fields without a role join the metadata. Raises DocumentError.
    """
    title_field = source.title_field
    doc_id = _read_id(fields, source.id_field)
    text = _read_text(fields, source.text_field)
    title = "" if title_field is None else _read_text(fields, title_field)
    taken = (source.id_field, source.text_field, title_field, METADATA)
    extra = {name: value for name, value in fields.items() if name not in taken}
    return require_text(Document(doc_id, text, title, _merge_metadata(fields.get(METADATA), extra)))


def reject_oversize(lines: Lines, begin: bytes) -> Reject:
    """The reject of the line that `begin` begins; its raw bytes are read on only when they are asked for."""
    reason = f"the row is over {lines.max_bytes:,} bytes (max_row_bytes)"
    return Reject(lines.place, reason, itertools.chain((begin,), lines.rest(lines.number)))


def json_name(value: object) -> str:
    """What JSON calls a value of this kind."""
    return _JSON_NAMES.get(type(value), "a number")


def _read_id(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        raise DocumentError(f'no field "{name}"; the row has {", ".join(fields) or "none"}')
    value = fields[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DocumentError(f'"{name}" is {json_name(value)}; wanted a string or an integer')


def _read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise DocumentError(f'"{name}" is {json_name(value)}; wanted a string')


def _merge_metadata(metadata: object, extra: dict[str, Any]) -> dict[str, Any]:
    if metadata is None:
        return extra
    if not isinstance(metadata, dict):
        raise DocumentError(f'"{METADATA}" is {json_name(metadata)}; wanted an object')
    for name in extra:
        if name in metadata:
            raise DocumentError(f'"{name}" stands beside "{METADATA}" and in it; keep one')
    return {**metadata, **extra}
