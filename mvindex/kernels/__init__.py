"""Compiled loops (numba): the sums that scores are made of, and the int8 scan. Optional: NumPy and torch do the same.

Results do not depend on them: sums are added in the same order as by NumPy, and scans carry a proven bound.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

# Partial sums of an inner product: element i is added to sum i % SUM_LANES, see aggregate.view_sums().
SUM_LANES = 32
# Elements of views that NumPy scans in the time in which compiled loops are loaded, some .3 s.
WORTH_LOADING = 1 << 26
_elements_so_far = 0
# A process that has called so often goes on for long: about ten queries, each with a scan and sums.
_MOST_CALLS = 20
_is_expecting = False


class _Here(threading.local):
    """Whether this thread expects work."""

    is_expecting = False


_here = _Here()


@lru_cache
def has_numba() -> bool:
    """Return whether compiled loops can be used; MVINDEX_KERNELS=off turns them off."""
    return os.environ.get("MVINDEX_KERNELS", "on") != "off" and importlib.util.find_spec("numba") is not None


@lru_cache
def has_int8_products() -> bool:
    """Return whether this machine multiplies bytes as mvindex.kernels.vnni does (AVX-512 VNNI)."""
    if not has_numba():
        return False
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vnni"))


def expect_work() -> None:
    """Use compiled loops from now on, and wait for the compiler: this process takes times, or tests the loops."""
    global _is_expecting
    _is_expecting = True


@contextmanager
def expecting_work() -> Iterator[None]:
    """Do what expect_work() does for this thread inside the block."""
    before, _here.is_expecting = _here.is_expecting, True
    try:
        yield
    finally:
        _here.is_expecting = before


def expects_work() -> bool:
    """Return whether this process or thread uses compiled loops however little there is to do."""
    return _is_expecting or _here.is_expecting


def pays_to_load(elements: int) -> bool:
    """Return whether compiled loops are loaded, or are worth it for this work and all that was done without them.

    A process that answers one question over a small index ends sooner without them; results are the same.

    Args:
        elements: Elements of views that are to be multiplied; they count towards later calls, each at least a bit.

    """
    global _elements_so_far
    if f"{__name__}.compiled" in sys.modules or _is_expecting or _here.is_expecting:
        return True
    _elements_so_far += max(elements, WORTH_LOADING // _MOST_CALLS)
    return _elements_so_far > WORTH_LOADING


def pays_to_wait(elements: int) -> bool:
    """Return whether this work alone, of so many elements, takes longer without compiled loops than to load them."""
    return elements > WORTH_LOADING
