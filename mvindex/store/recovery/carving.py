"""Cells found by their own bytes, in pages whose header or cell pointers are damaged."""

from __future__ import annotations

import numpy as np

from mvindex.records import Ints
from mvindex.store.recovery.records import Kind

# Lengths and serial types of up to four bytes are understood here: values up to 128 MB.
_VARINT_BYTES = 4
_IMPOSSIBLE = 1 << 40
_FIXED_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, _IMPOSSIBLE, _IMPOSSIBLE], dtype=np.int64)


def find_cells(page: bytes) -> list[tuple[Kind, int]]:
    """Where the sizes in a cell's header and in its record's header add up to the payload's: kinds and offsets.

    Record headers of up to 127 bytes are found. Few other bytes pass; text in ASCII hardly ever.
    """
    data = np.frombuffer(page, dtype=np.uint8).astype(np.int64)
    ends, numbers = _varints(data)
    sizes_before = _sizes_before(data, numbers)
    headers = {Kind.TABLE: _at(ends, ends, len(data)), Kind.INDEX: ends}
    return [(kind, begin) for kind in Kind for begin in _fitting(data, numbers, headers[kind], sizes_before).tolist()]


def _fitting(data: Ints, payload_sizes: Ints, headers: Ints, sizes_before: Ints) -> Ints:
    """The offsets whose payload has the size that its record's header, which starts at `headers`, asks for."""
    header_sizes = _at(data, headers, _IMPOSSIBLE)
    bodies = headers + header_sizes
    begins = np.flatnonzero((header_sizes >= 2) & (header_sizes < 0x80) & (bodies <= len(data)))
    headers, bodies = headers[begins], bodies[begins]
    values = sizes_before[bodies] - sizes_before[headers + 1]
    fits = (bodies - headers + values == payload_sizes[begins]) & (data[bodies - 1] < 0x80)
    found: Ints = begins[fits]
    return found


def _at(values: Ints, places: Ints, missing: int) -> Ints:
    """The values at the places; `missing` for a place past the end."""
    return np.append(values, missing)[np.minimum(places, len(values))]


def _varints(data: Ints) -> tuple[Ints, Ints]:
    """Where a number that starts at each byte ends, and the number itself, or the impossible where it is too long."""
    places = np.arange(len(data))
    stops = np.where(data < 0x80, places, len(data))
    stops = np.minimum.accumulate(stops[::-1])[::-1]
    ends = np.minimum(stops + 1, places + 9)
    numbers = np.full(len(data), _IMPOSSIBLE)
    value = np.zeros(len(data), dtype=np.int64)
    for length in range(1, _VARINT_BYTES + 1):
        value = value << 7 | _at(data, places + length - 1, 0) & 0x7F
        numbers = np.where(stops - places == length - 1, value, numbers)
    return ends, numbers


def _sizes_before(data: Ints, numbers: Ints) -> Ints:
    """(n + 1,): how many bytes the values take whose serial types start before each byte of the page."""
    sizes = np.where(numbers >= 12, numbers - 12 >> 1, _FIXED_SIZES[np.minimum(numbers, 11)])
    is_start = np.append(True, data[:-1] < 0x80)
    return np.append(0, np.cumsum(np.where(is_start, sizes, 0)))
