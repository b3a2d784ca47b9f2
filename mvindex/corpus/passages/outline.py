"""The outline of a document, its headings and blocks, and how it is split into passages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

from mvindex.corpus.text.blocks import introduces, names_what_follows
from mvindex.corpus.text.sentences import split_prose, stripped
from mvindex.corpus.text.words import UNSPACED
from mvindex.records import Span

SEPARATOR = " > "
# What is stored with every passage of a file is bounded, so that an index does not outgrow its files by far.
MAX_NAME_CHARS = 200
MAX_FIELDS_CHARS = 2_000
_NAMES_SHOWN = 5
# A section of so few characters, its headings included, shares passages.
_MOST_SHARED_CHARS = 16


class Block(NamedTuple):
    """The characters [begin, end) of a paragraph, list item, table or piece of code.

    Attributes:
        begin: Its first character.
        end: The character after its last one.
        is_lines: Whether it is cut between lines where it is too long, rather than between sentences.
        columns: Of a table the names of its columns, which go into the titles of passages that begin inside it.
        is_mark: Whether it only steers what a program makes of the file, such as a directive without content.
    """

    begin: int
    end: int
    is_lines: bool = False
    columns: str = ""
    is_mark: bool = False


@dataclass(slots=True)
class Section:
    """The blocks below one heading, whose own line is the first block.

    Attributes:
        headings: The path of headings, the outermost first; empty before the first one.
        blocks: Its blocks, in order.
        above: The headings above its own; None where it does not begin with a heading.
        num_headings: How many blocks are headings: those without text directly above a deeper one count.
    """

    headings: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)
    above: tuple[str, ...] | None = None
    num_headings: int = 0

    @property
    def has_body(self) -> bool:
        """Return whether it has more than headings, and marks below them."""
        return not self.num_headings or not all(block.is_mark for block in self.blocks[self.num_headings :])

    @property
    def shares_below(self) -> tuple[str, ...] | None:
        """Return the headings below which it shares passages with its neighbours; None where it has its own."""
        is_small = not self.has_body or self.blocks[-1].end - self.blocks[0].begin <= _MOST_SHARED_CHARS
        return self.above if is_small else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A file, or one page of it, as text.

    Attributes:
        text: The text.
        sections: Its sections, in order, disjoint; they hold all of the text that is searched.
        title: The title that the file gives itself; "" for none.
        metadata: Further fields of every passage.
        page: Number of the page or slide, from 1; None where there are none.
        first_line: Number of the text's first line in the file, from 1; None where its line breaks are not the file's.

    """

    text: str
    sections: list[Section]
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page: int | None = None
    first_line: int | None = None


_BLOCKS, _SHARES_BELOW = attrgetter("blocks"), attrgetter("shares_below")


class SectionBuilder:
    """Collects headings and blocks, in the order of the text, into sections."""

    def __init__(self) -> None:
        self.sections = [Section(())]
        # "" while there is none.
        self.first_heading = ""
        # The levels of the open headings, the first one of the whole text, and the path of each.
        self._levels: list[tuple[int, tuple[str, ...]]] = [(-1, ())]

    def add_heading(self, level: int, name: str, block: Block) -> None:
        """Begin a section; a heading directly above a deeper one becomes part of that one's section."""
        blocks = []
        if self._levels[-1][0] < level and not self.sections[-1].has_body:
            blocks = self.sections.pop().blocks
        above = self._close(level)
        headings = (*above, shorten(name)) if name else above
        self._levels.append((level, headings))
        self.first_heading = self.first_heading or "".join(headings[:1])
        self.sections.append(Section(headings, [*blocks, block], above, len(blocks) + 1))

    def _close(self, level: int) -> tuple[str, ...]:
        """Close the headings of this level and of deeper ones; return the path of those that are open."""
        while self._levels[-1][0] >= level:
            self._levels.pop()
        return self._levels[-1][1]

    def begin_section(self) -> None:
        """Begin another section below the same headings, unless the last one has a heading only."""
        if self.sections[-1].has_body:
            self.sections.append(Section(self._levels[-1][1]))

    def end_heading(self, level: int) -> None:
        """End the section of a heading of this level, and begin one below the headings above it."""
        self.sections.append(Section(self._close(level)))

    def add_block(self, block: Block) -> None:
        """Add a block to the section of the last heading."""
        self.sections[-1].blocks.append(block)

    def extend_block(self, end: int) -> None:
        """Have the last block end here."""
        blocks = self.sections[-1].blocks
        blocks[-1] = blocks[-1]._replace(end=end)

    def finish(self) -> list[Section]:
        """Return the sections that have any text.

        Those that say too little by themselves, directly below each other and below the same headings, become one:
        each is found among its neighbours, whose headings tell what it is about.
        """
        made: list[Section] = []
        for above, run in itertools.groupby(filter(_BLOCKS, self.sections), _SHARES_BELOW):
            sections = list(run)
            if above is not None and len(sections) > 1:
                sections = [Section(above, [block for section in sections for block in section.blocks])]
            made += sections
        return made


