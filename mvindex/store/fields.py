"""Fields of filters: their names, where metadata holds their values, and the types that are declared for them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from itertools import combinations
from typing import Any

from mvindex.errors import ConfigError

ID = "id"
LOGIC = ("and", "or", "not")
# Written before the name of an operator by some databases: {"$and": [...]}, {"year": {"$gt": 1990}}.
SIGIL = "$"
# A name of n parts may be cut in 2^(n - 1) ways: of a longer one two are tried, no cut and all.
_MAX_PARTS = 7


class FieldType(Enum):
    """The kind of values that a declared filter field mostly has, or of the members of its lists."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    DATE = "date"


def parse_filter_fields(fields: Mapping[str, str] | None) -> dict[str, str]:
    """Return declared filter fields, name to type, in order of their names; ConfigError for what cannot be one."""
    if not isinstance(fields, Mapping | None):
        raise ConfigError(f"filter_fields: expected names with their types, {{'year': 'int'}}, got {fields!r:.60}")
    found = {}
    for name, kind in sorted((fields or {}).items()):
        if not field_paths(name) or name in (ID, *LOGIC):
            raise ConfigError(f"filter field {name!r}: expected a key of the metadata, or keys joined by dots")
        if kind not in [each.value for each in FieldType]:
            expected = ", ".join(each.value for each in FieldType)
            raise ConfigError(f"filter field {name!r}: expected one of {expected}, got {kind!r}")
        found[name] = kind
    return found


@lru_cache(1024)
def field_paths(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys that may lead to a field, in the order in which they are tried; none for what names no field.

    A key may hold dots: "a.b.c" is the key "a.b.c", else "c" in "a.b", "b.c" in "a", or "c" in "b" in "a".
    """
    parts = name.split(".")
    if not name.isprintable() or '"' in name or "\\" in name or name.startswith(SIGIL):
        return ()
    places = range(1, len(parts))
    counts = range(len(parts)) if len(parts) <= _MAX_PARTS else (0, len(places))
    # Fewer cuts first, later ones before earlier ones: the longest first key wins.
    cuts = (cut for count in counts for cut in sorted(combinations(places, count), reverse=True))
    paths = (_cut(parts, cut) for cut in cuts)
    return tuple(path for path in paths if all(path))


def value_at(metadata: Mapping[str, Any], name: str) -> Any:
    """Return the value that metadata hold for a field; None where they hold none."""
    for path in field_paths(name):
        value: Any = metadata
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            return value
    return None


def _cut(parts: list[str], cut: tuple[int, ...]) -> tuple[str, ...]:
    begins, ends = (0, *cut), (*cut, len(parts))
    return tuple(".".join(parts[begin:end]) for begin, end in zip(begins, ends, strict=True))
