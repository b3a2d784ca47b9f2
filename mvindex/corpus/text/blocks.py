"""Tells the lines of a marked-up text apart: prose, code, names of what follows, and marks that say nothing.

The lines of Markdown (fences, admonitions, tabs, includes, comments) and reStructuredText (labels, directives with
their options, literal blocks) are told by their form, since a text does not say its format. One pass over the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

from mvindex.records import Span


class Kind(Enum):
    """Kinds of stretches of lines."""

    PROSE = "prose"
    HEADING = "heading"
    CODE = "code"
    # A row of a table of reStructuredText, all its cells, or an option of a command with its description.
    ROW = "row"
    # A line that names what follows it: a tab, a definition of an API, an admonition with a title.
    NAME = "name"
    # A line that only steers what follows it: a label, a directive, its options, a fence, a comment, an include.
    MARK = "mark"


class Stretch(NamedTuple):
    """The characters [begin, end) of lines of one kind that follow each other."""

    kind: Kind
    begin: int
    end: int


# Lines of these kinds that follow each other are one stretch.
_GOING_ON = (Kind.PROSE, Kind.CODE)
# A text without any of these is prose as a whole.
_ANY_MARKUP = re.compile(
    r"(?:```|~~~|(?:::|\]:)[ \t]*\n|\n:[ \t]+\S|(?:^|\n)[ \t]*(?:[-*+\u2022][ \t]+)?`[^\n]{1,80}`:?[ \t]*\n[ \t]*\n"
    r"|\n[ \t]*(?:\.\. |!!! |\?\?\?\+? |==|:::|\$ |>>> |#{1,6} |<!--|\{[*%]|-+8<|\+[-=]|--?[A-Za-z]))"
)
# A line that may be more than prose: by what it begins with, or by what announces the code below it.
_MARKED = re.compile(
    r"^[^\S\n]*(?:[`~.!?_(\[<{#$>]|==|:::|\+[-=]|-+8|--?[A-Za-z]|[-*+\u2022][ \t]+`|\S[^\n]{0,80}\n[^\S\n]*\n:[ \t])"
    r"|::[^\S\n]*$",
    re.MULTILINE,
)
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
_FENCE_LINE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
# Of MyST: what stands in such a fence is read as if it had none.
_OPEN_FENCE = re.compile(r"\s*\{([\w:-]+)\}")
# The rules of a simple table and of a grid of reStructuredText.
SIMPLE_RULE = re.compile(r"={2,}(?:[ \t]+={2,})+[ \t]*$")
HEADER_RULE = re.compile(r"(?:={2,}(?:[ \t]+={2,})+|-{2,}(?:[ \t]+-{2,})+)[ \t]*$")
GRID_RULE = re.compile(r"\+(?:[-=]+\+)+[ \t]*$")
_GRID_LINE = re.compile(r"^[ \t]*\+[-=+]+\+$", re.MULTILINE)
# An option of a command, `-q, --quiet TEXT  Say less`: its names, two spaces or more, its description.
_OPTION_ITEM = re.compile(r"--?[A-Za-z?]\S*(?: \S+)*\s{2,}\S")
_ATX = re.compile(r"#{1,6}[ \t]")
_PROMPT = re.compile(r"(?:\$|>>>|\.\.\.) ")
# A line, or an item of a list, of code alone, such as the names of an option.
_CODE_NAME = re.compile(r"(?:[-*+\u2022][ \t]+)?(?:`{1,2}[^`\n]{1,80}`{1,2}(?:, | / | or )?){1,4}:?$")
# What defines the term above it, in Markdown.
_DEFINITION_BELOW = re.compile(r"[ \t]*\n(?:[ \t]*\n)+:[ \t]+\S")
_LONGEST_TERM_CHARS = 80
# Below a line and blank ones, the blanks before the next text, and its beginning.
_BELOW = re.compile(r"\s*\n([ \t]*)(\S[^\n]{0,120})")
_ROW = re.compile(r"[*+-][ \t]+-(?:[ \t]|$)")
_OPTION = re.compile(r":[a-zA-Z][\w-]*:(?:\s|$)")
_DIRECTIVE = re.compile(r"\.\. (?:\|[^|]{1,80}\| )?([a-zA-Z][\w:+.-]{0,60})::(?:[ \t]+(.*))?$")
_BLOCK_HEAD = re.compile(r"(?:!!!|\?\?\?\+?|===\+?) |:::+[ \t]*\{?\w")
_TITLED = re.compile(r"(?:!!!|\?\?\?\+?|===\+?) .*[\"']")
_MARK = re.compile(
    r"\.\.(?: (?!\[[\w#*.-]{1,60}\])|$)|__ |:::|(?:!!!|\?\?\?\+?) |-+8<"  # of reStructuredText, MkDocs and its includes
    r"|\([\w-]+\)=$|\[[^\]]+\]: ?\S*$|<[^<>]*>$|<!--.*-->$|\{[*%].*[*%]\}$"  # targets of MyST, links, HTML, templates
)
_LINK_NAME = re.compile(r"\[[^\]^][^\]]*\]:$")
_CODE_NAMES = frozenset(
    "code code-block sourcecode parsed-literal literalinclude prompt doctest testcode testoutput testsetup "
    "ipython productionlist graphviz math raw jinja click:run click:example".split()
)
_TITLED_NAMES = frozenset(("tab", "tab-item", "group-tab", "code-tab", "dropdown", "admonition"))
_DEFINITION_NAMES = frozenset(
    "function class method attribute data exception envvar program describe object setting topic rubric option "
    "cmdoption confval".split()
)
# Of these the text behind the name is a sentence.
_SENTENCE_NAMES = frozenset(
    "note warning tip hint important caution danger attention error seealso versionadded versionchanged "
    "versionremoved deprecated todo".split()
)
# What stands in these is a list of names, or no text.
_SILENT_NAMES = frozenset("toctree contents autosummary index meta".split())


def is_definition(directive: str) -> bool:
    """Return whether a directive of this name defines what its argument names, such as `py:data` or `option`."""
    return directive.rpartition(":")[2] in _DEFINITION_NAMES


def is_code(directive: str) -> bool:
    """Return whether what stands below a directive of this name is code."""
    return directive in _CODE_NAMES


def holds_no_prose(directive: str) -> bool:
    """Return whether what stands below a directive of this name is code, or a list of names."""
    return directive in _CODE_NAMES or directive in _SILENT_NAMES


def parse_directive(line: str) -> tuple[str, str] | None:
    """Return the name and the argument of the directive that a line is; None for another line."""
    found = _DIRECTIVE.match(line.strip())
    return None if found is None else (found[1], (found[2] or "").strip())


def is_mark(line: str) -> bool:
    """Return whether a line, without outer whitespace, only steers what follows: a label, a directive, a fence."""
    if _MARK.match(line) or _FENCE.match(line):
        return True
    directive = parse_directive(line)
    return directive is not None and _kind_of(*directive) is Kind.MARK


def names_what_follows(text: str, begin: int, end: int) -> bool:
    """Return whether a line of a text is code alone, or a term, above a blank line and what it names or defines."""
    line = text[begin:end].strip()
    if "\n" in line or not line:
        return False
    if len(line) <= _LONGEST_TERM_CHARS and _DEFINITION_BELOW.match(text, begin + len(text[begin:end].rstrip())):
        return True
    if not _CODE_NAME.match(line) or not _is_blank_line(text, begin):
        return False
    below = _BELOW.match(text, begin + len(text[begin:end].rstrip()))
    if below is None or _CODE_NAME.match(below[2].rstrip()):
        return False
    # What an item of a list stands for is indented.
    return line[0] == "`" or len(below[1]) > len(text[begin:end]) - len(text[begin:end].lstrip())


def introduces(line: str) -> bool:
    """Return whether a line, without outer whitespace, is a directive, admonition or tab whose content stands below."""
    directive = parse_directive(line)
    if directive is not None:
        return _kind_of(*directive) is not Kind.PROSE
    return bool(_BLOCK_HEAD.match(line))


def stretches(text: str) -> Iterable[Stretch]:
    """Return the stretches of a text, in order; blank lines belong to none."""
    if not _ANY_MARKUP.search(text) and not _begins_marked(text):
        return (Stretch(Kind.PROSE, 0, len(text)),)
    return _Scanner(text).scan()


def _begins_marked(text: str) -> bool:
    stop = text.find("\n", 0, 300)
    line = text[: 300 if stop < 0 else stop].strip()
    return bool(
        _ROW.match(line)
        or line.startswith("|")
        or is_mark(line)
        or _ATX.match(line)
        or _PROMPT.match(line)
        or parse_directive(line)
    )


class _Scanner:
    """Walks over the lines of a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._fence = _fence_before(text)
        # The fences that are open and do not make code of what stands in them.
        self._open_fences: list[str] = []
        # Code is what is indented by more than this; -1 outside of it.
        self._base = -1
        # What is indented by more than this is a list of names, or no text; -1 outside of it.
        self._silent = -1
        # Rows of a list-table are indented by more than this, and an option's description by more than the option; -1
        # outside of them.
        self._table = self._option = -1
        # The column at which the second one of a simple table begins; -1 outside of one.
        self._column = -1
        # Whether the text begins with a row of a list-table that begins before it.
        self._begins_in_table = bool(_ROW.match(text))
        # The length of the lines of a grid that is open, which may begin before the text; 0 outside of one.
        self._grid_width = _grid_width_before(text)
        # A "::" came before: what is indented by more than this, below a blank line, is code.
        self._literal = -1
        self._was_blank = True
        # Whether options of a directive may follow.
        self._has_options = False

    def scan(self) -> Iterator[Stretch]:
        # The stretch that is open.
        kind: Kind | None = None
        first = last = begin = 0
        text, marked, marked_at = self._text, _MARKED.finditer(self._text), -1
        while begin < len(text):
            while marked_at < begin:
                found = next(marked, None)
                marked_at = len(text) if found is None else _line_start(text, found.start())
            if marked_at > begin and self._is_in_prose():
                plain, begin = self._plain(begin, marked_at), marked_at
                if plain is None:
                    continue
                own, (at, end), goes_on = Kind.PROSE, plain, True
            else:
                at, end = begin, text.find("\n", begin)
                end = len(text) if end < 0 else end
                begin, line = end + 1, text[at:end]
                bare = line.strip()
                if not bare:
                    self._has_options, self._was_blank = False, True
                    continue
                indent = len(line) - len(line.lstrip())
                own = self._kind(bare, indent, at)
                self._was_blank = False
                goes_on = own in _GOING_ON or (own is Kind.ROW and not self._begins_row(bare, indent))
            if own is not kind or not goes_on:
                if kind is not None:
                    yield Stretch(kind, first, last)
                kind, first = own, at
            last = end
        if kind is not None:
            yield Stretch(kind, first, last)

    def _is_in_prose(self) -> bool:
        """Return whether nothing that came before makes plain lines anything but prose."""
        if self._fence or self._has_options or self._grid_width or self._begins_in_table:
            return False
        # Below 0 if all are.
        return self._base & self._silent & self._table & self._option & self._column & self._literal < 0

    def _plain(self, begin: int, end: int) -> Span | None:
        """Return the lines of a run of plain ones that are not blank around it; None where all are."""
        text = self._text
        self._was_blank = not text[text.rfind("\n", begin, end - 1) + 1 or begin : end].strip()
        bare = text[begin:end].strip()
        if not bare:
            return None
        first = text.index(bare, begin)
        stop = text.find("\n", first + len(bare))
        return text.rfind("\n", begin, first) + 1 or begin, len(text) if stop < 0 else stop

    def _kind(self, bare: str, indent: int, at: int) -> Kind:
        """Return the kind of a line, by itself and by those above it. at: its first character."""
        if self._fence:
            if not _ends_fence(bare, self._fence):
                return self._kind_of_code(bare, indent)
            self._fence, self._option = "", -1
            return Kind.MARK
        if self._has_options and _OPTION.match(bare):
            return Kind.MARK
        if self._literal >= 0 and self._was_blank:
            self._base, self._literal = (self._literal if indent > self._literal else -1), -1
        if self._base >= 0 and indent > self._base:
            return self._kind_of_code(bare, indent)
        self._base, self._has_options = -1, False
        if self._silent >= 0 and indent > self._silent:
            return Kind.MARK
        self._silent = -1
        self._begins_in_table = self._begins_in_table and (at == 0 or indent > 0)
        if self._begins_in_table or (self._table >= 0 and indent > self._table):
            return Kind.ROW
        self._table = -1
        return self._kind_of_row(bare, indent, at) or self._kind_of_text(bare, indent, at)

    def _kind_of_code(self, bare: str, indent: int) -> Kind:
        """Return the kind of a line of code: one of an option that a command prints is a row."""
        if bare[0] == "-" and _OPTION_ITEM.match(bare):
            self._option = indent
        elif indent <= self._option:
            self._option = -1
        return Kind.ROW if self._option >= 0 else Kind.CODE

    def _kind_of_row(self, bare: str, indent: int, at: int) -> Kind | None:
        """Return the kind of a line of a simple table, a grid or a list of options; None for another line."""
        if bare[0] == "=" and SIMPLE_RULE.match(bare):
            # The last rule stands above a blank line.
            second = bare.find("=", len(bare) - len(bare.lstrip("=")))
            self._column = -1 if _is_blank_line(self._text, at) else indent + second
            return Kind.MARK
        if self._column >= 0:
            return Kind.MARK if HEADER_RULE.match(bare) else Kind.ROW
        if bare[0] == "+" and GRID_RULE.match(bare):
            self._grid_width = len(bare)
            return Kind.MARK
        # In a grid the signs between columns stand below each other.
        if self._grid_width:
            self._grid_width = self._grid_width if bare[0] == bare[-1] == "|" and len(bare) == self._grid_width else 0
            if self._grid_width:
                return Kind.ROW
        if self._kind_of_code(bare, indent) is Kind.ROW:
            return Kind.ROW
        return None

    def _begins_row(self, bare: str, indent: int) -> bool:
        """Return whether a line of rows is the first one of its row."""
        if self._column >= 0:
            return indent < self._column
        if self._option >= 0:
            return indent == self._option
        return not self._grid_width and bool(_ROW.match(bare))

    def _kind_of_text(self, bare: str, indent: int, at: int) -> Kind:
        if fence := _FENCE.match(bare):
            return self._kind_of_fence(*fence.groups(), at=at)
        if directive := parse_directive(bare):
            self._has_options = True
            if is_code(directive[0]):
                self._base = indent
            elif directive[0] in _SILENT_NAMES:
                self._silent = indent
            elif directive[0] == "list-table":
                self._table = indent
            return _kind_of(*directive)
        kind = _kind_of_line(bare, indent)
        if kind is Kind.PROSE and names_what_follows(self._text, at, at + indent + len(bare)):
            return Kind.NAME
        if kind is Kind.MARK and ((bare.startswith(".. ") and bare[3] != "_") or _LINK_NAME.match(bare)):
            self._silent = indent  # a comment, which goes on, or the name of a link, whose target is below
        elif kind is Kind.PROSE:
            self._literal = indent if bare.endswith("::") else -1
        return kind

    def _kind_of_fence(self, marks: str, rest: str, *, at: int) -> Kind:
        """Return the kind of a line that begins as a fence does; it may underline a heading as well."""
        if not rest.strip() and _underlines(self._text, at, len(marks)):
            return Kind.PROSE
        if self._open_fences and not rest.strip() and _ends_fence(marks, self._open_fences[-1]):
            self._open_fences.pop()
            return Kind.MARK
        if marks[0] in rest:
            return Kind.CODE
        name = _OPEN_FENCE.match(rest)
        if name is None or is_code(name[1]) or name[1] in _SILENT_NAMES:
            self._fence = marks
        else:
            self._open_fences.append(marks)
            self._has_options = True
        return Kind.MARK


