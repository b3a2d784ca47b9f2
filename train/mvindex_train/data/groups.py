"""The examples of a store grouped by passage, and the passages by article, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mvindex.records import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """n examples in p passages of some articles, each numbered in the order of its first example.

    rows: (n,) example rows; those of passage i are rows[starts[i]:starts[i + 1]], in order. starts: (p + 1,). articles:
    (p,) the number of each passage's article.
    """

    rows: Ints
    starts: Ints
    articles: Ints

    @property
    def num_passages(self) -> int:
        """Return the number of passages."""
        return len(self.articles)


def group_examples(passages: npt.NDArray[np.uint64], articles: npt.NDArray[np.uint64]) -> Groups:
    """Group n examples by the hashes of their passages and articles, both (n,)."""
    numbers, first_rows = _number(passages)
    starts = np.zeros(len(first_rows) + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=len(first_rows)), out=starts[1:])
    return Groups(np.argsort(numbers, kind="stable"), starts, _number(articles[first_rows])[0])


def _number(hashes: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return a number for each hash in order of first appearance, (n,), and the first row of each number."""
    _, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    return number_of[inverse.reshape(-1)], first_rows[order].astype(np.int64)
