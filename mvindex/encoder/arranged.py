"""The windows of many documents or queries as a few flat arrays, which need no loop and travel between processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.encoder.families.windows import CONTEXT, Arrangement, Slots, Window
from mvindex.encoder.text import Ids
from mvindex.records import Bools, Floats, Ints

# What windows need not set.
_OPTIONAL = ("weights", "positions", "scopes", "is_viewer")


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """The windows of n documents or queries, one after the other: w windows of t tokens in all.

    ids, slots: (t,) int32, slots numbered within a document; weights: (t,) float32; positions: (t,) int32; scopes:
    (t,) int32; is_viewer: (t,) bool; see Window, None where no window sets them. lengths: (w,) int64, the tokens of
    each window. num_windows, num_rows, num_views: (n,) int64, of each document. spans: (r, 2) int64, of the views.
    """

    ids: Ids
    slots: Slots
    lengths: Ints
    num_windows: Ints
    num_rows: Ints
    num_views: Ints
    spans: Ints
    weights: Floats | None = None
    positions: Ids | None = None
    scopes: Slots | None = None
    is_viewer: Bools | None = None

    _TYPES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("lengths", "num_windows", "num_rows", "num_views", "spans"), "<i8"),
        **dict.fromkeys(("ids", "slots", "positions", "scopes"), "<i4"),
        "weights": "<f4",
        "is_viewer": "?",
    }

    def __len__(self) -> int:
        return len(self.num_rows)

    def __getitem__(self, documents: slice) -> Arranged:
        return self.take(np.arange(len(self))[documents])

    @property
    def view_starts(self) -> Ints:
        """Return where each document's views start, and the end: (n + 1,) int64."""
        return _starts(self.num_views)

    @property
    def owners(self) -> Ints:
        """Return the document of each window, (w,)."""
        return np.repeat(np.arange(len(self)), self.num_windows)

    @property
    def first_rows(self) -> Ints:
        """Return the row of each window's slot 0 where the rows of all documents are numbered through, (w,)."""
        return _starts(self.num_rows)[self.owners]

    def take(self, documents: Ints) -> Arranged:
        """Return the windows of these documents, in this order."""
        windows = ranges(_starts(self.num_windows)[documents], self.num_windows[documents])
        views = ranges(_starts(self.num_views)[documents], self.num_views[documents])
        tokens = ranges(_starts(self.lengths)[windows], self.lengths[windows])
        found: dict[str, Any] = {"lengths": self.lengths[windows], "spans": self.spans[views]}
        found |= {name: getattr(self, name)[documents] for name in ("num_windows", "num_rows", "num_views")}
        return Arranged(**found, **self._of_tokens(tokens))

    def windows_of(self, is_needed: Bools) -> Arranged:
        """Return the same documents without windows that no needed row is averaged from.

        is_needed: (num_rows.sum(),), of the rows of all documents, numbered through.
        """
        windows, is_read = np.repeat(np.arange(len(self.lengths)), self.lengths), self.slots != CONTEXT
        rows = self.slots[is_read] + self.first_rows[windows[is_read]]
        is_kept = np.bincount(windows[is_read][is_needed[rows]], minlength=len(self.lengths)) > 0
        num_windows = np.bincount(self.owners[is_kept], minlength=len(self))
        tokens = self._of_tokens(np.repeat(is_kept, self.lengths))
        return replace(self, lengths=self.lengths[is_kept], num_windows=num_windows, **tokens)

    def row_keys(self) -> list[bytes]:
        """Return for each row a hash of all windows that it is averaged from, and of its tokens' places and weights."""
        hashes = [xxhash.xxh3_128() for _ in range(int(self.num_rows.sum()))]
        weights, *read = (self._set(name) for name in _OPTIONAL)
        read.append(self.ids)
        bounds = pairwise(_starts(self.lengths).tolist())
        for (begin, end), first_row in zip(bounds, self.first_rows.tolist(), strict=True):
            content = xxhash.xxh3_128_digest(b"".join(each[begin:end].tobytes() for each in read))
            slots = self.slots[begin:end]
            for slot in np.unique(slots[slots != CONTEXT]).tolist():
                places = np.flatnonzero(slots == slot)
                own = places.tobytes() + weights[begin:end][places].tobytes()
                hashes[first_row + slot].update(content + len(places).to_bytes(8, "little") + own)
        return [each.digest() for each in hashes]

    def _of_tokens(self, tokens: Ints | Bools) -> dict[str, Any]:
        """Return the arrays that have a value for each token, of these tokens only."""
        arrays = {name: getattr(self, name) for name in ("ids", "slots", *_OPTIONAL)}
        return {name: None if values is None else values[tokens] for name, values in arrays.items()}

    def _set(self, name: str) -> npt.NDArray[Any]:
        """Return the values of all tokens, also where no window sets them."""
        return _filled(name, getattr(self, name), self.lengths)

    def as_bytes(self) -> dict[str, bytes | None]:
        """Return the arrays' bytes by name, for another process."""
        arrays = {name: getattr(self, name) for name in self._TYPES}
        return {
            name: None if array is None else array.astype(self._TYPES[name], copy=False).tobytes()
            for name, array in arrays.items()
        }

    @classmethod
    def from_bytes(cls, found: dict[str, bytes | None]) -> Arranged:
        """Return what as_bytes() was made of."""
        arrays: dict[str, Any] = {
            name: None if data is None else np.frombuffer(bytearray(data), dtype=cls._TYPES[name])
            for name, data in found.items()
        }
        return cls(**arrays | {"spans": arrays["spans"].reshape(-1, 2)})