def shorten(name: str) -> str:
    """Return a heading or title, cut where it is very long."""
    return name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"


def fit_fields(fields: Mapping[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the fields that go with every passage: in order, those that fit into MAX_FIELDS_CHARS of JSON.

    Args:
        fields: The fields of a file.
        warn: Called with a message that names those that are left out, if any.

    """
    fitting: dict[str, Any] = {}
    left_out = []
    rest = MAX_FIELDS_CHARS
    for name, value in fields.items():
        try:
            num_chars = len(json.dumps({name: value}, ensure_ascii=False))
        except ValueError:  # Python refuses to write integers of thousands of digits
            num_chars = MAX_FIELDS_CHARS + 1
        if num_chars > rest:
            left_out.append(name)
        else:
            rest -= num_chars
            fitting[name] = value
    if left_out:
        names = ", ".join(f"{name!r:.60}" for name in left_out[:_NAMES_SHOWN])
        more = f" and {len(left_out) - _NAMES_SHOWN:,} more" if len(left_out) > _NAMES_SHOWN else ""
        warn(
            f"expected at most {MAX_FIELDS_CHARS:,} characters of fields, which go with every passage, got more; "
            f"left out: {names}{more}"
        )
    return fitting


def paragraphs(text: str, lines: Iterable[tuple[int, int]], *, is_lines: bool = False) -> Iterable[Block]:
    """Yield the runs of lines, given by their characters [begin, end), that blank lines separate."""
    begin = end = -1
    for first, last in lines:
        if text[first:last].strip():
            begin, end = (first if begin < 0 else begin), last
        elif begin >= 0:
            yield Block(begin, end, is_lines)
            begin = -1
    if begin >= 0:
        yield Block(begin, end, is_lines)


def line_spans(text: str, begin: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    r"""Return the characters of each line in [begin, end), with its end; only "\n" ends one, as for citations."""
    end = len(text) if end is None else end
    spans = []
    while begin < end:
        line_end = text.find("\n", begin, end) + 1 or end
        spans.append((begin, line_end))
        begin = line_end
    return spans


def with_encoding(outline: Outline, encoding: str) -> Outline:
    """Return the outline of a text that was decoded; metadata name the encoding where it is not UTF-8."""
    if encoding == "utf-8":
        return outline
    return replace(outline, metadata={**outline.metadata, "encoding": encoding})


# Part of what says whether a file was read the same way: increment it whenever the same file may give other passages.
SPLIT_VERSION = 7
# Two letters of a script without spaces count as a word, as do so many characters without a space.
_LONGEST_WORD = 24
_WORD = re.compile(rf"{UNSPACED.pattern}{{1,2}}|(?:(?!{UNSPACED.pattern})\S){{1,{_LONGEST_WORD}}}")
_ASCII_WORD = re.compile(rf"\S{{1,{_LONGEST_WORD}}}")
# At most this share of a passage is moved to the next one as what introduces it.
_LEADS_SHARE = 0.5
# A line in bold, or a question by itself, with its number: a heading in all but name.
_TITLE_LINE = re.compile(
    r"(?:(?:[-*+]|\(?(?:\d{1,3}|#)[.)])[ \t]+)?(?:\*\*[^*\n]{1,200}\*\*|__[^_\n]{1,200}__|[^.!?\n]{1,200}\?)\Z"
)
_ITEM = re.compile(r"[ \t]*(?:[-*+\u2022]|\(?(?:\d{1,3}|[a-z]|#)[.)])[ \t]")
# What begins a row of a table, by the beginning of the table: a grid, a simple table, a list-table.
_GRID_ROW, _TEXT_ROW, _LIST_ROW = re.compile(r"\+"), re.compile(r"\S"), re.compile(r"\s*[*+-]\s+-(?:\s|$)")
_ROW_BEGINS = {"+-": _GRID_ROW.match, "==": _TEXT_ROW.match, ".. list-table": _LIST_ROW.match}
# A directive with more lines of options is cut like any text.
_MOST_OPTIONS = 20


class _Piece(NamedTuple):
    begin: int
    end: int
    words: int


def split_section(text: str, section: Section, max_words: int) -> list[Span]:
    """Return the characters [begin, end) of a section's passages, without outer whitespace, in order.

    A passage has at most max_words words; those of a section are about equally long. It ends between blocks; a longer
    block is cut between sentences (or lines, where it is made of them), and a longer sentence between words.
    """
    pattern = _ASCII_WORD if text.isascii() else _WORD
    pieces = [piece for block in section.blocks for piece in _pieces(text, block, max_words, pattern)]
    words, rest, target = 0, sum([piece.words for piece in pieces]), 0.0
    if 0 < rest <= max_words:
        return [stripped(text, pieces[0].begin, pieces[-1].end)]
    pieces = _with_lists(text, pieces, max_words)
    groups: list[list[_Piece]] = []
    for piece in pieces:
        is_nearer = words + piece.words - target > abs(words - target)
        if not groups or words + piece.words > max_words or (is_nearer and not _leads(text, groups[-1][-1])):
            groups.append(_taken_leads(text, groups[-1], max_words - piece.words) if groups else [])
            words = sum(each.words for each in groups[-1])
            target = (rest + words) / -(-(rest + words) // max_words)
        groups[-1].append(piece)
        words, rest = words + piece.words, rest - piece.words
    return [stripped(text, group[0].begin, group[-1].end) for group in groups]


def _with_lists(text: str, pieces: Sequence[_Piece], max_words: int) -> list[_Piece]:
    """Return the pieces, a list joined with the sentence that introduces it where both fit into a passage."""
    joined: list[_Piece] = []
    at = 0
    while at < len(pieces):
        end, words = at + 1, pieces[at].words
        if text[pieces[at].begin : pieces[at].end].rstrip().endswith((":", "：")):
            while end < len(pieces) and words <= max_words and _ITEM.match(text, pieces[end].begin):
                words += pieces[end].words
                end += 1
        if words > max_words:
            end, words = at + 1, pieces[at].words
        joined.append(_Piece(pieces[at].begin, pieces[end - 1].end, words))
        at = end
    return joined


def _taken_leads(text: str, group: list[_Piece], max_words: int) -> list[_Piece]:
    """Take from the end of a passage what only introduces the next one, but not all of it; return it.

    That is a sentence that ends in a colon, or a directive without its content, of at most max_words words and of a
    part of the passage, so that no text is moved again and again.
    """
    max_words = min(max_words, int(_LEADS_SHARE * sum(piece.words for piece in group)))
    first = len(group)
    while first > 1 and _leads(text, group[first - 1]):
        max_words -= group[first - 1].words
        if max_words < 0:
            break
        first -= 1
    taken = group[first:]
    del group[first:]
    return taken


def _leads(text: str, piece: _Piece) -> bool:
    part = text[piece.begin : piece.end].strip()
    if part.endswith((":", "：")) or _TITLE_LINE.match(part) or names_what_follows(text, piece.begin, piece.end):
        return True
    first, *others = part.split("\n", _MOST_OPTIONS)
    return introduces(first.strip()) and all(line.lstrip().startswith(":") for line in others)


def _pieces(text: str, block: Block, max_words: int, pattern: re.Pattern[str]) -> Iterator[_Piece]:
    """Yield a block whole, or where it is too long its sentences or lines."""
    words = len(pattern.findall(text, block.begin, block.end))
    if words <= max_words:
        if words:
            yield _Piece(block.begin, block.end, words)
        return
    part = text[block.begin : block.end]
    for span in _row_spans(part) if block.is_lines else split_prose(part):
        begin, end = block.begin + span[0], block.begin + span[1]
        words = len(pattern.findall(text, begin, end))
        if 0 < words <= max_words:
            yield _Piece(begin, end, words)
        elif words:
            # A sentence or line of more words is cut between them.
            places = [match.span() for match in pattern.finditer(text, begin, end)]
            for first in range(0, words, max_words):
                last = min(first + max_words, words)
                yield _Piece(places[first][0], places[last - 1][1], last - first)


def _row_spans(part: str) -> list[Span]:
    """Return the characters of the lines of a table or code; those of one row of reStructuredText together."""
    begins_row = next((begins for sign, begins in _ROW_BEGINS.items() if part.startswith(sign)), None)
    spans: list[Span] = []
    for begin, end in line_spans(part):
        if begins_row and spans and not begins_row(part, begin, end):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))
    return spans


def split_outline(text: str, sections: Iterable[Section], max_words: int) -> Iterator[tuple[Section, list[Span]]]:
    """Yield the sections with their passages."""
    for section in sections:
        yield section, split_section(text, section, max_words)
