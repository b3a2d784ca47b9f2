"""Settings of a generation, checked for values that no sound index has: paths that lead out, impossible sizes."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError, DamagedIndex
from mvindex.store import catalog, schema
from mvindex.store.fields import parse_filter_fields
from mvindex.store.generation import Generation
from mvindex.store.lexical.tokenizer import TERMS_VERSION, Lexical, StoredLexical
from mvindex.store.rows import FORMAT_VERSION

MAX_DIM = 65_536
# Settings that need not be there.
_OPTIONAL = frozenset(
    {"temperature", schema.LEXICAL_KEY, catalog.FUSION_KEY, catalog.CONFIDENCE_KEY, schema.FILTER_FIELDS_KEY}
)
_LEXICAL = tuple(StoredLexical(kind, version).setting for kind in Lexical for version in range(2, TERMS_VERSION + 1))
_LEXICAL += tuple(kind.value for kind in Lexical)
_ENGINE_NAME = re.compile(r"engine-[a-z0-9-]{1,40}-[0-9]{6,18}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}")
_INDEX_ID = re.compile(r"[0-9a-f]{32}")


def read_checked(source: Generation, connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the settings; DamagedIndex names the first that is not valid for this generation."""
    settings = catalog.read_settings(connection)
    expected: dict[str, tuple[str, Callable[[Any], bool]]] = {
        **_OF_VIEWS,
        "format_version": (str(FORMAT_VERSION), lambda value: value == FORMAT_VERSION),
        "generation": (str(source.number), lambda value: value == source.number),
        "index_id": (source.index_id or "32 hex digits", lambda value: _is_index_id(value, source.index_id)),
        "version": ("a whole number from 0 on", _is_count),
        "next_ordinal": ("a whole number from 0 on", _is_count),
        "temperature": ("a number above 0, or none", lambda value: _is_temperature(value)),
        "engine": ("an engine's record, or null", lambda value: value is None or _is_engine(value)),
        "deleted": ("count and checksum", _is_deleted),
        "ids": ("counts and checksums", _are_ids),
        schema.LEXICAL_KEY: (f"{', '.join(_LEXICAL)}, or null", lambda value: value is None or value in _LEXICAL),
        catalog.FUSION_KEY: ("a method and two weights, or null", lambda value: value is None or _is_fusion(value)),
        catalog.CONFIDENCE_KEY: (
            "models of confidence, or null",
            lambda value: value is None or isinstance(value, dict),
        ),
        schema.FILTER_FIELDS_KEY: ("names of fields with their types, or null", _are_filter_fields),
    }
    _check(settings, expected, source.catalog.path)
    return settings


def check_kept(settings: Mapping[str, Any], path: Path) -> None:
    """Check the settings that views need; DamagedIndex names the first that is not valid."""
    _check({"dim": None, "encoder": None, **settings}, _OF_VIEWS, path)


def _check(settings: Mapping[str, Any], expected: Mapping[str, tuple[str, Callable[[Any], bool]]], path: Path) -> None:
    for name, (what, is_right) in expected.items():
        if (name not in settings and name not in _OPTIONAL) or not is_right(settings.get(name)):
            raise DamagedIndex(f"{path}: setting {name!r}: expected {what}, got {settings.get(name)!r:.80}")


def _is_dim(value: object) -> bool:
    return value is None or (isinstance(value, int) and _is_count(value) and 1 <= value <= MAX_DIM)


def _is_encoder(value: object) -> bool:
    return isinstance(value, dict) and _is_temperature(value.get("temperature"))


def _is_temperature(value: object) -> bool:
    """Return whether the value is a temperature, or None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0 < value < math.inf
    return value is None


def _is_fusion(value: object) -> bool:
    """Return whether the value has the form of a fusion; what the method is called is for the index to judge."""
    if not isinstance(value, dict) or not isinstance(value.get("method"), str):
        return False
    weights, others = value.get("weights"), set(value) - {"method", "weights"}
    if not all(isinstance(name, str) and isinstance(value[name], int | float) for name in others):
        return False
    return isinstance(weights, list) and len(weights) == 2 and all(type(each) is float for each in weights)


def _are_filter_fields(value: object) -> bool:
    try:
        return value is None or (isinstance(value, dict) and parse_filter_fields(value) == value)
    except ConfigError:
        return False


def _is_index_id(value: object, expected: str | None) -> bool:
    return isinstance(value, str) and bool(_INDEX_ID.fullmatch(value)) and expected in (None, value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_engine(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        return False
    checksums = value.get("checksums")
    has_names = isinstance(value.get("kind"), str) and bool(_ENGINE_NAME.fullmatch(str(value.get("directory"))))
    return has_names and _is_count(value.get("built_rows")) and isinstance(checksums, dict) and _are_plain(checksums)


def _are_plain(checksums: Mapping[Any, Any]) -> bool:
    """Return whether all names are those of files in the engine's own directory."""
    return all(_FILE_NAME.fullmatch(str(name)) and isinstance(digest, str) for name, digest in checksums.items())


def _are_ids(value: object) -> bool:
    pairs = [value.get(state) for state in ("live", "deleted")] if isinstance(value, dict) else []
    return bool(pairs) and all(isinstance(pair, list) and len(pair) == 2 and _is_count(pair[0]) for pair in pairs)


def _is_deleted(value: object) -> bool:
    return isinstance(value, dict) and _is_count(value.get("count")) and isinstance(value.get("checksum"), int)


_OF_VIEWS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "dtype": ("fp16 or fp32", lambda value: value in ("fp16", "fp32")),
    "dim": (f"1 to {MAX_DIM}, or null", _is_dim),
    "encoder": ("an object, or null", lambda value: value is None or _is_encoder(value)),
}
