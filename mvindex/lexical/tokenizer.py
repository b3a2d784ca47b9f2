"""Tokenizer of lexical search: texts are split into terms by that of SQLite's FTS5; nothing else of FTS5 is used.

A query is split by the same code as the texts, and never becomes an FTS5 query: quotes, operators and brackets in it
have no meaning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.records import Bools, Ints
from mvindex.text.unspaced import split_unspaced

Hashes = npt.NDArray[np.uint64]


class Lexical(Enum):
    """How texts are split into terms: by Unicode 6.1's letters and digits, lower case and without diacritics.

    ENGLISH: terms are reduced to their stems as well (Porter 1980). BIGRAMS: of scripts without spaces between words,
    such as Chinese, Japanese and Thai, each two letters that follow each other are a term.
    """

    UNICODE = "unicode"
    ENGLISH = "english"
    BIGRAMS = "bigrams"


_TOKENIZERS = {
    Lexical.UNICODE: "unicode61 remove_diacritics 2",
    Lexical.ENGLISH: "porter unicode61 remove_diacritics 2",
    # With marks, which are vowels in Thai.
    Lexical.BIGRAMS: "unicode61 remove_diacritics 2 categories ''L* N* Co Mn Mc''",
}

_MOST_CHARS = 1 << 24


class Tokens(NamedTuple):
    """The terms of n texts, each with the texts that have it.

    terms: distinct, in UTF-8; texts[starts[i]:starts[i + 1]] have terms[i], as often as counts gives.
    lengths: (n,) int64, the number of terms of each text.
    """

    terms: list[bytes]
    starts: Ints
    texts: Ints
    counts: Ints
    lengths: Ints

    def hashes(self) -> Hashes:
        """Return the hash that stands for each term in the index, (w,)."""
        return np.array([xxhash.xxh3_64_intdigest(term) for term in self.terms], dtype=np.uint64)


def parse_lexical(value: object) -> Lexical | None:
    """Return the kind of this name, or None; ConfigError for another value."""
    if value is None:
        return None
    names = [kind.value for kind in Lexical]
    if not isinstance(value, str) or value not in names:
        raise ConfigError(f"lexical: expected {', '.join(names)}, auto or none, got {value!r:.60}")
    return Lexical(value)


def tokenize_in_parts(texts: Sequence[str], lexical: Lexical) -> Iterator[Tokens]:
    """Yield the terms of the texts, in parts of a bounded number of characters."""
    begin = size = 0
    for number, text in enumerate(texts):
        if size + len(text) > _MOST_CHARS and number > begin:
            yield tokenize(texts[begin:number], lexical)
            begin, size = number, 0
        size += len(text)
    if len(texts) > begin:
        yield tokenize(texts[begin:], lexical)


def tokenize(texts: Sequence[str], lexical: Lexical) -> Tokens:
    """Return the terms of the texts; Unsupported where SQLite was built without FTS5."""
    terms, lists = _terms(texts, lexical)
    numbers: Ints = np.fromstring(b",".join(lists), dtype=np.int64, sep=",") if lists else np.empty(0, np.int64)
    ends = np.cumsum([each.count(b",") + 1 for each in lists], dtype=np.int64)
    # One entry per occurrence of a term in a text; equal ones follow each other.
    is_first = np.ones(len(numbers), dtype=bool)
    is_first[1:] = numbers[1:] != numbers[:-1]
    is_first[ends[:-1]] = True
    firsts = np.flatnonzero(is_first)
    return Tokens(
        terms=terms,
        starts=np.searchsorted(firsts, np.append(0, ends)).astype(np.int64),
        texts=numbers[firsts],
        counts=np.diff(np.append(firsts, len(numbers))),
        lengths=np.bincount(numbers, minlength=len(texts)).astype(np.int64),
    )


def has_phrase(texts: Sequence[str], phrase: str, lexical: Lexical) -> Bools:
    """Return which texts have the terms of the phrase, one after the other, (n,)."""
    found = np.zeros(len(texts), dtype=bool)
    with _split_texts(texts, lexical) as connection:
        plain = split_unspaced(phrase) if lexical is Lexical.BIGRAMS else phrase
        # A string of FTS5: nothing in it is an operator, and it ends at no NUL.
        query = '"' + plain.replace('"', " ").replace("\0", " ") + '"'
        rows = connection.execute("SELECT rowid FROM t WHERE t MATCH ?", (query,)).fetchall()
    found[[row for (row,) in rows]] = True
    return found


def _terms(texts: Sequence[str], lexical: Lexical) -> tuple[list[bytes], list[bytes]]:
    """Return the distinct terms, and for each the rising numbers of the texts that have it, once per occurrence."""
    with _split_texts(texts, lexical) as connection:
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(t, instance)")
        rows: list[tuple[Any, Any]] = connection.execute(
            "SELECT term, group_concat(doc) FROM terms GROUP BY term"
        ).fetchall()
    return [term for term, _ in rows], [numbers for _, numbers in rows]


@contextmanager
def _split_texts(texts: Sequence[str], lexical: Lexical) -> Iterator[sqlite3.Connection]:
    """Split the texts by FTS5, into a table t in memory, for as long as the block takes."""
    split = map(split_unspaced, texts) if lexical is Lexical.BIGRAMS else texts
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        try:
            connection.execute(
                f"CREATE VIRTUAL TABLE t USING fts5(text, content='', tokenize='{_TOKENIZERS[lexical]}')"
            )
        except sqlite3.OperationalError as err:
            raise Unsupported(f"lexical search needs SQLite with FTS5; this one says: {err}") from err
        # FTS5 cuts terms of more than 32 KiB, maybe inside a letter: then they are not valid UTF-8.
        connection.text_factory = bytes
        try:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", enumerate(split))
            yield connection
            connection.execute("ROLLBACK")
        except sqlite3.Error as err:
            raise StoreError(f"texts of {sum(map(len, texts)):,} characters cannot be split into terms: {err}") from err
