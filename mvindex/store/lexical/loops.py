"""When texts are split into terms, and postings packed, by compiled loops."""

from __future__ import annotations

from collections.abc import Callable

from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading

# What a character takes without the loops, in the elements that loading is counted in.
_ELEMENTS = 40
# Texts that are shorter together, such as queries, take no longer without.
_FEW_CHARS = 1 << 14
_LOADING = Loading()


def pays_to_compile(num_chars: int, load: Callable[[], None]) -> bool:
    """Return whether texts of so many characters are split by compiled loops, which a process with much work loads.

    load: loads or compiles them.
    """
    elements = num_chars * _ELEMENTS
    if num_chars < _FEW_CHARS or not has_numba() or not pays_to_load(elements):
        return False
    return _LOADING.is_done(load, waits=pays_to_wait(elements))


def is_loaded() -> bool:
    """Return whether the loops were loaded for earlier texts."""
    return _LOADING.has_loaded
