"""How many documents have each term: counts in segments, each of the change by one commit, or of several merged.

A segment's counts are split by the highest bits of the terms' hashes into blocks of some 2,000 terms, one row each, so
that a term is looked up in one row of each segment. Segments count once the settings name them. Before a commit its
documents are noted in an intent: after a kill in the middle, those that were stored are counted, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import DamagedIndex, StaleReader, StoreError
from mvindex.records import Hashes, Ints, sliced
from mvindex_connectors.milvus.connection import Connection, terms_of
from mvindex_connectors.milvus.layout import one_of, view_keys
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.term_rows import (
    TERM_FIELDS,
    TERMS_PER_ROW,
    BatchTerms,
    add_row,
    pack_counts,
    unpack_counts,
)
from mvindex_connectors.milvus.writes import delete_keys, upsert_columns

TERMS_KEY = "terms"
# The version of the settings up to which terms are counted: an older mvindex writes documents without their terms.
COUNTED_KEY = "terms_counted"
_BLOCK_BITS, _BLOCK_TERMS = 20, 2_048
# Blocks that are made at once: some 128,000 terms in memory.
_BLOCKS_AT_ONCE = 64
# So many segments of about one size are merged.
_MERGED = 8
# Sparse vectors are made again once the index has so many times the documents of the last time, and its highest mean
# length is more than so many times the lowest.
_GROWN, _DRIFTED = 4, 1.25
# Rows of terms of one request.
ROWS_AT_ONCE = 1_024


def is_counted(settings: Mapping[str, Any]) -> bool:
    """Return whether all documents of these settings are counted, or none is as there is no lexical side."""
    return not settings.get(TERMS_KEY) or settings.get(COUNTED_KEY, 0) == settings["version"]


def check_counted(settings: Mapping[str, Any], where: str) -> None:
    """Raise StoreError where another mvindex has written documents without their terms."""
    if not is_counted(settings):
        raise StoreError(
            f"{where}: an older mvindex has written documents without their terms; `mvindex build --lexical auto` "
            "makes the lexical side again. Dense search works without"
        )


class ChangedTerms(StaleReader):
    """Another client has written since the state of the counts was read."""


class CountSegment(NamedTuple):
    """A segment: its number, its number of blocks (a power of two), and of terms."""

    number: int
    num_blocks: int
    num_terms: int

    def keys(self, blocks: Iterable[int]) -> list[int]:
        """Return the keys of these blocks."""
        return [-1 - (self.number << _BLOCK_BITS | block) for block in blocks]

    def block_of(self, term: int) -> int:
        """Return the number of the block that has the counts of a term's hash."""
        return term * self.num_blocks >> 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TermState:
    """Counts of all documents: the setting "terms" of an index with a lexical side.

    Attributes:
        num_documents: Live documents, those without terms included.
        num_terms: Terms in them, repeated ones included.
        longest: No document has, or had, more.
        means: The lowest and the highest mean length that sparse vectors are for.
        adapted_at: The number of documents when all sparse vectors were last made for one mean length.
        next_segment: The number of the next segment.
        segments: Those that count.
        retired: Those of the last merge, which do not.

    """

    num_documents: int = 0
    num_terms: int = 0
    longest: int = 1
    means: tuple[float, float] = (0.0, 0.0)
    adapted_at: int = 0
    next_segment: int = 0
    segments: tuple[CountSegment, ...] = ()
    retired: tuple[CountSegment, ...] = ()

    @property
    def mean_length(self) -> float:
        """The mean number of terms of a document."""
        return max(self.num_terms / max(self.num_documents, 1), 1.0)

    def as_setting(self) -> dict[str, Any]:
        """Return the JSON value of the setting."""
        return {
            "documents": self.num_documents,
            "terms": self.num_terms,
            "longest": self.longest,
            "means": list(self.means),
            "adapted_at": self.adapted_at,
            "next_segment": self.next_segment,
            "segments": [list(segment) for segment in self.segments],
            "retired": [list(segment) for segment in self.retired],
        }

    @classmethod
    def parse(cls, setting: Any, where: str) -> TermState:
        """Return the state of a setting; DamagedIndex where it is none."""
        try:
            return cls(
                num_documents=int(setting["documents"]),
                num_terms=int(setting["terms"]),
                longest=int(setting["longest"]),
                means=(float(setting["means"][0]), float(setting["means"][1])),
                adapted_at=int(setting["adapted_at"]),
                next_segment=int(setting["next_segment"]),
                segments=tuple(CountSegment(*map(int, segment)) for segment in setting["segments"]),
                retired=tuple(CountSegment(*map(int, segment)) for segment in setting["retired"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as err:
            raise DamagedIndex(
                f"{where}: expected the counts of its terms, got {setting!r:.80}; `mvindex build --lexical` makes the "
                "lexical side again"
            ) from err

    def with_lengths(self, lengths: Ints) -> TermState:
        """Return the state with sparse vectors of documents of these lengths, for its mean length."""
        longest, mean, (low, high) = int(lengths.max(initial=1)), self.mean_length, self.means
        means = (min(low, mean), max(high, mean)) if high else (mean, mean)
        return replace(self, longest=max(self.longest, longest), means=means, adapted_at=self.adapted_at or 1)

    @property
    def has_drifted(self) -> bool:
        """Whether sparse vectors should be made again, since their bounds are far above the scores.

        It is False until the index has grown by a factor, so that rows are seldom written again.
        """
        low, high = self.means
        return self.num_documents >= _GROWN * self.adapted_at > 0 and high > _DRIFTED * low


@dataclass(frozen=True, slots=True, kw_only=True)
class CountChange:
    """The change of the counts by a write. deltas: (t,) of the documents that have each of the terms, hashes rising."""

    num_documents: int = 0
    num_terms: int = 0
    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    deltas: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, num_documents: int, added: BatchTerms, removed: BatchTerms) -> CountChange:
        """Return the change of a write that adds and removes documents of these terms."""
        signs = np.concatenate([np.ones(len(added.hashes), np.int64), np.full(len(removed.hashes), -1, np.int64)])
        hashes, deltas = summed(np.concatenate([added.hashes, removed.hashes]), signs)
        num_terms = int(added.lengths.sum() - removed.lengths.sum())
        return cls(num_documents=num_documents, num_terms=num_terms, hashes=hashes, deltas=deltas)

    def is_same(self, other: CountChange) -> bool:
        """Return whether both change the same."""
        are_same = (self.num_documents, self.num_terms) == (other.num_documents, other.num_terms)
        return are_same and np.array_equal(self.hashes, other.hashes) and np.array_equal(self.deltas, other.deltas)

    def documents_with(self, term: int) -> int:
        """Return by how many more documents have the term of this hash."""
        place = int(np.searchsorted(self.hashes, np.uint64(term)))
        return int(self.deltas[place]) if place < len(self.hashes) and int(self.hashes[place]) == term else 0


class TermTable:
    """The collection of terms: the rows of documents' terms, and those of the counts."""

    def __init__(self, connection: Connection, reader: Reader) -> None:
        self._connection, self._reader = connection, reader
        self._name = terms_of(connection.address.collection)
        self.where = connection.address.shown

    def documents(self, keys: Ints) -> BatchTerms:
        """Return the terms of documents, in order. keys: (n,), of the first row of each; without a row it has none."""
        found: dict[int, tuple[Hashes, Ints]] = {}
        left = keys.tolist()
        while left:
            beyond: list[int] = []
            for part in sliced(left, ROWS_AT_ONCE):
                for row in self._rows(part):
                    found[int(row["pk"])] = unpack_counts(row, self.where)
                    first = int(row["pk"])
                    if first in found and int(row["num_terms"]) > TERMS_PER_ROW and first & 0xFFF == 0:
                        beyond += [first + part for part in range(1, -(-int(row["num_terms"]) // TERMS_PER_ROW))]
            left = beyond
        return self._joined(keys, found)

    def _joined(self, keys: Ints, found: Mapping[int, tuple[Hashes, Ints]]) -> BatchTerms:
        hashes, counts, sizes, lengths = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], [], []
        for key in keys.tolist():
            own, part = [], key
            while part in found:
                own.append(found[part])
                part += 1
            hashes += [each for each, _ in own]
            counts += [each for _, each in own]
            sizes.append(sum(len(each) for each, _ in own))
            lengths.append(sum(int(each.sum()) for _, each in own))
        starts = np.append(0, np.cumsum(np.array(sizes, dtype=np.int64)))
        return BatchTerms(starts, np.concatenate(hashes), np.concatenate(counts), np.array(lengths, dtype=np.int64))

    def documents_with(self, state: TermState, terms: Sequence[int]) -> dict[int, int]:
        """Return how many documents have each of the terms, by hash; ChangedTerms where a block is gone."""
        places = {
            (term, segment): segment.keys([segment.block_of(term)])[0] for term in terms for segment in state.segments
        }
        blocks = self._blocks(sorted(set(places.values())))
        total = dict.fromkeys(terms, 0)
        for (term, _), key in places.items():
            hashes, counts = blocks[key]
            place = int(np.searchsorted(hashes, np.uint64(term)))
            if place < len(hashes) and int(hashes[place]) == term:
                total[term] += int(counts[place])
        return total

    def num_pairs(self, state: TermState) -> int:
        """Return the sum of how many documents have each of all terms."""
        total = 0
        for segment in state.segments:
            for part in sliced(list(range(segment.num_blocks)), ROWS_AT_ONCE):
                total += sum(int(counts.sum()) for _, counts in self._blocks(segment.keys(part)).values())
        return total

    def _blocks(self, keys: Sequence[int]) -> dict[int, tuple[Hashes, Ints]]:
        found: dict[int, tuple[Hashes, Ints]] = {}
        for part in sliced(list(keys), ROWS_AT_ONCE):
            found |= {int(row["pk"]): unpack_counts(row, self.where) for row in self._rows(part)}
        if len(found) < len(keys):
            raise ChangedTerms(
                f"{self.where}: the counts of its terms were merged again and again, or some are gone; try later, or "
                "`mvindex build --lexical` makes them again"
            )
        return found

    def _rows(self, keys: list[int]) -> list[dict[str, Any]]:
        return self._reader.term_rows(one_of("pk", keys), TERM_FIELDS)

    def append(self, state: TermState, change: CountChange) -> tuple[TermState, tuple[CountSegment, ...]]:
        """Write the counts of a change; return the state that counts it, and the segments that can go once it does.

        Nothing counts before the settings name it. Segments that were merged go with the next merge: until then
        searches may read them that have begun before.
        """
        state = replace(
            state,
            num_documents=state.num_documents + change.num_documents,
            num_terms=state.num_terms + change.num_terms,
        )
        if not len(change.hashes):
            return state, ()
        kept, merged = _split_mergeable(state.segments, len(change.hashes))
        segment = self._write(state.next_segment, merged, change)
        state = replace(state, next_segment=state.next_segment + 1, segments=(*kept, segment))
        return (replace(state, retired=merged), state.retired) if merged else (state, ())

    def _write(self, number: int, merged: Sequence[CountSegment], change: CountChange) -> CountSegment:
        """Write a segment of the change and the merged ones, some of their blocks at a time."""
        most = len(change.hashes) + sum(segment.num_terms for segment in merged)
        num_blocks = 1 << max(0, (max(most - 1, 0) // _BLOCK_TERMS).bit_length())
        segment, num_terms = CountSegment(number, num_blocks, 0), 0
        steps = max(1, num_blocks // _BLOCKS_AT_ONCE)
        for step in range(steps):
            parts = [_between(change.hashes, change.deltas, step, steps)]
            for each in merged:
                begin, end = step * each.num_blocks // steps, -(-(step + 1) * each.num_blocks // steps)
                found = self._blocks(each.keys(range(begin, end))).values()
                parts += [_between(hashes, counts, step, steps) for hashes, counts in found]
            hashes, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            hashes, counts = summed(hashes, counts)
            num_terms += len(hashes)
            share = num_blocks // steps
            self._write_blocks(segment, range(step * share, (step + 1) * share), hashes, counts)
        return segment._replace(num_terms=num_terms)

    def _write_blocks(self, segment: CountSegment, blocks: range, hashes: Hashes, counts: Ints) -> None:
        shift = 64 - (segment.num_blocks.bit_length() - 1)
        owners = (hashes >> np.uint64(shift)).astype(np.int64) if shift < 64 else np.zeros(len(hashes), np.int64)
        ends = np.searchsorted(owners, np.arange(blocks.start, blocks.stop + 1)).tolist()
        columns: dict[str, list[Any]] = {name: [] for name in ("pk", "doc", "num_terms", "terms", "checksum", "vec")}
        for block, key in enumerate(segment.keys(blocks)):
            at = slice(ends[block], ends[block + 1])
            add_row(columns, key, at.stop - at.start, pack_counts(hashes[at], counts[at]))
        upsert_columns(self._connection, self._name, dict(columns), "writing counts of terms", ROWS_AT_ONCE)

    def remove(self, segments: Iterable[CountSegment]) -> None:
        """Remove segments that do not count any more."""
        keys = [key for segment in segments for key in segment.keys(range(segment.num_blocks))]
        delete_keys(self._connection, self._name, keys, "removing counts of terms")


def first_keys(documents: Ints, versions: Ints) -> Ints:
    """Return the keys of the first rows of documents' terms, (n,)."""
    return view_keys(np.asarray(documents, np.int64), np.asarray(versions, np.int64), np.ones(len(documents), np.int64))


def summed(hashes: Hashes, counts: Ints) -> tuple[Hashes, Ints]:
    """Return each hash once, rising, with the sum of its counts; those whose sum is 0 are left out."""
    unique, places = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(unique), dtype=np.int64)
    np.add.at(totals, places, counts)
    return unique[totals != 0], totals[totals != 0]


def _split_mergeable(
    segments: tuple[CountSegment, ...], num_terms: int
) -> tuple[tuple[CountSegment, ...], tuple[CountSegment, ...]]:
    """Return the segments that stay, and the last ones that become one with a new one of so many terms.

    These are seven of the new one's size, or smaller, and so on with what they become: so segments stay few.
    """
    end = len(segments)
    while end >= _MERGED - 1:
        tail = segments[end - (_MERGED - 1) : end]
        if max(_size_class(segment.num_terms) for segment in tail) > _size_class(num_terms):
            break
        end -= len(tail)
        num_terms += sum(segment.num_terms for segment in tail)
    return segments[:end], segments[end:]


def _size_class(num_terms: int) -> int:
    """Return a number that segments of about one size share."""
    return num_terms.bit_length() // 3


def _between(hashes: Hashes, counts: Ints, step: int, steps: int) -> tuple[Hashes, Ints]:
    """Return those counts whose hashes, rising, are in one of so many equal ranges."""
    bounds = [min((each << 64) // steps, (1 << 64) - 1) for each in (step, step + 1)]
    begin, end = np.searchsorted(hashes, np.array(bounds, dtype=np.uint64)).tolist()
    at = slice(begin, end if step + 1 < steps else None)
    return hashes[at], counts[at]
