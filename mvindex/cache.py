"""The folder of what is made or fetched once, and can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mvindex.paths import user_path


def cache_folder() -> Path:
    """Return $MVINDEX_CACHE, else the folder of mvindex in the platform's cache directory; it need not exist.

    Raises:
        OSError: When the user has no home directory.

    """
    given, xdg = os.environ.get("MVINDEX_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if given:
        return user_path(given).absolute()
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "mvindex"
    return (Path(xdg) if os.path.isabs(xdg) else _home() / ".cache") / "mvindex"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as err:
        raise OSError(f"no cache directory: {err}; name one in MVINDEX_CACHE") from err
