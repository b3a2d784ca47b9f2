"""Markdown: headings, paragraphs, lists, tables and fenced code as blocks; YAML front matter as metadata."""

from __future__ import annotations

import datetime
import importlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import decode_text, passage_format, read_whole
from mvindex.corpus.passages.outline import Block, Outline, SectionBuilder, fit_fields, line_spans, with_encoding
from mvindex.corpus.rows import CorpusOptions
from mvindex.corpus.text.headings import table_title, without_attributes

Warn: TypeAlias = "Callable[[int, str], None]"

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
# That of Hugo and Zola.
_TOML_FRONT_MATTER = re.compile(r"\+\+\+[ \t]*\r?\n(.*?)^\+\+\+[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MAX_FRONT_MATTER = 64 * 1024
# Deeper than any front matter; YAML's scanner looks at every open bracket for each token.
_MAX_DEPTH = 50
# Of YAML that is wrong somewhere; all of them fit into no passage.
_MAX_ENTRIES = 500
_DASHES = re.compile(rf"[ \t]*(?:[-?:][ \t]+){{{_MAX_DEPTH}}}")
# A field at the margin.
_ENTRY = re.compile(r"[^\s#:\-][^:]{0,100}:(?:\s|\Z)")
# Patterns without parts that could share the same characters: each reads a line once.
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|\s*\Z)")
_UNDERLINE = re.compile(r" {0,3}(?:(=+)|-+)\s*\Z")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_TABLE_RULE = re.compile(r" {0,3}(?=[|:-])")
_RULE_CELL = re.compile(r"[ \t]*:?-+:?[ \t]*")
# HTML in which "#" and "-" mean nothing, and what ends it.
_RAW = re.compile(r" {0,3}<(!--|pre|script|style)(?![\w-])", re.IGNORECASE)
_RAW_ENDS = {"!--": "-->", "pre": "</pre>", "script": "</script>", "style": "</style>"}
# A line that stands for another file, a comment, the begin or end of what is folded, or a label or class of MyST.
_INCLUDE = re.compile(
    r"\s*(?:\{\*[^\n]*\*\}|\{![^\n]*!\}|-+8<-+[^\n]*|<!--[^\n]*-->|</?details[^<>\n]*>|\([\w:.-]+\)=|\{\.[\w-]+\})\s*\Z"
)
# A question of a FAQ that is no heading: a bold line or item, a summary, an admonition. Its level is below all others.
_QUESTION = re.compile(
    r" {0,3}(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(?:\*\*([^*\n]{1,200}\?)\*\*|__([^_\n]{1,200}\?)__):?\s*\Z"
    r"|\s*(?:<details[^<>\n]{0,80}>\s*)?<summary>([^<>\n]{1,200}\?)</summary>\s*\Z"
    r'|(?:!!!|\?\?\?\+?)[ \t]+\w+[ \t]+"([^"\n]{1,200}\?)"\s*\Z'
)
_QUESTION_LEVEL = 7
_NO_MARKS = str.maketrans("", "", "*`")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])")


def outline_markdown(text: str, *, title: str = "", page: int | None = None) -> Outline:
    """Return the outline of Markdown that another format was converted to; it knows no lines."""
    builder = SectionBuilder()
    _Scanner(text, line_spans(text), builder).scan()
    return Outline(text=text, sections=builder.finish(), title=title or builder.first_heading, page=page)


def outline_markdown_file(text: str, warn: Warn) -> Outline:
    """Return the outline of a Markdown file; front matter that is no YAML object is part of the text.

    Args:
        text: The text of the file.
        warn: Called with a line, and what is wrong there in the front matter.

    """
    fields, begin = front_matter(text, warn)
    metadata = fit_fields(fields, lambda message: warn(1, f"front matter: {message}; it is a text too"))
    builder = SectionBuilder()
    if len(metadata) < len(fields):
        builder.add_block(Block(0, begin, is_lines=True))
    _Scanner(text, line_spans(text, begin), builder).scan()
    title = metadata.pop("title", None)
    return Outline(
        text=text,
        sections=builder.finish(),
        title=str(title) if title else builder.first_heading,
        metadata=metadata,
        first_line=1,
    )


def add_markdown(text: str, begin: int, end: int, builder: SectionBuilder) -> None:
    """Add the headings and blocks of the Markdown in the characters [begin, end) to those of the text before it."""
    _Scanner(text, line_spans(text, begin, end), builder).scan()


