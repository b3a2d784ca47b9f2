"""Text that is safe to show on a terminal, wrapped to its width and coloured where it has colours."""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

# Control characters, which a terminal would obey. Each becomes one character, so that spans stay valid.
_SYMBOLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_SYMBOLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
# Control characters that JSON allows unescaped, and characters that some readers take for the end of a line.
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")

# A text and the codes of its style (ECMA-48, "select graphic rendition"), "" for none.
Piece: TypeAlias = tuple[str, str]
PLAIN, BOLD, DIM, CITED, BOLD_CYAN = "", "1", "2", "1;4;32", "1;36"
_DEFAULT_SIZE = (80, 24)
_WORD = re.compile(r"\s*\S+\s*|\s+")


def escape_controls(text: str) -> str:
    """Replace every control character but tab and line feed by a symbol: ESC by ␛, C1 controls by �."""
    return text.translate(_SYMBOLS)


def print_json(value: Any) -> None:
    """Print one line of JSON to stdout, with control characters escaped."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    line = json.dumps(value, ensure_ascii=not is_unicode)
    sys.stdout.write(_RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line) + "\n")


def stdout_width() -> int:
    """Return the number of columns of the terminal, $COLUMNS where it is set, or 80."""
    return shutil.get_terminal_size(_DEFAULT_SIZE).columns


def has_colours() -> bool:
    """Return whether stdout shows styles: a terminal that can, unless NO_COLOR or FORCE_COLOR says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    is_able = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return is_able or bool(os.environ.get("FORCE_COLOR"))


def print_tsv(rows: Iterable[Sequence[Any]]) -> None:
    """Print rows to stdout, one line each, their cells separated by tabs.

    Whitespace within a text becomes one space, None an empty cell; lists and objects are JSON.
    """
    for row in rows:
        sys.stdout.write("\t".join(map(_tsv_cell, row)) + "\n")


def _tsv_cell(value: Any) -> str:
    if isinstance(value, dict | list | tuple | bool):
        value = json.dumps(value, ensure_ascii=False)
    return "" if value is None else escape_controls(" ".join(str(value).split()))


def wrapped(pieces: Sequence[Piece], width: int, *, is_coloured: bool, lead: str = "") -> str:
    """Return the pieces as one text, its lines broken between words so that each has at most `width` columns.

    lead stands before the first line; the others are indented by as much.
    """
    pieces = [(piece.replace("\t", " "), style) for piece, style in pieces]
    text = "".join(piece for piece, _ in pieces)
    margin = " " * columns(lead)
    lines = [
        "".join(_styled(pieces, begin, end)) if is_coloured else text[begin:end]
        for begin, end in _lines(text, max(width - len(margin), 2))
    ]
    shown = ((margin if number else lead) + line if line or not number else "" for number, line in enumerate(lines))
    return "\n".join(shown)


def shortened(text: str, width: int, style: str, *, is_coloured: bool) -> str:
    """Return the text as one line of at most `width` columns, with an ellipsis where it is cut."""
    if columns(text) > width:
        while columns(text) > width - 1:
            text = text[:-1]
        text += "\u2026"
    return styled(text, style, is_coloured=is_coloured)


def styled(text: str, style: str, *, is_coloured: bool) -> str:
    """Return the text in this style, where the terminal has styles."""
    return f"\x1b[{style}m{text}\x1b[0m" if is_coloured and style else text


def _styled(pieces: Sequence[Piece], begin: int, end: int) -> Iterator[str]:
    """Yield the characters [begin, end) of all pieces together, each part with its style."""
    at = 0
    for piece, style in pieces:
        part = piece[max(begin - at, 0) : max(end - at, 0)]
        if part:
            yield styled(part, style, is_coloured=True)
        at += len(piece)


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of characters of each line, without the whitespace at its end."""
    at = 0
    for line in text.split("\n"):
        begin, column = 0, 0
        for word in _WORD.finditer(line):
            needed = columns(word[0].rstrip())
            if column and column + needed > width:
                yield at + begin, at + len(line[: word.start()].rstrip())
                begin, column = word.start(), 0
            start = word.start()
            while needed > width:  # longer than a line: cut
                cut = start + max(1, _fitting(line[start : word.end()], width))
                yield at + begin, at + cut
                begin = start = cut
                needed = columns(line[start : word.end()].rstrip())
            column += columns(line[start : word.end()])
        yield at + begin, at + begin + len(line[begin:].rstrip())
        at += len(line) + 1


def _fitting(text: str, width: int) -> int:
    """Return how many of the first characters take at most `width` columns."""
    count = min(len(text), width)
    while columns(text[:count]) > width:
        count -= 1
    return count


def columns(text: str) -> int:
    """Return the columns of a terminal that the text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
