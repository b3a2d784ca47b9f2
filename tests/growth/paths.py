"""The public paths of a text: what reads, splits, encodes, searches and cites it. One row each."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mvindex.cli.conditions import parse_conditions
from mvindex.corpus.reader import open_corpus
from mvindex.corpus.text.citation import Citer, ScoredViews
from mvindex.corpus.text.parts import split_parts
from mvindex.corpus.text.sentences import split_sentences, split_snippets
from mvindex.corpus.text.units import split_units
from mvindex.corpus.text.words import pairs_and_letters, replace_runs
from mvindex.errors import MvindexError
from mvindex.search.plan import parse_operators
from mvindex.store.filters import parse_filter
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_plainly

_NUMBERS = itertools.count()
# A document of a row of a table, with its checks and metadata; a part that may be cited.
SECONDS_PER_DOCUMENT, SECONDS_PER_PART = 20e-6, 5e-6
QUESTION = "when did the embargo on oil begin, and who asked for it?"


class TextPath(NamedTuple):
    """A path of texts.

    Attributes:
        name: What it does.
        run: Takes a text, and an empty folder.
        more_seconds: CPU seconds allowed beyond one a megabyte, by the text and what run() returned: a document may be
            of two characters.
        another_from: The length from which a text is read differently; 0 for none.
    """

    name: str
    run: Callable[[str, Path], object]
    more_seconds: Callable[[str, Any], float] = lambda text, made: 0.0
    another_from: int = 0

    def most_seconds(self, text: str, made: object) -> float:
        """Return the CPU time that a text, of which this was made, may take."""
        return len(text.encode()) / 1e6 + self.more_seconds(text, made)

    def reads_alike(self, short: int, long: int) -> bool:
        """Return whether texts of both lengths are read in one way, so that their times can be compared."""
        return not short < self.another_from <= long


def _of_documents(_: str, made: Sequence[object]) -> float:
    return SECONDS_PER_DOCUMENT * len(made)


def reader(suffix: str) -> TextPath:
    """Return the path of a file that is read."""

    def run(text: str, folder: Path) -> object:
        file = folder / f"a{suffix}"
        file.write_bytes(text.encode())
        with open_corpus([file]) as corpus:
            return list(corpus)

    return TextPath(f"read {suffix}", run, _of_documents)


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
    return path._replace(
        name="read front matter",
        run=lambda text, folder: path.run(f"---\na: {text}\n---\nbody\n", folder),
        another_from=1 << 16,
    )


def wide_csv_reader() -> TextPath:
    """Return the path of a table of 1,000 columns, whose cells are pieces of the text."""
    path, width = reader(".csv"), 1000

    def run(text: str, folder: Path) -> object:
        cells = [re.sub(r'[\s",]', "1", text[at : at + 4]) for at in range(0, len(text), 4)]
        rows = [[f"column{number}" for number in range(width)]]
        rows += [[*cells[at : at + width], *["x"] * width][:width] for at in range(0, len(cells), width)]
        return path.run("\n".join(map(",".join, rows)), folder)

    return TextPath("read a wide .csv", run, _of_documents)


def cite_with_views(text: str, folder: Path) -> object:
    """Cite a text that has views of eight equal parts, as the first to ask: what is kept of a text is by its title."""
    borders = np.linspace(0, len(text), 9).astype(np.int64)
    views = ScoredViews(np.array(list(itertools.pairwise(borders))), np.arange(8, dtype=np.float32))
    return Citer(QUESTION).cite(text, f"oil > embargo {next(_NUMBERS)}", views)


def cite_asked_by_itself(text: str, folder: Path) -> object:
    """Cite a text that is the question and the title as well, and one whose words the question has in another form."""
    forms = Citer(text.replace(" ", "q ")).cite(text, f"{next(_NUMBERS)}")
    return forms, Citer(text).cite(text, f"{text} {next(_NUMBERS)}")


def cite_in_wide_table(text: str, folder: Path) -> object:
    """Cite the lines of a simple table of reStructuredText that has a column for every six characters."""
    rule = "== " * (len(text) // 6)
    return Citer("what is a b?").cite(f"A b  C d\n{rule}\n{text}", f"{next(_NUMBERS)}")


def _of_parts(text: str, _: object) -> float:
    return SECONDS_PER_PART * len(split_units(text))


PATHS = [
    TextPath("split_units", lambda text, _: split_units(text)),
    TextPath("split_parts", lambda text, _: split_parts(text)),
    TextPath("split_sentences", lambda text, _: split_sentences(text)),
    TextPath("split_snippets", lambda text, _: split_snippets(text, 8)),
    TextPath("replace_runs", lambda text, _: replace_runs(text, pairs_and_letters)),
    TextPath("cite", cite_with_views, _of_parts),
    TextPath(
        "cite, asked by itself",
        cite_asked_by_itself,
        lambda text, made: 5 * len(text) / 1e6 + 4 * _of_parts(text, made),
    ),
    TextPath(
        "cite in a wide table", cite_in_wide_table, lambda text, made: len(text) / 1e6 + 2 * _of_parts(text, made)
    ),
    TextPath("ask", lambda text, _: Citer(text).cite("The embargo began in 1973. Nobody asked.")),
    *(TextPath(f"tokenize {each.value}", lambda text, _, each=each: tokenize([text], each)) for each in Lexical),
    TextPath("tokenize plainly", lambda text, _: tokenize_plainly([text], Lexical.ENGLISH)),
    TextPath("query operators", lambda text, _: parse_operators(text)),
    TextPath("filter by a text", lambda text, _: parse_filter({"name": text})),
    TextPath("filter by a name", lambda text, _: parse_filter({text: 1})),
    TextPath("conditions", lambda text, _: parse_conditions(text)),
    front_matter_reader(),
    mail_reader(),
    notebook_reader(),
    wide_csv_reader(),
    # Python's own parser takes 1.5 s a megabyte of the shortest statements.
    reader(".py")._replace(more_seconds=lambda text, _: 1.5 * len(text) / 1e6),
    *map(reader, (".csv", ".tsv", ".jsonl", ".json")),
    # Short paragraphs and sections share passages: the number of documents is no excuse.
    *(reader(suffix)._replace(more_seconds=lambda text, _: 0.0) for suffix in (".txt", ".md", ".html", ".rst")),
]


def run_path(path: TextPath, text: str, folder: Path) -> object:
    """Run a path, and return what it made; an error of ours is an answer as well."""
    try:
        return path.run(text, folder)
    except MvindexError:
        return ()