class _Scanner:
    """Walks over the lines of a text once, and gives its headings and blocks to the builder."""

    def __init__(self, text: str, lines: list[tuple[int, int]], builder: SectionBuilder) -> None:
        self._text = text
        self._lines = lines
        self._builder = builder
        # Lines of the paragraph that is open.
        self._open: list[tuple[int, int]] = []
        # What ends HTML, and does not come again.
        self._unclosed: set[str] = set()

    def scan(self) -> None:
        at = 0
        while at < len(self._lines):
            at = self._take(at)
        self._end_paragraph()

    def _take(self, at: int) -> int:
        """Take the line at this position, or all lines of a fence or table; return the next position."""
        line = self._line(at)
        sign = line.lstrip()[:1]
        if sign.isalpha() and "|" not in line:  # most lines
            self._open.append(self._lines[at])
        elif not sign:
            self._end_paragraph()
        elif sign in "`~<" and (end := self._end_of_raw(at)) is not None:
            return self._take_lines(at, end)
        elif sign == "#" and (heading := _HEADING.match(line)):
            self._end_paragraph()
            self._builder.add_heading(len(heading[1]), _heading_name(line[heading.end() :]), Block(*self._lines[at]))
        elif not self._open and (question := _QUESTION.match(line)):
            name = next(filter(None, question.groups()))
            self._builder.add_heading(_QUESTION_LEVEL, _plain(name), Block(*self._lines[at]))
        elif self._open and (rule := _UNDERLINE.match(line)) and not _ITEM.match(self._line_of(self._open[0])):
            self._end_setext(1 if rule[1] else 2, at)
        elif "|" in line and at + 1 < len(self._lines) and _is_table_rule(self._line(at + 1)):
            return self._take_lines(at, self._blank_after(at), is_table=True)
        elif _INCLUDE.match(line):
            self._end_paragraph()
        else:
            if _ITEM.match(line):
                self._end_paragraph()
            self._open.append(self._lines[at])
        return at + 1

    def _take_lines(self, at: int, end: int, *, is_table: bool = False) -> int:
        self._end_paragraph()
        first, last = self._lines[at][0], self._lines[end - 1][1]
        columns = table_title(self._text[first:last]) if is_table else ""
        self._builder.add_block(Block(first, last, is_lines=True, columns=columns))
        return end

    def _end_of_raw(self, at: int) -> int | None:
        """Return the position after the fenced code, comment or preformatted text that begins here; None for others."""
        line = self._line(at)
        if (fence := _FENCE.match(line)) is not None:
            return self._fence_end(at, fence[1])
        if (raw := _RAW.match(line)) is None or _INCLUDE.match(line):
            return None
        return self._end_of_html(at, _RAW_ENDS[raw[1].lower()])

    def _fence_end(self, at: int, fence: str) -> int:
        """Return the position after the fence that closes this one; the end of the text where none does."""
        for end in range(at + 1, len(self._lines)):
            closing = self._line(end).strip()
            if len(closing) >= len(fence) and closing == fence[0] * len(closing):
                return end + 1
        return len(self._lines)

    def _end_of_html(self, at: int, closing: str) -> int:
        """Return the position after the line that closes it; the next one where none does."""
        if closing not in self._unclosed:
            for end in range(at, len(self._lines)):
                if closing in self._line(end).lower():
                    return end + 1
            # Looked for once.
            self._unclosed.add(closing)
        return at + 1

    def _blank_after(self, at: int) -> int:
        return next((end for end in range(at, len(self._lines)) if not self._line(end).strip()), len(self._lines))

    def _end_setext(self, level: int, at: int) -> None:
        name = " ".join([self._line_of(span).strip() for span in self._open])
        self._builder.add_heading(level, _plain(name), Block(self._open[0][0], self._lines[at][1]))
        self._open = []

    def _end_paragraph(self) -> None:
        if self._open:
            self._builder.add_block(Block(self._open[0][0], self._open[-1][1]))
            self._open = []

    def _line(self, at: int) -> str:
        begin, end = self._lines[at]
        return self._text[begin:end]

    def _line_of(self, span: tuple[int, int]) -> str:
        return self._text[span[0] : span[1]]


