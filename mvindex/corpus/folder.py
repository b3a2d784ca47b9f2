"""Folders as corpora: which of their files are read, by patterns as in .gitignore.

Libraries turn a pattern into one regular expression, which backtracks over each of its stars: twenty of them never
end on a long name. Here a path is compared part by part: parts by fnmatch's expressions, which do not backtrack, the
last one first, and what stands between two "**" by the first place that fits.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

from mvindex.errors import ConfigError, CorpusError
from mvindex.paths import expand_home

MAX_FILE_BYTES = 128 * 1024
MAX_PATTERN_CHARS = 4096
# Of a file, and of all files that hold in a folder; each path is compared with all of them.
MAX_PATTERNS = 4_000

# Compares a part of a path.
_Part: TypeAlias = "Callable[[str], object]"
_ANY_PARTS = "**"
INDEX_SUFFIX = ".mvx"
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


_IGNORE_FILE = ".gitignore"
# What a folder of documentation begins with; in it, files that only build and style its site are left out.
_SITE_PAGES = frozenset(("index.md", "index.rst"))
_SITE_FILES = frozenset(("conf.py", "make.bat", "docutils.conf"))
# Sphinx' own folder of what pages are made by.
_TEMPLATES = "_templates/"
_SITE_SUFFIXES = frozenset((".css", ".scss", ".sass", ".less", ".js", ".mjs"))
# Of a path that is compared with patterns; those of a folder with 1,000 patterns such as **/a/** take 10,000.
_MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a folder that was named.

    Attributes:
        path: Where it is opened.
        file: Its path below the folder, with "/" between the parts.
        folder: The name of the folder.
        folder_path: The folder, absolute.

    """

    path: str
    file: str
    folder: str
    folder_path: str

    @property
    def label(self) -> str:
        """Return what the ids of its passages begin with."""
        return f"{self.folder}/{self.file}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Which files of a folder are read.

    Attributes:
        include: Patterns as in .gitignore; where there are any, a file must match one.
        exclude: Patterns as in .gitignore of files and folders that are left out.
        gitignore: Whether .gitignore files are honoured: those below the folder, and above it those of its repository.
        follow_links: Whether links to files outside the folder are read.

    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    gitignore: bool = True
    follow_links: bool = False

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            for pattern in getattr(self, name):
                if not IgnorePatterns([pattern]):
                    raise ConfigError(f"{name}: expected patterns as in .gitignore, got {pattern!r:.80}")


