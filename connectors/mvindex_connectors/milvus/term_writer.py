"""The lexical side's part of the writes to an index in Milvus, each in the steps of the write that it belongs to.

Rows of new terms and counts are written first: neither is seen before the commit. An intent follows, then the records
with the settings, which are the commit, then the removal of what does not count any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.records import CountCallback, Ints
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.rows import lexical_text
from mvindex_connectors.milvus.columns import columns_of
from mvindex_connectors.milvus.connection import Connection, terms_of
from mvindex_connectors.milvus.intent import Intent, pending_change, read_intent
from mvindex_connectors.milvus.layout import SLOT_BITS
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.records import checked
from mvindex_connectors.milvus.state import State
from mvindex_connectors.milvus.term_counts import (
    ROWS_AT_ONCE,
    TERMS_KEY,
    CountChange,
    CountSegment,
    TermState,
    TermTable,
    check_counted,
    first_keys,
    is_counted,
)
from mvindex_connectors.milvus.term_rows import NO_TERMS, TERMS_PER_ROW, BatchTerms, split_texts, term_columns
from mvindex_connectors.milvus.writes import delete_keys, upsert_columns


class TermStep(NamedTuple):
    """The part of a commit that the lexical side has.

    Attributes:
        state: The counts after it.
        documents: (n, 3) as in Intent.
        retired: Segments that nobody needs afterwards.
        old_keys: Rows of terms that do not count afterwards.

    """

    state: TermState
    documents: Ints
    retired: tuple[CountSegment, ...]
    old_keys: list[int]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the commit changes."""
        return {TERMS_KEY: self.state.as_setting()}


