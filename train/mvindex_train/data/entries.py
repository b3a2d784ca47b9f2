"""A JSON object of an input with its place, so that every message about a field says where it is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from mvindex.errors import CorpusError, DocumentError


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
