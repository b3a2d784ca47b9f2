"""Rows of a text corpus as a plain second reader sees them: slow, line by line, with Python's own csv and json."""

import csv
import io
import json
import math
import re
import unicodedata
from typing import NamedTuple

from fuzz_parts.target import require

BOM = b"\xef\xbb\xbf"
_DEEP = 100
_LINE_END = re.compile(rb"\n")


class Fields(NamedTuple):
    """The fields of a row."""

    id: str
    text: str
    title: str
    metadata: dict


class Item(NamedTuple):
    """A row or reject of the reader: its line, its bytes, its fields (None for a reject) and why it is bad."""

    line: int
    raw: bytes
    fields: Fields | None
    reason: str


class Unsure(Exception):
    """This reader cannot tell either, as where Python's own limit on nesting is near."""


def check_lines(content: bytes, items: list[Item], source, is_whole: bool) -> None:
    """Check that each byte of the content is in one item, or in a line that may be left out.

    Left out may be: a byte order mark, the header and its repeats, blank lines of JSON, and of TSV those that begin or
    end the file. is_whole: the reader came to the end.
    """
    begin = len(BOM) if content.startswith(BOM) else 0
    starts = [0, *(found.end() for found in _LINE_END.finditer(content))]
    done = begin
    for number, item in enumerate(items):
        start = max(starts[item.line - 1], begin)
        require(done <= start, "item", item, "begins before the last one ends, at", done)
        require(content[start : start + len(item.raw)] == item.raw, "item", item, "is not what the file has there")
        _check_skipped(content[done:start], source, is_first=number == 0, is_last=False)
        done = start + len(item.raw)
        require(item.raw.endswith(b"\n") or done == len(content), "item", item, "ends in a line")
    if is_whole:
        _check_skipped(content[done:], source, is_first=not items, is_last=True)


def _check_skipped(skipped: bytes, source, *, is_first: bool, is_last: bool) -> None:
    lines = io.BytesIO(skipped).readlines()
    if source.format in ("beir", "jsonl"):
        require(all(line.isspace() for line in lines), "lines left out:", lines)
        return
    while is_first and source.header and lines and lines[0].isspace():
        lines.pop(0)
    while is_last and lines and lines[-1] in (b"\n", b"\r\n", b"\r"):
        lines.pop()
    header = source.header and source.header.removesuffix(b"\n")
    require(all(_body(line) == header for line in lines), "lines left out:", lines)


def _body(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def check_row(item: Item, source, max_bytes: int) -> None:
    """Check that a plain reading of the item's bytes gives the same fields, or also finds none."""
    is_json = source.format in ("beir", "jsonl")
    raw = item.raw
    if len(raw) - raw.endswith(b"\n") > max_bytes:
        require(item.fields is None, "a row of over", max_bytes, "bytes was taken:", item)
        return
    try:
        expected = plain_json(raw, source) if is_json else plain_cells(raw, source)
    except Unsure:
        return
    require(item.fields == expected, "read as", item.fields, item.reason, "; plainly it is", expected)


def plain_cells(raw: bytes, source) -> Fields | None:
    """The fields of a tab-separated row; None for one that is bad."""
    is_quoted = source.format == "dpr" and b'"' in raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if is_quoted and b"\r" in raw.removesuffix(b"\n").removesuffix(b"\r"):
        raise Unsure  # csv takes a lone one for the end of a row
    body = text.removesuffix("\n").removesuffix("\r")
    cells = _csv_cells(body) if is_quoted else body.split("\t")
    if cells is None or len(cells) != len(source.columns):
        return None
    named = dict(zip(source.columns, cells, strict=True))
    title = "" if source.title_field is None else named[source.title_field]
    taken = (source.id_field, source.text_field, source.title_field)
    metadata = {name: cell for name, cell in named.items() if name not in taken}
    return _checked(Fields(named[source.id_field], named[source.text_field], title, metadata))


def _csv_cells(body: str) -> list[str] | None:
    try:
        rows = list(csv.reader(io.StringIO(body, newline=""), delimiter="\t", strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def plain_json(raw: bytes, source) -> Fields | None:
    """Return the fields of a JSON row; None for a bad one."""
    if max(raw.count(b"["), raw.count(b"{")) > _DEEP:
        raise Unsure
    try:
        row = _DECODER.decode(raw.decode())
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    doc_id = row.get(source.id_field)
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    text, title = (row.get(name) if name else "" for name in (source.text_field, source.title_field))
    text, title = "" if text is None else text, "" if title is None else title
    nested = row.get("metadata")
    nested = {} if nested is None else nested
    taken = (source.id_field, source.text_field, source.title_field, "metadata")
    extra = {name: value for name, value in row.items() if name not in taken}
    if not isinstance(nested, dict) or set(nested) & set(extra):
        return None
    return _checked(Fields(doc_id, text, title, {**nested, **extra}))


def _unique(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _refuse(name):
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


def _checked(fields: Fields) -> Fields | None:
    """Return the fields if they may be a document, else None."""
    strings = fields[:3]
    if not all(isinstance(value, str) and _is_text(value) for value in strings):
        return None
    if not fields.id.strip() or len(fields.id) > 1024 or any(unicodedata.category(c) == "Cc" for c in fields.id):
        return None
    if not any(unicodedata.category(char)[0] not in "ZC" for char in fields.text + fields.title):
        return None
    return fields if _is_json_value(fields.metadata) else None


def _is_json_value(value) -> bool:
    if isinstance(value, dict):
        return all(_is_text(name) and _is_json_value(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json_value, value))
    return _is_text(value) if isinstance(value, str) else not isinstance(value, float) or math.isfinite(value)


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