class TermWriter:
    """Writes of terms, under the lease of a MilvusWriter."""

    def __init__(self, connection: Connection, state: State, reader: Reader) -> None:
        self._connection, self._state, self._reader = connection, state, reader
        self._name, self._where = terms_of(connection.address.collection), connection.address.shown
        self._table = TermTable(connection, reader)
        self.num_written = 0

    @property
    def is_enabled(self) -> bool:
        """Whether the index has a lexical side."""
        return self._state.lexical is not None

    def add(self, texts: Sequence[str], keys: Mapping[str, Sequence[int]], olds: Mapping[int, int]) -> TermStep | None:
        """Write the terms of new versions of documents, and their counts; None without a lexical side.

        Args:
            texts: What lexical search indexes, of each document.
            keys: pk and version of each document.
            olds: The version that each replaced document has now, by number.

        Raises:
            StoreError: For terms of another version of mvindex.

        """
        stored = self._state.lexical
        if stored is None:
            return None
        stored.check_version(self._where)
        check_counted(self._state.settings, self._where)
        numbers, versions = (np.array(keys[name], dtype=np.int64) for name in ("pk", "version"))
        before = np.array([olds.get(number, -1) for number in numbers.tolist()], dtype=np.int64)
        terms = split_texts(texts, stored.kind)
        old_keys = first_keys(numbers[before >= 0], before[before >= 0])
        olds_terms = self._table.documents(old_keys)
        change = CountChange.of(int(np.count_nonzero(before < 0)), terms, olds_terms)
        state, retired = self._table.append(self._current(), change)
        state = self._write(state.with_lengths(terms.lengths), terms, first_keys(numbers, versions))
        return TermStep(state, np.stack([numbers, before, versions], axis=1), retired, _row_keys(old_keys, olds_terms))

    def remove(self, numbers: Ints, versions: Ints) -> TermStep | None:
        """Write the counts without these documents, of these versions; None without a lexical side."""
        if not self.is_enabled:
            return None
        check_counted(self._state.settings, self._where)
        old_keys = first_keys(numbers, versions)
        terms = self._table.documents(old_keys)
        state, retired = self._table.append(self._current(), CountChange.of(-len(numbers), NO_TERMS, terms))
        documents = np.stack([numbers, versions, np.full(len(numbers), -1)], axis=1)
        return TermStep(state, documents, retired, _row_keys(old_keys, terms))

    def announce(self, step: TermStep) -> None:
        """Note what the commit is about to do, just before it."""
        intent = Intent(int(self._state.settings["version"]), step.documents, step.state.longest, step.state.means)
        columns = columns_of(intent.records())
        upsert_columns(
            self._connection, self._connection.address.collection, columns, "noting what is about to be written", 1024
        )

    def finish(self, step: TermStep) -> None:
        """Remove what does not count any more, once the commit is there."""
        self._table.remove(step.retired)
        delete_keys(self._connection, self._name, step.old_keys, "removing old terms")

    def recovered(self) -> tuple[dict[str, Any], tuple[CountSegment, ...]]:
        """Return the settings that count what a dead writer has stored, and the segments that nobody needs then."""
        settings = self._state.settings
        intent = (
            read_intent(self._reader, int(settings["version"])) if self.is_enabled and is_counted(settings) else None
        )
        if intent is None:
            return {}, ()
        state = replace(self._current(), longest=intent.longest, means=intent.means)
        state, retired = self._table.append(state, pending_change(self._reader, self._table, intent))
        return {TERMS_KEY: state.as_setting()}, retired

    def adapted(self) -> tuple[TermState, TermState] | None:
        """Return the counts while adapt() makes all sparse vectors again, and those after it; None without need."""
        if not self.is_enabled or not (state := self._current()).has_drifted:
            return None
        during = state.with_lengths(np.zeros(0, dtype=np.int64))
        after = replace(during, means=(state.mean_length, state.mean_length), adapted_at=state.num_documents)
        return during, after

    def adapt(self, state: TermState) -> None:
        """Make the sparse vectors of all documents again, for one mean length."""
        for rows in self._reader.each(int(self._state.settings["next_document"]), ("pk", "version")):
            numbers, versions = np.array([(int(row["pk"]), int(row["version"])) for row in rows], dtype=np.int64).T
            keys = first_keys(numbers, versions)
            self._write(state, self._table.documents(keys), keys)

    def remove_segments(self, segments: Sequence[CountSegment]) -> None:
        """Remove segments that nobody needs any more."""
        self._table.remove(segments)

    def remove_leftovers(self, reader: Reader, begin: int, end: int, view_keys: Ints) -> None:
        """Remove rows of terms that dead writers have left.

        Args:
            reader: Sees all that was written.
            begin: The number of the first document; with 0, counts that do not count are removed as well.
            end: The number behind the last one.
            view_keys: Keys of the views of the documents as they are now.

        """
        rows = reader.term_rows(f"doc >= {begin} and doc < {end}", ["pk"])
        found = np.array([int(row["pk"]) for row in rows], dtype=np.int64)
        leftover = found[~np.isin(found >> SLOT_BITS, view_keys >> SLOT_BITS)].tolist()
        if begin == 0:
            state = self._current()
            kept = (*state.segments, *state.retired)
            counting = {key for each in kept for key in each.keys(range(each.num_blocks))}
            leftover += sorted({int(row["pk"]) for row in reader.term_rows("pk < 0", ["pk"])} - counting)
        delete_keys(self._connection, self._name, leftover, "removing old terms")

    def fill(self, kind: Lexical, on_progress: CountCallback) -> TermState:
        """Write the terms of all documents to the collection, which is new; return their counts."""
        state = TermState()
        for rows in self._reader.strongly().each(int(self._state.settings["next_document"])):
            texts = [lexical_text(checked(row, self._where)["title"], row["text"]) for row in rows]
            numbers, versions = np.array([(int(row["pk"]), int(row["version"])) for row in rows], dtype=np.int64).T
            terms = split_texts(texts, kind)
            state, retired = self._table.append(state, CountChange.of(len(rows), terms, NO_TERMS))
            self._table.remove(retired)
            state = self._write(state.with_lengths(terms.lengths), terms, first_keys(numbers, versions))
            on_progress(len(rows))
        return state

    def _write(self, state: TermState, terms: BatchTerms, keys: Ints) -> TermState:
        # A document without terms has no row: one that a dead writer has left under its key would pass for its own.
        delete_keys(self._connection, self._name, keys[np.diff(terms.starts) == 0].tolist(), "removing old terms")
        columns = term_columns(terms, keys, state.mean_length)
        upsert_columns(self._connection, self._name, columns, "writing terms", ROWS_AT_ONCE)
        self.num_written += len(columns["pk"])
        return state

    def _current(self) -> TermState:
        return TermState.parse(self._state.settings.get(TERMS_KEY), self._where)


def _row_keys(firsts: Ints, terms: BatchTerms) -> list[int]:
    """Return the keys of all rows of documents' terms."""
    sizes = np.diff(terms.starts).tolist()
    return [
        first + part
        for first, size in zip(firsts.tolist(), sizes, strict=True)
        for part in range(-(-size // TERMS_PER_ROW))
    ]
