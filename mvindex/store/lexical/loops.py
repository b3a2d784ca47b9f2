"""When texts are split into terms, and postings packed, by compiled loops."""

from __future__ import annotations

from collections.abc import Callable

from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading

# What a character takes without the loops, in the elements that loading is counted in.
_ELEMENTS = 40
LOADING = Loading()


def pays_to_compile(num_chars: int, load: Callable[[], None]) -> bool:
    """Return whether texts of so many characters are split by compiled loops, which a process with much work loads.

    load: loads or compiles them.
    """
    elements = num_chars * _ELEMENTS
    return has_numba() and pays_to_load(elements) and LOADING.is_done(load, waits=pays_to_wait(elements))
