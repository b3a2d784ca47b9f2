"""How a text file is read: its format and fields, found from its first lines or as they are given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mvindex.corpus.cells import QuotedCells
from mvindex.corpus.fields import METADATA
from mvindex.corpus.foreign import refuse_foreign
from mvindex.corpus.jsonl import parse_object
from mvindex.corpus.lines import Lines, without_line_end
from mvindex.corpus.options import CorpusFormat, CorpusOptions
from mvindex.corpus.rows import Source
from mvindex.errors import CorpusError, DocumentError

_BOM = b"\xef\xbb\xbf"
_JSON_FORMATS = (CorpusFormat.JSONL, CorpusFormat.BEIR)
_PROBE_LINES = 100
_PROBE_BYTES = 2**20
_GLIMPSE_BYTES = 1000
_MAX_HEADER_CELLS = 10_000
_SHOWN_NAMES = 20
_SHOWN_CHARS = 40
_ID_NAMES = frozenset(
    "#id _id did doc_id docid docno document_id guid id key passage_id passageid pid uid uuid".split()
)
_WORD = re.compile(r"[^\W\d][\w.#-]*")
_HEADING = re.compile(r"[^\W\d][\w.#-]*( [\w.#-]+){0,2}")


def detect(lines: Lines, options: CorpusOptions) -> Source:
    """How to read the file whose lines these are; the header is taken from them, every row is left in place.

    Raises CorpusError when the file is empty, is none of the text formats, or lacks a column it must have.
    """
    first, blank = _first_line(lines)
    refuse_foreign(lines.path, first)
    if options.format is CorpusFormat.PARQUET:
        raise CorpusError(f"{lines.path}: is not a Parquet file (those begin with PAR1)")
    if _is_json(first, options.format):
        probe = _probe_lines(lines, first)
        source = _json_source(lines.path, probe, options)
        lines.push_back(blank + b"".join(probe), 0)
        return source
    cells = _split_header(first)
    if _has_header(lines.path, first, cells, options):
        return _header_source(lines, first, cells, options)
    lines.push_back(blank + first, 0)
    return Source(
        path=lines.path,
        format=CorpusFormat.MSMARCO,
        is_detected=options.format is None,
        id_field="id",
        text_field="text",
        title_field=None,
        columns=("id", "text"),
    )


def _first_line(lines: Lines) -> tuple[bytes, bytes]:
    """The first line that is not blank, without a byte order mark; and the blank ones before it."""
    blank, line = bytearray(), lines.take().removeprefix(_BOM)
    while line.isspace() and not lines.is_cut:
        blank += line
        if len(blank) > _PROBE_BYTES:
            raise CorpusError(f"{lines.path}: begins with over {_PROBE_BYTES:,} bytes of blank lines: no documents")
        line = lines.take()
    if not line:
        raise CorpusError(f"{lines.path}: is empty: no documents")
    return line, bytes(blank)


def _is_json(first: bytes, given: CorpusFormat | None) -> bool:
    return given in _JSON_FORMATS if given else first.lstrip()[:1] in (b"{", b"[")


def _probe_lines(lines: Lines, first: bytes) -> list[bytes]:
    """The first lines, as many as are needed to see a file's fields even if some rows are bad."""
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
        _refuse_spread_json(path, probe[0])
    objects = list(_parse_all(probe))
    columns = tuple(dict.fromkeys(name for fields in objects for name in fields))
    id_field = options.id_field or _json_id(columns or _quoted_names(probe[0]), options)
    file_format = options.format or (CorpusFormat.BEIR if id_field == "_id" else CorpusFormat.JSONL)
    source = Source(
        path=path,
        format=file_format,
        is_detected=options.format is None,
        id_field=id_field,
        text_field=options.text_field or "text",
        title_field=("title" if options.title_field is None else options.title_field) or None,
        columns=tuple(name for name in columns if name != METADATA),
    )
    # A given format promises the names, so that a file of bad rows alone, as rejects are, gives them row by row.
    if objects and options.format is None:
        _refuse_missing_fields(source, options)
    return source


def _refuse_spread_json(path: str, first: bytes) -> None:
    begin = first.strip()
    if begin.startswith(b"["):
        raise CorpusError(f"{path}: is a JSON array; wanted one object a line: jq -c '.[]' {path}")
    if begin == b"{":
        raise CorpusError(f"{path}: holds JSON objects over several lines; wanted one object a line: jq -c . {path}")


