"""Operators in the text of a query: "quoted phrases", +required and -excluded words, where a search asks for them."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvindex.errors import QueryError
from mvindex.records import Bools

if TYPE_CHECKING:
    from mvindex.store.lexical.tokenizer import Lexical, Tokens
    from mvindex.store.reader import SnapshotReader

# A quoted phrase, which may have a sign, or what stands between spaces.
_PARTS = re.compile(r'(?<!\S)(?P<sign>[+-]?)"(?P<phrase>[^"]+)"|(?P<word>\S+)')
# Each of them looks at all documents, and at the texts of those that have its words.
_MAX_OPERATORS = 64
# Each term of them looks at all documents, and SQLite takes memory for each term of a phrase and each place in a text.
_MAX_PHRASE_TERMS, _MAX_TERMS = 64, 256
# Documents whose texts are searched for a phrase at once: bounds memory.
_TEXTS_AT_ONCE = 1024


class TermRows(Protocol):
    """The documents of one index by their terms. num_rows: row numbers are below it."""

    @property
    def kind(self) -> Lexical:
        """How texts are split into terms."""

    @property
    def num_rows(self) -> int:
        """The number above all document rows."""

    def rows_with(self, term: int) -> npt.NDArray[Any]:
        """Return the rows of the documents that have the term of this hash, deleted ones or not."""

    def texts(self, rows: list[int]) -> list[str]:
        """Return what lexical search indexes of these documents; an empty text for one that is gone."""


class SnapshotTerms:
    """The TermRows of a snapshot of an embedded store."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader, self._lexical = reader, reader.lexical()
        self.kind, self.num_rows = self._lexical.kind, self._lexical.num_rows

    def rows_with(self, term: int) -> npt.NDArray[Any]:
        """Return the rows of the documents that have the term of this hash."""
        matches = self._lexical.find(term)
        return matches.postings.rows[: matches.size]

    def texts(self, rows: list[int]) -> list[str]:
        """Return what lexical search indexes of these documents."""
        stored = self._reader.stored(rows)
        return [stored[row].lexical_text for row in rows]


class Operators(NamedTuple):
    """A query's text, and the words and phrases that its operators demand.

    Attributes:
        text: The query without operators and without what it excludes.
        required: Words and phrases that a document must have in its title or text.
        excluded: Words and phrases that it must not have.

    """

    text: str
    required: tuple[str, ...]
    excluded: tuple[str, ...]

    def matching(self, source: TermRows) -> Bools:
        """Return which document rows have all that is required and nothing that is excluded, (num_rows,).

        A phrase is looked for in the texts of the documents that have all its words. QueryError where they have more
        terms than are looked for.
        """
        required, excluded = (
            {expression: _terms_of(expression, source.kind) for expression in expressions}
            for expressions in (self.required, self.excluded)
        )
        count = sum(int(terms.lengths[0]) for terms in chain(required.values(), excluded.values()))
        if count > _MAX_TERMS:
            raise QueryError(
                f"query {self.text!r:.60}: expected at most {_MAX_TERMS} terms in operators, got {count:,}"
            )
        found = np.ones(source.num_rows, dtype=bool)
        for expression, terms in required.items():
            found &= _having(expression, terms, source)
        for expression, terms in excluded.items():
            found &= ~_having(expression, terms, source)
        return found


def parse_operators(text: str) -> Operators:
    """Return the operators of a query's text; QueryError where nothing is left to search for."""
    words, required, excluded = [], [], []
    for part in _PARTS.finditer(text):
        word = part["word"]
        is_signed = word is not None and len(word) > 1 and word[0] in "+-"
        sign, expression = (word[0], word[1:]) if is_signed else (part["sign"], part["phrase"])
        if word is not None and not is_signed:
            words.append(word)
        elif sign == "-":
            excluded.append(expression)
        else:
            required.append(expression)
            words.append(expression)
    if (count := len(required) + len(excluded)) > _MAX_OPERATORS:
        raise QueryError(f"query {text!r:.60}: expected at most {_MAX_OPERATORS} operators, got {count:,}")
    if not words:
        raise QueryError(f"query {text!r:.60}: expected a word beside the excluded ones")
    return Operators(" ".join(words), tuple(required), tuple(excluded))


def _terms_of(expression: str, kind: Lexical) -> Tokens:
    """Return the terms of a word or phrase; QueryError for none, and for more than are looked for."""
    from mvindex.store.lexical.tokenizer import tokenize_query

    tokens = tokenize_query(expression, kind)
    count = int(tokens.lengths[0])
    if not count:
        raise QueryError(f"operator {expression!r:.60}: expected a letter or a digit in it")
    if count > _MAX_PHRASE_TERMS:
        raise QueryError(f"operator {expression!r:.60}: expected at most {_MAX_PHRASE_TERMS} terms, got {count:,}")
    return tokens


def _having(expression: str, tokens: Tokens, source: TermRows) -> Bools:
    """Return which document rows have the word or phrase of these terms, (num_rows,)."""
    from mvindex.store.lexical.tokenizer import has_phrase

    found = np.ones(source.num_rows, dtype=bool)
    for hashed in tokens.hashes.tolist():
        has_term = np.zeros(source.num_rows, dtype=bool)
        has_term[source.rows_with(hashed)] = True
        found &= has_term
    if tokens.lengths[0] > 1:
        rows = np.flatnonzero(found)
        for begin in range(0, len(rows), _TEXTS_AT_ONCE):
            some = rows[begin : begin + _TEXTS_AT_ONCE].tolist()
            found[some] = has_phrase(source.texts(some), expression, source.kind)
    return found
