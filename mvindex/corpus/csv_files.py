"""Tables with a header of any names: CSV, TSV, and the same with semicolons or pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mvindex.corpus.delimited import (
    MAX_HEADER_CELLS,
    Layout,
    check_names,
    is_number,
    read_rows,
    sample_cells,
    split_header,
)
from mvindex.corpus.formats import TextFormat
from mvindex.corpus.lines import Lines, decode_utf8, take_first_line, take_probe, without_line_end
from mvindex.corpus.rows import (
    ID_NAMES,
    TEXT_NAMES,
    TITLE_NAMES,
    Columns,
    CorpusOptions,
    Reject,
    Row,
    Source,
    find_roles,
    list_names,
    text_columns,
)
from mvindex.errors import CorpusError, DocumentError

CSV = "csv"
_DELIMITERS = (b",", b";", b"\t", b"|")
# Excel reads the delimiter from such a first line, and some programs write it for Excel.
_SEPARATOR_LINE = re.compile(rb'"?sep=([!#-/:-@\[-`{-~\t])"?')
_KNOWN_NAMES = frozenset((*ID_NAMES, *TEXT_NAMES, *TITLE_NAMES))
_MAX_NAME_CHARS = 100
_SENTENCE_ENDS = (".", "!", "?")


def open_csv(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, by its header and first rows, and the rows below the header, in order."""
    first, _ = take_first_line(lines)
    separator = _SEPARATOR_LINE.fullmatch(without_line_end(first))
    header = without_line_end(first) + b"\n"
    if separator:
        first, _ = take_first_line(lines)
        header += without_line_end(first) + b"\n"
    if lines.is_cut:
        raise CorpusError(f"{lines.location}: the header is over {lines.max_bytes:,} bytes (max_row_bytes)")
    delimiter = separator[1] if separator else _find_delimiter(lines, first)
    cells = _header_cells(lines, first, delimiter)
    names = tuple(name or f"column {number}" for number, name in enumerate(cells, start=1))
    sample = _probe_rows(lines, names, delimiter)
    _check_header(lines.path, names, sample, options)
    # A table of pandas begins with such a column: the index, which has no name.
    unnamed = tuple(name for cell, name in zip(cells, names, strict=True) if not cell and _holds_no_texts(sample, name))
    left_out = frozenset(unnamed)
    known = tuple(name for name in names if name not in left_out)
    roles = find_roles(Columns(place=lines.path, kind="column", names=known, sample=lambda: sample), options)
    source = Source(
        path=lines.path,
        format=CSV,
        is_detected=options.format is None,
        id_field=roles.id,
        text_field=roles.text[0],
        more_text_fields=roles.text[1:],
        title_field=roles.title,
        columns=names,
        header=header,
        numbers=tuple(name for name in known if name not in roles.taken and _holds_numbers(sample, name)),
        left_out=unnamed,
        rejects_suffix=".csv",
        ids=lines.ids,
    )
    check_names(source)
    return source, read_rows(lines, source, Layout(delimiter=delimiter, is_sparse=True))


def is_csv(first_line: bytes) -> bool:
    """Return whether a first line is surely a header: with commas, semicolons or pipes, and a name for a text."""
    if _SEPARATOR_LINE.fullmatch(without_line_end(first_line)):
        return True
    rows = (split_header(first_line, delimiter) for delimiter in _DELIMITERS if delimiter != b"\t")
    return any(cells and len(cells) > 1 and _is_known_header(cells) for cells in rows) and b"\t" not in first_line


FORMATS = (TextFormat(name=CSV, matches=is_csv, open=open_csv, suffixes=(".csv",)),)


def _is_known_header(cells: list[bytes]) -> bool:
    names = [cell.decode(errors="replace").strip() for cell in cells]
    return any(name.casefold() in TEXT_NAMES for name in names) and all(map(_may_be_name, names))


def _find_delimiter(lines: Lines, first: bytes) -> bytes:
    """Return the delimiter that splits the header into most cells; a header without any is one column."""
    splits = {delimiter: split_header(first, delimiter) for delimiter in _DELIMITERS if delimiter in first}
    counts = {delimiter: len(cells) for delimiter, cells in splits.items() if cells and not _has_quotes(cells)}
    best = [delimiter for delimiter, count in counts.items() if count == max(counts.values())]
    if len(best) > 1:
        raise CorpusError(
            f"{lines.path}: the header has as many cells with {' as with '.join(repr(one.decode()) for one in best)}; "
            f"name the delimiter in a first line, for example sep={best[0].decode()}"
        )
    return best[0] if best else b","


def _has_quotes(cells: list[bytes]) -> bool:
    return any(b'"' in cell for cell in cells)


def _header_cells(lines: Lines, first: bytes, delimiter: bytes) -> list[str]:
    cells = split_header(first, delimiter)
    if cells is None:
        raise CorpusError(f"{lines.location}: the header has a quote that is not closed in its line; close it there")
    if len(cells) > MAX_HEADER_CELLS:
        raise CorpusError(
            f"{lines.location}: expected a header of at most {MAX_HEADER_CELLS:,} columns, got more; "
            "remove columns, or give the table as JSON Lines"
        )
    try:
        return [decode_utf8(cell).strip() for cell in cells]
    except DocumentError as err:
        raise CorpusError(f"{lines.location}: the header: {err}") from err


def _probe_rows(lines: Lines, names: tuple[str, ...], delimiter: bytes) -> list[dict[str, str]]:
    """Return the first rows, without taking them: of each its cells that are not empty."""
    number, first = lines.number, lines.take()
    if not first:
        return []
    probe = take_probe(lines, first)
    whole = probe[:-1] if lines.is_cut else probe
    rows = [
        {name: cell for name, cell in zip(names, cells, strict=True) if cell}
        for cells in sample_cells(whole, len(names), delimiter)
    ]
    lines.push_back(b"".join(probe), number)
    return [row for row in rows if row]


def _check_header(path: str, names: tuple[str, ...], sample: list[dict[str, str]], options: CorpusOptions) -> None:
    """Raise CorpusError where the first line names no columns: no known ones and none of the options."""
    named = {options.id_field, options.title_field, *text_columns(options.text_field or "", names)}
    if named & set(names) or _KNOWN_NAMES & {name.casefold() for name in names}:
        return
    is_repeated = any(row.get(name) == name for row in sample for name in names)
    if is_repeated or not all(map(_may_be_name, names)):
        raise CorpusError(
            f"{path}: expected a first line that names the columns, got {list_names(names)}; "
            "add one above it, for example id,text,title, or name columns of it with --id-field and --text-field"
        )


def _may_be_name(name: str) -> bool:
    is_sentence = name.endswith(_SENTENCE_ENDS) and " " in name.strip()
    is_word = name.isprintable() and '"' not in name and "//" not in name and not is_number(name)
    return is_word and not is_sentence and len(name) <= _MAX_NAME_CHARS


def _holds_no_texts(sample: list[dict[str, str]], name: str) -> bool:
    return all(is_number(row[name]) for row in sample if name in row)


def _holds_numbers(sample: list[dict[str, str]], name: str) -> bool:
    cells = [row[name] for row in sample if name in row]
    return bool(cells) and all(map(is_number, cells))
