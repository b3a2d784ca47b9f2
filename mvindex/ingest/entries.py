"""Documents and views as callers give them, checked and as entries of an ingest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.errors import EncoderError
from mvindex.ingest.pipeline import Entry
from mvindex.ingest.spans import SpanReader
from mvindex.records import Document, Floats, Ints, ViewSpans, require_text, shown

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
    if document.view_texts:
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
