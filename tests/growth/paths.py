"""The public paths of a text: what reads, splits, encodes, searches and cites it. One row each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mvindex.cli.conditions import parse_conditions
from mvindex.corpus.reader import open_corpus
from mvindex.corpus.text.citation import Citer, ScoredViews
from mvindex.corpus.text.parts import split_parts
from mvindex.corpus.text.snippets import split_sentences, split_snippets
from mvindex.corpus.text.units import split_units
from mvindex.corpus.text.unspaced import pairs_and_letters, replace_runs
from mvindex.errors import MvindexError
from mvindex.search.operators import parse_operators
from mvindex.store.filters import parse_filter
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_plainly

_NUMBERS = itertools.count()
QUESTION = "when did the embargo on oil begin, and who asked for it?"


class TextPath(NamedTuple):
    """A path of texts.

    Attributes:
        name: What it does.
        run: Takes a text, and an empty folder.
        seconds_per_mb: CPU time that it may take at most; Punkt takes more than ours for nothing but sentence ends.
    """

    name: str
    run: Callable[[str, Path], object]
    seconds_per_mb: float = 1.0


def reader(suffix: str) -> TextPath:
    """Return the path of a file that is read."""

    def run(text: str, folder: Path) -> object:
        file = folder / f"a{suffix}"
        file.write_bytes(text.encode())
        with open_corpus([file]) as corpus:
            return list(corpus)

    return TextPath(f"read {suffix}", run, 4.0)


def mail_reader() -> TextPath:
    """Return the path of the body of an e-mail."""
    path = reader(".eml")
    return path._replace(run=lambda text, folder: path.run(f"From: a@b.c\nSubject: oil\n\n{text}", folder))


def notebook_reader() -> TextPath:
    """Return the path of a cell of Markdown and one of code."""
    path = reader(".ipynb")

    def run(text: str, folder: Path) -> object:
        cells = [{"cell_type": kind, "source": text, "metadata": {}} for kind in ("markdown", "code")]
        book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return path.run(json.dumps(book), folder)

    return path._replace(run=run)


def front_matter_reader() -> TextPath:
    """Return the path of the value of a field of front matter."""
    path = reader(".md")
    return TextPath(
        "read front matter", lambda text, folder: path.run(f"---\na: {text}\n---\nbody\n", folder), path.seconds_per_mb
    )


def cite_with_views(text: str, folder: Path) -> object:
    """Cite a text that has views of eight equal parts, as the first to ask: what is kept of a text is by its title."""
    borders = np.linspace(0, len(text), 9).astype(np.int64)
    views = ScoredViews(np.array(list(itertools.pairwise(borders))), np.arange(8, dtype=np.float32))
    return Citer(QUESTION).cite(text, f"oil > embargo {next(_NUMBERS)}", views)


PATHS = [
    TextPath("split_units", lambda text, _: split_units(text), 2.5),
    TextPath("split_parts", lambda text, _: split_parts(text), 16.0),
    TextPath("split_sentences", lambda text, _: split_sentences(text), 10.0),
    TextPath("split_snippets", lambda text, _: split_snippets(text, 8), 12.0),
    TextPath("replace_runs", lambda text, _: replace_runs(text, pairs_and_letters)),
    TextPath("cite", cite_with_views, 6.0),
    TextPath("ask", lambda text, _: Citer(text).cite("The embargo began in 1973. Nobody asked."), 2.0),
    *(TextPath(f"tokenize {each.value}", lambda text, _, each=each: tokenize([text], each), 2.0) for each in Lexical),
    TextPath("tokenize plainly", lambda text, _: tokenize_plainly([text], Lexical.ENGLISH), 4.0),
    TextPath("query operators", lambda text, _: parse_operators(text)),
    TextPath("filter by a text", lambda text, _: parse_filter({"name": text})),
    TextPath("filter by a name", lambda text, _: parse_filter({text: 1})),
    TextPath("conditions", lambda text, _: parse_conditions(text)),
    front_matter_reader(),
    mail_reader(),
    notebook_reader(),
    *map(reader, (".txt", ".md", ".html", ".rst", ".py", ".csv", ".tsv", ".jsonl", ".json")),
]


def run_path(path: TextPath, text: str, folder: Path) -> None:
    """Run a path; an error of ours is an answer as well."""
    try:
        path.run(text, folder)
    except MvindexError:
        pass
