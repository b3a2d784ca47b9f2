"""Maintain an index in Milvus: remove views and terms that no record names, verify checksums, terms and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.errors import MvindexError
from mvindex.maintenance import CompactReport, Problem, VerifyReport
from mvindex.records import CountCallback, Ints
from mvindex.store.rows import lexical_text
from mvindex_connectors.milvus.collections import drop_left, read_home
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import LIGHT_FIELDS, MAX_DOCUMENTS, view_keys
from mvindex_connectors.milvus.reader import PASS_NUMBERS, Reader, light, stored_document
from mvindex_connectors.milvus.store import MilvusStore
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


def compact(store: MilvusStore, on_progress: CountCallback) -> CompactReport:
    """Remove the views and terms that no record names; takes the writer's lease. The report counts views."""
    with store.writing() as writer:
        reader = store.reader.strongly()
        documents = views = dropped = 0
        end = int(store.snapshot.settings["next_document"])
        if store.has_views:
            for begin in [*range(0, end, PASS_NUMBERS), end]:
                until = begin + PASS_NUMBERS if begin < end else MAX_DOCUMENTS
                named = _named(reader, begin, min(until, end))
                there = reader.view_keys_of(begin, min(until, end) if begin < end else until)
                leftover = np.setdiff1d(there, named[1])
                writer.remove_rows(leftover.tolist())
                if store.snapshot.lexical is not None:
                    writer.remove_terms(reader, begin, min(until, end) if begin < end else until, named[1])
                documents, views, dropped = documents + named[0], views + len(named[1]), dropped + len(leftover)
                on_progress(named[0])
        drop_left(store.connection, store.root, read_home(store.connection, store.root))
        writer.change_settings(documents=documents, views=views)
        row_bytes = 4 * (store.snapshot.dim or 0)
    return CompactReport(
        generation=int(store.snapshot.settings["version"]),
        documents=documents,
        dropped=dropped,
        bytes_before=(views + dropped) * row_bytes,
        bytes_after=views * row_bytes,
        is_old_in_use=False,
    )


def _named(reader: Reader, begin: int, end: int) -> tuple[int, Ints]:
    """Return the number of documents among these numbers, and the keys of their views."""
    rows = reader.query(f"pk >= {begin} and pk < {end}", LIGHT_FIELDS) if begin < end else []
    if not rows:
        return 0, np.empty(0, dtype=np.int64)
    numbers, versions, counts = np.array(
        [(int(row["pk"]), int(row["version"]), int(row["num_views"])) for row in rows], dtype=np.int64
    ).T
    return len(rows), view_keys(numbers, versions, counts)


def verify(store: MilvusStore, on_progress: CountCallback) -> VerifyReport:
    """Check each record against its checksum, and against the views that it names."""
    problems: list[Problem] = []
    documents = size_bytes = 0
    damaged: set[str] = set()
    reader, dim = store.reader.strongly(), store.snapshot.dim or 1
    checks_terms = None if store.snapshot.lexical is None else TermCheck(store.connection, reader)
    for rows in reader.each(int(store.snapshot.settings["next_document"])):
        documents += len(rows)
        for problem in [*_in_records(rows, store.where), *_in_views(reader, rows, dim)]:
            problems.append(problem)
            damaged.add(str(problem.document))
        count = sum(int(row["num_views"]) for row in rows) * dim * 4
        size_bytes += count
        on_progress(count)
        if checks_terms is not None:
            for problem in checks_terms.problems_of(rows):
                problems.append(problem)
                damaged.add(str(problem.document))
    if checks_terms is not None:
        problems += checks_terms.in_counts()
    return VerifyReport(
        path=store.where,
        format_version=int(store.snapshot.settings["format_version"]),
        documents=documents,
        damaged_documents=len(damaged),
        size_bytes=size_bytes,
        problems=tuple(problems),
    )


def _in_records(rows: Sequence[Mapping[str, Any]], where: str) -> list[Problem]:
    found = []
    for row in rows:
        try:
            stored_document(row, where)
        except MvindexError as err:
            found.append(Problem(where, str(row["id"]), str(err)))
    return found


def _in_views(reader: Reader, rows: Sequence[Mapping[str, Any]], dim: int) -> list[Problem]:
    """Return the problems of the views: all are read at once, and document by document only if one is damaged."""
    lights = [light(row) for row in rows]
    try:
        reader.views(lights, dim)
        return []
    except MvindexError:
        found = []
    for row, one in zip(rows, lights, strict=True):
        try:
            reader.views([one], dim)
        except MvindexError:
            reason = "its views are not those that its record names, or do not match their checksum"
            found.append(Problem(reader.where, str(row["id"]), reason))
    return found
