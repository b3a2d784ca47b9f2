"""Text that is safe to show on a terminal, wrapped to its width and coloured where it has colours, and tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    line = json.dumps(value, ensure_ascii=not is_unicode, allow_nan=False)
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


_GAP = 2
_LEAST_WIDTH = 8


def print_summary(sentences: Sequence[str]) -> None:
    """Print sentences to stdout, each on lines of its own, and an empty line after them."""
    for sentence in sentences:
        _write(wrapped([(escape_controls(sentence), PLAIN)], stdout_width(), is_coloured=False))
    if sentences:
        _write("")


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """Print names and values to stdout under a title, values in words, long ones with a hanging indent."""
    if title:
        _write_title(title)
    cells = [(escape_controls(_spaced(name)), in_words(name, value)) for name, value in rows.items()]
    widest = min(max((columns(name) for name, _ in cells), default=0), stdout_width() // 2)
    for name, value in cells:
        name_lines = _cell_lines(name, widest)
        for line in name_lines[:-1]:
            _write(f"  {line}")
        lead = f"  {_padded(name_lines[-1], widest)}  "
        text = wrapped([(escape_controls(value), PLAIN)], stdout_width(), is_coloured=False, lead=lead).rstrip()
        _write(styled(text[: len(lead)], BOLD, is_coloured=has_colours()) + text[len(lead) :])


def print_grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, is_text: bool = False) -> None:
    """Print a table with a header to stdout, as wide as the terminal at most.

    The first column is aligned left, the others right; all left where is_text.
    """
    if title:
        _write_title(title)
    table = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    by_column = [[columns(cell) for cell in column] for column in zip(*table, strict=True)]
    words = [max(map(columns, name.split()), default=0) for name in table[0]]
    least = [max(word, *sizes[1:]) for word, sizes in zip(words, by_column, strict=True)]
    widths = _fitting_widths([max(sizes) for sizes in by_column], least)
    for number, row in enumerate(table):
        cells = [_cell_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = [
                _padded(cell[line] if line < len(cell) else "", width, is_right=bool(place) and not is_text)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            _write((" " * _GAP).join(parts).rstrip())
        if not number:
            _write((" " * _GAP).join("-" * width for width in widths))


def _spaced(name: str) -> str:
    """Return the name of a field with spaces; other names as they are."""
    return name.replace("_", " ") if name.isidentifier() else name


def in_words(name: str, value: Any) -> str:
    """Return a value as people read it: 1,024, 12.0 KiB, yes, none."""
    if value is None or value in ("", (), [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and (name.endswith("bytes") or "_bytes_" in name):
        from mvindex.measure.planning.units import format_bytes

        return format_bytes(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(str(key), each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(in_words(name, each) for each in value)
    return str(value)


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


def _write_title(title: str) -> None:
    lines = wrapped([(escape_controls(title), BOLD)], stdout_width(), is_coloured=has_colours())
    _write(lines)


def _fitting_widths(widths: list[int], whole: Sequence[int]) -> list[int]:
    """Return widths that fit the terminal, at least 8: wide headers become narrower first, then the widest columns.

    whole: the width of each column at which no cell and no word of its header is broken.
    """
    for least in (list(whole), [0] * len(widths)):
        while sum(widths) + _GAP * (len(widths) - 1) > stdout_width():
            able = [place for place, width in enumerate(widths) if width > max(least[place], _LEAST_WIDTH)]
            if not able:
                break
            widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _cell_lines(text: str, width: int) -> list[str]:
    return wrapped([(text, PLAIN)], max(width, 2), is_coloured=False).split("\n")


def _padded(text: str, width: int, *, is_right: bool = False) -> str:
    space = " " * (width - columns(text))
    return space + text if is_right else text + space
