"""Problems of a request's JSON: messages of msgspec as ours, with the place and the value that is there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from mvindex.errors import DocumentError, MvindexError, QueryError

# The forms of msgspec: "Expected `int`, got `str` - at `$.top_k`", and
# "Object contains unknown field `x` - at `$.documents[0]`".
_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `(?P<key>key in )?\$\.?(?P<place>.*)`)?", re.DOTALL)
_BOUND = re.compile(r"Expected `(?P<type>float|int)` (?P<sign>>=|<=|>|<) (?P<bound>[-\d.]+)")
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+|\[\.\.\.\])")
_SIGNS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_SURROGATE = re.compile("[\ud800-\udfff]")
# Members that are whole numbers, which msgspec reads as float: JSON has one kind of number.
COUNTS = re.compile(r"(?:.*\.)?(?:top_k|candidates|citations|max_chars|max_tokens|dim|shards|parameters\[\.\.\.\])")
_GOT_CHARS = 60


def readable(message: str, body: Callable[[], Any], whole: str = "body") -> MvindexError:
    """Return the error of a message of msgspec, as "<place>: expected ..., got ...".

    Args:
        message: Of a ValidationError.
        body: Returns the request as lists, dicts and values; called where a value is shown.
        whole: The place of what concerns the request as a whole.

    """
    parts = _MESSAGE.fullmatch(message)
    problem, place = (parts["problem"], parts["place"]) if parts else (message, None)
    where = place or whole
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _error(where, f"expected known members only, got {unknown[1]!r:.{_GOT_CHARS}}")
    if missing := re.fullmatch("Object missing required field `(.*)`", problem):
        return _error(where, f'expected a member "{missing[1]}", got none')
    if problem.endswith("out of range"):
        return _error(
            _first(_parsed(body), _is_out_of_range) or where, "expected a finite number, got one out of range"
        )
    if where in ("offset", "context"):
        return _error(where, f"expected a whole number of at least 0, got {_shown(_parsed(body), where)}")
    if COUNTS.fullmatch(where):
        return _error(where, f"expected a whole number of at least 1, got {_shown(_parsed(body), where)}")
    if bound := _BOUND.fullmatch(problem):
        kind = "a whole number" if bound["type"] == "int" else "a number"
        limit = f"{_SIGNS[bound['sign']]} {float(bound['bound']):g}"
        return _error(where, f"expected {kind} {limit}, got {_shown(_parsed(body), where)}")
    if problem.startswith("Expected `int`, got"):
        return _error(where, f"expected a whole number, got {_shown(_parsed(body), where)}")
    problem = problem.replace("`", "")
    return _error(where, f"{problem[0].lower()}{problem[1:]}")


def undecodable(content: str | bytes | bytearray, error: Exception, whole: str = "") -> MvindexError:
    """Return the error of a text that is no JSON, or has half of a character that two escapes write.

    whole: the member that the text is; empty for a body.
    """
    # Python's reader takes what msgspec refuses by "Input data was truncated".
    place = _first(
        _parsed(lambda: json.loads(content)), lambda value: isinstance(value, str) and _SURROGATE.search(value)
    )
    if place is None:
        return QueryError(f"{whole or 'body'}: expected JSON, got something else: {error}")
    where = ".".join(filter(None, (whole, place))) or "body"
    return _error(where, r"expected whole characters, got a lone surrogate, such as \ud800 without a second half")


def _error(place: str, problem: str) -> MvindexError:
    kind = DocumentError if place.startswith("documents[") else QueryError
    return kind(f"{place}: {problem}")


def _parsed(body: Callable[[], Any]) -> Any:
    """Return the values of a request; None where Python's reader cannot tell."""
    try:
        return body()
    except (ValueError, RecursionError):
        return None


def _is_out_of_range(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _first(root: Any, is_wrong: Callable[[Any], Any]) -> str | None:
    """Return the place of the first value or key that is wrong, "" for the root itself; None where there is none."""
    ahead = [("", root)]
    while ahead:
        place, value = ahead.pop()
        if is_wrong(value) or (isinstance(value, dict) and any(map(is_wrong, value))):
            return place
        ahead.extend(reversed(_members(place, value)))
    return None


def _members(place: str, value: Any) -> list[tuple[str, Any]]:
    """Return the members of an object or a list, each with its place."""
    if isinstance(value, dict):
        return [(f"{place}.{name}" if place else name, each) for name, each in value.items()]
    return [(f"{place}[{number}]", each) for number, each in enumerate(value)] if isinstance(value, list) else []


def _shown(root: Any, place: str) -> str:
    """Return the value at a place as JSON, shortened; "another" where msgspec does not name the place in full."""
    value = root
    try:
        for number, name in _STEP.findall(place):
            value = value[int(number) if number else name]
        shown = json.dumps(value)
    except (LookupError, TypeError, ValueError):
        return "another"
    return shown if len(shown) <= _GOT_CHARS else f"{shown[:_GOT_CHARS]}..."