def _ends_fence(bare: str, fence: str) -> bool:
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _underlines(text: str, at: int, length: int) -> bool:
    """Return whether a line of "~" or "`" underlines a heading of reStructuredText: one line, not longer than it."""
    above = text[text.rfind("\n", 0, max(0, at - 1)) + 1 : max(0, at - 1)]
    if not above.strip() or len(above.rstrip()) > length:
        return False
    return (len(above.rstrip()) == length and length > 3) or _is_blank_line(text, at)


def _is_blank_line(text: str, above: int) -> bool:
    """Return whether the line below the one of a character is blank, or there is none."""
    begin = text.find("\n", above) + 1
    stop = text.find("\n", begin)
    return not begin or not text[begin : len(text) if stop < 0 else stop].strip()


def _fence_before(text: str) -> str:
    """Return the fence in which a text begins that was cut out of a longer one; "" for most texts.

    Such a fence ends without a name, right below code and above a blank line, and others do not pair with it.
    """
    fences = list(islice(_FENCE_LINE.finditer(text), 3)) if "```" in text or "~~~" in text else []
    if not fences or fences[0][2].strip() or not _closes(text, fences[0]):
        return ""
    if len(fences) == 1 or fences[1][2].strip() or not _closes(text, fences[1]):
        return fences[0][1]
    return ""


