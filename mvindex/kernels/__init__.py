"""Compiled loops (numba): exact sums over stored views, and the int8 scan. Optional: NumPy and torch do the same.

Nothing here decides a result. Sums carry a proven error, scans a proven bound; what they may not settle is settled
by mvindex.scoring.aggregate.
"""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache


@lru_cache
def has_numba() -> bool:
    """True when compiled loops can be used; MVINDEX_KERNELS=off turns them off."""
    return os.environ.get("MVINDEX_KERNELS", "on") != "off" and importlib.util.find_spec("numba") is not None


@lru_cache
def has_int8_products() -> bool:
    """True when this machine multiplies bytes as mvindex.kernels.vnni does (AVX-512 VNNI)."""
    if not has_numba():
        return False
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vnni"))
