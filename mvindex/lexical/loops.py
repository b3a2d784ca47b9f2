"""When texts are split into terms, and postings packed, by compiled loops."""

from __future__ import annotations

import numpy as np

from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading

# What a character takes without the loops, in the elements that loading is counted in.
_ELEMENTS = 40
# Texts that are shorter together, such as queries, take no longer without.
_FEW_CHARS = 1 << 14
_LOADING = Loading()


def pays_to_compile(num_chars: int) -> bool:
    """Return whether texts of so many characters are split by compiled loops, which a process with much work loads."""
    elements = num_chars * _ELEMENTS
    if num_chars < _FEW_CHARS or not has_numba() or not pays_to_load(elements):
        return False
    return _LOADING.is_done(_load, waits=pays_to_wait(elements))


def is_loaded() -> bool:
    """Return whether the loops were loaded for earlier texts."""
    return _LOADING.has_loaded


def _load() -> None:
    """Call the loops for one term, which loads or compiles them."""
    from mvindex.lexical.chunks import ChunkCounter
    from mvindex.lexical.packing import Postings, encode_compiled, merge_compiled

    hashes, starts, texts, counts, _ = ChunkCounter(lambda chunks: [[0] for _ in chunks]).count(["a"])
    blobs = encode_compiled(Postings(hashes, starts, texts, counts), np.array([0, 1]))
    merge_compiled([(blobs, 1)], 1)
