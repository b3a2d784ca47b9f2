"""The lexical side's part of the writes to an index in Milvus, each in the steps of the write that it belongs to.

Rows of new terms and counts are written first: neither is seen before the commit. An intent follows, so that the next
writer can count its documents after a kill, then the records with the settings, which are the commit, then the removal
of what does not count any more.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.records import CountCallback, Ints
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.rows import lexical_text
from mvindex_connectors.milvus.connection import Connection, terms_of
from mvindex_connectors.milvus.layout import INTENT_KEY, MAX_INTENTS, SLOT_BITS, State, one_of, special_record
from mvindex_connectors.milvus.reader import Reader, checked
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
from mvindex_connectors.milvus.writes import columns_of, delete_keys, upsert_columns

# Documents of one record.
INTENT_DOCUMENTS = 2_000


class Intent(NamedTuple):
    """The plan of a commit, written just before it.

    Attributes:
        follows: The version of the settings before the commit.
        documents: (n, 3), of each document its number, its version before (-1: none) and after (-1: deleted).
        longest, means: Those of TermState after the commit.

    """

    follows: int
    documents: Ints
    longest: int
    means: tuple[float, float]

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the intent; ValueError where it has too many documents."""
        parts = [
            self.documents[begin : begin + INTENT_DOCUMENTS]
            for begin in range(0, max(len(self.documents), 1), INTENT_DOCUMENTS)
        ]
        if len(parts) > MAX_INTENTS:
            raise ValueError(f"intent: expected at most {MAX_INTENTS * INTENT_DOCUMENTS:,} documents")
        return [
            special_record(
                INTENT_KEY - number,
                json.dumps(
                    {
                        "follows": self.follows,
                        "parts": len(parts),
                        "longest": self.longest,
                        "means": list(self.means),
                        "documents": base64.b64encode(zlib.compress(part.astype("<i8").tobytes())).decode(),
                    }
                ),
            )
            for number, part in enumerate(parts)
        ]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Intent:
        """Return the intent of its records' texts, in order."""
        notes = [json.loads(text) for text in texts]
        parts = [np.frombuffer(zlib.decompress(base64.b64decode(note["documents"])), "<i8") for note in notes]
        first = notes[0]
        means = (float(first["means"][0]), float(first["means"][1]))
        return cls(int(first["follows"]), np.concatenate(parts).reshape(-1, 3), int(first["longest"]), means)


def read_intent(reader: Reader, version: int, first: Mapping[str, Any] | None = None) -> Intent | None:
    """Return the intent of the unfinished commit; None where there is none.

    Args:
        reader: Reads the records.
        version: The version of the settings.
        first: The first record of the intent, where it was read with the settings.

    """
    if first is None:
        first = next(iter(reader.query(one_of("pk", [INTENT_KEY]), ("pk", "text"), "reading what is written")), None)
    if first is None or (note := json.loads(first["text"]))["follows"] != version:
        return None
    keys = [INTENT_KEY - part for part in range(1, int(note["parts"]))]
    others = reader.query(one_of("pk", keys), ("pk", "text"), "reading what is written") if keys else []
    texts = [row["text"] for row in sorted(others, key=lambda row: -int(row["pk"]))]
    return Intent.parse([first["text"], *texts])


def pending_change(reader: Reader, table: TermTable, intent: Intent) -> CountChange:
    """Return the change of the counts by those documents of an unfinished commit that are stored already."""
    numbers, before, after = intent.documents.T
    found = reader.records(numbers.tolist(), ("pk", "version"))
    now = np.array([int(found[number]["version"]) if number in found else -1 for number in numbers.tolist()])
    is_done = now == after
    added, removed = is_done & (after >= 0), is_done & (before >= 0)
    return CountChange.of(
        int(np.count_nonzero(added) - np.count_nonzero(removed)),
        table.documents(first_keys(numbers[added], after[added])),
        table.documents(first_keys(numbers[removed], before[removed])),
    )


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
