"""HTML that is escaped by default, and numbers as readers expect them."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

NONE = "\u2013"
_MINUS = "\u2212"
_VOID = frozenset({"meta", "link"})
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# NUL and surrogates have no place in an HTML file.
_NOT_HTML = re.compile("[\0\ud800-\udfff]")


class Markup(str):
    """HTML that is safe to insert as it is; any other string is text and is escaped."""

    __slots__ = ()


Content: TypeAlias = "str | None | Iterable[Content]"


def element(name: str, /, *content: Content, **attributes: str | bool | None) -> Markup:
    """Return an HTML element with its content escaped, except for Markup.

    Args:
        name: Name of the tag.
        content: Texts, Markup, None (left out), or iterables of these.
        attributes: Values by name; `class_` is class, `_` in a name is `-`; True is a name without a value.

    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    return Markup(f"<{name}{shown}>" + ("" if name in _VOID else f"{fragment(content)}</{name}>"))


def fragment(content: Content) -> Markup:
    """Return the content as HTML, without an element around it."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html.escape(_NOT_HTML.sub("\ufffd", content)))
    return Markup("".join(fragment(one) for one in content))


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{fragment(str(value))}"'


def user_text(text: str, name: str = "bdi") -> Markup:
    """Return text of a corpus or a question; its writing direction stays its own."""
    return element(name, text, dir="auto")


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Content]]) -> Markup:
    """Return a table that scrolls inside itself where it is wide; the first cell of a row names it."""
    head = element("tr", (element("th", name, scope="col") for name in header))
    body = (
        element("tr", element("th", row[0], scope="row"), (element("td", cell) for cell in row[1:])) for row in rows
    )
    content = element(
        "table", element("caption", caption, class_="unseen"), element("thead", head), element("tbody", body)
    )
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {caption}")


def make_folded_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Content]]) -> Markup:
    """Return the same table, folded below its chart."""
    return element(
        "details", element("summary", "Table of these numbers"), table(caption, header, rows), class_="numbers"
    )


def facts(entries: Iterable[tuple[str, Content]]) -> Markup:
    """Return a short list of names and values."""
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in entries)
    return element("dl", rows, class_="facts")


def count(value: float) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,.0f}"


def counted(value: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def percent(share: float) -> str:
    """Return 0.7134 as 71.3%."""
    return f"{100 * share:.1f}%"


def points(difference: float) -> str:
    """Return the difference of two shares in percentage points, with its sign."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", _MINUS)


def decimal(value: float | None) -> str:
    """Return a score or a cosine with three decimals; a dash for None."""
    return NONE if value is None else f"{value:.3f}".replace("-", _MINUS)


def bytes_text(value: float) -> str:
    """Return a size in the largest binary unit of which there is at least one, with three digits."""
    power = min(int(math.log2(max(value, 1)) / 10), len(_BYTE_UNITS) - 1)
    scaled = value / 1024**power
    return f"{scaled:.{0 if power == 0 or scaled >= 100 else 1 if scaled >= 10 else 2}f} {_BYTE_UNITS[power]}"
