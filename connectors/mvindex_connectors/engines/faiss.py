"""Faiss as a view ranking: kinds flat (exact) and hnsw (a graph), over the view rows of a snapshot.

Row i of the Faiss index is view row i of the store, so no id map is kept; only where near-duplicates were left out
does a file of row numbers stand beside it. Dead documents stay in the index until it is built again; the search loop
masks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.engines.base import Capabilities, Kind, flat_error
from mvindex.errors import EngineError, EngineUnavailable
from mvindex.extras import require_faiss
from mvindex.pruning import ROUNDING, kept_views
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews, decode, row_norms

_FILE_NAME = "index.faiss"
# Where views are left out: the store's view row of each row of the Faiss index, little-endian.
_ROWS_NAME = "rows.bin"
_ADD_ROWS = 65_536
_HNSW_LINKS = 32
_HNSW_EF_CONSTRUCTION = 80
# Measured on 80,000 views: four times the rows asked for keeps recall@100 of documents at .99 (HNSW, M = 32).
_HNSW_EF_PER_ROW = 4
_HNSW_EF_MIN = 128


class FaissEngine:
    """Builds and opens Faiss indexes."""

    kinds = frozenset({Kind.FLAT, Kind.HNSW})

    def build(
        self, kind: Kind, snapshot: Snapshot, directory: Path, prune_views: float | None = None
    ) -> Mapping[str, Any]:
        """See EngineFactory: writes index.faiss. Views are added from the memory-mapped store, a block at a time."""
        faiss = require_faiss()
        index = _empty_index(faiss, kind, snapshot.views.dim)
        max_norm = 0.0
        row_type = np.dtype("<i4" if snapshot.views.num_views < 1 << 31 else "<i8")
        with nullcontext() if prune_views is None else open(directory / _ROWS_NAME, "wb") as rows_file:
            for rows, views in _blocks(snapshot.views, prune_views):
                max_norm = max(max_norm, float(row_norms(views).max()))
                _translated(index.add, views)
                if rows_file is not None:
                    rows_file.write(rows.astype(row_type).tobytes())
        # By a file of ours: Faiss' own writer only prints that the disk did not take the last bytes.
        with open(directory / _FILE_NAME, "xb") as file:
            _translated(faiss.write_index, index, faiss.PyCallbackIOWriter(file.write))
        settings = {"max_norm": max_norm, "faiss": faiss.__version__, "num_views": int(index.ntotal)}
        return settings if prune_views is None else settings | {"prune_views": prune_views, "row_type": row_type.str}

    def open(self, kind: Kind, directory: Path, settings: Mapping[str, Any]) -> FaissRanking:
        """See EngineFactory."""
        faiss = require_faiss()
        index = _translated(faiss.read_index, str(directory / _FILE_NAME))
        has_all = settings.get("prune_views") is None
        rows = None if has_all else np.memmap(directory / _ROWS_NAME, np.dtype(settings["row_type"]), "r")
        return FaissRanking(faiss, kind, (index, rows), settings)


class FaissRanking:
    """One Faiss index as a RankingEngine."""

    def __init__(
        self, faiss: ModuleType, kind: Kind, held: tuple[Any, npt.NDArray[Any] | None], settings: Mapping[str, Any]
    ) -> None:
        """held: the Faiss index, and the store's view row of each of its rows, rising (None: all, in their order)."""
        self._faiss = faiss
        self._kind = kind
        self._index, self._rows = held
        self._max_norm = float(settings["max_norm"])
        self._radius = float(settings.get("prune_views") or 0.0) * (1 + ROUNDING)
        self.num_rows = int(settings["built_rows"])
        self.capabilities = Capabilities(is_exact=kind is Kind.FLAT)

    def search(self, queries: Floats, limit: int, allowed_views: Bools | None) -> tuple[Floats, Ints]:
        """See RankingEngine. Faiss pads with row -1 and the lowest float; padding leaves here as -1 and -inf."""
        limit = min(limit, int(self._index.ntotal))
        if allowed_views is not None and self._rows is not None:
            allowed_views = allowed_views[self._rows]
        bitmap = None if allowed_views is None else np.packbits(allowed_views, bitorder="little")
        selector = None if bitmap is None else self._faiss.IDSelectorBitmap(bitmap)
        scores, rows = _translated(self._index.search, queries, limit, params=self._parameters(limit, selector))
        scores[rows < 0] = -np.inf
        return scores, rows if self._rows is None else np.where(rows < 0, -1, self._rows[rows].astype(np.int64))

    def error(self, queries: Floats) -> Doubles:
        """See RankingEngine: a view left out lies within the distance of the build from one that is held."""
        return flat_error(queries, self._max_norm, self._radius)

    def _parameters(self, limit: int, selector: Any) -> Any:
        if self._kind is Kind.HNSW:
            ef_search = max(_HNSW_EF_MIN, _HNSW_EF_PER_ROW * limit)
            return self._faiss.SearchParametersHNSW(efSearch=ef_search, sel=selector)
        return None if selector is None else self._faiss.SearchParameters(sel=selector)


def _blocks(views: MappedViews, prune_views: float | None) -> Iterator[tuple[Ints, Floats]]:
    """The views to be added, (m, d), with their view rows in the store, (m,): whole documents, a block at a time."""
    firsts = np.searchsorted(views.starts, np.arange(0, views.num_views, _ADD_ROWS))
    # A stretch may begin inside the last document; then no document begins in it.
    for begin, end in pairwise(np.unique(np.append(firsts, views.num_rows)).tolist()):
        packed, starts = views.read_block(begin, end)
        rows = views.starts[begin] + np.arange(len(packed))
        if prune_views is not None:
            is_kept = kept_views(packed, starts, prune_views)
            packed, rows = packed[is_kept], rows[is_kept]
        yield rows, decode(packed)


def _empty_index(faiss: ModuleType, kind: Kind, dim: int) -> Any:
    if kind is Kind.FLAT:
        return faiss.IndexFlatIP(dim)
    index = faiss.IndexHNSWFlat(dim, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _HNSW_EF_CONSTRUCTION
    return index


def _translated(call: Any, *args: Any, **kwargs: Any) -> Any:
    """What the call gives; Faiss' C++ exceptions, all RuntimeError in Python, become EngineError."""
    try:
        return call(*args, **kwargs)
    except MemoryError as err:
        raise EngineUnavailable(f"faiss: not enough memory: {err}") from err
    except RuntimeError as err:
        raise EngineError(f"faiss: {err}") from err
