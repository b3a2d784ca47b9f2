"""Finds the roles of the columns of a Parquet file by names, types and the options of the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mvindex.corpus.tables import is_json_type
from mvindex.errors import CorpusError
from mvindex.io.staging import ID_NAMES, VECTOR_NAMES, Array, Columns, choose_column

_STRINGS = ("string", "large_string", "string_view")
_SPANS = (("span_begin", "span_end"), ("span_begins", "span_ends"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """The columns of a file by role. has_views: a row is a document, with a list of vectors."""

    id: str
    vector: str
    text: str | None
    title: str | None
    spans: tuple[str, str] | None
    view: str | None
    ordinal: str | None
    extras: tuple[str, ...]
    left_out: tuple[str, ...]
    has_views: bool
    dtype: np.dtype[Any]
    dim: int | None

    @property
    def fields(self) -> list[str]:
        """Return the columns that a document has once."""
        named = [self.id, self.text, self.title, self.ordinal, "metadata" if "metadata" in self.extras else None]
        return list(dict.fromkeys([name for name in named if name] + list(self.extras)))


def find_roles(types: Any, path: str, schema: Any, columns: Columns, *, is_export: bool) -> ColumnRoles:
    """Find the roles of the columns; raise CorpusError when one is missing or of another type.

    types: pyarrow.types. is_export: the file is an export of mvindex, whose column "ordinal" is the document's.
    """
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise CorpusError(f"{path}: two columns have the same name (columns: {', '.join(names)})")
    id_name = choose_column(path, names, columns.id, ID_NAMES, "--id-column")
    vector = choose_column(path, names, columns.vector, VECTOR_NAMES, "--vector-column")
    _check_id_type(types, path, id_name, schema.field(id_name).type)
    has_views, dtype, dim = _vector_type(types, path, vector, schema.field(vector).type)
    spans = next((pair for pair in _SPANS[has_views : has_views + 1] if set(pair) <= set(names)), None)
    view = "view" if "view" in names and not has_views else None
    text, title = (
        _find_named(path, names, named, default)
        for named, default in ((columns.text, "text"), (columns.title, "title"))
    )
    taken = {id_name, vector, text, title, view, *(spans or ())} | ({"ordinal"} if is_export else set())
    others = [name for name in names if name not in taken]
    return ColumnRoles(
        id=id_name,
        vector=vector,
        text=text,
        title=title,
        spans=spans,
        view=view,
        ordinal="ordinal" if is_export and "ordinal" in names else None,
        extras=tuple(name for name in others if is_json_type(types, schema.field(name).type)),
        left_out=tuple(name for name in others if not is_json_type(types, schema.field(name).type)),
        has_views=has_views,
        dtype=dtype,
        dim=dim,
    )


def _check_id_type(types: Any, path: str, name: str, kind: Any) -> None:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not types.is_integer(kind) and str(kind) not in _STRINGS:
        raise CorpusError(f"{path}: column {name!r}: expected strings or integers, got {kind}; see --id-column")


def _find_named(path: str, names: Sequence[str], named: str | None, default: str) -> str | None:
    if named is not None and named not in names:
        raise CorpusError(f"{path}: no column {named!r}; the columns here are {', '.join(names)}")
    return named or (default if default in names else None)


def _vector_type(types: Any, path: str, name: str, kind: Any) -> tuple[bool, np.dtype[Any], int | None]:
    """Return whether a row holds a list of vectors, the type of their numbers, and their dims if the type has them."""
    inner, depth, dim = kind, 0, None
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        dim = inner.list_size if types.is_fixed_size_list(inner) else None
        inner, depth = inner.value_type, depth + 1
    if depth not in (1, 2) or not types.is_floating(inner):
        raise CorpusError(
            f"{path}: column {name!r}: expected a list of float16, float32 or float64 (a vector), or a list of "
            f"such lists (all vectors of a document), got {kind}"
        )
    return depth == 2, np.dtype(inner.to_pandas_dtype()), dim


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
