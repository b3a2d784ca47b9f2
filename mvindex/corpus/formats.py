"""The record of a corpus format: how its files are recognised and read. registry.py lists the formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mvindex.corpus.inputs import Input
from mvindex.corpus.lines import Lines
from mvindex.corpus.rows import CorpusOptions, Reject, Row, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """A format of lines of text.

    Attributes:
        name: Value of `--format`.
        suffixes: Endings of the names of its files, with the dot, in lower case; they decide before any content.
        matches: Returns whether a file whose first line that is not blank is this one has the format.
        open: Returns how a file is read, and its rows; the lines stand at the beginning of the file.
            Raises CorpusError where the file as a whole is wrong.

    """

    name: str
    matches: Callable[[bytes], bool]
    open: Callable[[Lines, CorpusOptions], tuple[Source, Iterator[Row | Reject]]]
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFormat:
    """A format that is read as a whole or by its bytes, not line by line.

    Attributes:
        name: Value of `--format`.
        suffixes: Endings of the names of its files, with the dot, in lower case.
        matches: Returns whether a file with these first 8 bytes has the format, whatever its name.
        open: Returns how a file is read, and its rows. Raises CorpusError where the file as a whole is wrong.

    """

    name: str
    matches: Callable[[bytes], bool]
    open: Callable[[Input, CorpusOptions], tuple[Source, Iterator[Row | Reject]]]
    suffixes: tuple[str, ...] = ()
