"""Bytes of a record -> its values. Whatever is not exactly a record is a ValueError or an IndexError."""

from __future__ import annotations

import struct

from mvindex.store.recovery.records import Value

# Serial types 0 to 9: NULL, integers of 1, 2, 3, 4, 6 and 8 bytes, a float, the integers 0 and 1.
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_MAX_COLUMNS = 32_767


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number of 1 to 9 bytes at an offset, and the offset behind it; IndexError past the end."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(at + 1, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def as_signed(value: int) -> int:
    """The 64-bit two's complement integer of an unsigned one."""
    return value - (1 << 64) if value >> 63 else value


def decode_record(payload: bytes) -> tuple[Value, ...]:
    """The values of a record that takes up the payload to the last byte."""
    serials = _read_serials(payload)
    begin = serials.pop(0)
    sizes = [_serial_size(serial) for serial in serials]
    if begin + sum(sizes) != len(payload):
        raise ValueError("sizes of header and values do not add up to the payload's")
    values = []
    for serial, size in zip(serials, sizes, strict=True):
        values.append(_decode(serial, payload[begin : begin + size]))
        begin += size
    return tuple(values)


def _serial_size(serial: int) -> int:
    """The bytes that a value of this serial type takes; ValueError for the two reserved types."""
    if serial >= 12:
        return (serial - 12) >> 1
    if serial >= 10:
        raise ValueError(f"serial type {serial}")
    return _SIZES[serial]


def _read_serials(payload: bytes) -> list[int]:
    """The size of the header, then each value's serial type."""
    size, at = read_varint(payload, 0)
    numbers = [size]
    while at < size and len(numbers) <= _MAX_COLUMNS:
        serial, at = read_varint(payload, at)
        numbers.append(serial)
    if at != size or len(numbers) == 1:
        raise ValueError("the header ends inside a serial type, or has none")
    return numbers


def _decode(serial: int, data: bytes) -> Value:
    if serial >= 12:
        return data.decode("utf-8") if serial & 1 else data
    if 1 <= serial <= 6:
        return int.from_bytes(data, "big", signed=True)
    if serial == 7:
        (number,) = struct.unpack(">d", data)
        return float(number)
    return None if serial == 0 else serial - 8
