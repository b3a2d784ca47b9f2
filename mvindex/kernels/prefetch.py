"""Pages of a mapped file called for before they are read, so that a disk gets all requests at once."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numba import types

from mvindex.kernels.compiled import compiled

_madvise: Any = types.ExternalFunction("madvise", types.intc(types.uintp, types.uintp, types.intc))
_mincore: Any = types.ExternalFunction("mincore", types.intc(types.uintp, types.uintp, types.uintp))
_WILL_NEED = getattr(mmap, "MADV_WILLNEED", 3)
_PAGE_BYTES = mmap.PAGESIZE
# The number of documents probed for being in memory: where all are, the others mostly are too.
_PROBED = 8


@compiled
def call_for_documents(matrix: Any, begins: Any, ends: Any) -> bool:
    """Return whether rows begins[i] : ends[i] (m stretches) of the mapped matrix are now being read from disk.

    Without it each page that is not in memory is a fault that waits for the disk by itself. Where a sample is in
    memory, nothing is called for: a call for each document takes as long as its score.
    """
    if len(begins) == 0:
        return False
    row_bytes, base = matrix.shape[1] * matrix.itemsize, matrix.ctypes.data
    is_held = np.zeros(1, np.uint8)
    step = len(begins) // _PROBED + 1
    is_cold = False
    for place in range(0, len(begins), step):
        begin = base + begins[place] * row_bytes
        first = begin - begin % _PAGE_BYTES
        # The answer, in the lowest bit, is for the document's first page.
        if _mincore(first, _PAGE_BYTES, is_held.ctypes.data) == 0 and not is_held[0] & 1:
            is_cold = True
    if is_cold:
        for place in range(len(begins)):
            begin = base + begins[place] * row_bytes
            first = begin - begin % _PAGE_BYTES
            _madvise(first, base + ends[place] * row_bytes - first, _WILL_NEED)
    return is_cold
