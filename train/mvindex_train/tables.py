"""Settings dataclasses from and to TOML: reading, merging, writing."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mvindex.errors import ConfigError
from mvindex_train.fields import NONE, Kind, from_text, from_toml, kinds_of

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
