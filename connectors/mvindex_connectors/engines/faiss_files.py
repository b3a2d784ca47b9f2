"""What all Faiss kinds share: reading the store's views in blocks, and indexes from and to files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.errors import EngineError, EngineUnavailable
from mvindex.ingest.prune import kept_views
from mvindex.records import Floats, Ints
from mvindex.store.views import MappedViews, decode

INDEX_NAME = "index.faiss"
# Of flat and hnsw, where views are left out: the store's view row of each row of the Faiss index, little-endian.
ROWS_NAME = "rows.bin"
_BLOCK_ROWS = 65_536


def blocks(views: MappedViews, doc_rows: tuple[int, int], prune_views: float | None) -> Iterator[tuple[Ints, Floats]]:
    """The views of document rows [begin, end) that are to be added, (m, d), with their view rows, (m,), m >= 1.

    Whole documents, a block at a time.
    """
    first, last = doc_rows
    stretches = np.arange(int(views.starts[first]), int(views.starts[last]), _BLOCK_ROWS)
    # A stretch may begin inside the last document; then no document begins in it.
    cuts = np.minimum(np.searchsorted(views.starts, stretches), last)
    for begin, end in pairwise(np.unique(np.append(cuts, last)).tolist()):
        packed, starts = views.read_block(begin, end)
        rows = views.starts[begin] + np.arange(len(packed))
        if prune_views is not None:
            is_kept = kept_views(packed, starts, prune_views)
            packed, rows = packed[is_kept], rows[is_kept]
        yield rows, decode(packed)


def write_index(faiss: ModuleType, index: Any, path: Path) -> None:
    """Nothing; the index stands in a new file, not yet fsynced.

    By a file of ours: Faiss' own writer only prints that the disk did not take the last bytes.
    """
    with open(path, "xb") as file:
        translated(faiss.write_index, index, faiss.PyCallbackIOWriter(file.write))


def read_index(faiss: ModuleType, path: Path) -> Any:
    """The index in the file."""
    return translated(faiss.read_index, str(path))


def translated(call: Any, *args: Any, **kwargs: Any) -> Any:
    """What the call gives; Faiss' C++ exceptions, all RuntimeError in Python, become EngineError."""
    try:
        return call(*args, **kwargs)
    except MemoryError as err:
        raise EngineUnavailable(f"faiss: not enough memory: {err}") from err
    except RuntimeError as err:
        raise EngineError(f"faiss: {err}") from err
