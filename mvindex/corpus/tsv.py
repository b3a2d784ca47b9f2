"""Tab-separated rows: DPR's (a header, csv quoting) and MS MARCO's (two columns, no header, no quoting)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mvindex.corpus.csv_files import open_csv
from mvindex.corpus.delimited import Layout, check_names, read_rows, split_header
from mvindex.corpus.formats import TextFormat
from mvindex.corpus.lines import Lines, take_first_line, without_line_end
from mvindex.corpus.rows import (
    MSMARCO,
    Columns,
    CorpusOptions,
    Reject,
    Roles,
    Row,
    Source,
    check_roles,
    list_names,
    named_roles,
)
from mvindex.errors import CorpusError

DPR = "dpr"
_SUFFIX = ".tsv"
_ID_NAMES = frozenset(
    "#id _id did doc_id docid docno document_id guid id key passage_id passageid pid uid uuid".split()
)
_WORD = re.compile(r"[^\W\d][\w.#-]*")
_HEADING = re.compile(r"[^\W\d][\w.#-]*( [\w.#-]+){0,2}")


def open_tsv(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first line, and the rows below the header, in order.

    A header that is not DPR's makes it a table like any other, which is opened as csv.
    """
    first, blank = take_first_line(lines)
    cells = _split_header(first)
    if options.format is None and _is_table(first, cells, options):
        lines.push_back(blank + first, 0)
        return open_csv(lines, options)
    if _has_header(lines.path, first, cells, options):
        source = _header_source(lines, first, cells, options)
        return source, read_rows(lines, source, Layout())
    lines.push_back(blank + first, 0)
    source = Source(
        path=lines.path,
        format=MSMARCO,
        is_detected=options.format is None,
        id_field="id",
        text_field="text",
        title_field=None,
        columns=("id", "text"),
        rejects_suffix=_SUFFIX,
        ids=lines.ids,
    )
    return source, read_rows(lines, source, Layout(is_quoted=False))


# What no other format matches is opened as DPR's, which tells MS MARCO by its missing header.
FORMATS = (
    TextFormat(name=DPR, matches=lambda first_line: True, open=open_tsv),
    TextFormat(name=MSMARCO, matches=lambda first_line: False, open=open_tsv),
)


def _split_header(first: bytes) -> tuple[str, ...]:
    cells = split_header(first, b"\t")
    cells = without_line_end(first).split(b"\t") if cells is None else cells  # a first row that is not quoted csv
    return tuple(cell.decode(errors="replace").strip() for cell in cells)


def _is_table(first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> bool:
    """Return whether the first line is a header of three columns or more, or of commas where fields are named."""
    if b"\t" not in first:
        return options.names_fields
    is_dpr = options.names_fields or {"id", "text"} <= set(cells)
    return not is_dpr and len(cells) > 2 and _looks_like_header(cells)


def _has_header(path: str, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> bool:
    """Return whether the file has DPR's header, or rows of two columns without one; raise CorpusError otherwise."""
    if options.format:
        return options.format == DPR
    if options.names_fields or {"id", "text"} <= set(cells):
        return True
    num_columns = first.count(b"\t") + 1
    if num_columns == 1:
        commas = "; if they are columns of a table with commas, give --format csv" if b"," in first else ""
        raise CorpusError(f"{path}: has no tab and no JSON object in its first line; give --format if it has{commas}")
    if _looks_like_header(cells):
        raise CorpusError(
            f'{path}: the first line looks like a header without "id" and "text" (columns: {list_names(cells)}); '
            "name them with --id-field and --text-field, or let --format csv guess them; "
            "give --format msmarco if it is a document"
        )
    if num_columns != 2 or " " in cells[0]:
        raise CorpusError(
            f"{path}: has no header, and its {num_columns} columns are not an id and a text "
            f"(columns: {list_names(cells)}); "
            "add a first line that names them, id and text and title with tabs between, or give --format"
        )
    return False


def _looks_like_header(cells: tuple[str, ...]) -> bool:
    """Return whether the cells read like names of columns; in doubt True: a header stored as a document stays."""
    if cells[0].casefold() in _ID_NAMES:
        return True
    if not all(len(cell) <= 40 and _HEADING.fullmatch(cell) for cell in cells):
        return False
    # The first cell of a row is an id, which mostly has a digit (n00001740, doc-7); the name of a column rarely has.
    return bool(_WORD.fullmatch(cells[0])) and not any(char.isdigit() for char in cells[0])


def _header_source(lines: Lines, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> Source:
    columns = Columns(place=lines.path, kind="column", names=cells, sample=list)
    named = named_roles(columns, options)
    title = "title" if options.title_field is None and "title" in cells else named.title
    roles = Roles(
        id="id" if options.id_field is None else named.id,
        text=named.text or ("text",),
        title=None if title in named.text else title,
    )
    check_roles(columns, roles)
    source = Source(
        path=lines.path,
        format=DPR,
        is_detected=options.format is None,
        id_field=roles.id,
        text_field=roles.text[0],
        more_text_fields=roles.text[1:],
        title_field=roles.title,
        columns=cells,
        header=without_line_end(first) + b"\n",
        rejects_suffix=_SUFFIX,
        ids=lines.ids,
    )
    check_names(source)
    if lines.is_cut:
        raise CorpusError(f"{lines.location}: the header is over {lines.max_bytes:,} bytes (max_row_bytes)")
    return source
