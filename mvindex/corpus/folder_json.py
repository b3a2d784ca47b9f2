"""JSON files of a folder: rows, or text where they hold settings and the like."""

from __future__ import annotations

import json
import re
from typing import Any

from mvindex.corpus.inputs import Input
from mvindex.corpus.json_files import RECORD_FIELDS, holds_records
from mvindex.errors import CorpusError

_BEGIN_BYTES = 2**20
# A string or comment that is not closed runs to the end, so that each character is looked at once.
_STRING = r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
# Of an object around an array of records, the array is at least this share.
_RECORDS_SHARE = 0.5


def holds_rows(file: Input) -> bool:
    """Return whether a .json file of a folder holds rows; False where it is a text.

    Raises:
        CorpusError: It is no JSON, also without comments, such as a file that was cut short.

    """
    begin = _read_begin(file)
    try:
        text = begin[:_BEGIN_BYTES].decode("utf-8-sig")
    except UnicodeDecodeError:
        return len(begin) <= _BEGIN_BYTES or _begins_rows(begin)
    if len(begin) > _BEGIN_BYTES:
        return _begins_rows(begin)
    try:
        return _are_rows(json.loads(text), text)
    except RecursionError:
        return False
    except ValueError as err:
        if _is_object(text.lstrip().partition("\n")[0]) or text.lstrip().startswith("["):
            return not _is_commented(text)
        if _is_commented(text):
            return False
        if not isinstance(err, json.JSONDecodeError):
            raise CorpusError(f"{file.name}: expected JSON: {err}") from err
        at = f"line {err.lineno}, column {err.colno}"
        raise CorpusError(
            f"{file.name}:{err.lineno}: expected JSON, got what is damaged or cut at {at}: {err.msg}"
        ) from err


def _read_begin(file: Input) -> bytes:
    """Return the first bytes of a file, decompressed; it is read from its beginning after that."""
    try:
        with file.stream() as stream:
            begin = stream.read(_BEGIN_BYTES + 1)
        file.rewind()
    except (OSError, EOFError) as err:
        raise CorpusError(f"{file.name}: cannot be read: {err}") from err
    return begin


def _begins_rows(begin: bytes) -> bool:
    """Return whether the beginning of a large file is that of JSON Lines, or of an array of records."""
    return _is_object(begin.partition(b"\n")[0].decode(errors="replace")) or holds_records(begin)


def _are_rows(value: Any, text: str) -> bool:
    if isinstance(value, list):
        return not value or isinstance(value[0], dict | str)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("text"), str) and "\n" not in text.strip():
        return True  # JSON Lines of one document
    if any(name.casefold() in RECORD_FIELDS for name in value):
        return False
    arrays = [one for one in value.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
    return len(arrays) == 1 and len(json.dumps(arrays[0])) >= _RECORDS_SHARE * len(json.dumps(value))


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_commented(text: str) -> bool:
    """Return whether it is JSON once comments and last commas are taken away, as settings of editors have them."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or " ", text)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
