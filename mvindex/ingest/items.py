"""Documents and views as callers give them, checked, as entries of an ingest; and how their number is shown."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.corpus.lines import document_of
from mvindex.corpus.rows import METADATA, VIEW_TEXTS, Columns, CorpusOptions, Roles, find_roles
from mvindex.corpus.tables import check_batch, first_line, small_batches, table_rows, without_nulls
from mvindex.errors import CorpusError, DocumentError, EncoderError
from mvindex.ingest.pipeline import Entry
from mvindex.ingest.views import SpanReader
from mvindex.plugins import require
from mvindex.records import Document, Floats, Ints, ViewSpans, plain_value, require_text, shown

# Made once: a comparison with NumPy's type would make it for every document.
_FLOAT32 = np.dtype(np.float32)


class GivenViews(NamedTuple):
    """The views of several documents, (k_i, d) float32 each, and their spans, (k_i, 2) int64 each or None."""

    rows: Sequence[Floats]
    spans: Sequence[Ints | None] | None = None


def text_entries(documents: Iterable[Document]) -> Iterator[Entry]:
    """Yield an entry for each document; DocumentError when one has no text, EncoderError when it is no Document."""
    for number, document in enumerate(documents, start=1):
        yield Entry(f"document {number}", require_text(_check_document(document, number)))


def view_entries(
    documents: Iterable[Document], views: Any, dim: int | None, spans: ViewSpans | None = None
) -> Iterator[Entry]:
    """Yield an entry for each document with its views, (k, d) float32, and their spans, (k, 2).

    Args:
        documents: The documents.
        views: (n, k, d), (n, d), or n arrays (k_i, d).
        dim: The dimensions expected; None takes any.
        spans: See IndexProtocol.add_views().

    Raises:
        EncoderError: For another number, shape or dim, and spans that do not fit the texts; for counts that are known
            at once, before the first entry.

    """
    if isinstance(documents, Document | str) or not isinstance(documents, Iterable):
        raise EncoderError(f"documents: expected several mvindex.Document, got {shown(documents)}")
    rows = _rows(views)
    if isinstance(documents, Sequence) and isinstance(rows, Sized) and len(documents) != len(rows):
        raise EncoderError(f"expected as many views as documents, got {len(documents)} documents and {len(rows)} views")
    pairs = enumerate(itertools.zip_longest(documents, rows), start=1)
    entries = (_view_entry(number, document, rows, dim) for number, (document, rows) in pairs)
    if spans is None:
        return entries
    reader = SpanReader(spans)
    reader.check_total(rows)
    if isinstance(documents, Sequence) and isinstance(spans, list | tuple) and len(documents) != len(spans):
        raise EncoderError(f"spans: expected a list for each of {len(documents)} documents, got {len(spans)}")
    return _with_spans(entries, reader)


def _with_spans(entries: Iterator[Entry], reader: SpanReader) -> Iterator[Entry]:
    for entry in entries:
        yield entry._replace(spans=reader.take(entry.document, 0 if entry.views is None else len(entry.views)))
    reader.check_end()


def _rows(views: Any) -> Iterable[Any]:
    """Return what has the views of each document: an array of numbers, or any other iterable as it is."""
    is_array = hasattr(views, "__array__") or hasattr(views, "__dlpack__")
    if not is_array and (isinstance(views, Mapping | str | bytes) or not isinstance(views, Iterable)):
        raise EncoderError(f"views: expected shape (n, k, d), (n, d) or a list of (k_i, d), got {type(views).__name__}")
    if not is_array or str(getattr(views, "dtype", "")) == "object":
        rows: Iterable[Any] = views
        return rows
    try:
        array = as_numbers(views)
    except ValueError as err:
        raise EncoderError(f"views: {err}") from err
    if array.ndim not in (2, 3):
        raise EncoderError(f"views: expected shape (n, k, d), (n, d) or a list of (k_i, d), got {array.shape}")
    return array


def _check_document(item: object, number: int) -> Document:
    if isinstance(item, Document):
        return item
    raise EncoderError(f"document {number}: expected mvindex.Document, got {shown(item)}")


def _view_entry(number: int, document: Document | None, rows: npt.ArrayLike | None, dim: int | None) -> Entry:
    if document is None or rows is None:
        missing, extra = ("documents", "views") if document is None else ("views", "documents")
        raise EncoderError(f"there are fewer {missing} than {extra}: item {number} has none; expected one for one")
    _check_document(document, number)
    if len(document.view_texts):
        raise EncoderError(f"document {document.id!r}: expected no view_texts beside given views; encode them too")
    try:
        array = as_numbers(rows)
    except ValueError as err:
        raise EncoderError(f"document {document.id!r}: views: {err}") from err
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or not len(array):
        raise EncoderError(f"document {document.id!r}: expected views of shape (k, d), got {array.shape}")
    if dim is not None and array.shape[1] != dim:
        raise EncoderError(f"document {document.id!r}: expected views of {dim} dims, got {array.shape[1]}")
    if array.dtype != _FLOAT32:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    return Entry(f"document {number}", document, np.ascontiguousarray(array))


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
            check_batch(pyarrow, batch)
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


# A document, its text, or a dict with a text and further fields.
Item: TypeAlias = "Document | str | Mapping[str, Any]"
# Items, or a table: of pandas or Polars, or whatever gives its rows as an Arrow stream.
Items: TypeAlias = "Iterable[Item] | Any"
_SAMPLE_ITEMS = 1000


def item_entries(items: Items, *, text_field: str | None = None, progress: bool = False) -> Iterator[Entry]:
    """Yield an entry for each item.

    A text gets an id made from its content, as does a dict or a row without one. The fields of dicts and rows are
    guessed as those of files: id, text and title, or a text of all fields. "metadata" and "view_texts" are the
    document's own; other fields are metadata, without null values.

    Args:
        items: Documents, texts and dicts, or a table of pandas, Polars or pyarrow; a single one of them too.
        text_field: The field of the text in dicts and rows, or several to join, with commas between.
        progress: Whether to show their number while they are taken: on stderr, in a notebook below the cell.

    Raises:
        DocumentError: An item is something else, or has no text; it is named by its number, from 1.

    """
    if text_field is not None and not isinstance(text_field, str):
        raise DocumentError(f"text_field: expected the name of a field, got {shown(text_field)}")
    rows = [items] if isinstance(items, Document | str | Mapping) else table_items(items)
    if not isinstance(rows, Iterable):
        raise DocumentError(f"documents: expected documents, texts, dicts or a table, got {type(items).__name__}")
    entries = _entries_of(_Items(rows), CorpusOptions(text_field=text_field))
    return track(entries, len(items) if isinstance(items, Sized) else None) if progress else entries


def _entries_of(items: _Items, options: CorpusOptions) -> Iterator[Entry]:
    roles: Roles | None = None
    for number, item in enumerate(items, start=1):
        place = f"document {number}"
        if isinstance(item, Document):
            yield Entry(place, require_text(item))
            continue
        if isinstance(item, Mapping):
            roles = roles or _find_roles(item, items, options)
            chosen = _with_own_id(roles, item)
        elif isinstance(item, str):
            item, chosen = {"text": item}, Roles(id=None)
        else:
            raise DocumentError(
                f"{place}: expected a Document, a text or a dict with a text, got {type(item).__name__}"
            )
        try:
            document = _document_of(item, chosen)
        except DocumentError as err:
            raise DocumentError(f"{place}: {err}") from err
        yield Entry(place, document, has_made_id=chosen.id is None)


class _Items:
    """An iterator over items that can show the next ones."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._next: deque[Any] = deque()

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        return self._next.popleft() if self._next else next(self._items)

    def peek(self) -> list[Any]:
        self._next.extend(islice(self._items, _SAMPLE_ITEMS - len(self._next)))
        return list(self._next)


