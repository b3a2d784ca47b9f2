"""Rows of a table as texts, and their place in its file as metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mvindex.corpus.text.normal import unset

# Of the files of a folder.
_FOLDER_FIELDS = ("file", "folder", "folder_path")


def row_text(cells: Iterable[tuple[str, Any]]) -> str:
    """Return the cells that hold something as one line: `part: PX-1037; maker: Orbitex; stock: 583`."""
    named = [
        (name if name.isalnum() else " ".join(name.split()), text)
        for name, value in cells
        if (text := cell_text(value))
    ]
    return "; ".join([f"{name}: {text}" if name else text for name, text in named])


def cell_text(value: Any) -> str:
    """Return a value as a text of one line; "" for none, and for lists of fractions, which are vectors and no text."""
    if isinstance(value, str):
        # Most cells are one word: the rest takes three times as long.
        return value if value.isascii() and value.isalnum() else " ".join(unset(value).split())
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "" if any(isinstance(one, float) for one in value) else ", ".join(filter(None, map(cell_text, value)))
    return json.dumps(value, ensure_ascii=False, default=str)


def place_row(metadata: Mapping[str, Any], **place: Any) -> dict[str, Any]:
    """Return the metadata of a row with its place; a column of the name `line` becomes `column_line`."""
    taken = {*place, *_FOLDER_FIELDS}
    return {(f"column_{name}" if name in taken else name): value for name, value in metadata.items()} | place
