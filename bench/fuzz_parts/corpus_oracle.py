"""Rows of a text corpus as a plain second reader sees them: slow, line by line, with Python's own csv and json."""

import csv
import io
import json
import math
import re
import unicodedata
from typing import NamedTuple

import xxhash

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


def check_lines(content: bytes, items: list[Item], source, max_bytes: int, *, is_whole: bool) -> None:
    """Check that each byte of the content is in one item, or in a line that may be left out.

    Left out may be: a byte order mark, the header and its repeats, blank lines of JSON, and of TSV those that begin or
    end the file. is_whole: the reader came to the end.
    """
    begin = 0
    if _ends_at_returns(content, max_bytes):
        content = content.replace(b"\r", b"\n")
    while content.startswith(BOM, begin):  # as joined files have them
        begin += len(BOM)
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


def _ends_at_returns(content: bytes, max_bytes: int) -> bool:
    """Return whether a lone carriage return ends a line, as on an old Mac; a line that is too long does not tell."""
    first = next((line for line in io.BytesIO(content.removeprefix(BOM)) if not line.isspace()), b"")
    begin, *rest = first.rstrip(b"\r").split(b"\r")
    return (
        len(first) <= max_bytes
        and b"\n" not in first
        and bool(rest)
        and (b"\t" not in begin or all(b"\t" in part for part in rest))
    )


def _check_skipped(skipped: bytes, source, *, is_first: bool, is_last: bool) -> None:
    lines = io.BytesIO(skipped).readlines()
    if source.format == "csv":
        _check_skipped_cells(lines, source)
        return
    if source.format in ("beir", "jsonl"):
        require(all(line.isspace() for line in lines), "lines left out:", lines)
        return
    while is_first and source.header and lines and lines[0].isspace():
        lines.pop(0)
    while is_last and lines and lines[-1] in (b"\n", b"\r\n", b"\r"):
        lines.pop()
    header = source.header and source.header.removesuffix(b"\n")
    require(all(_body(line) == header for line in lines), "lines left out:", lines)


def _check_skipped_cells(lines: list[bytes], source) -> None:
    """Check that lines left out of a table are its header, the line of Excel, or rows of empty cells."""
    headers = set(source.header.split(b"\n"))
    empty = frozenset(b'" \t,;|\r' + csv_delimiter(source).encode())
    for line in lines:
        body = _body(line.removeprefix(BOM))
        require(body in headers or set(body) <= empty or body.strip() == b"", "lines left out:", lines)


def csv_delimiter(source) -> str:
    """Return the delimiter that splits the header into as many cells as there are columns."""
    lines = [_body(line) for line in source.header.removesuffix(b"\n").split(b"\n")]
    if len(lines) == 2:
        return lines[0].decode().strip('"')[-1]
    if len(source.columns) == 1:
        return ","
    cells = {one: _csv_cells(lines[0].decode(errors="replace"), one) for one in ",;\t|"}
    return next((one for one, found in cells.items() if found and len(found) == len(source.columns)), "")


