"""Tables with a header of any names (CSV, TSV, and the same with semicolons or pipes), and TSV by DPR and MS MARCO."""

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
    MSMARCO,
    TEXT_NAMES,
    TITLE_NAMES,
    Columns,
    CorpusOptions,
    Reject,
    Roles,
    Row,
    Source,
    check_roles,
    find_roles,
    list_names,
    named_roles,
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
    _refuse_cut(lines)
    delimiter = separator[1] if separator else _find_delimiter(lines, first)
    layout = _layout_of(first, delimiter)
    cells = _header_cells(lines, first, layout)
    names = tuple(name or f"column {number}" for number, name in enumerate(cells, start=1))
    sample = _probe_rows(lines, names, layout)
    _check_header(lines.path, names, sample, options)
    # A table of pandas begins with such a column: the index, which has no name.
    unnamed = tuple(name for cell, name in zip(cells, names, strict=True) if not cell and _holds_no_texts(sample, name))
    left_out = frozenset(unnamed)
    known = tuple(name for name in names if name not in left_out)
    roles = find_roles(Columns(place=lines.path, kind="column", names=known, sample=lambda: sample), options)
    source = Source.of(
        lines.path,
        CSV,
        options,
        roles,
        columns=names,
        header=header,
        numbers=tuple(name for name in known if name not in roles.taken and _holds_numbers(sample, name)),
        left_out=unnamed,
        rejects_suffix=".csv",
        ids=lines.ids,
    )
    check_names(source)
    return source, read_rows(lines, source, layout)


def is_csv(first_line: bytes) -> bool:
    """Return whether a first line is surely a header: with commas, semicolons or pipes, and a name for a text."""
    if _SEPARATOR_LINE.fullmatch(without_line_end(first_line)):
        return True
    rows = (split_header(first_line, Layout(delimiter=each)) for each in _DELIMITERS if each != b"\t")
    return any(cells and len(cells) > 1 and _is_known_header(cells) for cells in rows) and b"\t" not in first_line


FORMATS = (TextFormat(name=CSV, matches=is_csv, open=open_csv, suffixes=(".csv",)),)


def _refuse_cut(lines: Lines) -> None:
    """Raise CorpusError where the header is longer than a row may be."""
    if lines.is_cut:
        raise CorpusError(f"{lines.location}: the header is over {lines.max_bytes:,} bytes (max_row_bytes)")


def _is_known_header(cells: list[bytes]) -> bool:
    names = [cell.decode(errors="replace").strip() for cell in cells]
    return any(name.casefold() in TEXT_NAMES for name in names) and all(map(_may_be_name, names))


def _find_delimiter(lines: Lines, first: bytes) -> bytes:
    """Return the delimiter that splits the header into most cells; a header without any is one column."""
    splits = {each: split_header(first, _layout_of(first, each)) for each in _DELIMITERS if each in first}
    counts = {delimiter: len(cells) for delimiter, cells in splits.items() if cells and not _has_quotes(cells)}
    best = [delimiter for delimiter, count in counts.items() if count == max(counts.values())]
    if len(best) > 1:
        raise CorpusError(
            f"{lines.path}: the header has as many cells with {' as with '.join(repr(one.decode()) for one in best)}; "
            f"name the delimiter in a first line, for example sep={best[0].decode()}"
        )
    return best[0] if best else b","


def _layout_of(first: bytes, delimiter: bytes) -> Layout:
    """Return how the cells below a header are found: padded where a blank follows each delimiter of the header."""
    plain, padded = (Layout(delimiter=delimiter, is_padded=padded, is_sparse=True) for padded in (False, True))
    _, *others = without_line_end(first).split(delimiter)
    is_padded = others and all(cell.startswith(b" ") for cell in others)
    return padded if is_padded and split_header(first, padded) else plain


def _has_quotes(cells: list[bytes]) -> bool:
    return any(b'"' in cell for cell in cells)


def _header_cells(lines: Lines, first: bytes, layout: Layout) -> list[str]:
    cells = split_header(first, layout)
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


def _probe_rows(lines: Lines, names: tuple[str, ...], layout: Layout) -> list[dict[str, str]]:
    """Return the first rows, without taking them: of each its cells that are not empty."""
    number, first = lines.number, lines.take()
    if not first:
        return []
    probe = take_probe(lines, first)
    whole = probe[:-1] if lines.is_cut else probe
    rows = [
        {name: cell for name, cell in zip(names, cells, strict=True) if cell}
        for cells in sample_cells(whole, len(names), layout)
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
    roles = Roles(title=None)
    source = Source.of(
        lines.path, MSMARCO, options, roles, columns=("id", "text"), rejects_suffix=_SUFFIX, ids=lines.ids
    )
    return source, read_rows(lines, source, Layout(is_quoted=False))


# What no other format matches is opened as DPR's, which tells MS MARCO by its missing header.
TSV_FORMATS = (
    TextFormat(name=DPR, matches=lambda first_line: True, open=open_tsv),
    TextFormat(name=MSMARCO, matches=lambda first_line: False, open=open_tsv),
)


def _split_header(first: bytes) -> tuple[str, ...]:
    cells = split_header(first, Layout())
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
    source = Source.of(
        lines.path,
        DPR,
        options,
        roles,
        columns=cells,
        header=without_line_end(first) + b"\n",
        rejects_suffix=_SUFFIX,
        ids=lines.ids,
    )
    check_names(source)
    _refuse_cut(lines)
    return source
