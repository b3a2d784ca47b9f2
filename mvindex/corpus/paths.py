"""Expands names and patterns to files."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from mvindex.corpus.beir import beir_corpus
from mvindex.corpus.ir_names import folder_of
from mvindex.corpus.remote import expand_address, is_remote, remote_bytes, shown_address
from mvindex.errors import CorpusError
from mvindex.paths import expand_home

STDIN = "-"
Path: TypeAlias = "str | os.PathLike[str]"
Paths: TypeAlias = "Path | Sequence[Path]"


def expand_paths(names: Paths) -> list[str]:
    """Return the input files in their order, each checked to exist and to be readable; "-" stands for stdin.

    Addresses are checked when they are read.

    A name that does not exist is expanded as a pattern (`**` goes into folders), whose matches come sorted.
    """
    paths = [path for name in names_of(names) for path in _expand(name)]
    if not paths:
        raise CorpusError("expected an input file, got none; name at least one, or - for stdin")
    refuse_repeats(paths)
    return paths


def names_of(names: Paths) -> list[str]:
    """Return one or several names as a list of texts, with the home directory for `~`."""
    return [expand_home(name) for name in ([names] if isinstance(names, str | os.PathLike) else names)]


def expand_local_paths(names: Paths) -> list[str]:
    """Return the input files as expand_paths() does; raise CorpusError for what is no file of this machine."""
    paths = expand_paths(names)
    for path in paths:
        if is_remote(path):
            raise CorpusError(f"{shown_address(path)}: expected a file of this machine; download it first")
    return paths


def total_bytes(paths: Iterable[str]) -> int | None:
    """Return the bytes of all files on disk; None when one of them (stdin, a pipe) has no known size."""
    sizes = [_size_bytes(path) for path in paths]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _expand(name: str) -> list[str]:
    if name == STDIN:
        return [name]
    if is_remote(name):
        return expand_address(name)
    name = folder_of(name)
    # A file that exists wins, so that a name with [brackets] can be read.
    if os.path.exists(name):
        return [_readable(name)]
    if not glob.has_magic(name):
        raise CorpusError(f"{name}: no such file")
    matches = [path for path in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(path)]
    if not matches:
        raise CorpusError(f"{name}: no file matches this pattern")
    return [_readable(path) for path in matches]


def _readable(path: str) -> str:
    if os.path.isdir(path):
        corpus = beir_corpus(path)
        if corpus is not None:
            return _readable(corpus)
        raise CorpusError(
            f"{path}: is a directory without corpus.jsonl, as BEIR's have; name the files in it, for example "
            f"{os.path.join(path, '*.jsonl')}"
        )
    if not os.path.exists(path):
        raise CorpusError(f"{path}: is a link to a file that does not exist")
    if not os.access(path, os.R_OK):
        raise CorpusError(f"{path}: cannot be read: permission denied")
    return path


def refuse_repeats(paths: list[str]) -> None:
    """Raise CorpusError where a file is named twice, by whatever path."""
    seen: dict[str, str] = {}
    for path in paths:
        real = path if path == STDIN or is_remote(path) else os.path.realpath(path)
        if real in seen:
            first = shown_address(seen[real])
            raise CorpusError(f"{shown_address(path)}: is named twice (first as {first}); its ids would be duplicates")
        seen[real] = path


def _size_bytes(path: str) -> int | None:
    if path == STDIN:
        return None
    if is_remote(path):
        return remote_bytes(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as err:  # ValueError: a name with NUL in it
        raise CorpusError(f"{path}: cannot be read: {getattr(err, 'strerror', None) or err}") from err
    return status.st_size if stat.S_ISREG(status.st_mode) else None
