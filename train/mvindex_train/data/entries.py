"""The JSON objects of a file, of one large array or one a line, each with its place for messages about its fields."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from mvindex.corpus.inputs import UTF8_MARK, open_bytes, read_lines, stream_name
from mvindex.corpus.rows import MAX_ROW_BYTES
from mvindex.errors import CorpusError, DocumentError
from mvindex.plugins import require


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of a JSON object, and its place in messages: `file:17`, `file: entry 17`, `file:17: positives[2]`."""

    fields: Mapping[str, Any]
    place: str

    def error(self, message: str) -> CorpusError:
        """Return an error whose message begins with the place."""
        return CorpusError(f"{self.place}: {message}")

    @contextmanager
    def prefix_errors(self) -> Iterator[None]:
        """Turn a DocumentError raised inside, which has no place, into a CorpusError with the place."""
        try:
            yield
        except DocumentError as err:
            raise self.error(str(err)) from err

    def string(self, name: str) -> str:
        """Return the string of a required field."""
        value = self._required(name)
        if not isinstance(value, str):
            raise self.error(f'"{name}": expected a string, got {value!r:.60}')
        return value

    def text(self, name: str) -> str:
        """Return the string of a field; empty where it is missing or null."""
        return "" if self.fields.get(name) is None else self.string(name)

    def optional_id(self, *names: str) -> str | None:
        """Return the id in the first of the fields that is present, a whole number as its digits; None without one."""
        name = next((name for name in names if self.fields.get(name) is not None), None)
        return None if name is None else self._id(self.fields[name], name)

    def id(self, *names: str) -> str:
        """Return the id in the first of the fields that is present; raise CorpusError when none is."""
        value = self.optional_id(*names)
        if value is None:
            raise self.error(f"expected {_quote(names)}, got the fields {', '.join(self.fields) or 'none'}")
        return value

    def ids(self, name: str) -> tuple[str, ...] | None:
        """Return the list of ids in a field; None where it is missing or null."""
        values = self._list(name)
        return None if values is None else tuple(self._id(value, name) for value in values)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return the list of strings in a field; empty where it is missing or null."""
        values = self._list(name) or []
        for value in values:
            if not isinstance(value, str):
                raise self.error(f'"{name}": expected strings, got {value!r:.60}')
        return tuple(values)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return the list of numbers in a field, NaN for null; None where the field is missing or null."""
        values = self._list(name)
        return None if values is None else tuple(self._number(value, name) for value in values)

    def entries(self, name: str, optional: bool = False) -> Iterator[Entry]:
        """Yield the objects listed in a field, each with its own place."""
        if not optional:
            self._required(name)
        for row, value in enumerate(self._list(name) or []):
            place = f"{self.place}: {name}[{row}]"
            if not isinstance(value, dict):
                raise CorpusError(f"{place}: expected an object, got {value!r:.60}")
            yield Entry(value, place)

    def _required(self, name: str) -> Any:
        if name not in self.fields:
            raise self.error(f'expected "{name}", got the fields {", ".join(self.fields) or "none"}')
        return self.fields[name]

    def _list(self, name: str) -> list[Any] | None:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(f'"{name}": expected a list, got {value!r:.60}')
        return value

    def _id(self, value: object, name: str) -> str:
        if isinstance(value, str):
            return value
        if type(value) is int:
            return str(value)
        raise self.error(f'"{name}": expected a string or a whole number, got {value!r:.60}')

    def _number(self, value: object, name: str) -> float:
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f'"{name}": expected numbers or null, got {value!r:.60}')
        try:
            return float(value)
        except OverflowError as err:
            raise self.error(f'"{name}": expected scores, got a whole number of {len(str(value))} digits') from err


def load_entry(line: str, place: str) -> Entry:
    """Return the JSON object of a line; raise CorpusError, which begins with the place, when it is not one."""
    try:
        value = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as err:
        raise CorpusError(f"{place}: expected one JSON object a line, got invalid JSON: {err}") from err
    if not isinstance(value, dict):
        raise CorpusError(f"{place}: expected a JSON object, got a {type(value).__name__}")
    return Entry(cast(dict[str, Any], value), place)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _quote(names: tuple[str, ...]) -> str:
    return " or ".join(f'"{name}"' for name in names)


PEEK_BYTES = 64 << 10


def read_objects(path: str) -> Iterator[Entry]:
    """Yield the objects of a JSON array or of JSONL, whichever the first character says.

    An array is parsed incrementally: one object is in memory at a time. Raises CorpusError with the entry's number or
    the line.
    """
    return read_items(path, "item", "entry") if peek(path)[:1] == b"[" else _read_lines(path)


def read_items(path: str, prefix: str, noun: str) -> Iterator[Entry]:
    """Yield the objects at an ijson prefix of a file of one JSON value; noun: the term for one of them in messages."""
    name, number = stream_name(path), 0
    with open_text(path) as stream, _json_errors(name, lambda: f"after {noun} {number}"):
        for number, value in enumerate(_ijson().items(stream, prefix, use_float=True), start=1):
            if not isinstance(value, dict):
                raise CorpusError(f"{name}: {noun} {number}: expected an object, got {value!r:.60}")
            yield Entry(cast(dict[str, Any], value), f"{name}: {noun} {number}")


def peek(path: str) -> bytes:
    """Return the first bytes of a file without leading white space; empty when there is nothing else."""
    with open_text(path) as stream:
        return stream.read(PEEK_BYTES).lstrip()


def first_object_keys(path: str) -> tuple[str, ...]:
    """Return the keys of the first JSON object of a file, up to and including `data` where that is a list."""
    keys: list[str] = []
    with open_text(path) as stream, _json_errors(stream_name(path), lambda: "at its beginning"):
        for prefix, event, value in _ijson().parse(stream, multiple_values=True):
            if prefix == "" and event == "map_key":
                keys.append(value)
            if (prefix, event) in (("", "end_map"), ("data", "start_array")):
                break
    return tuple(keys)


@contextmanager
def open_text(path: str) -> Iterator[io.BufferedReader]:
    """Open a file for its uncompressed bytes, without a byte-order mark."""
    with open_bytes(path) as opened:
        stream = cast(io.BufferedReader, opened)
        if stream.peek(len(UTF8_MARK)).startswith(UTF8_MARK):
            stream.read(len(UTF8_MARK))
        yield stream


def _read_lines(path: str) -> Iterator[Entry]:
    name = stream_name(path)
    for number, line in read_lines(path, MAX_ROW_BYTES):
        if line.strip():
            yield load_entry(line, f"{name}:{number}")


@contextmanager
def _json_errors(name: str, where: Callable[[], str]) -> Iterator[None]:
    """Turn the parser's errors into CorpusErrors with the file and how far it was read."""
    try:
        yield
    except _ijson().JSONError as err:
        # Some of the parser's messages are bytes, and all contain a drawing that spans several lines.
        message = err.args[0].decode(errors="replace") if isinstance(err.args[0], bytes) else str(err)
        raise CorpusError(f"{name}: {where()}: invalid JSON: {' '.join(message.split())}") from err


def _ijson() -> Any:
    return require("ijson", "train", "reading training data in JSON")
