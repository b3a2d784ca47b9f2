"""The spans of views from columns of Parquet, whatever type of whole number they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mvindex.errors import CorpusError
from mvindex.io.validation import Array

# No text is as long.
_MAX_CHARS = 1 << 40


def read_spans(arrow: Any, batch: Any, names: Sequence[str], starts: Array | None, place: tuple[str, int]) -> Array:
    """The columns as (r, 2) int64, -1 where there is null; CorpusError, with the row, for what is no whole number.

    starts: where the views of each row begin, and the last end, where the columns hold a list for each row; a list
    that is null stands for no spans. None: a number for each row. place: the file, and the number of the first row.
    """
    path, first = place
    sides = []
    for name in names:
        column, types = batch.column(name), arrow.types
        is_list = (
            types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
        )
        if types.is_null(column.type):
            sides.append(np.full(batch.num_rows if starts is None else int(starts[-1]), -1, dtype=np.int64))
        elif is_list != (starts is not None):
            wanted = "whole numbers" if starts is None else "a list of whole numbers for each document"
            raise CorpusError(f"{path}: column {name!r} holds {column.type}; wanted {wanted}")
        elif starts is None:
            sides.append(_numbers(arrow, column, name, lambda at: f"{path}:{first + at}"))
        else:
            sides.append(_of_lists(arrow, column, name, starts, place))
    return np.stack(sides, axis=1)


def _of_lists(arrow: Any, column: Any, name: str, starts: Array, place: tuple[str, int]) -> Array:
    """The numbers of the lists; CorpusError for a list of another length than the vectors of its row."""
    path, first = place
    counts, is_none = np.diff(starts), column.is_null().to_numpy(zero_copy_only=False)
    lengths = arrow.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    is_bad = ~is_none & (lengths != counts)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise CorpusError(f"{path}:{first + row}: {name!r} has {lengths[row]} numbers; there are {counts[row]} vectors")
    is_given = np.repeat(~is_none, counts)
    row_of = np.repeat(np.arange(len(counts)), counts)[is_given]
    numbers = np.full(int(starts[-1]), -1, dtype=np.int64)
    # What stands under a null is no part of the flattened lists.
    numbers[is_given] = _numbers(arrow, column.flatten(), name, lambda at: f"{path}:{first + int(row_of[at])}")
    return numbers


def _numbers(arrow: Any, column: Any, name: str, place_of: Callable[[int], str]) -> Array:
    """The numbers as int64, -1 for null."""
    types = arrow.types
    if types.is_null(column.type):
        return np.full(len(column), -1, dtype=np.int64)
    if not types.is_integer(column.type) and not types.is_floating(column.type):
        raise CorpusError(f"{place_of(0)}: {name!r} holds {column.type}; wanted whole numbers")
    if types.is_floating(column.type):
        column = column.cast(arrow.float64())
    is_none = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    is_bad = ~((np.abs(values) < _MAX_CHARS) & (values == np.floor(values)))
    if is_bad.any():
        at = int(np.argmax(is_bad))
        raise CorpusError(f"{place_of(at)}: {name!r} is {values[at]}; wanted a whole number")
    numbers: Array = np.where(is_none, -1, values.astype(np.int64))
    return numbers
