"""Groups: the examples of a store by passage, and the passages by article, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mvindex.records import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """n examples in p passages of some articles, each numbered in the order of its first example.

    rows: (n,) examples, those of passage i at rows[starts[i]:starts[i + 1]] in their order; starts: (p + 1,);
    articles: (p,) the number of each passage's article.
    """

    rows: Ints
    starts: Ints
    articles: Ints

    @property
    def num_passages(self) -> int:
        """How many passages there are."""
        return len(self.articles)


def group(passages: npt.NDArray[np.uint64], articles: npt.NDArray[np.uint64]) -> Groups:
    """The groups of n examples, given each one's hash of passage and of article, both (n,)."""
    numbers, first_rows = _number(passages)
    starts = np.zeros(len(first_rows) + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=len(first_rows)), out=starts[1:])
    return Groups(np.argsort(numbers, kind="stable"), starts, _number(articles[first_rows])[0])


def _number(hashes: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Each hash's number (n,) in the order of first appearance, and the row of each number's first appearance."""
    _, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    return number_of[inverse.reshape(-1)], first_rows[order].astype(np.int64)
