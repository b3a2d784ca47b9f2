"""Reads the spans of views from columns of Parquet of any integer type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mvindex.errors import CorpusError
from mvindex.io.validation import Array

# Longer than any text.
_MAX_CHARS = 1 << 40


def read_spans(  # noqa: PLR0913 - columns with their location
    arrow: Any, batch: Any, names: Sequence[str], starts: Array | None, path: str, first: int
) -> Array:
    """Return the columns as (r, 2) int64, -1 for null; raise CorpusError, with the row, for anything but integers.

    starts: (n + 1,) begins of the views of each row, where the columns hold a list for each row and null means no
    spans; None where they hold a number for each row. first: number of the first row, for messages.
    """
    sides = []
    for name in names:
        column, types = batch.column(name), arrow.types
        is_list = (
            types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
        )
        if types.is_null(column.type):
            sides.append(np.full(batch.num_rows if starts is None else int(starts[-1]), -1, dtype=np.int64))
        elif is_list != (starts is not None):
            expected = "integers" if starts is None else "a list of integers for each document"
            raise CorpusError(f"{path}: column {name!r}: expected {expected}, got {column.type}")
        elif starts is None:
            sides.append(_numbers(arrow, column, name, lambda at: f"{path}:{first + at}"))
        else:
            sides.append(_flatten_lists(arrow, column, name, starts, path, first))
    return np.stack(sides, axis=1)


def _flatten_lists(  # noqa: PLR0913 - a column with its location
    arrow: Any, column: Any, name: str, starts: Array, path: str, first: int
) -> Array:
    """Return the numbers of the lists; raise CorpusError for a list of another length than the vectors of its row."""
    counts, is_none = np.diff(starts), column.is_null().to_numpy(zero_copy_only=False)
    lengths = arrow.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    is_bad = ~is_none & (lengths != counts)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise CorpusError(
            f"{path}:{first + row}: {name!r}: expected {counts[row]} numbers, one for each vector, got {lengths[row]}"
        )
    is_given = np.repeat(~is_none, counts)
    row_of = np.repeat(np.arange(len(counts)), counts)[is_given]
    numbers = np.full(int(starts[-1]), -1, dtype=np.int64)
    # Values below a null are not in the flattened lists.
    numbers[is_given] = _numbers(arrow, column.flatten(), name, lambda at: f"{path}:{first + int(row_of[at])}")
    return numbers


def _numbers(arrow: Any, column: Any, name: str, place_of: Callable[[int], str]) -> Array:
    """Return the numbers as int64, -1 for null."""
    types = arrow.types
    if types.is_null(column.type):
        return np.full(len(column), -1, dtype=np.int64)
    if not types.is_integer(column.type) and not types.is_floating(column.type):
        raise CorpusError(f"{place_of(0)}: {name!r}: expected integers, got {column.type}")
    if types.is_floating(column.type):
        column = column.cast(arrow.float64())
    is_none = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    is_bad = ~((np.abs(values) < _MAX_CHARS) & (values == np.floor(values)))
    if is_bad.any():
        at = int(np.argmax(is_bad))
        raise CorpusError(f"{place_of(at)}: {name!r}: expected an integer, got {values[at]}")
    numbers: Array = np.where(is_none, -1, values.astype(np.int64))
    return numbers
