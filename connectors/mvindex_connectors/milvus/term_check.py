"""Check the lexical side of an index in Milvus against the texts of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.errors import MvindexError
from mvindex.maintenance import Problem
from mvindex.records import Ints
from mvindex.store.rows import lexical_text
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.term_counts import TermTable, first_keys
from mvindex_connectors.milvus.term_rows import BatchTerms, split_texts
from mvindex_connectors.milvus.term_search import LexicalState

_WAY_OUT = "`mvindex build --lexical` makes the lexical side again"


class TermCheck:
    """Checks the terms of documents, some at a time, and then the counts of all."""

    def __init__(self, connection: Connection, reader: Reader) -> None:
        self._table, self._where = TermTable(connection, reader), reader.where
        self._damaged: MvindexError | None = None
        self._num_documents = self._num_terms = self._num_pairs = 0
        try:
            self._state, _ = LexicalState.read(connection, reader)
        except MvindexError as err:
            self._damaged = err

    def problems_of(self, rows: Sequence[Mapping[str, Any]]) -> list[Problem]:
        """Return the problems of the terms of these documents."""
        if self._damaged is not None:
            return []
        terms = split_texts([lexical_text(row["title"], row["text"]) for row in rows], self._state.kind)
        self._num_documents += len(rows)
        self._num_terms += int(terms.lengths.sum())
        self._num_pairs += len(terms.hashes)
        numbers, versions = np.array([(int(row["pk"]), int(row["version"])) for row in rows], dtype=np.int64).T
        keys = first_keys(numbers, versions)
        if self._are_stored(keys, terms):
            return []
        what = f"its terms are not those of its text; {_WAY_OUT}"
        return [
            Problem(self._where, str(row["id"]), what, is_derived=True)
            for number, row in enumerate(rows)
            if not self._are_stored(keys[number : number + 1], terms.part(number))
        ]

    def _are_stored(self, keys: Ints, terms: BatchTerms) -> bool:
        try:
            stored = self._table.documents(keys)
        except MvindexError:
            return False
        return all(np.array_equal(mine, yours) for mine, yours in zip(stored, terms, strict=True))

    def in_counts(self) -> list[Problem]:
        """Return the problems of the counts, once all documents were given."""
        if self._damaged is not None:
            return [Problem(self._where, None, str(self._damaged), is_derived=True)]
        counts, pending = self._state.counts, self._state.pending
        try:
            num_pairs = self._table.num_pairs(counts) + int(pending.deltas.sum())
        except MvindexError as err:
            return [Problem(self._where, None, str(err), is_derived=True)]
        counted = (self._state.num_documents, counts.num_terms + pending.num_terms, num_pairs)
        expected = (self._num_documents, self._num_terms, self._num_pairs)
        if counted == expected:
            return []
        message = f"lexical counts (documents, terms, postings): expected {expected}, got {counted}; {_WAY_OUT}"
        return [Problem(self._where, None, message, is_derived=True)]
