"""Documents with their views from Parquet files: the roles of columns, and their rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from mvindex.corpus.json_files import parse_object
from mvindex.corpus.tables import (
    batch_rows,
    check_sizes,
    first_line,
    is_json_type,
    most_row_bytes,
    parquet_file,
    small_batches,
    swelling_lists,
)
from mvindex.errors import CorpusError, DocumentError
from mvindex.io.staging import (
    ID_NAMES,
    VECTOR_NAMES,
    Array,
    Columns,
    VectorDocument,
    VectorSource,
    check_dim,
    check_first_dim,
    choose_column,
)
from mvindex.plugins import require
from mvindex.records import Document

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


# Rows that are read at once, of views of 768 dims 3 MB in fp16; fewer beyond so many bytes.
_ROWS, _MOST_BYTES = 2048, 2**26


def open_parquet(paths: Sequence[str], columns: Columns, *, is_export: bool) -> VectorSource:
    """Read the documents of the files, in their order; all files must have the same columns.

    is_export: the files are an export of mvindex, whose column "ordinal" is the document's. CorpusError for a file
    that is damaged or lacks a column.
    """
    arrow = require("pyarrow", "files", "reading Parquet")
    require("pyarrow.compute", "files", "reading Parquet")
    roles = []
    for path in paths:
        with ExitStack() as stack:
            schema = _open(arrow, path, stack).schema_arrow
        roles.append(find_roles(arrow.types, path, schema, columns, is_export=is_export))
    for path, found in zip(paths, roles, strict=True):
        if (found.has_views, found.dtype) != (roles[0].has_views, roles[0].dtype):
            raise CorpusError(f"{path}: vectors of another shape or type than those of {paths[0]}")
    dim = next((found.dim for found in roles if found.dim), None) or _first_dim(arrow, paths, roles)
    check_first_dim(paths[0], dim)
    left_out = {"left_out": sorted({name for found in roles for name in found.left_out})}
    return VectorSource(
        dim=dim,
        dtype=roles[0].dtype,
        documents=_read_documents(arrow, paths, roles, dim),
        total=sum(_num_rows(arrow, path) for path in paths) if roles[0].has_views else None,
        notes=left_out if left_out["left_out"] else {},
    )


def _open(arrow: Any, path: str, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(parquet_file(stack.enter_context(open(path, "rb"))))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:
        raise CorpusError(f"{path}: is not a whole Parquet file: {first_line(err)}") from err


def _num_rows(arrow: Any, path: str) -> int:
    with ExitStack() as stack:
        return int(_open(arrow, path, stack).metadata.num_rows)


def _first_dim(arrow: Any, paths: Sequence[str], roles: Sequence[ColumnRoles]) -> int:
    """Return the dims of the first vector, where the type has none."""
    for path, found in zip(paths, roles, strict=True):
        for _, batch in _batches(arrow, path, found):
            column = batch.column(found.vector)
            if len(column):
                rows = column.flatten() if found.has_views else column
                return len(rows[0]) if len(rows) and rows[0].is_valid else 0
    raise CorpusError(f"{paths[0]}: holds no rows")


def _batches(arrow: Any, path: str, roles: ColumnRoles) -> Iterator[tuple[int, Any]]:
    """Yield the rows in batches, each with the number of its first row, from 1."""
    columns = [*roles.fields, roles.vector, *(roles.spans or ()), *([roles.view] if roles.view else ())]
    with ExitStack() as stack:
        table, first, read = _open(arrow, path, stack), 1, 0
        waiting: list[Any] = []
        check_sizes(path, table.metadata, columns, os.path.getsize(path))
        try:
            file = stack.enter_context(open(path, "rb"))
            reader = parquet_file(file, swelling_lists(table, file, columns))
            # A few at a time: a dictionary of one long text may stand in all of them.
            for batch in reader.iter_batches(batch_rows(most_row_bytes(table.metadata)), columns=columns):
                for part in small_batches(batch):
                    waiting.append(_plain(arrow, part))
                    read += part.num_rows
                    if read - first >= _ROWS - 1 or sum(each.nbytes for each in waiting) > _MOST_BYTES:
                        yield from _joined(arrow, waiting, first)
                        first, waiting = read + 1, []
            yield from _joined(arrow, waiting, first)
        except CorpusError as err:
            raise CorpusError(f"{path}:{read + 1}: {err}") from err
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:
            raise CorpusError(f"{path}: is damaged after row {read}: {first_line(err)}") from err


def _joined(arrow: Any, batches: Sequence[Any], first: int) -> Iterator[tuple[int, Any]]:
    """Yield batches as one, each with the number of its first row; several where a column has over 2 GiB of texts."""
    for batch in arrow.Table.from_batches(batches).combine_chunks().to_batches() if batches else ():
        yield first, batch
        first += batch.num_rows


def _plain(arrow: Any, batch: Any) -> Any:
    """Decode dictionaries of a batch, at any depth, and check that its strings are UTF-8."""
    kinds = [_plain_type(arrow, kind) for kind in batch.schema.types]
    columns = [each if each.type == kind else each.cast(kind) for each, kind in zip(batch.columns, kinds, strict=True)]
    plain = arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
    plain.validate(full=True)
    return plain


def _plain_type(arrow: Any, kind: Any) -> Any:
    types = arrow.types
    if types.is_dictionary(kind):
        return _plain_type(arrow, kind.value_type)
    if types.is_struct(kind):
        return arrow.struct([field.with_type(_plain_type(arrow, field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        make = arrow.large_list if types.is_large_list(kind) else arrow.list_
        return make(kind.value_field.with_type(_plain_type(arrow, kind.value_type)))
    if types.is_fixed_size_list(kind):
        return arrow.list_(kind.value_field.with_type(_plain_type(arrow, kind.value_type)), kind.list_size)
    # Arrow cannot even take rows of string views.
    return arrow.large_string() if str(kind) == "string_view" else kind


def _read_documents(
    arrow: Any, paths: Sequence[str], roles: Sequence[ColumnRoles], dim: int
) -> Iterator[VectorDocument]:
    pending: VectorDocument | None = None
    for path, found in zip(paths, roles, strict=True):
        for first, batch in _batches(arrow, path, found):
            for document, continues in _Rows(arrow, path, found, dim).read(first, batch, pending):
                if pending is not None and not continues:
                    yield pending
                pending = document
    if pending is not None:
        yield pending


@dataclass(slots=True)
class _Rows:
    """Makes documents from the rows of batches."""

    arrow: Any
    path: str
    roles: ColumnRoles
    dim: int

    def read(self, first: int, batch: Any, before: VectorDocument | None) -> Iterator[tuple[VectorDocument, bool]]:
        """Yield the documents of a batch; with True, one that continues and replaces the document before."""
        roles = self.roles
        for name in (roles.id, roles.vector):
            if batch.column(name).null_count:
                row = first + self.arrow.compute.index(batch.column(name).is_null(), value=True).as_py()
                raise CorpusError(f"{self.path}:{row}: {name!r} is null")
        starts = self._document_starts(first, batch)
        each = starts if roles.has_views else None
        spans = None if roles.spans is None else read_spans(self.arrow, batch, roles.spans, each, self.path, first)
        rows = self._vectors(first, batch, starts)
        once = np.arange(batch.num_rows) if roles.has_views else starts[:-1]
        if not roles.has_views:
            self._check_repeats(first, batch, starts)
        fields = batch.select(roles.fields).take(self.arrow.array(once)).to_pylist()
        for number, values in enumerate(fields):
            place = f"{self.path}:{first + int(once[number])}"
            begin, end = int(starts[number]), int(starts[number + 1])
            own = None if spans is None else spans[begin:end]
            goes_on = (
                number == 0 and not roles.has_views and _id_of(values[roles.id]) == (before and before.document.id)
            )
            if goes_on and before is not None:
                yield self._continued(place, before, values, (rows[begin:end], own)), True
            else:
                yield (
                    VectorDocument(
                        place, self._document(place, values), rows[begin:end], own, self._ordinal(place, values)
                    ),
                    False,
                )
        if roles.view is not None:
            self._check_slots(first, batch, starts, before)

    def _document_starts(self, first: int, batch: Any) -> Array:
        """Return where the views of each document begin among those of the batch, and where the last ends."""
        column = batch.column(self.roles.vector)
        if self.roles.has_views:
            counts = self.arrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
            if len(counts) and counts.min() < 1:
                raise CorpusError(
                    f"{self.path}:{first + int(np.argmin(counts))}: expected a vector for each document, got none"
                )
            return np.append(0, np.cumsum(counts)).astype(np.int64)
        ids = batch.column(self.roles.id)
        is_new = self.arrow.compute.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1)))
        changes = np.flatnonzero(is_new.to_numpy(zero_copy_only=False)) + 1
        return np.concatenate([[0], changes, [len(ids)]]).astype(np.int64)

    def _vectors(self, first: int, batch: Any, starts: Array) -> Array:
        """Return the vectors of the batch, (r, d)."""
        column = batch.column(self.roles.vector)
        place = f"{self.path}:{first}"
        if self.roles.has_views:
            column = column.flatten()
        lengths = self.arrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        if column.null_count or (lengths != self.dim).any():
            bad = int(np.argmax(np.nan_to_num(lengths, nan=-1) != self.dim))
            row = first + (int(np.searchsorted(starts, bad, side="right")) - 1 if self.roles.has_views else bad)
            found = -1 if np.isnan(lengths[bad]) else int(lengths[bad])
            if found < 0:
                raise CorpusError(f"{self.path}:{row}: a vector is null")
            check_dim(f"{self.path}:{row}", found, self.dim)
        values = column.flatten()
        if values.null_count:
            raise CorpusError(f"{place} or below: a number of a vector is null")
        rows: Array = values.to_numpy(zero_copy_only=False).reshape(-1, self.dim)
        return rows

    def _document(self, place: str, values: Mapping[str, Any]) -> Document:
        roles = self.roles
        try:
            stored = [None if name is None else values[name] for name in (roles.text, roles.title)]
            text, title = ("" if value is None else value for value in stored)
            return Document(_id_of(values[roles.id]), text, title, _metadata(values, roles.extras))
        except DocumentError as err:
            raise CorpusError(f"{place}: {err}") from err

    def _continued(
        self, place: str, before: VectorDocument, values: Mapping[str, Any], more: tuple[Array, Array | None]
    ) -> VectorDocument:
        """Return the document before, with more views."""
        for name, had in ((self.roles.text, before.document.text), (self.roles.title, before.document.title)):
            if name and values[name] is not None and values[name] != had:
                raise CorpusError(f"{place}: {name!r} differs from the rows above of {before.document.id!r}")
        metadata = self._document(place, values).metadata
        known = before.document.metadata
        if any(name not in known or known[name] != value for name, value in metadata.items()):
            raise CorpusError(f"{place}: the metadata differ from the rows above of {before.document.id!r}")
        spans = None if before.spans is None or more[1] is None else np.concatenate([before.spans, more[1]])
        return before._replace(rows=np.concatenate([before.rows, more[0]]), spans=spans)

    def _check_repeats(self, first: int, batch: Any, starts: Array) -> None:
        """Raise CorpusError when a later row of a document has another value than its first, and not null."""
        firsts = np.repeat(starts[:-1], np.diff(starts))
        later = np.flatnonzero(firsts != np.arange(batch.num_rows))
        for name in self.roles.fields if len(later) else ():
            is_other = self._differs(batch.column(name), later, firsts[later])
            if is_other.any():
                row = first + int(later[np.argmax(is_other)])
                raise CorpusError(f"{self.path}:{row}: {name!r} differs from the rows above of its document")

    def _differs(self, column: Any, later: Array, firsts: Array) -> Array:
        """Return for each of the later rows whether its value is not null and differs from the first row."""
        arrow = self.arrow
        own, expected = column.take(arrow.array(later)), column.take(arrow.array(firsts))
        if arrow.types.is_nested(column.type):  # which Arrow cannot compare
            pairs = zip(own.to_pylist(), expected.to_pylist(), strict=True)
            return np.array([one is not None and one != other for one, other in pairs])
        if arrow.types.is_null(column.type):
            return np.zeros(len(later), dtype=bool)
        is_same = arrow.compute.equal(own, expected).fill_null(False)
        is_other: Array = arrow.compute.and_not(own.is_valid(), is_same).to_numpy(zero_copy_only=False)
        return is_other

    def _ordinal(self, place: str, values: Mapping[str, Any]) -> int | None:
        if self.roles.ordinal is None:
            return None
        value = values[self.roles.ordinal]
        if not isinstance(value, int) or value < 0:
            raise CorpusError(f"{place}: 'ordinal': expected an integer from 0 on, got {value!r:.40}")
        return value

    def _check_slots(self, first: int, batch: Any, starts: Array, before: VectorDocument | None) -> None:
        """Raise CorpusError when the views of a document are not in the order 0, 1, 2, ..."""
        column = batch.column(self.roles.view)
        if column.null_count or not self.arrow.types.is_integer(column.type):
            raise CorpusError(f"{self.path}:{first}: column {self.roles.view!r} expected integers, none null")
        slots = column.to_numpy(zero_copy_only=False)
        counts = np.diff(starts)
        expected = np.arange(len(slots)) - np.repeat(starts[:-1], counts)
        if before is not None and len(slots) and _id_of(batch.column(self.roles.id)[0].as_py()) == before.document.id:
            expected[: counts[0]] += len(before.rows)
        if (slots != expected).any():
            row = int(np.argmax(slots != expected))
            raise CorpusError(
                f"{self.path}:{first + row}: expected view {expected[row]} of the document, got {slots[row]}; "
                "sort the rows by document and view"
            )


def _id_of(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DocumentError(f"expected a string or an integer as id, got {type(value).__name__}")


def _metadata(values: Mapping[str, Any], extras: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of the column "metadata", JSON or a struct, and of the columns without a role."""
    own = values.get("metadata") if "metadata" in extras else None
    if isinstance(own, str):
        own = parse_object(own.encode(errors="surrogatepass")) if own.strip() else {}
    if own is not None and not isinstance(own, dict):
        raise DocumentError(f'"metadata": expected JSON of an object, or a struct, got {type(own).__name__}')
    rest = {name: values[name] for name in extras if name != "metadata" and values[name] is not None}
    both = sorted(set(rest) & set(own or {}))
    if both:
        raise DocumentError(f'"{both[0]}" occurs both beside "metadata" and in it; keep one')
    return {**(own or {}), **rest}
