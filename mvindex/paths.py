"""Paths as people give them, by hand, in Python and in the files of other programs."""

from __future__ import annotations

import os
from pathlib import Path

from mvindex.errors import ConfigError


def expand_home(path: str | os.PathLike[str]) -> str:
    """Return a path or address with the home directory in place of a `~` that it begins with.

    A shell does so, but not within quotes, and neither do Python, JSON and TOML.

    Raises:
        ConfigError: It is no text, is empty, or holds a NUL or broken Unicode.

    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise ConfigError(f"expected a path or an address, got {type(text).__name__} {text!r:.60}")
    if "\0" in text:
        raise ConfigError(f"{text!r:.80}: expected a path without NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as err:
        raise ConfigError(f"{text!r:.80}: expected a path of valid Unicode") from err
    return os.path.expanduser(text)


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user gave, its `~` expanded; see expand_home()."""
    return Path(expand_home(path))
