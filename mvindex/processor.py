"""The systems and processors that mvindex runs on.

The wheels of NumPy are for x86-64-v2, and a process that loads one on an older processor ends by an illegal
instruction, without a message. So `import mvindex` checks first, and loads nothing for that but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping, Set
from contextlib import suppress

# What x86-64-v2 has beyond the first x86-64, in the names of /proc/cpuinfo, with the bit of ECX of CPUID's leaf 1.
_V2 = {"pni": 0, "ssse3": 9, "cx16": 13, "sse4_1": 19, "sse4_2": 20, "popcnt": 23}
_AVX, _AVX2, _AVX512 = "avx", "avx2", "avx512f"
_LEAF_1 = _V2 | {_AVX: 28}
# Of EBX of leaf 7.
_LEAF_7 = {_AVX2: 5, _AVX512: 16}
# The processors that OpenBLAS may be forced to use the loops of, with what these need.
_FORCED = {
    **dict.fromkeys(("sandybridge", "bulldozer", "piledriver", "steamroller", "excavator"), _AVX),
    **dict.fromkeys(("haswell", "zen"), _AVX2),
    **dict.fromkeys(("skylakex", "cooperlake", "sapphirerapids"), _AVX512),
}
_X86_64 = ("x86_64", "amd64")
_CPU_INFO = "/proc/cpuinfo"


class _Leaf(ctypes.Structure):
    """A leaf of CPUID as glibc keeps it (sys/platform/x86.h): all bits, and those that the system lets programs use."""

    _fields_ = (("cpuid", ctypes.c_uint32 * 4), ("active", ctypes.c_uint32 * 4))


def check_machine() -> None:
    """Raise ImportError where mvindex cannot run, naming what is missing."""
    reason = reason_against(sys.platform, sys.byteorder, _features(), os.environ)
    if reason is not None:
        raise ImportError(f"mvindex: {reason}. See docs/how-to/install.md, Processors and systems")


def reason_against(
    system: str, byteorder: str, features: Set[str] | None, environment: Mapping[str, str]
) -> str | None:
    """Return why mvindex cannot run on a machine; None where it can.

    Args:
        system: sys.platform.
        byteorder: sys.byteorder.
        features: Of an x86-64 processor, as far as mvindex looks at them; None for others, or where they are unknown.
        environment: The environment variables.

    """
    if system == "win32":
        return (
            "expected Linux or macOS, got Windows, which lacks the file locks and the flush of folders that writes "
            "depend on. Use WSL 2 or a container, or a server on another machine over HTTP"
        )
    if byteorder != "little":
        return f"expected a little-endian processor, got a {byteorder}-endian one: numbers are stored little-endian"
    if features is None:
        return None
    if missing := sorted(_V2.keys() - features):
        return (
            "expected an x86-64-v2 processor, of Intel from 2008 on and of AMD from 2011 on, got one without "
            f"{', '.join(missing)}: NumPy would end with an illegal instruction"
        )
    forced = environment.get("OPENBLAS_CORETYPE", "")
    if (needed := _FORCED.get(forced.lower())) is not None and needed not in features:
        return (
            f"OPENBLAS_CORETYPE: expected the type of this processor, which lacks {needed}, got {forced!r}: NumPy "
            "would end with an illegal instruction. Unset it"
        )
    return None


def _features() -> frozenset[str] | None:
    """Return the features of an x86-64 processor; None for another, and where the system does not list them."""
    if platform.machine().lower() not in _X86_64:
        return None
    with suppress(AttributeError, OSError, TypeError):
        leaf = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf  # glibc from 2.33 on
        leaf.restype, leaf.argtypes = ctypes.POINTER(_Leaf), (ctypes.c_uint,)
        ecx, ebx = leaf(0).contents.active[2], leaf(1).contents.active[1]
        of_leaf_1 = {name for name, bit in _LEAF_1.items() if ecx >> bit & 1}
        return frozenset(of_leaf_1 | {name for name, bit in _LEAF_7.items() if ebx >> bit & 1})
    with suppress(OSError), open(_CPU_INFO, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return None
