"""Operators in the text of a query: "quoted phrases", +required and -excluded words, where a search asks for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Bools

if TYPE_CHECKING:
    from mvindex.store.lexical.reader import LexicalReader
    from mvindex.store.reader import SnapshotReader

# A quoted phrase, which may have a sign, or what stands between spaces.
_PARTS = re.compile(r'(?<!\S)(?P<sign>[+-]?)"(?P<phrase>[^"]+)"|(?P<word>\S+)')
# Each of them looks at all documents, and at the texts of those that have its words.
_MAX_OPERATORS = 64
# Documents whose texts are searched for a phrase at once: bounds memory.
_TEXTS_AT_ONCE = 1024


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

    def matching(self, reader: SnapshotReader) -> Bools:
        """Return which document rows have all that is required and nothing that is excluded, (num_rows,).

        A phrase is looked for in the texts of the documents that have all its words.
        """
        lexical = reader.lexical()
        found = np.ones(lexical.num_rows, dtype=bool)
        for expression in self.required:
            found &= _having(expression, lexical, reader)
        for expression in self.excluded:
            found &= ~_having(expression, lexical, reader)
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


def _having(expression: str, lexical: LexicalReader, reader: SnapshotReader) -> Bools:
    """Return which document rows have the word or phrase, (num_rows,)."""
    from mvindex.store.lexical.tokenizer import has_phrase, tokenize_query

    tokens = tokenize_query(expression, lexical.kind)
    if not len(tokens.hashes):
        raise QueryError(f"operator {expression!r:.60}: expected a letter or a digit in it")
    found = np.ones(lexical.num_rows, dtype=bool)
    for hashed in tokens.hashes.tolist():
        has_term = np.zeros(lexical.num_rows, dtype=bool)
        postings = lexical.postings(hashed)
        has_term[postings.rows[: postings.size_in(lexical.num_rows)]] = True
        found &= has_term
    if tokens.lengths[0] > 1:
        rows = np.flatnonzero(found)
        for begin in range(0, len(rows), _TEXTS_AT_ONCE):
            some = rows[begin : begin + _TEXTS_AT_ONCE].tolist()
            stored = reader.stored(some)
            found[some] = has_phrase([stored[row].lexical_text for row in some], expression, lexical.kind)
    return found
