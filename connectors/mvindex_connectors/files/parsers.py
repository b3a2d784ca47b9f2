"""The parsers of other packages, each from the bytes of a file to values of JSON. Only a worker process runs them.

It also chooses the citations of long texts, and tokenizes them, for a server, which has no time for that.
"""

from __future__ import annotations

import binascii
import datetime
import importlib
import io
import itertools
import json
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

# A file of Office before 2007, or an encrypted one of today.
_OLE_MAGIC = b"\xd0\xcf\x11\xe0"
# Office files are zip archives of text, which shrinks to a tenth; more is a trap. A small file may shrink further.
LARGEST_RATIO, LEAST_BYTES = 20, 16 * 2**20
# Excel's own limit.
_MAX_ROWS = 1_048_576
# A few cells far apart stand for millions of empty ones.
_MAX_EMPTY_CELLS = 50_000_000
# Of an array, in one line of the answer.
_PIECE_BYTES = 3 << 15


class RefusedError(Exception):
    """A file that cannot be read, for a reason that its message says."""


class Parser(NamedTuple):
    """A parser.

    Attributes:
        module: The package that it needs.
        parse: Takes the bytes of a file, and yields its parts as values of JSON.

    """

    module: str
    parse: Callable[[bytes], Iterator[Any]]


def _convert(converter: str) -> Parser:
    """Return the parser that gives the whole file as Markdown. It is named, so that none is chosen by guessing."""

    def parse(data: bytes) -> Iterator[Any]:
        archive = _open_archive(data)
        stream_info = importlib.import_module("markitdown").StreamInfo()
        found = getattr(importlib.import_module("markitdown.converters"), converter)().convert(archive, stream_info)
        yield str(found.markdown)

    return Parser("markitdown.converters", parse)


def _parse_docx(data: bytes) -> Iterator[Any]:
    """Yield the whole file as Markdown."""
    yield importlib.import_module("mvindex_connectors.files.word").convert_word(_open_archive(data))


def _open_archive(data: bytes) -> io.BytesIO:
    """Return the bytes of an Office or EPUB file, checked to be an archive that does not swell.

    What the directory says of a member's size may be wrong, but zipfile, by which all parsers read, gives no more of
    the member than that.
    """
    if data.startswith(_OLE_MAGIC):
        raise RefusedError("is encrypted, or of an Office before 2007; save it without a password in today's format")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size_bytes = sum(member.file_size for member in archive.infolist())
    limit = max(LEAST_BYTES, LARGEST_RATIO * len(data))
    if size_bytes > limit:
        raise RefusedError(
            f"unpacks to {size_bytes:,} bytes; expected at most {limit:,}, {LARGEST_RATIO} times its size or "
            f"{LEAST_BYTES >> 20} MiB; save it in another format, such as text or CSV"
        )
    return io.BytesIO(data)


def _parse_pdf(data: bytes) -> Iterator[Any]:
    """Yield the title and the number of pages, then of each page that has text its number, headings and text."""
    document = _open_pdf(data)
    try:
        bookmarks = _bookmarks(document)
        yield [document.get_metadata_value("Title"), len(document)]
        for number in range(len(document)):
            text, top = _page_text(document, number)
            if text.strip():
                yield [number + 1, _headings(bookmarks, number, text, top), text]
    finally:
        document.close()


def _open_pdf(data: bytes) -> Any:
    pdfium = importlib.import_module("pypdfium2")
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as err:
        if "password" in str(err).lower():
            raise RefusedError(
                "is encrypted; save it without a password, for example: qpdf --decrypt --password=... IN.pdf OUT.pdf"
            ) from err
        raise RefusedError(f"is damaged, or no PDF: {err}") from err


def _page_text(document: Any, number: int) -> tuple[str, float]:
    """Return the text of a page, and where its first character ends above."""
    page = document[number]
    try:
        textpage = page.get_textpage()
        text: str = textpage.get_text_range()
        return text, textpage.get_charbox(0)[3] if text else 0.0
    finally:
        page.close()


class _Bookmark(NamedTuple):
    """A place in a document. top: in points above the page's lower edge; None for the whole page."""

    page: int
    top: float | None
    headings: tuple[str, ...]

    def is_at_begin(self, first_lines: Sequence[str], top: float) -> bool:
        """Return whether a page with these lines, which begins so high, begins with what the bookmark names."""
        return self.top is None or self.top >= top or any(line in self.headings[-1:] for line in first_lines)


# Lines of a page above which a heading may stand, such as a number.
_FIRST_LINES = 3
# Where the top is among the numbers of a destination, by its kind in the standard: XYZ, FitH, FitR and FitBH.
_TOPS = {1: 1, 3: 0, 5: 3, 7: 0}


