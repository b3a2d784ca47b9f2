"""The compiled search for the best documents by BM25, and the bounds that it skips by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mvindex.kernels.loading import Loading
from mvindex.records import Bools, Doubles, Ints
from mvindex.store.lexical.reader import Lengths, PostingsCache, Skips, TermPostings

# Terms with this many documents in a window, on average, have bounds for each window.
_PER_WINDOW = 16
# Bounds are made again where the mean length is not of about this many times what it was.
_LEAST_MEAN, _MOST_MEAN = 0.9, 1.05
LOADING = Loading()


class Saturation(NamedTuple):
    """Parameters of the score of a term in a document: k1, b, and the mean length of all documents."""

    k1: float
    b: float
    mean: float


class WeightedTerm(NamedTuple):
    """A term of a query in one collection: hash, weight (a score is up to that), postings, how many of them count."""

    hash: int
    weight: float
    postings: TermPostings
    size: int


class BestMatches:
    """The best documents of several collections, looked for in one after the other."""

    def __init__(self, limit: int, saturation: Saturation) -> None:
        """Begin with none."""
        self._heap, self._rows, self._num_held = np.empty(limit), np.empty(limit, dtype=np.int64), 0
        self._saturation = saturation

    def find(self, terms: Sequence[WeightedTerm], cache: PostingsCache, allowed: Bools) -> tuple[Ints, Doubles]:
        """Return rows that may be among the best and those found before, with their scores up to rounding; in no order.

        allowed: (num_rows,), of the collection.
        """
        from mvindex.kernels.maxscore import Collection, TermLists, find_matches

        lengths, (k1, b, mean) = cache.lengths, self._saturation
        collection = Collection(
            lengths.ctypes.data, allowed.ctypes.data, len(allowed), float(k1 * (1 - b)), float(k1 * b / mean)
        )
        found = [(term, self._skips_of(term, cache, lengths)) for term in terms if term.size]
        integers = [
            (
                term.postings.rows_at,
                term.postings.counts_at,
                term.postings.counts.itemsize,
                term.size,
                skips.starts.ctypes.data if len(skips.bounds) else 0,
                skips.bounds.ctypes.data if len(skips.bounds) else 0,
            )
            for term, skips in found
        ]
        scales = [(term.weight, term.weight * max(1.0, mean / skips.mean)) for term, skips in found]
        rows_at, counts_at, count_bytes, sizes, starts_at, bounds_at = (
            np.array(integers, dtype=np.int64).reshape(-1, 6).T.copy()
        )
        weights, scaled = np.array(scales).reshape(-1, 2).T.copy()
        largest = scaled * np.array([skips.largest for _, skips in found])
        lists = TermLists(rows_at, counts_at, count_bytes, sizes, weights, starts_at, bounds_at, scaled, largest)
        rows, scores, self._num_held = find_matches(lists, collection, self._heap, self._rows, self._num_held)
        return rows, scores

    @property
    def lowest(self) -> float:
        """Somewhat less than the score of the last of the best; 0 where there are fewer than were looked for."""
        from mvindex.kernels.maxscore import ROUNDED_DOWN

        return float(self._heap[0] * ROUNDED_DOWN) if self._num_held == len(self._heap) else 0.0

    def _skips_of(self, term: WeightedTerm, cache: PostingsCache, lengths: Lengths) -> Skips:
        """Return bounds of the term's scores that hold once they are scaled by the mean lengths."""
        k1, b, mean = self._saturation
        skips = term.postings.skips
        if skips is None or skips[:2] != (k1, b) or not _LEAST_MEAN < mean / skips.mean < _MOST_MEAN:
            skips = _bounds_of(term.postings, lengths, self._saturation)
            cache.set_skips(term.hash, term.postings, skips)
        return skips


def _bounds_of(postings: TermPostings, lengths: Lengths, saturation: Saturation) -> Skips:
    from mvindex.kernels.maxscore import WINDOW, Collection, bound_windows

    k1, b, mean = saturation
    num_windows = -(-postings.end // WINDOW)
    if len(postings.rows) < num_windows * _PER_WINDOW:
        num_windows = 0
    starts = np.empty(num_windows + 1 if num_windows else 0, dtype=np.uint32)
    bounds = np.empty(num_windows, dtype=np.float32)
    collection = Collection(lengths.ctypes.data, 0, len(lengths), float(k1 * (1 - b)), float(k1 * b / mean))
    largest = bound_windows(
        postings.rows_at,
        postings.counts_at,
        postings.counts.itemsize,
        len(postings.rows),
        collection,
        starts,
        bounds,
    )
    return Skips(k1, b, mean, largest, starts, bounds)


def load_loops() -> None:
    """Call the loops for one document, which loads or compiles them."""
    cache = PostingsCache()
    cache.lengths = np.ones(1, dtype=np.uint32)
    postings = TermPostings(np.zeros(1, dtype=np.uint32), np.ones(1, dtype=np.uint8), 1)
    BestMatches(1, Saturation(1.2, 0.75, 1.0)).find([WeightedTerm(0, 1.0, postings, 1)], cache, np.ones(1, dtype=bool))
