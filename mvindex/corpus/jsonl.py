"""JSON Lines rows: one object a line (BEIR's `_id`, or plain `id`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mvindex.corpus.fields import decode_utf8, document_of, json_name, reject_oversize
from mvindex.corpus.lines import Lines
from mvindex.corpus.rows import Reject, Row, Source
from mvindex.errors import DocumentError


def read_jsonl(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    """The rows in order; blank lines are skipped."""
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif not line.isspace():
            yield _read_row(lines, line, source)


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object that the line holds; DocumentError when it holds none, NaN, Infinity, or a field twice."""
    try:
        value = _DECODER.decode(decode_utf8(line))
    except json.JSONDecodeError as err:
        raise DocumentError(f"invalid JSON at character {err.pos}: {err.msg}; wanted a JSON object") from err
    except RecursionError as err:
        raise DocumentError("invalid JSON: nested too deeply") from err
    except ValueError as err:  # from _refuse_constant, and Python's limit on the digits of an integer
        raise DocumentError(f"invalid JSON: {err}") from err
    if not isinstance(value, dict):
        raise DocumentError(f"the row is {json_name(value)}; wanted an object, one a line")
    return value


def _read_row(lines: Lines, line: bytes, source: Source) -> Row | Reject:
    try:
        return Row(lines.place, document_of(parse_object(line), source), line)
    except DocumentError as err:
        return Reject(lines.place, str(err), (line,))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DocumentError(f'"{twice}" stands twice in one object; keep one')
    return fields


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)
