"""Indexes behind a URL: who opens which scheme is told by entry points of the group `mvindex.backends`.

Each is a function of a URL and of mvindex.open()'s other arguments, that gives an Index.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from mvindex.errors import ExtraMissing, Unsupported

_SCHEME = re.compile(r"([a-z][a-z0-9+-]+):")


def is_url(path: object) -> bool:
    """True for what names an index by scheme, and not a path."""
    found = _SCHEME.match(str(path))
    return found is not None and ("://" in str(path) or found[1] in schemes())


def schemes() -> list[str]:
    """The schemes that can be opened here."""
    return sorted({entry.name for entry in entry_points(group="mvindex.backends")})


def backend_of(url: str) -> Callable[..., Any]:
    """What opens the URL; Unsupported for a scheme that nothing here opens."""
    scheme = url.partition(":")[0]
    for entry in entry_points(group="mvindex.backends", name=scheme):
        try:
            opener: Callable[..., Any] = entry.load()
        except ModuleNotFoundError as err:
            extra = entry.extras[0] if entry.extras else "all"
            raise ExtraMissing(f"{scheme}:// needs the package {err.name!r}: pip install 'mvindex[{extra}]'") from err
        return opener
    known = ", ".join(f"{name}://" for name in schemes()) or "none"
    raise Unsupported(f"{url}: no URL of {scheme}:// can be opened here (these can: {known}); or give a directory")