def _parse_all(probe: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in probe:
        try:
            yield parse_object(line)
        except DocumentError:  # the reader rejects this row when it gets there
            continue


def _quoted_names(first: bytes) -> tuple[str, ...]:
    """The id fields that the beginning of a line seems to name; for files whose first rows are all bad or too large."""
    return tuple(name for name in ("id", "_id") if f'"{name}"'.encode() in first[:_GLIMPSE_BYTES])


def _json_id(columns: tuple[str, ...], options: CorpusOptions) -> str:
    if options.format is CorpusFormat.BEIR or (options.format is None and "id" not in columns and "_id" in columns):
        return "_id"
    return "id"


def _refuse_missing_fields(source: Source, options: CorpusOptions) -> None:
    """Stop where no row at all has a field: its name is another one, and the rows would lose their text."""
    wanted = [source.id_field]
    if options.text_field or source.metadata_columns:
        wanted.append(source.text_field)
    if options.title_field:
        wanted.append(options.title_field)
    for name in wanted:
        if name not in source.columns:
            raise CorpusError(missing_field(source.path, "field", name, source.columns))


def _split_header(first: bytes) -> tuple[str, ...]:
    row = QuotedCells(_MAX_HEADER_CELLS)
    try:
        row.feed(first)
        cells = row.cells if not row.is_open else without_line_end(first).split(b"\t")
    except DocumentError:  # no header, then: a first row that is not quoted csv
        cells = without_line_end(first).split(b"\t")
    return tuple(cell.decode(errors="replace").strip() for cell in cells)


def _has_header(path: str, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> bool:
    """True for DPR's header, False for rows of two columns without one; CorpusError for anything else."""
    if options.format:
        return options.format is CorpusFormat.DPR
    if options.names_fields or {"id", "text"} <= set(cells):
        return True
    num_columns = first.count(b"\t") + 1
    if num_columns == 1:
        commas = "; comma-separated files are not read, write it with tabs" if b"," in first else ""
        raise CorpusError(f"{path}: has no tab and no JSON object in its first line; give --format if it has{commas}")
    if _looks_like_header(cells):
        raise CorpusError(
            f'{path}: the first line looks like a header without "id" and "text" (columns: {_list(cells)}); '
            "name them with --id-field and --text-field, or give --format msmarco if it is a document"
        )
    if num_columns != 2 or " " in cells[0]:
        raise CorpusError(
            f"{path}: has no header, and its {num_columns} columns are not an id and a text (columns: {_list(cells)}); "
            "add a first line that names them, id and text and title with tabs between, or give --format"
        )
    return False


def _looks_like_header(cells: tuple[str, ...]) -> bool:
    """True when the cells read like names of columns. In doubt it is a header: a header read as a document stays."""
    if cells[0].casefold() in _ID_NAMES:
        return True
    if not all(len(cell) <= 40 and _HEADING.fullmatch(cell) for cell in cells):
        return False
    # The first cell of a row is an id, which mostly has a digit (n00001740, doc-7); the name of a column rarely has.
    return bool(_WORD.fullmatch(cells[0])) and not any(char.isdigit() for char in cells[0])


def _header_source(lines: Lines, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> Source:
    source = Source(
        path=lines.path,
        format=CorpusFormat.DPR,
        is_detected=options.format is None,
        id_field=options.id_field or "id",
        text_field=options.text_field or "text",
        title_field=title_column(cells, options),
        columns=cells,
        header=without_line_end(first) + b"\n",
    )
    _check_header(source)
    if lines.is_cut:
        raise CorpusError(f"{lines.place}: the header is over {lines.max_bytes:,} bytes (max_row_bytes)")
    return source


def title_column(columns: tuple[str, ...], options: CorpusOptions) -> str | None:
    """The column that holds titles: the one named, else "title" where it exists, None for none."""
    if options.title_field is None:
        return "title" if "title" in columns else None
    return options.title_field or None


def _check_header(source: Source) -> None:
    for name in (source.id_field, source.text_field, source.title_field):
        if name is not None and name not in source.columns:
            raise CorpusError(missing_field(source.path, "column", name, source.columns))
    if len(set(source.columns)) < len(source.columns) or "" in source.columns:
        raise CorpusError(
            f"{source.path}: every column of the header needs a name of its own (columns: {_list(source.columns)})"
        )


def missing_field(path: str, kind: str, name: str, columns: tuple[str, ...]) -> str:
    """The message for a column or field (kind) that the file does not have."""
    return (
        f'{path}: has no {kind} "{name}" ({kind}s: {_list(columns)}); '
        "name the right ones with --id-field, --text-field and --title-field"
    )


def _list(names: tuple[str, ...]) -> str:
    """The names, cut where a row of text stands in for them."""
    shown = [name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "..." for name in names[:_SHOWN_NAMES]]
    return ", ".join(shown + ["..."] * (len(names) > _SHOWN_NAMES))