def _body(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def check_row(item: Item, source, max_bytes: int) -> None:
    """Check that a plain reading of the item's bytes gives the same fields, or also finds none."""
    is_json = source.format in ("beir", "jsonl", "json")
    raw = item.raw
    if len(raw) - raw.endswith(b"\n") > max_bytes:
        require(item.fields is None, "a row of over", max_bytes, "bytes was taken:", item)
        return
    try:
        expected = plain_json(raw, source, item.line) if is_json else plain_cells(raw, source, item.line)
    except Unsure:
        return
    require(item.fields == expected, "read as", item.fields, item.reason, "; plainly it is", expected)


def plain_cells(raw: bytes, source, line: int) -> Fields | None:
    """The fields of a tab-separated row; None for one that is bad."""
    is_quoted = source.format in ("dpr", "csv") and b'"' in raw
    delimiter = csv_delimiter(source) if source.format == "csv" else "\t"
    if not delimiter:
        raise Unsure
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if is_quoted and b"\r" in raw.removesuffix(b"\n").removesuffix(b"\r"):
        raise Unsure  # csv takes a lone one for the end of a row
    body = text.removesuffix("\n").removesuffix("\r")
    cells = _csv_cells(body, delimiter) if is_quoted else body.split(delimiter)
    if cells is None or len(cells) != len(source.columns):
        return None
    named = dict(zip(source.columns, cells, strict=True))
    title = "" if source.title_field is None else named[source.title_field]
    if source.text_field == "*":
        title = " ".join(title.split())
    kept = {name: cell for name, cell in named.items() if name not in source.left_out}
    text, taken = _text_of(kept, source)
    metadata = {name: cell for name, cell in kept.items() if name not in taken}
    if source.format == "csv":
        metadata = {name: _number(cell, name in source.numbers) for name, cell in metadata.items() if cell}
    doc_id = _made_id(title, text, source, line) if source.id_field is None else named[source.id_field]
    return _checked(Fields(doc_id, text, title, _placed(metadata, source, line)))


def _text_of(fields: dict, source) -> tuple:
    """Return the text of a row, and the names of the fields that are no metadata."""
    if source.text_field != "*":
        return fields.get(source.text_field), (source.id_field, source.text_field, source.title_field)
    if any(isinstance(value, list | dict) for value in fields.values()):
        raise Unsure
    cells = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    shown = [f"{' '.join(name.split())}: {' '.join(cells[name].split())}" for name in cells if _holds(fields[name])]
    if "" in {" ".join(name.split()) for name in cells}:
        raise Unsure
    return "; ".join(shown), (source.id_field,)


def _holds(value) -> bool:
    return value is not None and value != "" and not (isinstance(value, str) and not value.split())


def _placed(metadata: dict, source, line: int) -> dict:
    """Return the metadata of a row of all columns with its file and line."""
    if source.text_field != "*":
        return metadata
    place = ("file", "folder", "folder_path", "line")
    renamed = {f"column_{name}" if name in place else name: value for name, value in metadata.items()}
    return {**renamed, "file": source.ids.file, "line": line}


def _made_id(title: str, text: str, source, line: int) -> str:
    return _content_id(title, text) if source.ids.label is None else f"{source.ids.label}#row-{line}"


def _content_id(title: str, text: str) -> str:
    return xxhash.xxh3_128_hexdigest(f"{title}\n{text}".encode(errors="surrogatepass"))


def _number(cell: str, is_number_column: bool):
    """Return the number that JSON reads in a cell of such a column, the cell where it reads none."""
    if not is_number_column or not cell.strip("-").isascii() or cell != cell.strip():
        return cell
    try:
        value = json.loads(cell, parse_constant=_refuse)
    except ValueError:
        return cell
    is_amount = type(value) in (int, float) and math.isfinite(value) and len(re.match(r"-?(\d*)", cell)[1]) <= 18
    return value if is_amount and not re.search(r"[eE][+-]?\d{4}", cell) else cell


def _csv_cells(body: str, delimiter: str) -> list[str] | None:
    try:
        rows = list(csv.reader(io.StringIO(body, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def plain_json(raw: bytes, source, line: int) -> Fields | None:
    """Return the fields of a JSON row; None for a bad one."""
    if max(raw.count(b"["), raw.count(b"{")) > _DEEP:
        raise Unsure
    try:
        row = _DECODER.decode(raw.decode())
    except ValueError:
        return None
    if isinstance(row, str) and source.id_field is None:
        row = {"text" if source.text_field == "*" else source.text_field: row}
    if not isinstance(row, dict):
        return None
    doc_id = row.get(source.id_field)
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    cells = {name: value for name, value in row.items() if name not in ("metadata", "view_texts")}
    text, own = _text_of(cells if source.text_field == "*" else row, source)
    title = row.get(source.title_field) if source.title_field else ""
    if source.text_field == "*" and title is not None and title != "":
        title = " ".join((title if isinstance(title, str) else json.dumps(title)).split())
    text, title = "" if text is None else text, "" if title is None else title
    if source.id_field is None and isinstance(text, str) and isinstance(title, str):
        doc_id = _made_id(title, text, source, line)
    nested = row.get("metadata")
    nested = {} if nested is None else nested
    taken = (*own, "metadata", "view_texts")
    extra = {name: value for name, value in row.items() if name not in taken}
    if not isinstance(nested, dict) or set(nested) & set(extra):
        return None
    return _checked(Fields(doc_id, text, title, _placed({**nested, **extra}, source, line)))


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