def _grid_width_before(text: str) -> int:
    """Return the length of the lines of the grid in which a text begins; 0 for most texts."""
    stop = text.find("\n")
    if text[:1] != "|" or text[stop - 1 : stop] != "|":
        return 0
    rule = _GRID_LINE.search(text)
    return stop if rule and rule.end() - rule.start() == stop else 0


def _closes(text: str, fence: re.Match[str]) -> bool:
    """Return whether a fence looks like the end of code: right below a line, and above a blank one."""
    begin = fence.start()
    above = text[text.rfind("\n", 0, max(0, begin - 1)) + 1 : max(0, begin - 1)]
    is_heading = _underlines(text, begin, len(fence[1]))
    return bool(above.strip()) and not is_heading and _is_blank_line(text, fence.end())


def _line_start(text: str, place: int) -> int:
    return place if place == 0 or text[place - 1] == "\n" else text.rfind("\n", 0, place) + 1


def _kind_of_line(bare: str, indent: int) -> Kind:
    """Return the kind of a line that is no directive, fence or row."""
    if _TITLED.match(bare):
        return Kind.NAME
    if _MARK.match(bare):
        return Kind.MARK
    if _ATX.match(bare) and indent < 4:
        return Kind.HEADING
    return Kind.CODE if _PROMPT.match(bare) else Kind.PROSE


def _kind_of(directive: str, argument: str) -> Kind:
    if argument and (directive in _TITLED_NAMES or is_definition(directive)):
        return Kind.NAME
    return Kind.PROSE if argument and directive in _SENTENCE_NAMES else Kind.MARK
