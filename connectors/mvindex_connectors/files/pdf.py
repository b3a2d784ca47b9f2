"""PDF, page by page, by PDFium; bookmarks are the headings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages import Block, Outline, Section, passage_format
from mvindex.corpus.passages.documents import read_whole
from mvindex.errors import CorpusError
from mvindex.text.normal import unset
from mvindex_connectors.files.parsing import parser_errors, require_parser

_WORD_PREFIX = "Microsoft Word - "
# PDFium's mark of a hyphen that divides a word at the end of a line, before and after that.
_HYPHENS = ("\ufffe", "\x02")
_CONTROLS = {code: None for code in range(32) if chr(code) not in "\t\n"} | {0xFFFE: None, 0xFFFF: None}


class _Bookmark(NamedTuple):
    page: int
    headings: tuple[str, ...]


def read_pdf(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of each page that has text; CorpusError for a file that is damaged, encrypted or scanned."""
    pdfium = require_parser("pypdfium2", file)
    data = read_whole(file, options)
    document = _open(pdfium, data, file)
    try:
        with parser_errors(file):
            title = document.get_metadata_value("Title").removeprefix(_WORD_PREFIX).strip()
            bookmarks = _bookmarks(document)
            num_pages = len(document)
        has_text = False
        for number in range(num_pages):
            with parser_errors(file):
                text = _page_text(document, number)
            if text.strip():
                has_text = True
                section = Section(_headings(bookmarks, number), [Block(0, len(text))])
                yield Outline(text=text, sections=[section], title=title, page=number + 1)
    finally:
        document.close()
    if not has_text:
        raise CorpusError(
            f"{file.name}: none of its {num_pages} pages has any text, as in a scan; recognise it first, for example: "
            "ocrmypdf IN.pdf OUT.pdf"
        )


def _open(pdfium: Any, data: bytes, file: Input) -> Any:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as err:
        if "password" in str(err).lower():
            raise CorpusError(
                f"{file.name}: is encrypted; save it without a password, for example: "
                "qpdf --decrypt --password=... IN.pdf OUT.pdf"
            ) from err
        raise CorpusError(f"{file.name}: is damaged, or no PDF: {err}") from err


def _page_text(document: Any, number: int) -> str:
    page = document[number]
    try:
        text: str = page.get_textpage().get_text_range()
    finally:
        page.close()
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for hyphen in _HYPHENS:
        text = text.replace(f"{hyphen}\n", "").replace(hyphen, "")
    return unset(text.translate(_CONTROLS))


def _bookmarks(document: Any) -> list[_Bookmark]:
    """Return the bookmarks with their paths, sorted by page."""
    path: list[str] = []
    found = []
    for one in document.get_toc():
        destination = one.get_dest()
        page = None if destination is None else destination.get_index()
        path = [*path[: one.level], " ".join(one.get_title().split())]
        if page is not None:
            found.append(_Bookmark(page, tuple(filter(None, path))))
    return sorted(found, key=lambda bookmark: bookmark.page)


def _headings(bookmarks: list[_Bookmark], page: int) -> tuple[str, ...]:
    """Return the headings in force where a page begins: the last ones before it, else the first ones on it."""
    first_here = bisect_left(bookmarks, page, key=lambda bookmark: bookmark.page)
    if first_here > 0:
        return bookmarks[first_here - 1].headings
    return bookmarks[0].headings if bookmarks and bookmarks[0].page == page else ()


FORMAT = passage_format("pdf", (".pdf",), read_pdf, magic=b"%PDF-")
