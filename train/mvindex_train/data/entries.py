"""Entry: one JSON object of an input with its place, so that every message about a field says where it stands."""

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
    """The fields of a JSON object, and its place for messages: `file:17`, `file: entry 17`, `file:17: positives[2]`."""

    fields: Mapping[str, Any]
    place: str

    def error(self, message: str) -> CorpusError:
        """The message as an error that begins with the place."""
        return CorpusError(f"{self.place}: {message}")

    @contextmanager
    def located(self) -> Iterator[None]:
        """Gives the place to a DocumentError raised inside, which knows none."""
        try:
            yield
        except DocumentError as err:
            raise self.error(str(err)) from err

    def string(self, name: str) -> str:
        """The string under a name that must be there."""
        value = self._required(name)
        if not isinstance(value, str):
            raise self.error(f'"{name}" is {value!r:.60}; wanted a string')
        return value

    def text(self, name: str) -> str:
        """The string under a name; empty where it is missing or null."""
        return "" if self.fields.get(name) is None else self.string(name)

    def optional_id(self, *names: str) -> str | None:
        """The id under the first of the names that is there, a whole number as its digits; None where none is."""
        name = next((name for name in names if self.fields.get(name) is not None), None)
        return None if name is None else self._id(self.fields[name], name)

    def id(self, *names: str) -> str:
        """The id under the first of the names that is there; one must be."""
        found = self.optional_id(*names)
        if found is None:
            raise self.error(f"has no {_quote(names)}; its fields are {', '.join(self.fields) or 'none'}")
        return found

    def ids(self, name: str) -> tuple[str, ...] | None:
        """The ids listed under a name; None where it is missing or null."""
        values = self._list(name)
        return None if values is None else tuple(self._id(value, name) for value in values)

    def strings(self, name: str) -> tuple[str, ...]:
        """The strings listed under a name; none where it is missing or null."""
        values = self._list(name) or []
        for value in values:
            if not isinstance(value, str):
                raise self.error(f'"{name}" holds {value!r:.60}; wanted strings')
        return tuple(values)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """The numbers listed under a name, NaN for null; None where the name is missing or null."""
        values = self._list(name)
        return None if values is None else tuple(self._number(value, name) for value in values)

    def entries(self, name: str, optional: bool = False) -> Iterator[Entry]:
        """The objects listed under a name, each with its own place."""
        if not optional:
            self._required(name)
        for row, value in enumerate(self._list(name) or []):
            place = f"{self.place}: {name}[{row}]"
            if not isinstance(value, dict):
                raise CorpusError(f"{place} is {value!r:.60}; wanted an object")
            yield Entry(value, place)

    def _required(self, name: str) -> Any:
        if name not in self.fields:
            raise self.error(f'has no "{name}"; its fields are {", ".join(self.fields) or "none"}')
        return self.fields[name]

    def _list(self, name: str) -> list[Any] | None:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(f'"{name}" is {value!r:.60}; wanted a list')
        return value

    def _id(self, value: object, name: str) -> str:
        if isinstance(value, str):
            return value
        if type(value) is int:
            return str(value)
        raise self.error(f'"{name}" is {value!r:.60}; wanted a string or a whole number')

    def _number(self, value: object, name: str) -> float:
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f'"{name}" holds {value!r:.60}; wanted numbers or null')
        try:
            return float(value)
        except OverflowError as err:
            raise self.error(f'"{name}" holds a whole number of {len(str(value))} digits; wanted scores') from err


def load_entry(line: str, place: str) -> Entry:
    """The JSON object of a line; CorpusError, which begins with the place, when it is none."""
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as err:
        raise CorpusError(f"{place}: is not JSON: {err}; wanted one object a line") from err
    if not isinstance(value, dict):
        raise CorpusError(f"{place}: is a JSON {type(value).__name__}; wanted an object")
    return Entry(cast(dict[str, Any], value), place)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _quote(names: tuple[str, ...]) -> str:
    return " and no ".join(f'"{name}"' for name in names)
