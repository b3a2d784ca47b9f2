"""Patterns of .gitignore, matched in time proportional to pattern times path, whatever they hold.

Libraries turn a pattern into one regular expression, which backtracks over each of its stars: twenty of them never
end on a long name. Here a path is compared part by part: parts by fnmatch's expressions, which do not backtrack, the
last one first, and what stands between two "**" by the first place that fits.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

MAX_FILE_BYTES = 128 * 1024
MAX_PATTERN_CHARS = 4096
# Of a file, and of all files that hold in a folder; each path is compared with all of them.
MAX_PATTERNS = 4_000

# Compares a part of a path.
_Part: TypeAlias = "Callable[[str], object]"
_ANY_PARTS = "**"
_WILD = re.compile(r"[*?\[\\]")


class _Pattern(NamedTuple):
    """A pattern, cut at each "**", which stands for any number of parts of a path.

    head: what a path begins with; all of it where tail is None. middles: what lies between, in order. tail: what it
    ends with. last: compares the last part. only_folders: it ends in "/"; ignores: it does not begin with "!".
    """

    head: Sequence[_Part]
    middles: Sequence[Sequence[_Part]]
    tail: Sequence[_Part] | None
    last: _Part
    only_folders: bool
    ignores: bool


class IgnorePatterns:
    """The patterns of some lines, the last of which decides; ValueError for one that is too long, or too many.

    num_searched: number of their parts that are looked for at each place of a path, not only at its ends.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        # The last decides: of equal lines it is the only one that counts.
        found = (_parse(line) for line in dict.fromkeys(reversed(list(lines))))
        self._patterns = [pattern for pattern in found if pattern is not None]
        self.num_searched = sum(len(middle) for pattern in self._patterns for middle in pattern.middles)
        if len(self) > MAX_PATTERNS:
            raise ValueError(f"expected at most {MAX_PATTERNS:,} patterns, got {len(self):,}")

    def __len__(self) -> int:
        """Return the number of different patterns."""
        return len(self._patterns)

    def __bool__(self) -> bool:
        """Return whether there are any patterns: comments and a lone "!" or "/" are none."""
        return bool(self._patterns)

    def decide(self, path: str) -> bool | None:
        """Return whether a path is named itself, and not by a folder above it; None where no pattern decides.

        path: with "/" between its parts, and behind a folder.
        """
        is_folder = path.endswith("/")
        parts = path.removesuffix("/").split("/")
        last = parts[-1]
        for pattern in self._patterns:
            if pattern.last(last) and (is_folder or not pattern.only_folders) and _matches(pattern, parts):
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
    parts = list(names if "/" in body else [_ANY_PARTS, *names])
    if parts[-1] == _ANY_PARTS:
        parts.append("*")  # "a/**" names what is below a, not a itself
    cuts = [at for at, name in enumerate(parts) if name == _ANY_PARTS]
    compared = [[_part(name) for name in parts[begin + 1 : end]] for begin, end in pairwise([-1, *cuts, len(parts)])]
    head, *middles = compared
    tail = middles.pop() if middles else None
    return _Pattern(head, middles, tail, compared[-1][-1], only_folders, not text.startswith("!"))


def _without_trailing_spaces(line: str) -> str:
    text = line.rstrip(" \t\r\n")
    return text + line[len(text) : len(text) + 1] if text.endswith("\\") else text


def _part(name: str) -> _Part:
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


def _matches(pattern: _Pattern, parts: Sequence[str]) -> bool:
    """Return whether the parts of a path match: the first place that fits a middle is right for what follows it."""
    if pattern.tail is None:
        return len(parts) == len(pattern.head) and _fits(pattern.head, parts, 0)
    at, end = len(pattern.head), len(parts) - len(pattern.tail)
    if at > end or not _fits(pattern.tail, parts, end) or not _fits(pattern.head, parts, 0):
        return False
    for middle in pattern.middles:
        while at + len(middle) <= end and not _fits(middle, parts, at):
            at += 1
        at += len(middle)
    return at <= end


def _fits(compared: Sequence[_Part], parts: Sequence[str], begin: int) -> bool:
    """Return whether the parts of a path from this place on are those compared, as many as there are."""
    for at, part in enumerate(compared, begin):  # a loop: all() of a generator takes twice as long
        if not part(parts[at]):
            return False
    return True
