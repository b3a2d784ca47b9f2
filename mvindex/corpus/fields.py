"""Helpers that all formats share: decode text, make documents from fields, reject rows that are too large."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from mvindex.corpus.lines import Lines
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.rows import Reject, Source
from mvindex.errors import DocumentError
from mvindex.records import Document, ViewText, require_text

METADATA = "metadata"
VIEW_TEXTS = "view_texts"
_SHOWN_NAMES = 20
_SHOWN_CHARS = 40
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


def document_of(fields: Mapping[str, Any], source: Source) -> Document:
    """Return the document that the fields of one JSON object or Parquet row make; raise DocumentError for a bad row.

    A null text or title is empty; "view_texts" are strings or objects of text and span; fields without a role become
    metadata.
    """
    title_field = source.title_field
    doc_id = _read_id(fields, source.id_field)
    text = _read_text(fields, source.text_field)
    title = "" if title_field is None else _read_text(fields, title_field)
    taken = (source.id_field, source.text_field, title_field, METADATA, VIEW_TEXTS)
    extra = {name: value for name, value in fields.items() if name not in taken}
    metadata = _merge_metadata(fields.get(METADATA), extra)
    return require_text(Document(doc_id, text, title, metadata, _read_view_texts(fields.get(VIEW_TEXTS))))


def reject_oversize(lines: Lines, begin: bytes) -> Reject:
    """Return the reject of the line that begins with `begin`; the rest of its raw bytes is read on demand."""
    reason = f"the row is over {lines.max_bytes:,} bytes (max_row_bytes)"
    return Reject(lines.location, reason, itertools.chain((begin,), lines.rest(lines.number)))


def json_name(value: object) -> str:
    """Return what JSON calls a value of this type."""
    return _JSON_NAMES.get(type(value), "a number")


def _read_id(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        raise DocumentError(f'no field "{name}"; the row has {", ".join(fields) or "none"}')
    value = fields[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DocumentError(f'"{name}" is {json_name(value)}; expected a string or an integer')


def _read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise DocumentError(f'"{name}" is {json_name(value)}; expected a string')


def _read_view_texts(value: object) -> tuple[str | ViewText, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DocumentError(f'"{VIEW_TEXTS}" is {json_name(value)}; expected an array')
    return tuple(_read_view_text(item) for item in value)


def _read_view_text(item: object) -> str | ViewText:
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and isinstance(item.get("text"), str) and item.keys() <= {"text", "span"}:
        span = item.get("span")
        if span is None or isinstance(span, list):
            return ViewText(item["text"], None if span is None else tuple(span))
    raise DocumentError(f'"{VIEW_TEXTS}": expected strings, or objects of text and span, got {item!r:.80}')


def _merge_metadata(metadata: object, extra: dict[str, Any]) -> dict[str, Any]:
    if metadata is None:
        return extra
    if not isinstance(metadata, dict):
        raise DocumentError(f'"{METADATA}" is {json_name(metadata)}; expected an object')
    for name in extra:
        if name in metadata:
            raise DocumentError(f'"{name}" occurs both beside "{METADATA}" and in it; keep one')
    return {**metadata, **extra}


def title_column(columns: tuple[str, ...], options: CorpusOptions) -> str | None:
    """Return the column of titles: the one named by the options, else "title" where it exists, else None."""
    if options.title_field is None:
        return "title" if "title" in columns else None
    return options.title_field or None


def missing_field(path: str, kind: str, name: str, columns: tuple[str, ...]) -> str:
    """Return the message for a column or field (`kind`) that the file does not have."""
    return (
        f'{path}: has no {kind} "{name}" ({kind}s: {list_names(columns)}); '
        "name the right ones with --id-field, --text-field and --title-field"
    )


def list_names(names: tuple[str, ...]) -> str:
    """Join the names, shortened where a row of text is in their place."""
    shown = [name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "..." for name in names[:_SHOWN_NAMES]]
    return ", ".join(shown + ["..."] * (len(names) > _SHOWN_NAMES))
