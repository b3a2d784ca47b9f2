"""Vectors that are hard for a bound, and random cases of them: an index and what its scans are asked."""

import math
from typing import NamedTuple

import numpy as np

from mvindex.testing import unit

# Below, at and above the tiles of 16, 32 and 64 queries, and more than four of the largest.
BATCHES = [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130, 257, 300]
DIMS = [1, 2, 3, 4, 5, 17, 63, 64, 65, 128, 191, 192, 193, 256, 257, 384, 768, 1000, 4096]
TEMPERATURES = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
# Of all views, and of all views with all queries: what float64 brute force has to multiply.
MOST_NUMBERS, MOST_PRODUCTS = 1_000_000, 10_000_000


def random_rows(rng, starts, dim):
    return rng.standard_normal((starts[-1], dim))


def one_huge_vector(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    rows[rng.integers(len(rows))] *= 1e4
    return rows


def a_huge_document_in_each_block(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    chosen = np.minimum(np.arange(0, len(rows), 256) + rng.integers(256), len(rows) - 1)
    for document in np.unique(np.searchsorted(starts, chosen, side="right") - 1):
        rows[starts[document] : starts[document + 1]] *= 3000
    return rows


def tiny_rows(rng, starts, dim):
    return random_rows(rng, starts, dim) * 1e-3


def denormal_rows(rng, starts, dim):
    """Below the smallest normal number of either type."""
    return random_rows(rng, starts, dim) * 10.0 ** rng.choice([-5, -7, -39, -43])


def giant_rows(rng, starts, dim):
    return random_rows(rng, starts, dim) * rng.choice([1e4, 1e17 / math.sqrt(dim)])


def mixed_sizes(rng, starts, dim):
    return random_rows(rng, starts, dim) * 10.0 ** rng.uniform(-4, 3.5, (starts[-1], 1))


def equal_views(rng, starts, dim):
    return np.repeat(rng.standard_normal((len(starts) - 1, dim)), np.diff(starts), axis=0)


def duplicates(rng, starts, dim):
    return np.repeat(rng.standard_normal((1, dim)), starts[-1], axis=0)


def few_different_rows(rng, starts, dim):
    return rng.standard_normal((3, dim))[rng.integers(0, 3, starts[-1])]


def opposite_signs(rng, starts, dim):
    return rng.standard_normal(dim) * rng.choice([-1, 1], (starts[-1], 1)) * rng.choice([0.5, 1, 2], (starts[-1], 1))


def near_ties(rng, starts, dim):
    """Neighbours of one vector: a few units in the last place of float32 or fp16 away."""
    step = rng.choice([2.0**-23, 2.0**-10])
    return unit(rng.standard_normal(dim)) * (1 + step * rng.integers(-2, 3, (starts[-1], dim)))


def a_crowd(rng, starts, dim):
    return unit(rng.standard_normal(dim)) + 1e-3 * random_rows(rng, starts, dim)


def whole_numbers(rng, starts, dim):
    return rng.integers(-2, 3, (starts[-1], dim))


def zeros(rng, starts, dim):
    """No view of some documents, no number of some dimensions, is anything but zero."""
    rows = random_rows(rng, starts, dim) * (rng.random(dim) < 0.7)
    return rows * np.repeat(rng.random(len(starts) - 1) < 0.3, np.diff(starts))[:, None]


def nothing_but_zeros(rng, starts, dim):
    return np.zeros((starts[-1], dim))


def one_number_a_view(rng, starts, dim):
    rows = np.zeros((starts[-1], dim))
    rows[np.arange(len(rows)), rng.integers(0, dim, len(rows))] = rng.standard_normal(len(rows))
    return rows


def scales_by_dimension(rng, starts, dim):
    return random_rows(rng, starts, dim) * 10.0 ** rng.uniform(-6, 4, dim)


def one_strong_dimension(rng, starts, dim):
    """Return views whose common part is far larger than their differences."""
    rows = random_rows(rng, starts, dim)
    rows[:, 0] = 300 + rows[:, 0] / 100
    return rows


def cancelling_numbers(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    rows[:, 0] = 3e4 * rng.choice([-1, 1, 0], len(rows))
    rows[:, -1] = -rows[:, 0] if dim > 1 else rows[:, 0]
    return rows


KINDS = [
    random_rows, one_huge_vector, a_huge_document_in_each_block, tiny_rows, denormal_rows, giant_rows, mixed_sizes,
    equal_views, duplicates, few_different_rows, opposite_signs, near_ties, a_crowd, whole_numbers, zeros,
    nothing_but_zeros, one_number_a_view, scales_by_dimension, one_strong_dimension, cancelling_numbers,
]  # fmt: skip


def view_counts(rng):
    """How many views each document has."""
    shape = rng.choice(["few", "ragged", "single", "eight", "sixty-four", "one of 2,000"])
    count = int(rng.integers(1, 90))
    if shape == "one of 2,000":
        counts = rng.integers(1, 4, count)
        counts[rng.integers(count)] = 2000
        return counts
    most = {"few": 9, "ragged": 65}.get(shape)
    if most:
        return rng.integers(1, most, count)
    each = {"single": 1, "eight": 8, "sixty-four": 64}[shape]
    return np.full(count * (8 if each == 1 else 1) if each < 64 else min(count, 20), each)


def make_queries(rng, rows, count):
    """Queries of all sizes, some of them of a kind of their own: (count, d) float32."""
    dim = rows.shape[1]
    queries = rng.standard_normal((count, dim))
    with np.errstate(over="ignore"):
        near = rows[rng.integers(0, len(rows), count)].astype(np.float64)
    kinds = rng.integers(0, 8, count)
    queries[kinds == 1] = near[kinds == 1] + 0.01 * queries[kinds == 1]
    queries[kinds == 2] = near[kinds == 2]
    queries[kinds == 3] = rng.integers(-1, 2, (count, dim))[kinds == 3]
    queries[kinds == 4] *= rng.random((count, dim))[kinds == 4] < 0.2
    queries[rng.random(count) < 0.03] = 0
    queries[kinds == 5] *= 10.0 ** rng.uniform(-12, 0, (count, dim))[kinds == 5]
    largest = np.abs(queries).max(axis=1, keepdims=True)
    queries = np.divide(queries, largest, out=np.zeros_like(queries), where=largest > 0)
    sizes = rng.choice([1.0, 1.0, 1e-3, 30.0, 1e-30, 1e15, 1e-42], count)
    return (queries * (sizes / math.sqrt(dim))[:, None]).astype(np.float32)


class Case(NamedTuple):
    """An index and what its scans are asked: rows as stored and starts, queries, block size."""

    stored: np.ndarray
    starts: np.ndarray
    queries: np.ndarray
    block_elements: int


def random_case(seed, kind=None, dim=None, most_queries=33):
    """A case of the kind and the dim, of any where none is given."""
    rng = np.random.default_rng(seed)
    kind = kind or KINDS[rng.integers(len(KINDS))]
    dim = dim or int(rng.choice(DIMS))
    counts = view_counts(rng)
    counts = counts[: max(1, np.searchsorted(np.cumsum(counts), MOST_NUMBERS // dim))]
    counts[0] = min(counts[0], MOST_NUMBERS // dim)
    starts = np.cumsum([0, *counts])
    rows = kind(rng, starts, dim)
    if rng.random() < 0.5:
        stored = np.clip(rows, -6e4, 6e4).astype(np.float16)
    else:
        stored = rows.astype(np.float32)
    most = max(1, min(most_queries, MOST_PRODUCTS // stored.size))
    queries = make_queries(rng, stored, int(rng.choice([batch for batch in BATCHES if batch <= most])))
    return Case(stored, starts, queries, int(rng.choice([1, 1 << 22])))
