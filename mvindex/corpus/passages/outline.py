"""The outline of a text: its sections below headings, and the blocks that a split keeps whole where they fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

SEPARATOR = " > "
# What is stored with every passage of a file is bounded, so that an index does not outgrow its files by far.
MAX_NAME_CHARS = 200
MAX_FIELDS_CHARS = 2_000
_NAMES_SHOWN = 5


class Block(NamedTuple):
    """The characters [begin, end) of a paragraph, list item, table or piece of code.

    Attributes:
        begin: Its first character.
        end: The character after its last one.
        is_lines: Whether it is cut between lines where it is too long, rather than between sentences.
        columns: Of a table the names of its columns, which go into the titles of passages that begin inside it.
    """

    begin: int
    end: int
    is_lines: bool = False
    columns: str = ""


@dataclass(slots=True)
class Section:
    """The blocks below one heading, whose own line is the first block.

    headings: the path of headings, the outermost first; empty before the first one.
    """

    headings: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)


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


class SectionBuilder:
    """Collects headings and blocks, in the order of the text, into sections."""

    def __init__(self) -> None:
        self.sections = [Section(())]
        self._levels: list[tuple[int, str]] = []
        self._has_body = True

    @property
    def first_heading(self) -> str:
        """Return the first heading; "" while there is none."""
        return next((one.headings[0] for one in self.sections if one.headings), "")

    def add_heading(self, level: int, name: str, block: Block) -> None:
        """Begin a section; a heading directly above a deeper one becomes part of that one's section."""
        name = shorten(name)
        above = self.sections.pop() if not self._has_body and self._levels[-1][0] < level else None
        self._levels = [one for one in self._levels if one[0] < level]
        self._levels.append((level, name))
        first = [] if above is None else above.blocks
        self.sections.append(Section(tuple(name for _, name in self._levels if name), [*first, block]))
        self._has_body = False

    def begin_section(self) -> None:
        """Begin another section below the same headings, unless the last one has a heading only."""
        if self._has_body:
            self.sections.append(Section(tuple(name for _, name in self._levels if name)))

    def end_heading(self, level: int) -> None:
        """End the section of a heading of this level, and begin one below the headings above it."""
        self._levels = [one for one in self._levels if one[0] < level]
        self.sections.append(Section(tuple(name for _, name in self._levels if name)))
        self._has_body = True

    def add_block(self, block: Block) -> None:
        """Add a block to the section of the last heading."""
        self.sections[-1].blocks.append(block)
        self._has_body = True

    def extend_block(self, end: int) -> None:
        """Have the last block end here."""
        blocks = self.sections[-1].blocks
        blocks[-1] = blocks[-1]._replace(end=end)

    def finish(self) -> list[Section]:
        """Return the sections that have any text."""
        return [section for section in self.sections if section.blocks]


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
