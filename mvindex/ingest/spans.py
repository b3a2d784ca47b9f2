"""The spans of given views, as callers give them: checked, document by document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.arrays import as_numbers
from mvindex.errors import EncoderError
from mvindex.records import Document, Ints, shown

_NONE = (-1, -1)


class SpanReader:
    """Gives the spans of one document after the other."""

    def __init__(self, spans: Any) -> None:
        """Take an array (r, 2) of all views in order, or (k_i, 2) pairs or None for each document.

        Raises EncoderError for anything else.
        """
        self._flat: Ints | None = None
        self._each: Iterator[Any] = iter(())
        self._num_taken = 0
        if not hasattr(spans, "__array__"):
            if isinstance(spans, Mapping | str | bytes) or not isinstance(spans, Iterable):
                raise EncoderError(f"spans: expected an array or pairs for each document, got {shown(spans)}")
            self._each = iter(spans)
            return
        array = np.asarray(spans)
        if array.dtype.kind not in "iu" or array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise EncoderError(
                f"spans: expected integers of shape (r, 2) or (n, k, 2), got {array.dtype} of {array.shape}"
            )
        if array.ndim == 3:
            self._each = iter(array)
        else:
            self._flat = array.astype(np.int64)

    def check_total(self, rows: object) -> None:
        """Raise EncoderError where the array (r, 2) has another number of spans than these views, if they are known."""
        if self._flat is None or not isinstance(rows, Sequence | np.ndarray):
            return
        try:
            total = sum(1 if np.ndim(each) == 1 else len(each) for each in rows)
        except (TypeError, ValueError):
            return  # these are no views, which is said where they are read
        if total != len(self._flat):
            raise EncoderError(f"spans: expected {total}, one for each view, got {len(self._flat)}")

    def take(self, document: Document, count: int) -> Ints | None:
        """Return the spans of the next document, (count, 2); None where it has none.

        Raises EncoderError for another number, and a span that is empty or beyond the text.
        """
        if self._flat is None:
            spans = self._next(document)
        else:
            spans = self._flat[self._num_taken : self._num_taken + count]
            self._num_taken += count
        if spans is None:
            return None
        if spans.shape != (count, 2):
            raise EncoderError(f"document {document.id!r}: expected {count} spans, one for each view, got {len(spans)}")
        begins, ends = spans[:, 0], spans[:, 1]
        is_span = (begins >= 0) & (begins < ends) & (ends <= len(document.text))
        is_bad = ~is_span & ~(spans == _NONE).all(axis=1)
        if is_bad.any():
            slot = int(np.argmax(is_bad))
            raise EncoderError(
                f"document {document.id!r}: spans: view {slot}: expected 0 <= begin < end <= {len(document.text)}, the "
                f"characters of its text, got {begins[slot]} and {ends[slot]}; None is no span"
            )
        return spans

    def _next(self, document: Document) -> Ints | None:
        try:
            given = next(self._each)
        except StopIteration:
            raise EncoderError(
                f"there are fewer spans than documents: document {document.id!r} has none; expected one list for each"
            ) from None
        if given is None:
            return None
        if not hasattr(given, "__array__") and isinstance(given, Iterable):
            given = [_NONE if pair is None else pair for pair in given]
        try:
            array = as_numbers(given)
        except ValueError as err:
            raise EncoderError(f"document {document.id!r}: spans: expected pairs of whole numbers: {err}") from err
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise EncoderError(
                f"document {document.id!r}: spans: expected pairs of whole numbers [begin, end), got {array.dtype} of "
                f"shape {array.shape}"
            )
        return array.astype(np.int64)

    def check_end(self) -> None:
        """Raise EncoderError where spans are left after the last document."""
        left = next(self._each, self) is not self if self._flat is None else self._num_taken < len(self._flat)
        if left:
            raise EncoderError("there are more spans than views; expected one for each")
