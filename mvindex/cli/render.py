"""Tables on stdout for people. Results of queries are in results.py, progress in progress.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mvindex.cli.terminal import BOLD, PLAIN, columns, escape_controls, has_colours, stdout_width, styled, wrapped

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
