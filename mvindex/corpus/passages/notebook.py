"""Jupyter notebooks: each cell is a section below the headings before it; outputs are left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import decode_text, passage_format, read_whole
from mvindex.corpus.passages.markdown import add_markdown
from mvindex.corpus.passages.outline import Block, Outline, SectionBuilder
from mvindex.corpus.rows import CorpusOptions
from mvindex.errors import CorpusError


def outline_notebook(cells: list[tuple[str, str]]) -> Outline:
    """Return the outline of cells, each its kind and text; code is cut between lines."""
    kept = [(kind, text) for kind, source in cells if (text := source.replace("\0", "").strip("\r\n")).strip()]
    text = "\n\n".join(text for _, text in kept)
    builder, begin = SectionBuilder(), 0
    for kind, source in kept:
        end = begin + len(source)
        builder.begin_section()
        if kind == "markdown":
            add_markdown(text, begin, end, builder)
        else:
            builder.add_block(Block(begin, end, is_lines=True))
        begin = end + 2
    return Outline(text=text, sections=builder.finish(), title=builder.first_heading)


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    text, _ = decode_text(read_whole(file, options), file.name)
    try:
        cells = [_cell(cell) for cell in _cells_of(json.loads(text))]
    except json.JSONDecodeError as err:
        at = f"line {err.lineno}, column {err.colno}"
        raise CorpusError(
            f"{file.name}:{err.lineno}: expected JSON, got what is damaged or cut at {at}: {err.msg}"
        ) from err
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as err:
        raise CorpusError(
            f"{file.name}: expected a notebook, an object with cells: {type(err).__name__}: {err}"
        ) from err
    yield outline_notebook(cells)


def _cells_of(notebook: Any) -> list[Any]:
    """Return the cells; before version 4 they stood in worksheets."""
    if "cells" in notebook:
        return list(notebook["cells"])
    return [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]


def _cell(cell: Any) -> tuple[str, str]:
    source = cell["source"] if "source" in cell else cell["input"]
    text = source if isinstance(source, str) else "".join(source)
    if cell["cell_type"] == "heading":  # before version 4 a heading was a cell of its own
        return "markdown", f"{'#' * max(1, min(cell['level'], 6))} {text}"
    return cell["cell_type"], text


FORMATS = (passage_format("notebook", (".ipynb",), _read),)