def _find_roles(first: Mapping[str, Any], items: _Items, options: CorpusOptions) -> Roles:
    """Return the roles of the fields of the first dict; those after it are seen where names do not decide."""

    def sample() -> list[Mapping[str, Any]]:
        return [first, *(item for item in items.peek() if isinstance(item, Mapping))]

    columns = Columns(place="documents", kind="field", names=tuple(map(str, first)), sample=sample)
    try:
        roles = find_roles(columns, options)
    except CorpusError as err:
        raise DocumentError(f"{err} (in Python: text_field=)") from err
    if roles.is_row and options.text_field is None and len(first) == 1:
        name = next(iter(columns.names))
        raise DocumentError(f"documents: expected a field of texts, got {name}; name it (in Python: text_field=)")
    # Later dicts may have a title even if the first has none.
    has_title = roles.title is not None or "title" in roles.text
    return roles if has_title else replace(roles, title="title")


def _with_own_id(roles: Roles, fields: Mapping[str, Any]) -> Roles:
    """Return the roles with the id that these fields have; None where they have none."""
    names = ("id", "_id") if roles.id is None else (roles.id,)
    found = next((name for name in names if not is_missing(fields.get(name))), None)
    return roles if roles.id == found else replace(roles, id=found)


def _document_of(fields: Mapping[str, Any], roles: Roles) -> Document:
    kept = {str(name): plain_value(value) for name, value in fields.items() if not is_missing(value)}
    if METADATA in kept:
        kept[METADATA] = _decoded(kept[METADATA])
    of_text = kept.keys() - {METADATA, VIEW_TEXTS} if roles.is_row else (*roles.text, roles.title)
    if not any(_says_something(kept.get(name)) for name in of_text if name is not None):
        raise DocumentError(f"expected a text or a title, got {', '.join(kept) or 'none'}")
    return document_of(kept, roles)


def _says_something(text: object) -> bool:
    return text is not None and not (isinstance(text, str) and not text)


def _decoded(metadata: object) -> object:
    """Return metadata that are JSON, as Index.to_arrow() writes them, decoded; anything else as it is."""
    try:
        return json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        return metadata


_T = TypeVar("_T")
_EVERY_S = 0.2


def track(entries: Iterator[_T], total: int | None) -> Iterator[_T]:
    """Yield the entries, and show how many there were; total: how many there will be, if that is known."""
    display = find_display()
    if display is not None:
        yield from _track_in_notebook(entries, total, display)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(entries, total=total, description="documents")


def find_display() -> Callable[..., Any] | None:
    """Return the display function of the notebook that this process runs, None elsewhere; nothing is imported."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    found: Callable[..., Any] = ipython.display.display
    return found


class _Bar:
    """A state of the bar; `done` of `total` documents."""

    def __init__(self, done: int, total: int | None, is_over: bool = False) -> None:
        self._text = f"{done:,} documents" if total is None or is_over else f"{done:,} of {total:,} documents"
        self._bar = "" if is_over else "<progress></progress> "
        if total and not is_over:
            self._bar = f'<progress max="{total}" value="{done}"></progress> '

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"{self._bar}{self._text}"


def _track_in_notebook(entries: Iterator[_T], total: int | None, display: Callable[..., Any]) -> Iterator[_T]:
    handle, shown, done = display(_Bar(0, total), display_id=True), time.monotonic(), 0
    for entry in entries:
        yield entry
        done += 1
        if time.monotonic() - shown >= _EVERY_S:
            shown = time.monotonic()
            handle.update(_Bar(done, total))
    handle.update(_Bar(done, total, is_over=True))
