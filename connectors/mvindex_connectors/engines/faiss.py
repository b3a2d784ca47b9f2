"""Faiss as a view ranking: kinds flat (exact), hnsw (a graph) and ivf-* (inverted lists), over a snapshot's view rows.

Dead documents stay in the index until it is built again; the search loop masks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.engines.params import COARSE_KINDS, CODED_KINDS, IVF_KINDS, LEAST_COARSE, usual_search
from mvindex.engines.protocol import BuildOptions, Capabilities, Kind, Search, flat_error
from mvindex.errors import Unsupported
from mvindex.ingest.prune import ROUNDING
from mvindex.plugins import require_faiss
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms
from mvindex_connectors.engines.faiss_files import INDEX_NAME, ROWS_NAME, blocks, read_index, translated, write_index
from mvindex_connectors.engines.faiss_gpu import GpuCopy, gpu_copy
from mvindex_connectors.engines.faiss_ivf import searches
from mvindex_connectors.engines.faiss_lists import build_lists, trained_lists

_HNSW_LINKS = 32
_HNSW_EF_CONSTRUCTION = 80
# Measured on 80,000 views: ef of four times the rows asked for keeps recall@100 of documents at .99 (HNSW, M = 32).
_HNSW_SEARCH = {"ef": 4, "fetch": 4}
# For ten documents: with 160 recall@10 is .91 of 100,000 views of the harder stand-in (bench/scale.py), with 512 .98.
_HNSW_EF_MIN = 512
# When documents run short, so many times the lists are looked at in the next round.
_PROBE_GROWTH = 4


class FaissEngine:
    """Builds and opens Faiss indexes."""

    kinds = frozenset({Kind.FLAT, Kind.HNSW}) | IVF_KINDS

    def train(self, kind: Kind, snapshots: Sequence[Snapshot], file: Path, options: BuildOptions) -> None:
        """See EngineFactory."""
        if kind not in IVF_KINDS:
            raise Unsupported(f"kind {kind.value!r} learns nothing from views")
        faiss = require_faiss()
        write_index(faiss, trained_lists(faiss, kind, snapshots, options), file)

    def build(self, kind: Kind, snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
        """See EngineFactory: writes index.faiss. Views are added from the memory-mapped store, a block at a time."""
        faiss = require_faiss()
        if kind in IVF_KINDS:
            return build_lists(faiss, kind, snapshot, directory, options)
        return _build_rows(faiss, kind, snapshot, directory, options)

    def open(self, kind: Kind, directory: Path, settings: Mapping[str, Any], device: str | None = None) -> FaissRanking:
        """See EngineFactory."""
        faiss = require_faiss()
        index = read_index(faiss, directory / INDEX_NAME)
        has_all = settings.get("prune_views") is None or kind in IVF_KINDS
        rows = None if has_all else np.memmap(directory / ROWS_NAME, np.dtype(settings["row_type"]), "r")
        return FaissRanking(faiss, kind, Held(index, rows, gpu_copy(faiss, kind, index, device)), settings)


class Held(NamedTuple):
    """What an engine holds: the Faiss index; the store's view row of each of its numbers, rising (None: the same).

    on_gpu: a copy of the index.
    """

    index: Any
    rows: npt.NDArray[Any] | None = None
    on_gpu: GpuCopy | None = None


class FaissRanking:
    """One Faiss index as a RankingEngine."""

    def __init__(self, faiss: ModuleType, kind: Kind, held: Held, settings: Mapping[str, Any]) -> None:
        self._faiss = faiss
        self._kind = kind
        self._held = held
        self._index, self._rows = held.index, held.rows
        self._settings = settings
        self._max_norm = float(settings["max_norm"])
        self._radius = float(settings.get("prune_views") or 0.0) * (1 + ROUNDING)
        self._packed: tuple[Bools, npt.NDArray[np.uint8]] | None = None
        self._num_lists = int(settings["lists"]) if kind in IVF_KINDS else 0
        self._search = usual_search(kind, self._num_lists) if kind in IVF_KINDS else dict(_HNSW_SEARCH)
        self._search |= {name: int(value) for name, value in (settings.get("search") or {}).items()}
        self.num_rows = int(settings["built_rows"])
        least = LEAST_COARSE if kind in COARSE_KINDS else 1
        is_exact = kind is Kind.FLAT
        self.capabilities = Capabilities(is_exact=is_exact, over_fetch=self._search["fetch"], least_limit=least)

    @property
    def search_settings(self) -> Search:
        """See RankingEngine."""
        return self._search

    def choices(self) -> Sequence[Search]:
        """See RankingEngine."""
        if self._kind in IVF_KINDS:
            return searches(self._kind, self._num_lists)
        if self._kind is Kind.HNSW:
            return [{"ef": ef, "fetch": fetch} for ef in (1, 2, 4, 8) for fetch in (2, 4, 8)]
        return []

    def with_search(self, search: Search) -> FaissRanking:
        """See RankingEngine."""
        return FaissRanking(self._faiss, self._kind, self._held, {**self._settings, "search": dict(search)})

    def search(self, queries: Floats, limit: int, allowed_views: Bools | None, turn: int = 0) -> tuple[Floats, Ints]:
        """See RankingEngine. Faiss pads with row -1 and the lowest float; padding leaves here as -1 and -inf."""
        limit = min(limit, int(self._index.ntotal))
        copy = self._held.on_gpu
        if copy is not None and copy.takes(limit, self._probes(turn), allowed_views is not None):
            scores, rows = copy.search(queries, limit, self._probes(turn))
            scores[rows < 0] = -np.inf
            return scores, rows
        selector = None
        if allowed_views is not None:
            selector = self._faiss.IDSelectorBitmap(self._bitmap(allowed_views))
        parameters = self._parameters(limit, selector, turn)
        scores, rows = translated(self._index.search, queries, limit, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows if self._rows is None else np.where(rows < 0, -1, self._rows[rows].astype(np.int64))

    def error(self, queries: Floats) -> Doubles:
        """See RankingEngine: a view left out lies within the distance of the build from one that is held.

        Infinite for codes, which estimate scores.
        """
        if self._kind in CODED_KINDS:
            return np.full(len(queries), np.inf)
        return flat_error(queries, self._max_norm, self._radius)

    def _bitmap(self, allowed_views: Bools) -> npt.NDArray[np.uint8]:
        """The mask as Faiss takes it, kept for the next search: that of deleted documents seldom changes."""
        kept = self._packed
        if kept is None or kept[0] is not allowed_views:
            mask = allowed_views if self._rows is None else allowed_views[self._rows]
            self._packed = kept = (allowed_views, np.packbits(mask, bitorder="little"))
        return kept[1]

    def _probes(self, turn: int) -> int:
        """How many lists are looked at in a round."""
        return int(min(self._num_lists, self._search["probes"] * _PROBE_GROWTH**turn))

    def _parameters(self, limit: int, selector: Any, turn: int) -> Any:
        if self._kind in IVF_KINDS:
            parameters = self._faiss.SearchParametersIVF(nprobe=self._probes(turn), sel=selector)
            if isinstance(self._index, self._faiss.IndexPreTransform):
                return self._faiss.SearchParametersPreTransform(index_params=parameters)
            return parameters
        if self._kind is Kind.HNSW:
            ef_search = max(_HNSW_EF_MIN, self._search["ef"] * limit)
            return self._faiss.SearchParametersHNSW(efSearch=ef_search, sel=selector)
        return None if selector is None else self._faiss.SearchParameters(sel=selector)


def _build_rows(
    faiss: ModuleType, kind: Kind, snapshot: Snapshot, directory: Path, options: BuildOptions
) -> Mapping[str, Any]:
    """Kinds flat and hnsw: row i of the Faiss index is the i-th view held.

    That is view row i of the store, so that no id map is kept; only where near-duplicates were left out does a file of
    row numbers stand beside it.
    """
    index = _empty_index(faiss, kind, snapshot.views.dim)
    max_norm, eps = 0.0, options.prune_views
    row_type = np.dtype("<i4" if snapshot.views.num_views < 1 << 31 else "<i8")
    with nullcontext() if eps is None else open(directory / ROWS_NAME, "wb") as rows_file:
        for rows, views in blocks(snapshot.views, (0, snapshot.num_rows), eps):
            max_norm = max(max_norm, float(row_norms(views).max(initial=0.0)))
            translated(index.add, views)
            if rows_file is not None:
                rows_file.write(rows.astype(row_type).tobytes())
            options.on_progress("adding views", int(rows[-1]) + 1, snapshot.views.num_views)
    write_index(faiss, index, directory / INDEX_NAME)
    settings = {"max_norm": max_norm, "faiss": faiss.__version__, "num_views": int(index.ntotal)}
    return settings if eps is None else settings | {"prune_views": eps, "row_type": row_type.str}


def _empty_index(faiss: ModuleType, kind: Kind, dim: int) -> Any:
    if kind is Kind.FLAT:
        return faiss.IndexFlatIP(dim)
    index = faiss.IndexHNSWFlat(dim, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _HNSW_EF_CONSTRUCTION
    return index
