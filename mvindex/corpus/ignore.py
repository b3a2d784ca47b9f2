"""Patterns of .gitignore, matched in time proportional to pattern times path, whatever they hold.

Libraries turn a pattern into one regular expression, which backtracks over each of its stars: twenty of them never
end on a long name. Here a path is compared part by part: parts by fnmatch's expressions, which do not backtrack, and
"**" by the first place that fits.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

MAX_FILE_BYTES = 128 * 1024
MAX_PATTERN_CHARS = 4096

# One part of a pattern: compares a part of a path, or stands for any number of them.
_Part: TypeAlias = "Callable[[str], object] | None"
_ANY_PARTS: _Part = None
_WILD = re.compile(r"[*?\[\\]")


class _Pattern(NamedTuple):
    """A pattern. only_folders: it ends in "/"; ignores: it does not begin with "!"."""

    parts: tuple[_Part, ...]
    only_folders: bool
    ignores: bool


class IgnorePatterns:
    """The patterns of some lines, the last of which decides; ValueError for one that is too long."""

    def __init__(self, lines: Iterable[str]) -> None:
        found = (_parse(line) for line in lines)
        self._patterns = [pattern for pattern in found if pattern is not None]

    def __bool__(self) -> bool:
        """Return whether there are any patterns: comments and a lone "!" or "/" are none."""
        return bool(self._patterns)

    def decide(self, path: str) -> bool | None:
        """Return whether a path is named itself, and not by a folder above it; None where no pattern decides.

        path: with "/" between its parts, and behind a folder.
        """
        is_folder = path.endswith("/")
        parts = path.removesuffix("/").split("/")
        for pattern in reversed(self._patterns):
            if (is_folder or not pattern.only_folders) and _matches(pattern.parts, parts):
                return pattern.ignores
        return None

    def names(self, file: str) -> bool:
        """Return whether a file is named itself or by a folder above it."""
        ends = [place + 1 for place, char in enumerate(file) if char == "/"]
        decisions = (self.decide(file[:end]) for end in [*ends, len(file)])
        return any(decision for decision in decisions)


def read_patterns(path: str) -> IgnorePatterns:
    """Return the patterns of a file; OSError or ValueError where it is no regular file, is too large or wrong.

    It lies in a folder that others may write: a pipe would be waited for, a device read for ever. Git does not follow
    such links either.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("expected a regular file, got a pipe or device")
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise ValueError(f"expected at most {MAX_FILE_BYTES:,} characters, got more")
    return IgnorePatterns(text.splitlines())


def _parse(line: str) -> _Pattern | None:
    """Return the pattern of a line; None for a comment, and for what names nothing."""
    text = _without_trailing_spaces(line)
    if not text or text.startswith("#"):
        return None
    if len(text) > MAX_PATTERN_CHARS:
        raise ValueError(f"expected a pattern of at most {MAX_PATTERN_CHARS:,} characters, got {len(text):,}")
    body = text.removeprefix("!")
    only_folders = body.endswith("/")
    body = body.removesuffix("/")
    if not body:
        return None
    names = body.removeprefix("/").split("/")
    parts = [_part(name) for name in (names if "/" in body else ["**", *names])]
    if parts[-1] is _ANY_PARTS:
        parts.append(_is_any)  # "a/**" names what is below a, not a itself
    return _Pattern(tuple(parts), only_folders, not text.startswith("!"))


def _without_trailing_spaces(line: str) -> str:
    text = line.rstrip(" \t\r\n")
    return text + line[len(text) : len(text) + 1] if text.endswith("\\") else text


def _part(name: str) -> _Part:
    if name == "**":
        return _ANY_PARTS
    if not _WILD.search(name):
        return name.__eq__
    return re.compile(fnmatch.translate("".join(_as_fnmatch(name)))).match


def _as_fnmatch(name: str) -> Iterable[str]:
    r"""Yield a part in the form of fnmatch, which knows neither "\*" nor "[^a]"."""
    at, last_end = 0, name.rfind("]")
    while at < len(name):
        char = name[at]
        if char == "[" and at >= last_end:
            yield "[[]"  # never closed: fnmatch would look for the end from each one on
        elif char == "\\":
            at += 1
            yield f"[{name[at]}]" if name[at : at + 1] in ("*", "?", "[") else name[at : at + 1]
        elif name.startswith("[^", at):
            at += 1
            yield "[!"
        else:
            yield char
        at += 1


def _is_any(_: str) -> bool:
    return True


def _matches(pattern: Sequence[_Part], parts: Sequence[str]) -> bool:
    """Return whether the parts of a path match: the first place that fits is right for what stands behind "**"."""
    at = number = 0
    last_any = begin = -1
    while number < len(parts):
        part = pattern[at] if at < len(pattern) else _is_never
        if part is None:
            last_any, begin = at, number
            at += 1
        elif part(parts[number]):
            at, number = at + 1, number + 1
        elif last_any >= 0:
            begin += 1
            at, number = last_any + 1, begin
        else:
            return False
    return all(part is _ANY_PARTS for part in pattern[at:])


def _is_never(_: str) -> bool:
    return False
