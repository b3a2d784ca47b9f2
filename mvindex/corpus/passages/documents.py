"""Files of prose as documents: decoded, split into passages, each under its headings."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import xxhash

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.outline import SEPARATOR, Outline, Section, shorten, split_outline
from mvindex.corpus.rows import MAX_PLACE_CHARS, CorpusOptions, Reject, Row, Source, SourceLocation, short_label
from mvindex.corpus.text.words import unset
from mvindex.errors import CorpusError
from mvindex.plugins import install_command
from mvindex.records import Document, Span, has_visible

# UTF-32 first: its mark begins as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META_BYTES = 1024


def decode_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text without a byte order mark and marks of the typesetter, and the name of its encoding.

    Raises:
        CorpusError: The bytes are no text, or in an encoding that cannot be detected; the way out is named.

    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    try:
        text = data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as err:
        if encoding is not None:
            raise CorpusError(
                f"{name}: has the byte order mark of {encoding}, but byte {err.start} is not valid in it"
            ) from err
        text, encoding = _detect(data, name, err.start)
    if "\0" in text:
        raise CorpusError(f"{name}: holds a NUL at character {text.index(chr(0)) + 1}; expected text")
    # Lines of an old Mac.
    return unset(text if "\n" in text else text.replace("\r", "\n")), encoding or "utf-8"


def decode_html(data: bytes, name: str) -> tuple[str, str]:
    """Return the text of an HTML file, in the encoding that it declares, and that encoding's name."""
    declared = _META_CHARSET.search(data[:_META_BYTES])
    if declared and not data.startswith(tuple(mark for mark, _ in _MARKS)):
        encoding = declared[1].decode("ascii")
        try:
            return data.decode(encoding), codecs.lookup(encoding).name
        except (LookupError, UnicodeDecodeError):
            pass  # declared wrongly: decoded as any text
    return decode_text(data, name)


def _detect(data: bytes, name: str, position: int) -> tuple[str, str]:
    reason = f"{name}: byte {position} is {data[position]:#04x}, which is not valid UTF-8"
    way_out = f"convert it, for example: iconv -f latin1 -t utf-8 '{name}'"
    if b"\0" in data:
        raise CorpusError(f"{reason}, and it holds NUL bytes; expected text, got binary data")
    try:
        from charset_normalizer import from_bytes
    except ImportError as err:
        raise CorpusError(f"{reason}; {way_out}, or have it detected: {install_command('files')}") from err
    if (western := _as_western(data)) is not None:
        return western, "cp1252"
    found = from_bytes(data).best()
    if found is None:
        raise CorpusError(f"{reason}, and no other encoding fits; {way_out}")
    return data.decode(found.encoding), found.encoding


# Letters beyond ASCII of German, French, Spanish, Portuguese, Italian, Dutch, the Nordic languages and Catalan.
_WESTERN = tuple(
    frozenset(letters + letters.upper())
    for letters in (
        "äöüß", "àâæçéèêëîïôœùûü", "áéíóúüñ", "áâãàçéêíóôõúü", "àèéìíîòóù", "áäéëèïóöüç", "æøåéäöüó", "àçéèíïóòúü",
    )
)  # fmt: skip
_WESTERN_SIGNS = frozenset("«»“”‘’‚„…–—•€£¥§©®™°·¿¡ªº½¼¾²³¹×\xa0")
# Signs in the middle of a word, such as letters of other encodings are read as.
_SIGN_IN_WORD = re.compile(r"[^\W\d_][^\w\s\x00-\x7f’–—·…][^\W\d_]|[^\W\d_][ªº³¹²]|[ªº³¹²][^\W\d_]")
_MANY_LETTERS = re.compile(r"[^\W\d_\x00-\x7f]{3}")


def _as_western(data: bytes) -> str | None:
    """Return the text of bytes in cp1252, if it is one of western Europe; None for what other encodings fit better.

    Its letters beyond ASCII are then of one language, hardly two in a row, and few beside the others. Detection by
    frequencies takes texts of some sentences for other encodings, in which one letter in so many differs.
    """
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    signs = {sign for sign in set(text) if not sign.isascii()}
    counted = frozenset(sign for sign in signs - _WESTERN_SIGNS if sign.isalpha())
    letters = Counter(letter for letter in text if letter in counted)
    num_letters = sum(letters.values())
    others = signs - letters.keys() - _WESTERN_SIGNS
    most_of_one = max(sum(letters[letter] for letter in own & letters.keys()) for own in _WESTERN)
    is_western = (
        not others
        and most_of_one >= 0.95 * num_letters
        and num_letters <= 0.25 * sum(map(str.isalpha, text))
        and not _MANY_LETTERS.search(text)
        and not _SIGN_IN_WORD.search(text)
    )
    return text if is_western else None


_NO_SLUG = re.compile(r"[^\w\-]+")
_MAX_SLUG = 60
OWN_FIELDS = frozenset(("file", "folder", "folder_path", "headings", "page", "line", "encoding"))

ReadOutlines = Callable[[Input, CorpusOptions], Iterator[Outline]]


