"""Memory that begins at a whole vector of the processor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned_bytes(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return an array of so many bytes, 64-byte aligned."""
    buffer = np.empty(size_bytes + ALIGNMENT, dtype=np.uint8)
    shift = -buffer.ctypes.data % ALIGNMENT
    return buffer[shift : shift + size_bytes]