@dataclass(slots=True)
class LeftOut:
    """The files and folders that a walk left out, counted by reason, with the first of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, file: str) -> None:
        """Count a file."""
        self.counts[reason] += 1
        self.examples.setdefault(reason, file)

    def merge(self, other: LeftOut) -> None:
        """Add the counts of another walk."""
        self.counts += other.counts
        self.examples = {**other.examples, **self.examples}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return ", ".join(
            f"{count} {reason}"
            + (f" (such as {self.examples[reason]})" if count > 1 else f" ({self.examples[reason]})")
            for reason, count in sorted(self.counts.items())
        )


class _Ignore(NamedTuple):
    """The patterns of a .gitignore; they are relative to its folder, `below` the root, or `above` the root."""

    patterns: IgnorePatterns
    below: str = ""
    above: str = ""

    def check(self, file: str) -> bool | None:
        """Return whether a file is ignored; None where no pattern decides."""
        return self.patterns.decide(self.above + file.removeprefix(self.below))


class _Level(NamedTuple):
    """A folder that is being walked: its path below the root, its entries to come, and the patterns that hold.

    is_site: whether it is in the source of a site of documentation.
    """

    below: str
    entries: Iterator[os.DirEntry[str]]
    ignores: list[_Ignore]
    is_site: bool


class Folder:
    """The readable files of a folder.

    Args:
        path: The folder.
        options: Which of its files are read.
        has_reader: Returns whether a file of this name has a format.
        name: Its name in ids and metadata; that of the folder by default.

    Raises:
        CorpusError: There is no such folder, or it is an index.
        ConfigError: The name holds "/", "#" or what cannot be shown.

    """

    def __init__(
        self, path: str, options: FolderOptions, has_reader: Callable[[str], bool], name: str | None = None
    ) -> None:
        path = expand_home(path)
        if not os.path.isdir(path):
            raise CorpusError(f"{path}: expected a folder, got {'a file' if os.path.exists(path) else 'nothing'}")
        self.path = os.path.realpath(path)
        if self.path.endswith(INDEX_SUFFIX):
            raise CorpusError(f"{path}: expected a folder of files, got an index")
        self.name = os.path.basename(self.path) if name is None else name
        if not self.name or not self.name.isprintable() or set(self.name) & {"/", "#"}:
            raise ConfigError(
                f"{path}: expected a folder name without / and #, got {self.name!r}; give it one with --name"
            )
        self.left_out = LeftOut()
        # Folders below that cannot be listed, ending in "/", and files whose state cannot be read, with the reason.
        self.unreadable: dict[str, str] = {}
        self._options = options
        self._has_reader = has_reader
        self._include = IgnorePatterns(options.include) if options.include else None
        self._exclude = IgnorePatterns(options.exclude)

    def files(self) -> Iterator[FolderFile]:
        """Yield the files, sorted by the parts of their paths; what is left out is counted anew."""
        self.left_out, self.unreadable = LeftOut(), {}
        above = _ignores_above(self.path) if self._options.gitignore else []
        # A list, not recursion: folders may be nested deeper than Python's calls.
        levels = [self._open_level("", above, is_site=False)]
        while levels:
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                levels.pop()
                continue
            file = f"{level.below}{entry.name}"
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                reason = self._why_not(entry, file, is_folder, level.ignores)
            except OSError as err:
                self.unreadable[file] = f"cannot be read: {err.strerror}"
                continue
            if (
                reason is None
                and level.is_site
                and not is_folder
                and self._include is None
                and (_builds_site(entry.name) or _TEMPLATES in level.below)
            ):
                reason = "that build or style a site of documentation"
            if reason is not None:
                self.left_out.add(reason, file)
            elif is_folder:
                levels.append(self._open_level(f"{file}/", level.ignores, is_site=level.is_site))
            else:
                yield FolderFile(entry.path, file, self.name, self.path)

    def _open_level(self, below: str, ignores: list[_Ignore], *, is_site: bool) -> _Level:
        """Return the sorted entries of a folder, and the patterns that hold in it; none where it cannot be read."""
        nothing = _Level(below, iter(()), ignores, is_site)
        try:
            with os.scandir(os.path.join(self.path, below)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as err:
            if not below:
                raise CorpusError(f"{self.path}: cannot be read: {err.strerror}") from err
            # Not where it was removed since it was listed.
            if not isinstance(err, FileNotFoundError):
                self.unreadable[below] = f"the folder cannot be read: {err.strerror}"
            return nothing
        place = os.path.join(self.path, below)
        try:
            if self._options.gitignore and any(entry.name == _IGNORE_FILE for entry in found):
                ignores = [*ignores, _Ignore(_patterns_of(os.path.join(place, _IGNORE_FILE)), below=below)]
            _check_costs(place, ignores)
        except CorpusError as err:
            if not below:
                raise
            # What it was to leave out must not be read.
            self.unreadable[below] = str(err)
            return nothing
        is_site = is_site or _is_site({entry.name for entry in found})
        return _Level(below, iter(found), ignores, is_site)

    def _why_not(self, entry: os.DirEntry[str], file: str, is_folder: bool, ignores: list[_Ignore]) -> str | None:
        """Return why an entry is left out; None where it is read."""
        matched = f"{file}/" if is_folder else file
        if not _is_unicode(entry.name):
            return "whose name is not UTF-8"
        if entry.name.startswith("."):
            return "hidden"
        if self._exclude.decide(matched):
            return "excluded"
        if _is_ignored(matched, ignores):
            return "ignored by .gitignore"
        if is_folder:
            return "of an index" if entry.name.endswith(INDEX_SUFFIX) else None
        return self._why_no_file(entry, file)

    def _why_no_file(self, entry: os.DirEntry[str], file: str) -> str | None:
        if entry.is_symlink():
            if os.path.isdir(entry.path):  # entry.is_dir() raises OSError for a link to itself
                return "links to folders"
            real = os.path.realpath(entry.path)
            if os.path.commonpath((real, self.path)) == self.path:
                return "links within the folder"
            if not self._options.follow_links:
                return "links out of the folder"
        if not entry.is_file():
            return "no files (broken links, pipes, devices)"
        if self._include is not None and not self._include.names(file):
            return "not included"
        if ".rejects." in entry.name:
            return "rejects of an ingest"
        if not self._has_reader(file):
            return f"without a reader ({PurePath(file).suffix.lower() or 'no suffix'})"
        try:
            return "empty" if entry.stat().st_size == 0 else None
        except FileNotFoundError:
            return "removed meanwhile"


def _is_site(names: set[str]) -> bool:
    """Return whether a folder of files of these names is the source of a site of documentation."""
    is_of_sphinx = "conf.py" in names and any(name.endswith((".rst", "_templates", "_static")) for name in names)
    return is_of_sphinx or not _SITE_PAGES.isdisjoint(names)


def _builds_site(name: str) -> bool:
    """Return whether a file of documentation is none of its pages: settings, a script or a style sheet."""
    return name in _SITE_FILES or PurePath(name).suffix.lower() in _SITE_SUFFIXES


def _is_ignored(file: str, ignores: list[_Ignore]) -> bool:
    """Return what the innermost .gitignore that knows the file says."""
    for ignore in reversed(ignores):
        found = ignore.check(file)
        if found is not None:
            return found
    return False


def _ignores_above(root: str) -> list[_Ignore]:
    """Return the .gitignore files above the folder, up to the top of its repository, the outermost first."""
    found: list[_Ignore] = []
    here, below = root, ""
    while not os.path.exists(os.path.join(here, ".git")):
        parent = os.path.dirname(here)
        if parent == here:
            return []
        below = f"{os.path.basename(here)}/{below}"
        here = parent
        if os.path.isfile(os.path.join(here, _IGNORE_FILE)):
            found.insert(0, _Ignore(_patterns_of(os.path.join(here, _IGNORE_FILE)), above=below))
    # A folder that is ignored itself was named on purpose.
    return [] if _is_ignored("", found) else found


def _patterns_of(path: str) -> IgnorePatterns:
    try:
        return read_patterns(path)
    except (OSError, ValueError) as err:
        raise CorpusError(f"{path}: cannot be read as .gitignore patterns: {err}") from err


def _check_costs(folder: str, ignores: list[_Ignore]) -> None:
    """Raise CorpusError where comparing a path in the folder with all patterns that hold there takes too long."""
    num_patterns = sum(len(ignore.patterns) for ignore in ignores)
    if num_patterns > MAX_PATTERNS:
        raise CorpusError(
            f"{folder}: expected at most {MAX_PATTERNS:,} patterns in the .gitignore files that hold here, got "
            f"{num_patterns:,}"
        )
    steps = folder.count("/") * sum(1 + ignore.patterns.num_searched for ignore in ignores)
    if steps > _MAX_STEPS:
        raise CorpusError(
            f"{folder}: expected .gitignore files that take at most {_MAX_STEPS:,} steps for a path, got {steps:,}: "
            'parts between two "**", and one for each file, times the folders of the path'
        )


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
