"""Terms of many texts counted by compiled loops, which know the chunks of text that were met before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice, pairwise
from secrets import randbits
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.kernels.terms import RUN, ChunkTable, count_terms, fill_slots, find_chunks, fold, list_terms
from mvindex.records import Ints

SplitChunks = Callable[[Sequence[bytes]], Sequence[Sequence[int]]]

_SEED = np.uint64(randbits(64))
_FIRST_CHUNKS = 1 << 12
# A counter that knows more is not used again: some 80 MB.
_MOST_CHUNKS, _MOST_WORDS = 1 << 19, 1 << 22
_STEP = 1 << 16


class ChunkCounter:
    """Counts terms of texts; keeps the terms of chunks that it met. For one thread at a time."""

    def __init__(self, split: SplitChunks) -> None:
        """Begin without a chunk. split: returns the hashes of the terms of each chunk, which do not depend on case."""
        self._split = split
        self._num_chunks = 0
        self._starts = np.ones(_FIRST_CHUNKS + 1, dtype=np.int64)
        self._slots, self._words = np.zeros(2 * _FIRST_CHUNKS, dtype=np.uint64), np.empty(1, dtype=np.uint64)
        # Chunk i has the terms from _term_ends[i] to _term_ends[i + 1].
        self._term_ends, self._terms = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint64)
        # Working memory of list_terms().
        self._numbers = np.empty(0, dtype=np.int32)

    @property
    def is_full(self) -> bool:
        """Whether it knows so much that another begins anew."""
        return self._num_chunks > _MOST_CHUNKS or int(self._starts[self._num_chunks]) > _MOST_WORDS

    def count(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint64], Ints, Ints, Ints, Ints]:
        """Return the terms of the texts: hashes, starts, texts, counts and lengths of Tokens."""
        found, found_ends = self._find([text.encode() for text in texts])
        listed = np.empty(len(self._terms), dtype=np.int64)
        occurring, ends, num_listed = list_terms(found, found_ends, self._term_ends, self._numbers, listed)
        hashes, ranks = np.unique(self._terms[listed[:num_listed]], return_inverse=True)
        return (hashes, *count_terms(occurring, ends, ranks, len(hashes)))

    def _find(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[np.int32], Ints]:
        """Return the numbers of the chunks of the texts, one text behind the other, and where each text's end."""
        # A zero behind each text, and eight bytes at once.
        joined = np.frombuffer(b"\0".join([*texts, b""]), dtype=np.uint8)
        folded = np.empty(len(joined) + 8, dtype=np.uint8)
        fold(joined, folded)
        text_ends = np.cumsum(np.fromiter((len(text) + 1 for text in texts), dtype=np.int64, count=len(texts))) - 1
        known, most = self._num_chunks, len(joined) // 2 + 1
        self._words = _longer(self._words, int(self._starts[known]) + len(joined) // 8 + 2 * most)
        found, state = np.empty(most, dtype=np.int32), np.zeros(4 + len(texts), dtype=np.int64)
        state[3] = known
        while state[0] < len(texts):
            if self._num_chunks + RUN >= len(self._starts):
                self._add_room()
            table = ChunkTable(self._slots, self._starts, self._words)
            find_chunks(folded, text_ends, _SEED, table, found, state)
            self._num_chunks = int(state[3])
        if self._num_chunks > known:
            self._learn(known)
        return found[: state[2]], state[4:]

    def _add_room(self) -> None:
        """Make room for twice as many chunks."""
        self._starts, before = _longer(self._starts, 2 * len(self._starts)), self._slots
        self._slots = np.zeros(2 * len(before), dtype=np.uint64)
        fill_slots(self._slots, before)

    def _learn(self, begin: int) -> None:
        """Add the terms of the chunks from this one on."""
        starts = self._starts[begin : self._num_chunks + 1]
        words = self._words[starts[0] : starts[-1]].tobytes()
        bounds = (8 * (starts - starts[0])).tolist()
        terms = self._split([words[first + 8 : end].rstrip(b"\0") for first, end in pairwise(bounds)])
        ends = self._term_ends[begin] + np.cumsum(np.fromiter(map(len, terms), dtype=np.int64, count=len(terms)))
        self._term_ends = _longer(self._term_ends, self._num_chunks + 1)
        self._term_ends[begin + 1 : self._num_chunks + 1] = ends
        first, end = self._term_ends[[begin, self._num_chunks]].tolist()
        self._terms = _longer(self._terms, end)
        flat = chain.from_iterable(terms)
        # In steps, between which other threads run: one chunk may be a megabyte.
        for at in range(first, end, _STEP):
            size = min(_STEP, end - at)
            self._terms[at : at + size] = np.fromiter(islice(flat, size), dtype=np.uint64, count=size)
        self._numbers = np.full(len(self._terms), -1, dtype=np.int32)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array, or one that begins with it and is longer, where it has less room than that."""
    if len(array) >= size:
        return array
    longer = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