def passage_format(
    name: str, suffixes: tuple[str, ...], read: ReadOutlines, *, magic: bytes | None = None
) -> BinaryFormat:
    """Return a format whose files are split into passages.

    Args:
        name: Value of `--format`.
        suffixes: Endings of the names of its files.
        read: Yields the outline of a file, or one of each page; raises CorpusError where the file cannot be read.
        magic: The first bytes of every such file, whatever its name, at most 8; None where there are none.

    """

    def open_file(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
        return file_source(file, name, options), _read_rows(file, read(file, options), options.passage_words)

    def matches(head: bytes) -> bool:
        return magic is not None and head.startswith(magic)

    return BinaryFormat(name=name, matches=matches, open=open_file, suffixes=suffixes)


def file_source(file: Input, name: str, options: CorpusOptions) -> Source:
    """Return how a file is read that has no fields to choose."""
    return Source(
        path=file.name,
        format=name,
        is_detected=options.format is None,
        id_field=None,
        text_field="",
        title_field=None,
        columns=(),
    )


def read_whole(file: Input, options: CorpusOptions) -> bytes:
    """Return the decompressed bytes of a file; CorpusError where it is too large, or damaged."""
    limit = options.max_file_bytes
    try:
        with file.stream() as stream:
            data = stream.read(limit + 1)
    except (OSError, EOFError) as err:
        raise CorpusError(f"{file.name}: cannot be read: {err}") from err
    if len(data) > limit:
        raise CorpusError(
            f"{file.name}: is over {limit:,} bytes, the limit of files that are read whole; split it, or raise "
            "--max-file-mb"
        )
    return data


def _read_rows(file: Input, outlines: Iterator[Outline], max_words: int) -> Iterator[Row | Reject]:
    ids = SectionIds(file.label)
    for outline in outlines:
        lines, rows = _LineCounter(outline), _RowMaker(file, outline)
        for section, spans in split_outline(outline.text, outline.sections, max_words):
            name, tables = ids.begin_section(section, outline.page), _Tables(section)
            for number, span in enumerate(spans, start=1):
                doc_id = name if number == 1 else f"{name}:{number}"
                yield rows.make(section, _Passage(doc_id, span, lines.line_of(span[0]), tables.columns_at(span[0])))


class _Passage(NamedTuple):
    """A passage.

    Attributes:
        id: Its id.
        span: Its characters in the outline's text.
        line: Its line; None where lines are unknown.
        columns: The names of the columns of the table that it begins inside; "" for most passages.
    """

    id: str
    span: Span
    line: int | None
    columns: str


class _Tables:
    """Tells of a section's passages, from one to the next, in which table they begin."""

    def __init__(self, section: Section) -> None:
        self._tables, self._at = [block for block in section.blocks if block.columns], 0

    def columns_at(self, begin: int) -> str:
        """Return the columns of the table that a character is inside, which is not before the last one asked for."""
        while self._at < len(self._tables) and self._tables[self._at].end <= begin:
            self._at += 1
        table = self._tables[self._at] if self._at < len(self._tables) else None
        return table.columns if table is not None and table.begin < begin else ""


class _LineCounter:
    """Counts the lines of an outline from one passage to the next, so that the text is read once."""

    def __init__(self, outline: Outline) -> None:
        self._text, self._line, self._at = outline.text, outline.first_line, 0

    def line_of(self, begin: int) -> int | None:
        """Return the line of a character, which is not before the last one asked for; None where lines are unknown."""
        if self._line is not None:
            self._line += self._text.count("\n", self._at, begin)
            self._at = begin
        return self._line


class _RowMaker:
    """Makes the rows of an outline's passages, which share a file, a title and metadata."""

    def __init__(self, file: Input, outline: Outline) -> None:
        self._name, self._text, self._page = file.name, outline.text, outline.page
        self._title = shorten(outline.title) if has_visible(outline.title) else PurePath(file.relative_path).name
        self._metadata: dict[str, Any] = {
            (f"front_matter_{key}" if key in OWN_FIELDS and key != "encoding" else key): value
            for key, value in outline.metadata.items()
        }
        self._metadata["file"] = file.relative_path
        if outline.page is not None:
            self._metadata["page"] = outline.page

    def make(self, section: Section, passage: _Passage) -> Row:
        text = self._text[passage.span[0] : passage.span[1]]
        metadata = self._metadata.copy()
        if section.headings:
            metadata["headings"] = SEPARATOR.join(section.headings)
        if passage.line is not None:
            metadata["line"] = passage.line
        below = section.headings[1:] if section.headings[:1] == (self._title,) else section.headings
        path = (self._title, *below, *([shorten(passage.columns)] if passage.columns else []))
        document = Document(passage.id, text, SEPARATOR.join(path), metadata)
        return Row(SourceLocation(self._name, passage.line or self._page or 1), document, text.encode())


class SectionIds:
    """Makes the ids of a file's passages: its label, and the place of the section, so that other files do not matter.

    notes/oil.md, notes/oil.md#embargo/prices, a later section of the same headings notes/oil.md#embargo/prices-2,
    paper.pdf#page=3; the second passage of a section ends in ":2".
    """

    def __init__(self, label: str) -> None:
        self._label = short_label(label)
        # Each place that was used, and the last number that was given to a later section of it.
        self._used: dict[str, int] = {}

    def begin_section(self, section: Section, page: int | None) -> str:
        """Return the id of the section's first passage."""
        parts = [] if page is None else [f"page={page}"]
        parts += [_slug(heading) for heading in section.headings]
        place = "/".join(parts)
        if len(place) > MAX_PLACE_CHARS:
            place = xxhash.xxh3_128_hexdigest(place.encode())
        unique, number = place, self._used.get(place, 1)
        while unique in self._used:
            number += 1
            unique = f"{place}-{number}".removeprefix("-")
        self._used[place] = number
        self._used.setdefault(unique, 1)
        return f"{self._label}#{unique}" if unique else self._label


def _slug(heading: str) -> str:
    """Return a heading in lower case, with hyphens for what is no letter, digit or underscore."""
    slug = _NO_SLUG.sub("-", heading.lower()).strip("-") or "section"
    return slug if len(slug) <= _MAX_SLUG else f"{slug[:_MAX_SLUG]}-{xxhash.xxh3_64_hexdigest(slug.encode())[:8]}"
