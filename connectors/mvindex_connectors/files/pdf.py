"""PDF, page by page, by PDFium; bookmarks are the headings."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages import Block, Outline, Section, passage_format
from mvindex.corpus.passages.outline import shorten
from mvindex.corpus.rows import CorpusOptions
from mvindex.corpus.text.words import unset
from mvindex.errors import CorpusError
from mvindex_connectors.files.parsing import parse_file

_WORD_PREFIX = "Microsoft Word - "
# PDFium's mark of a hyphen that divides a word at the end of a line, before and after that.
_HYPHENS = ("\ufffe", "\x02")
_CONTROLS = {code: None for code in range(32) if chr(code) not in "\t\n"} | {0xFFFE: None, 0xFFFF: None}


def read_pdf(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of each page that has text; CorpusError for a file that is damaged, encrypted or scanned."""
    parts = parse_file(file, options, "pdf")
    title, num_pages = next(parts)
    title = title.translate(_CONTROLS).removeprefix(_WORD_PREFIX).strip()
    has_text = False
    for number, headings, raw in parts:
        text = _clean(raw)
        has_text = True
        section = Section(tuple(map(shorten, headings)), [Block(0, len(text))])
        yield Outline(text=text, sections=[section], title=title, page=number)
    if not has_text:
        raise CorpusError(
            f"{file.name}: none of its {num_pages} pages has any text, as in a scan; recognise it first, for example: "
            "ocrmypdf IN.pdf OUT.pdf"
        )


def _clean(text: str) -> str:
    """Return the text of a page with plain line ends, and without control characters and dividing hyphens."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for hyphen in _HYPHENS:
        text = text.replace(f"{hyphen}\n", "").replace(hyphen, "")
    return unset(text.translate(_CONTROLS))


FORMAT = passage_format("pdf", (".pdf",), read_pdf, magic=b"%PDF-")