def arranged_of(found: Sequence[Arrangement]) -> Arranged:
    """Return the windows of these documents or queries as flat arrays."""
    windows = [window for one in found for window in one.windows]
    return Arranged(
        ids=_joined([window.ids for window in windows]),
        slots=_joined([window.slots for window in windows]),
        lengths=_counts(len(window.ids) for window in windows),
        num_windows=_counts(len(one.windows) for one in found),
        num_rows=_counts(one.num_rows for one in found),
        num_views=_counts(len(one.spans) for one in found),
        spans=np.array([span for one in found for span in one.spans], dtype=np.int64).reshape(-1, 2),
        **{name: _optional(windows, name) for name in _OPTIONAL},
    )


def joined(parts: Sequence[Arranged]) -> Arranged:
    """Return the windows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Arranged)):
        values = [getattr(part, name) for part in parts]
        if any(value is not None for value in values):
            found[name] = np.concatenate(
                [_filled(name, value, part.lengths) for value, part in zip(values, parts, strict=True)]
            )
    return Arranged(**found)


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenated ranges that begin at starts and have these lengths, (lengths.sum(),) int64."""
    begins = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - begins, lengths) + np.arange(int(lengths.sum())), dtype=np.int64)


def _optional(windows: Sequence[Window], name: str) -> npt.NDArray[Any] | None:
    """Return the values of all tokens; None where no window sets them."""
    values = [getattr(window, name) for window in windows]
    if all(value is None for value in values):
        return None
    sizes = [np.array([len(window.ids)]) for window in windows]
    return np.concatenate([_filled(name, *each) for each in zip(values, sizes, strict=True)])


def _filled(name: str, values: npt.NDArray[Any] | None, lengths: Ints) -> npt.NDArray[Any]:
    """Return the values, or those that windows of these lengths have which set none."""
    if values is not None:
        return values
    if name == "positions":
        return ranges(np.zeros_like(lengths), lengths).astype(np.int32)
    value, dtype = {"weights": (1, np.float32), "scopes": (CONTEXT, np.int32), "is_viewer": (False, np.bool_)}[name]
    return np.full(int(lengths.sum()), value, dtype=dtype)


def _counts(counts: Iterable[int]) -> Ints:
    return np.fromiter(counts, dtype=np.int64)


def _joined(arrays: Sequence[Ids]) -> Ids:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


def _starts(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts))
