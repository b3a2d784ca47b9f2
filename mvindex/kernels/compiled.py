"""How functions are compiled: once per machine where a cache can be written, else once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numba.core.event
import numba.extending
import xxhash

from mvindex.kernels.loading import count_compiling, forget_cache

# A decorator whose type says that the compiler's own first argument is the caller's.
intrinsic: Callable[[Any], Any] = numba.extending.intrinsic


def compiled(function: Callable[..., Any], fastmath: bool = True) -> Any:
    """Return the function, to be compiled at its first call without bounds checks; it runs without the GIL.

    Sums may be taken in any order and products fused with them: bounds on their error hold for any order.
    """
    # Numba names the file it keeps the code in by this name, and looks at the function's own file for changes; what
    # other files bring in must not stay as it was.
    function.__qualname__ += f"-{_sources_digest()}"
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": {"reassoc", "contract"} if fastmath else False,
        "error_model": "numpy",
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep the compiled code in
        forget_cache()
        return numba.njit(**options)(function)


def compiled_strict(function: Callable[..., Any]) -> Any:
    """Compile as compiled() does, but leave float operations in the order in which they are written."""
    return compiled(function, fastmath=False)


def compiled_inline(function: Callable[..., Any]) -> Any:
    """Return the function, to be inlined in each compiled function that calls it."""
    return numba.njit(inline="always", error_model="numpy")(function)


class _Watcher(numba.core.event.Listener):
    """Counts our own functions while they are compiled; what a cache holds is not."""

    def on_start(self, event: Any) -> None:
        self._count(event, 1)

    def on_end(self, event: Any) -> None:
        self._count(event, -1)

    def _count(self, event: Any, change: int) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("mvindex."):
            count_compiling(change)


_listen: Callable[[str, Any], None] = numba.core.event.register
_listen("numba:compile", _Watcher())


@lru_cache
def _sources_digest() -> str:
    """Return a short digest of the sources of all kernels."""
    digest = xxhash.xxh3_64()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
