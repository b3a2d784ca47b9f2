"""Tables of pandas, Polars and Arrow, as rows that are stored as dicts of the same values are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mvindex.corpus.tables import first_line, small_batches, table_rows, without_nulls
from mvindex.errors import CorpusError, DocumentError
from mvindex.plugins import require

_BATCH_ROWS = 1024
# What pandas has in place of a value; pandas need not be installed.
_MISSING = ("NAType", "NaTType")


def table_items(items: Any) -> Any:
    """Return the rows of a table as dicts, the values of a column, and anything else as it is.

    Cells of pandas and Polars are taken as they are: Arrow would give all values of a column one type, so that a dict
    has the keys of all dicts, and 1 beside "x" has none.
    """
    if hasattr(items, "iloc") and hasattr(items, "columns"):
        return _pandas_rows(items)
    if hasattr(items, "iter_slices") and hasattr(items, "columns"):
        return _polars_rows(items)
    if not hasattr(items, "__arrow_c_stream__"):
        return items
    return items.to_list() if hasattr(items, "to_list") else _arrow_rows(items)


def is_missing(value: object) -> bool:
    """Return whether a cell holds nothing: None, NaN, or NaT and NA of pandas."""
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return value is None or type(value).__name__ in _MISSING


def _pandas_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pandas.DataFrame; an index with a name is a column."""
    names = [name for name in frame.index.names if name is not None]
    _check_names([*names, *frame.columns])
    for begin in range(0, len(frame), _BATCH_ROWS):
        part = frame.iloc[begin : begin + _BATCH_ROWS]
        yield from (part.reset_index(names) if names else part).to_dict("records")


def _polars_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a polars.DataFrame."""
    for part in frame.iter_slices(_BATCH_ROWS):
        yield from map(without_nulls, part.iter_rows(named=True))


def _arrow_rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of whatever gives an Arrow stream, batch by batch."""
    pyarrow = require("pyarrow", "files", "adding a table")
    first = 1
    try:
        reader = pyarrow.RecordBatchReader.from_stream(table)
        _check_names(reader.schema.names)
        for batch in reader:
            for part in small_batches(batch):
                yield from table_rows(part)
                first += part.num_rows
    except (pyarrow.ArrowException, CorpusError, ValueError, OverflowError) as err:
        found = f"{type(table).__name__}: {first_line(err)}"
        raise DocumentError(f"document {first} or after: expected a table that Arrow can read, got {found}") from err


def _check_names(names: Iterable[Any]) -> None:
    """Raise DocumentError where two columns have one name: a row would have one of them."""
    twice = next((name for name, count in Counter(map(str, names)).items() if count > 1), None)
    if twice is not None:
        raise DocumentError(f"documents: expected columns of different names, got {twice!r} twice")
