"""Fields of settings dataclasses: validation and parsing by their type hints, and reading and writing as TOML."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from mvindex.errors import ConfigError

NONE = "none"  # how TOML, which has no null, writes the absence of a value


@dataclass(frozen=True, slots=True)
class Bound:
    """The range of a number: low and high are inclusive, above is exclusive."""

    low: float = -math.inf
    above: float = -math.inf
    high: float = math.inf

    def contains(self, value: float) -> bool:
        """Return whether the value is in the range."""
        return self.low <= value <= self.high and value > self.above

    def __str__(self) -> str:
        texts = ((self.low, "of at least {:g}"), (self.above, "above {:g}"), (self.high, "of at most {:g}"))
        return " and ".join(text.format(end) for end, text in texts if math.isfinite(end))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the names that a function returns, which are known only when the program runs."""

    names: Callable[[], Iterable[str]]


Count: TypeAlias = Annotated[int, Bound(low=1)]
CountOrZero: TypeAlias = Annotated[int, Bound(low=0)]
Positive: TypeAlias = Annotated[float, Bound(above=0)]
PositiveOrZero: TypeAlias = Annotated[float, Bound(low=0)]
Share: TypeAlias = Annotated[float, Bound(low=0, high=1)]
Names: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field: str, bool, int, float, tuple (of str) or a dataclass. choices: allowed strings, if few."""

    type: type
    is_optional: bool = False
    choices: tuple[str, ...] = ()
    bound: Bound | None = None

    def __str__(self) -> str:
        if self.choices:
            text = "one of " + ", ".join(map(repr, self.choices))
        else:
            noun = _NOUNS.get(self.type, f"settings of {self.type.__name__}")
            text = f"{noun} {self.bound or ''}".rstrip()
        return f"{text}, or {NONE!r}" if self.is_optional else text

    def accepts(self, value: object) -> bool:
        """Return whether the value is of this kind and in its range; a bool is not a number, and a number is finite."""
        if value is None:
            return self.is_optional
        if self.type in (int, float):
            return _is_number(value, self.type) and (self.bound is None or self.bound.contains(value))
        if self.type is tuple:
            return isinstance(value, tuple) and all(isinstance(part, str) and part for part in value)
        if self.type is str:
            return isinstance(value, str) and (value in self.choices if self.choices else value not in ("", NONE))
        return isinstance(value, self.type)


_NOUNS: Mapping[type, str] = {
    str: "a string that is not empty",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list of strings",
}


def kinds_of(settings: type) -> Mapping[str, Kind]:
    """Return the kind of each field of a settings dataclass, by name and in order."""
    hashable: Any = settings  # mypy does not know that classes are hashable
    return _kinds_of(hashable)


def check_fields(settings: Any, table: str) -> None:
    """Validate all fields, and convert whole numbers of float fields to float.

    table: prefix of the names in messages. Raises ConfigError with the field, the expected kind and the value.
    """
    for name, kind in kinds_of(type(settings)).items():
        value = getattr(settings, name)
        if not kind.accepts(value):
            raise ConfigError(f"{table}{name}: expected {kind}, got {value!r:.80}")
        if kind.type is float and value is not None:
            object.__setattr__(settings, name, float(value))


def from_toml(value: object, kind: Kind) -> object:
    """Convert a TOML value to the value of a field: "none" to None, a list to a tuple."""
    if value == NONE and kind.is_optional:
        return None
    return tuple(value) if kind.type is tuple and isinstance(value, list) else value


def from_text(text: str, kind: Kind) -> object:
    """Parse the text of a flag; the items of a list are separated by commas.

    An invalid text is returned unchanged: check_fields() rejects it.
    """
    if text == NONE and kind.is_optional:
        return None
    if kind.type is tuple:
        return tuple(text.split(",")) if text else ()
    if kind.type is bool:
        return {"true": True, "false": False}.get(text, text)
    if kind.type in (int, float):
        return _parse_number(text, kind.type)
    return text


def _parse_number(text: str, number: type) -> object:
    try:
        return number(text)
    except ValueError:
        return text


def _is_number(value: object, number: type) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int if number is int else int | float):
        return False
    # Not math.isfinite: a whole number may be too large for a float.
    return number is int or abs(value) <= sys.float_info.max


@cache
def _kinds_of(settings: type) -> Mapping[str, Kind]:
    hints = get_type_hints(settings, include_extras=True)
    return types.MappingProxyType({field.name: _kind(hints[field.name]) for field in dataclasses.fields(settings)})


def _kind(hint: Any) -> Kind:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (part,) = (part for part in parts if part is not type(None))
        return dataclasses.replace(_kind(part), is_optional=True)
    if origin is Annotated and isinstance(parts[1], Choice):
        return Kind(str, choices=tuple(parts[1].names()))
    if origin is Annotated:
        return dataclasses.replace(_kind(parts[0]), bound=parts[1])
    if origin is Literal:
        return Kind(str, choices=parts)
    return Kind(origin or hint)


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = TypeVar("Settings")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ConfigError with the file, and the line of a syntax error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as err:
        raise ConfigError(f"{path}: invalid TOML: {err}") from err


def merge(settings: Settings, values: Mapping[str, Any], place: str) -> Settings:
    """Return the settings with some values replaced; a table replaces values of the nested settings of its name.

    place: the source of the values, for messages. Raises ConfigError for unknown names and invalid values.
    """
    try:
        merged: Settings = _merge(settings, values)
        return merged
    except ConfigError as err:
        raise ConfigError(f"{place}: {err}") from err


def nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """Nest values by "table.field" or "field" into tables, as in TOML."""
    tables: dict[str, Any] = {}
    for name, value in dotted.items():
        table, _, field = name.rpartition(".")
        (tables.setdefault(table, {}) if table else tables)[field] = value
    return tables


def parse_overrides(settings: type, overrides: Sequence[str]) -> dict[str, Any]:
    """Parse overrides such as "optimiser.epochs=3" to tables; the last one of a name wins.

    Raises ConfigError for a text without "=" and for unknown names; values are validated by merge().
    """
    values: dict[str, Any] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected table.name=value, such as optimiser.epochs=3, got {text!r:.80}")
        values[name] = from_text(value, _find_kind(settings, name))
    return nest(values)


def as_tables(settings: Any) -> dict[str, Any]:
    """Return all values, None included, plain ones before tables; the inverse of merge()."""
    values = {name: getattr(settings, name) for name in kinds_of(type(settings))}
    plain = {name: value for name, value in values.items() if not dataclasses.is_dataclass(value)}
    return plain | {name: as_tables(value) for name, value in values.items() if name not in plain}


def write_toml(tables: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return the tables, at most one level deep, as TOML; comments: by "table.field", written after the value."""
    lines: list[str] = []
    for name, value in tables.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *(_line(field, value[field], f"{name}.{field}", comments) for field in value)]
        else:
            lines.append(_line(name, value, name, comments))
    return "\n".join(lines) + "\n"


