"""Values of a large JSON text, split without parsing them, so that one of them is in memory at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_NO_SPACE = re.compile(rb"[^ \t\n\r]")
_OUTSIDE_STRING = re.compile(rb'["\[\]{},]')
_REST_OF_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_INSIDE_STRING = re.compile(rb'["\\]')
_MAX_NAME_BYTES = 2**16
_CLOSING = (b"]", b"}")


class JsonCursor:
    """A position in the pieces of a JSON text."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece, self._at = b"", 0

    def peek(self) -> bytes:
        """Return the next byte that is no white space, without taking it; b"" at the end."""
        while (found := _NO_SPACE.search(self._piece, self._at)) is None:
            if not self._next_piece():
                return b""
        self._at = found.start()
        return found[0]

    def take(self, byte: bytes) -> bool:
        """Take the next byte if it is this one; return whether it was."""
        is_next = self.peek() == byte
        self._at += is_next
        return is_next

    def value(self) -> Iterator[bytes]:
        """Yield the value that begins here, piece by piece; what is not consumed of it is not taken.

        It ends where its brackets or quotes close, or before the comma or bracket of what it is part of.
        """
        self.peek()
        depth, is_string, at = 0, False, self._at
        while True:
            found = (_INSIDE_STRING if is_string else _OUTSIDE_STRING).search(self._piece, at)
            if found is None:
                yield self._take_until(len(self._piece))
                at = max(0, at - len(self._piece))  # 1 where the byte after a backslash is in the next piece
                if not self._next_piece():
                    return
                continue
            byte, at = found[0], found.end()
            if byte == b"\\":
                at += 1
            elif byte == b'"':
                whole = None if is_string else _REST_OF_STRING.match(self._piece, at)
                is_string = not is_string and whole is None  # a string that goes on in the next piece
                at = whole.end() if whole else at
            elif byte in (b"[", b"{"):
                depth += 1
            elif depth == 0:
                yield self._take_until(found.start())
                return
            elif byte in _CLOSING:
                depth -= 1
            if depth == 0 and not is_string:
                yield self._take_until(at)
                return

    def _take_until(self, end: int) -> bytes:
        taken = self._piece[self._at : end]
        self._at = max(self._at, end)
        return taken

    def _next_piece(self) -> bool:
        """Go on to the next piece; return whether there is one. Where there is none, the cursor is at the end."""
        piece = next(self._pieces, b"")
        self._piece, self._at = piece, 0
        return bool(piece)


def find_records(cursor: JsonCursor, own_fields: frozenset[str]) -> str | None:
    """Go on to the first array of objects among the values of an object; return its name.

    Returns None, with the cursor somewhere behind, where there is none before a field of a record itself.

    Args:
        cursor: In the object, before a field or before its end.
        own_fields: Names of fields that only records have.

    """
    while cursor.peek() == b'"':
        name = _field_name(cursor)
        if name is None or name.casefold() in own_fields or not cursor.take(b":"):
            return None
        if cursor.take(b"["):
            if cursor.peek() == b"{":
                return name
            _skip_array(cursor)
        else:
            _skip(cursor)
        if not cursor.take(b","):
            return None
    return None


def _field_name(cursor: JsonCursor) -> str | None:
    """Return the name that begins here; None where it is no string, or absurdly long."""
    stored = b""
    for piece in cursor.value():
        stored += piece
        if len(stored) > _MAX_NAME_BYTES:
            return None
    try:
        name = json.loads(stored)
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _skip(cursor: JsonCursor) -> None:
    for _ in cursor.value():
        pass


def _skip_array(cursor: JsonCursor) -> None:
    """Skip the rest of an array whose bracket is taken."""
    while cursor.peek() not in (b"]", b""):
        _skip(cursor)
        if not cursor.take(b","):
            break
    cursor.take(b"]")