def front_matter(text: str, warn: Warn) -> tuple[dict[str, Any], int]:
    """Return the fields of the YAML or TOML that the text begins with, and where the text behind it begins."""
    if text.startswith("+++"):
        return _toml_front_matter(text, warn)
    found = _FRONT_MATTER.match(text)
    if found is None or len(found[1]) > _MAX_FRONT_MATTER:
        return {}, 0
    try:
        fields = _load_yaml(found[1])
    except _yaml_errors():
        fields = _read_entries(found[1], warn)
    return (fields, found.end()) if isinstance(fields, dict) else ({}, 0)


def _toml_front_matter(text: str, warn: Warn) -> tuple[dict[str, Any], int]:
    found = _TOML_FRONT_MATTER.match(text)
    if found is None or len(found[1]) > _MAX_FRONT_MATTER:
        return {}, 0
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        fields = _json_value(toml.loads(found[1].replace("\r\n", "\n")))
    except (ValueError, RecursionError) as err:
        warn(1, f"front matter: expected TOML, got an error: {str(err):.120}; it is a text")
        return {}, 0
    return fields, found.end()


def _load_yaml(source: str) -> Any:
    """Return the value of YAML as one of JSON; one of _yaml_errors() where it is wrong."""
    import yaml

    if _is_deep(source):
        raise ValueError(f"expected at most {_MAX_DEPTH} levels")
    # libyaml is ten times as fast, and not everywhere.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(source, loader):
        # References would let a small text stand for a huge value.
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("expected no references")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(f"expected at most {_MAX_DEPTH} levels")
    return _json_value(yaml.load(source, loader))  # noqa: S506 - it is a safe one


def _is_deep(source: str) -> bool:
    """Return whether lists or maps may be nested too deeply; brackets in quotes count as well."""
    depths = itertools.accumulate((1 if char in "[{" else -1) for char in source if char in "[]{}")
    return max(depths, default=0) > _MAX_DEPTH or any(map(_DASHES.match, source.split("\n")))


def _yaml_errors() -> tuple[type[Exception], ...]:
    import yaml

    # Tags such as !!bool of another text raise KeyError or AttributeError, floats of many parts OverflowError.
    return (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def _read_entries(source: str, warn: Warn) -> dict[str, Any] | None:
    """Return the fields of YAML that is wrong somewhere, each read alone; what is wrong is text of its first line.

    None where it does not begin with a field, or has very many, so that it is no front matter.
    """
    lines = source.split("\n")
    begins = [at for at, line in enumerate(lines) if _ENTRY.match(line)]
    is_other = any(line.strip() and not line.startswith("#") for line in lines[: begins[0] if begins else None])
    if is_other or len(begins) > _MAX_ENTRIES:
        return None
    fields: dict[str, Any] = {}
    for begin, end in itertools.pairwise([*begins, len(lines)]):
        try:
            fields |= dict(_load_yaml("\n".join(lines[begin:end])))
        except _yaml_errors():
            name, _, rest = lines[begin].partition(":")
            fields[name.strip()] = rest.strip() or " ".join(" ".join(lines[begin + 1 : end]).split())
            # The fence is the first line of the file.
            warn(
                begin + 2,
                f"front matter: expected YAML, got {lines[begin].strip()!r:.80}; its value is taken as a text",
            )
    return fields


def _json_value(value: Any) -> Any:
    """Return a value of YAML as one of JSON: dates as ISO texts, sets as lists, NaN and infinities as texts."""
    if isinstance(value, dict):
        return {str(name): _json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json_value(one) for one in value]
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _is_table_rule(line: str) -> bool:
    """Return whether a line is what stands below the header of a table."""
    if not _TABLE_RULE.match(line):
        return False
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return all(map(_RULE_CELL.fullmatch, cells))


def _heading_name(rest: str) -> str:
    """Return the name of a heading, from what stands behind its first "#"s."""
    name = rest.strip()
    without_end = name.rstrip("#")
    return _plain(without_end if without_end[-1:] in ("", " ", "\t") else name)


def _plain(heading: str) -> str:
    """Return a heading without links, emphasis and ids."""
    if "[" in heading:
        # Twice: a link may hold an image.
        heading = _LINK.sub(r"\1", _LINK.sub(r"\1", heading))
    return without_attributes(heading.translate(_NO_MARKS).strip())


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    text, encoding = decode_text(read_whole(file, options), file.name)
    yield with_encoding(outline_markdown_file(text, file.warn), encoding)


FORMATS = (passage_format("markdown", (".md", ".markdown", ".mdx", ".qmd"), _read),)