def _line(field: str, value: object, name: str, comments: Mapping[str, str] | None) -> str:
    comment = (comments or {}).get(name)
    return f"{field} = {_write_value(value)}" + (f"  # {comment}" if comment else "")


def _write_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_write_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    # TOML's basic strings are JSON's, except that DEL must be escaped.
    return json.dumps(NONE if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _merge(settings: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    kinds = kinds_of(type(settings))
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            noun = "table" if isinstance(value, Mapping) else "key"
            raise ConfigError(f"unknown {noun} {prefix + name!r}; expected one of {', '.join(map(repr, kinds))}")
        changes[name] = _change(getattr(settings, name), value, kinds[name], prefix + name)
    return dataclasses.replace(settings, **changes)


def _change(old: Any, value: object, kind: Kind, name: str) -> object:
    if not dataclasses.is_dataclass(kind.type):
        return from_toml(value, kind)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: expected a table, got {value!r:.80}")
    return _merge(old, value, f"{name}.")


def _find_kind(settings: type, name: str) -> Kind:
    table, _, field = name.rpartition(".")
    tables = kinds_of(settings)
    if table and (table not in tables or not dataclasses.is_dataclass(tables[table].type)):
        raise ConfigError(
            f"--set {name}: unknown table {table!r}; expected one of {', '.join(map(repr, _tables(tables)))}"
        )
    kinds = kinds_of(tables[table].type) if table else tables
    if field not in kinds or dataclasses.is_dataclass(kinds[field].type):
        known = [other for other in kinds if other not in _tables(kinds)]
        raise ConfigError(f"--set {name}: unknown name {field!r}; expected one of {', '.join(map(repr, known))}")
    return kinds[field]


def _tables(kinds: Mapping[str, Kind]) -> list[str]:
    return [name for name, kind in kinds.items() if dataclasses.is_dataclass(kind.type)]