def _bookmarks(document: Any) -> list[_Bookmark]:
    """Return the bookmarks with their paths, sorted by page."""
    path: list[str] = []
    found = []
    for one in document.get_toc():
        destination = one.get_dest()
        page = None if destination is None else destination.get_index()
        path = [*path[: one.level], " ".join(one.get_title().split())]
        if page is not None:
            found.append(_Bookmark(page, _top(destination), tuple(filter(None, path))))
    return sorted(found, key=lambda bookmark: bookmark.page)


def _top(destination: Any) -> float | None:
    """Return how high on its page a destination is; None for the whole page."""
    kind, numbers = destination.get_view()
    place = _TOPS.get(kind, len(numbers))
    return numbers[place] if place < len(numbers) else None


def _headings(bookmarks: list[_Bookmark], page: int, text: str, top: float) -> tuple[str, ...]:
    """Return the headings in force where a page begins: those there, else the last before it, else the first on it.

    text, top: of the page, and where its first character ends above.
    """
    first_here = bisect_left(bookmarks, page, key=lambda bookmark: bookmark.page)
    behind = bisect_left(bookmarks, page + 1, key=lambda bookmark: bookmark.page)
    lines = [" ".join(line) for line in itertools.islice(filter(None, map(str.split, io.StringIO(text))), _FIRST_LINES)]
    begun = [bookmark for bookmark in bookmarks[first_here:behind] if bookmark.is_at_begin(lines, top)]
    if begun:
        return begun[-1].headings
    if first_here > 0:
        return bookmarks[first_here - 1].headings
    return bookmarks[0].headings if bookmarks and bookmarks[0].page == page else ()


def _parse_xlsx(data: bytes) -> Iterator[Any]:
    """Yield of each sheet its title, then of each row that holds something its number, columns and values."""
    # A sheet that does not tell its size would be read to its end for it, and then again.
    importlib.import_module("openpyxl.worksheet._read_only").ReadOnlyWorksheet._get_size = lambda sheet: None
    book = importlib.import_module("openpyxl").load_workbook(_open_archive(data), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield sheet.title
        yield from _rows(sheet)


def _rows(sheet: Any) -> Iterator[Any]:
    """Yield the rows of a sheet; RefusedError where their cells lie too far apart."""
    sheet.reset_dimensions()  # what the file says of its size is often wrong, and would be filled with empty cells
    num_empty = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        columns = [column for column, value in enumerate(row) if value is not None]
        num_empty += len(row) - len(columns)
        if number > _MAX_ROWS or num_empty > _MAX_EMPTY_CELLS:
            raise RefusedError(
                f"sheet {sheet.title!r:.60}, row {number}: expected at most {_MAX_ROWS:,} rows and "
                f"{_MAX_EMPTY_CELLS:,} empty cells; delete the cells that lie far from the others"
            )
        if columns:
            yield [number, columns, [_value(row[column]) for column in columns]]


def _cite(data: bytes) -> Iterator[Any]:
    """Yield the citation, if there is one, or several.

    data: JSON of question, text, title, views or null, and the numbers of a Quoting or null.
    """
    citation, numpy = importlib.import_module("mvindex.corpus.text.citation"), importlib.import_module("numpy")
    quotes = importlib.import_module("mvindex.corpus.text.citation")
    question, text, title, views, quoting = json.loads(data)
    if views is not None:
        spans, scores = views
        views = citation.ScoredViews(numpy.array(spans, numpy.int64).reshape(-1, 2), numpy.array(scores))
    citer = citation.Citer(question)
    if quoting is not None:
        found = quotes.quotes(citer, text, title, views, quotes.Quoting(*quoting))
    else:
        found = [cited for cited in [citer.cite(text, title, views)] if cited is not None]
    yield from (cited.as_json() for cited in found)


def _tokenize(data: bytes) -> Iterator[Any]:
    """Yield of each array of Tokens its type, then its bytes in pieces of base64, and after the last one null.

    data: JSON of texts, and the name of a Lexical.
    """
    tokenizer = importlib.import_module("mvindex.store.lexical.tokenizer")
    texts, lexical = json.loads(data)
    for array in tokenizer.tokenize(texts, tokenizer.Lexical(lexical)):
        yield array.dtype.str
        content = memoryview(array.tobytes())
        for begin in range(0, len(content), _PIECE_BYTES):
            yield binascii.b2a_base64(content[begin : begin + _PIECE_BYTES], newline=False).decode()
        yield None


def _value(value: Any) -> Any:
    """Return the value of a cell as one of JSON: dates as ISO texts, fractions to the 15 digits that Excel has."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.15g}")
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value if isinstance(value, int) else str(value)


PARSERS = {
    "citation": Parser("mvindex.corpus.text.citation", _cite),
    "docx": Parser("markitdown.converters", _parse_docx),
    "epub": _convert("EpubConverter"),
    "pdf": Parser("pypdfium2", _parse_pdf),
    "pptx": _convert("PptxConverter"),
    "terms": Parser("mvindex.store.lexical.tokenizer", _tokenize),
    "xlsx": Parser("openpyxl", _parse_xlsx),
}
