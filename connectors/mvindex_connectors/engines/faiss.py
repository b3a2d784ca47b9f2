"""Faiss as a view ranking: kinds flat (exact), hnsw (a graph) and ivf-* (inverted lists), over a snapshot's view rows.

Deleted documents stay in the index until it is built again; the search loop masks them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.engines.auto import (
    COARSE_KINDS,
    CODED_KINDS,
    IVF_KINDS,
    LEAST_COARSE,
    default_search,
    groups_for,
    nprobe_for_hits,
)
from mvindex.engines.protocol import (
    BuildOptions,
    EngineCapabilities,
    EngineKind,
    OneOfShards,
    Parameter,
    Search,
    ViewBytes,
    flat_error,
)
from mvindex.errors import EngineError
from mvindex.kernels.threads import default_threads
from mvindex.plugins import require_faiss
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms
from mvindex_connectors.engines.faiss_fast_scan import Depth, FastScan
from mvindex_connectors.engines.faiss_files import INDEX_NAME, blocks, read_index, translated, write_index
from mvindex_connectors.engines.faiss_gpu import GpuCopy, gpu_copy
from mvindex_connectors.engines.faiss_ivf import has_groups, searches
from mvindex_connectors.engines.faiss_lists import build_lists, trained_lists
from mvindex_connectors.engines.faiss_mapped import MappedLists, is_mapped
from mvindex_connectors.engines.faiss_split import CODES_PER_THREAD, NearestLists, nearest_lists, search_lists

logger = logging.getLogger(__name__)

_HNSW_PARAMETERS = (
    Parameter(name="M", help="Links of a view; twice as many at the bottom.", default=32, least=2, most=512),
    Parameter(name="efConstruction", help="Candidates looked at when a view is linked.", default=80, most=10_000),
)
# Of a row number, beside a code in a list.
_ID_BYTES = 8
# Measured on 80,000 views: ef of four times the rows asked for keeps recall@100 of documents at .99 (HNSW, M = 32).
_HNSW_SEARCH = {"ef": 4, "k_factor": 4}
# For ten documents: with 160 recall@10 is .91 of 100,000 views of the harder stand-in (bench/scale.py), with 512 .98.
_HNSW_EF_MIN = 512
# When documents run short, so many times the lists are looked at in the next round.
_PROBE_GROWTH = 4
# A GPU knows no masks: so many more rows are asked for than should be among them by the share that is allowed.
_MASKED_SPARE, _LEAST_MASKED = 1.25, 16


class Held(NamedTuple):
    """A Faiss index, whose row i is view row i of the store; its copy on a GPU, if there is one; its compiled scan.

    mapped: the lists that the index lacks, where they are not in memory.
    """

    index: Any
    on_gpu: GpuCopy | None = None
    fast_scan: FastScan | None = None
    mapped: MappedLists | None = None


class FaissRanking:
    """One Faiss index as a RankingEngine."""

    def __init__(self, faiss: ModuleType, kind: str, held: Held, settings: Mapping[str, Any]) -> None:
        self._faiss = faiss
        self._kind = kind
        self._held = held
        self._index = held.index
        self._settings = settings
        self._max_norm = float(settings["max_norm"])
        self._packed: tuple[Bools, npt.NDArray[np.uint8], float] | None = None
        self._on_gpu = held.on_gpu
        self._nlist = int(settings["parameters"]["nlist"]) if kind in IVF_KINDS else 0
        self._has_groups = kind in IVF_KINDS and has_groups(faiss, held.index)
        self._search = default_search(kind, self._nlist, held.index.d) if kind in IVF_KINDS else dict(_HNSW_SEARCH)
        tuned = {name: int(value) for name, value in (settings.get("search") or {}).items()}
        if tuned and "top_k" not in tuned:
            # Given for every top_k.
            self._search.pop("top_k", None)
        self._search |= tuned
        self.num_rows = int(settings["built_rows"])
        least = LEAST_COARSE if kind in COARSE_KINDS else 1
        is_exact = kind == "flat"
        self.capabilities = EngineCapabilities(
            is_exact=is_exact, over_fetch=self._search["k_factor"], least_limit=least
        )

    @property
    def search_settings(self) -> Search:
        """See TunedEngine."""
        return self._search

    def choices(self) -> Sequence[Search]:
        """See TunedEngine."""
        if self._kind in IVF_KINDS:
            return searches(self._kind, self._nlist, self._index.d)
        if self._kind == "hnsw":
            return [{"ef": ef, "k_factor": k_factor} for ef in (1, 2, 4, 8) for k_factor in (2, 4, 8)]
        return []

    def with_search(self, search: Search) -> FaissRanking:
        """See TunedEngine."""
        return FaissRanking(self._faiss, self._kind, self._held, {**self._settings, "search": dict(search)})

    def search(  # noqa: PLR0913 - as the protocol has them
        self,
        queries: Floats,
        limit: int,
        allowed_views: Bools | None,
        turn: int = 0,
        shards: OneOfShards | None = None,
    ) -> tuple[Floats, Ints]:
        """See RankingEngine. Faiss pads with row -1 and the lowest float; padding leaves here as -1 and -inf."""
        nprobe = self._nprobe(limit, turn)
        limit = min(limit if shards is None else shards.keep, int(self._index.ntotal))
        if self._on_gpu is not None and (there := self._search_gpu(queries, limit, nprobe, allowed_views)) is not None:
            return there
        bitmap = None if allowed_views is None else self._packed_mask(allowed_views)[0]
        scan = self._held.fast_scan
        found = shards.found if shards is not None and self._kind == "ivf-pq" and "trained" in self._settings else None
        if scan is not None and scan.is_ready(nprobe):
            depth = Depth(limit, nprobe, groups_for(nprobe, self._nlist))
            return scan.search(queries, depth, bitmap, None if found is None else self._found_by(found, nprobe))
        index = self._index if self._held.mapped is None else self._held.mapped.whole()
        selector = None if bitmap is None else self._faiss.IDSelectorBitmap(bitmap)
        is_split = len(queries) == 1 and self._kind == "ivf-pq"
        num_threads = self._threads_for(nprobe) if is_split else 1
        if num_threads > 1 or found is not None:
            parameters = self._ivf_parameters(nprobe, selector)
            nearest = self._nearest_lists(queries, parameters, {} if found is None else found)
            scores, rows = translated(search_lists, self._faiss, index, nearest, limit, parameters, num_threads)
        else:
            parameters = self._parameters(limit, nprobe, selector)
            scores, rows = translated(index.search, queries, limit, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows

    def _search_gpu(
        self, queries: Floats, limit: int, nprobe: int, allowed_views: Bools | None
    ) -> tuple[Floats, Ints] | None:
        """Return what the copy on the GPU finds; None for a search that it cannot do, or no longer does.

        Of views that are not allowed, as those of deleted documents, so many more are asked for as may be among them.
        """
        copy, asked = self._on_gpu, limit
        if allowed_views is not None:
            _, share = self._packed_mask(allowed_views)
            asked = _LEAST_MASKED + int(limit / max(share, 1e-9) * _MASKED_SPARE)
        asked = min(asked, int(self._index.ntotal))
        if copy is None or not copy.takes(asked, nprobe):
            return None
        try:
            scores, rows = copy.search(queries, asked, nprobe)
        except EngineError as err:
            logger.warning("kind %s is searched on the CPU from now on: %s", self._kind, err)
            self._on_gpu = None
            return None
        is_missing = rows < 0
        scores[is_missing] = -np.inf
        if allowed_views is None:
            return scores, rows
        is_out = is_missing | ~allowed_views[rows]
        scores[is_out], rows[is_out] = -np.inf, -1
        if ((asked - is_out.sum(axis=1) < limit) & ~is_missing.any(axis=1)).any():
            return None
        order = is_out.argsort(axis=1, kind="stable")[:, :limit]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)

    def _found_by(self, found: dict[Hashable, Any], nprobe: int) -> dict[int, NearestLists]:
        """Return where the lists of each query are kept that the compiled loops find, for engines trained together."""
        kept: dict[int, NearestLists] = found.setdefault(("compiled", self._settings.get("trained"), nprobe), {})
        return kept

    def _nearest_lists(self, queries: Floats, parameters: Any, found: dict[Hashable, Any]) -> NearestLists:
        """Return the lists to be searched; engines that were trained together have the same, and find them once."""
        key = "ivf-pq", self._settings.get("trained"), parameters.nprobe
        if key not in found:
            found[key] = translated(nearest_lists, self._faiss, self._index, queries, parameters)
        nearest: NearestLists = found[key]
        return nearest

    def error(self, queries: Floats) -> Doubles:
        """See RankingEngine. Infinite for codes, which estimate scores."""
        if self._kind in CODED_KINDS:
            return np.full(len(queries), np.inf)
        return flat_error(queries, self._max_norm)

    def _packed_mask(self, allowed_views: Bools) -> tuple[npt.NDArray[np.uint8], float]:
        """Return the mask as Faiss takes it, and the share that is allowed.

        Both are kept for the next search: the mask of deleted documents seldom changes.
        """
        kept = self._packed
        if kept is None or kept[0] is not allowed_views:
            share = np.count_nonzero(allowed_views) / max(len(allowed_views), 1)
            self._packed = kept = (allowed_views, np.packbits(allowed_views, bitorder="little"), share)
        return kept[1:]

    def _threads_for(self, nprobe: int) -> int:
        """Return in how many threads the lists of one query are searched.

        Those of ivf-pq only: scores of ivf-rabitq are rounded by the lists of a thread, and so depend on the threads.
        """
        codes = int(self._index.ntotal) * nprobe // self._nlist
        return max(1, min(default_threads(), codes // CODES_PER_THREAD))

    def _nprobe(self, limit: int, turn: int) -> int:
        """Return nprobe of a round for so many view hits; 0 for kinds without lists."""
        if not self._nlist:
            return 0
        nprobe = nprobe_for_hits(self._search, self._nlist, int(self._index.ntotal), limit)
        return min(self._nlist, nprobe * int(_PROBE_GROWTH**turn))

    def _parameters(self, limit: int, nprobe: int, selector: Any) -> Any:
        if self._kind in IVF_KINDS:
            parameters = self._ivf_parameters(nprobe, selector)
            if isinstance(self._index, self._faiss.IndexPreTransform):
                return self._faiss.SearchParametersPreTransform(index_params=parameters)
            return parameters
        if self._kind == "hnsw":
            ef_search = max(_HNSW_EF_MIN, self._search["ef"] * limit)
            return self._faiss.SearchParametersHNSW(efSearch=ef_search, sel=selector)
        return None if selector is None else self._faiss.SearchParameters(sel=selector)

    def _ivf_parameters(self, nprobe: int, selector: Any) -> Any:
        parameters = self._faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
        if self._has_groups:
            groups = groups_for(nprobe, self._nlist)
            parameters.quantizer_params = self._faiss.SearchParametersIVF(nprobe=groups)
        return parameters


def _train(name: str, snapshots: Sequence[Snapshot], file: Path, options: BuildOptions) -> None:
    faiss = require_faiss()
    write_index(faiss, trained_lists(faiss, name, snapshots, options), file)


def _build_ivf(name: str, snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
    return build_lists(require_faiss(), name, snapshot, directory, options)


def _build_rows(name: str, snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
    """Build kinds flat and hnsw: row i of the Faiss index is view row i of the store, so that no id map is needed."""
    faiss = require_faiss()
    index, parameters = _empty_index(faiss, name, snapshot.views.dim, options.parameters)
    max_norm = 0.0
    for rows, views in blocks(snapshot.views, (0, snapshot.num_rows)):
        max_norm = max(max_norm, float(row_norms(views).max(initial=0.0)))
        translated(index.add, views)
        options.on_progress("adding views", int(rows[-1]) + 1, snapshot.views.num_views)
    write_index(faiss, index, directory / INDEX_NAME)
    found = {"max_norm": max_norm, "faiss": faiss.__version__, "num_views": int(index.ntotal)}
    return found | {"parameters": parameters}


def _empty_index(faiss: ModuleType, name: str, dim: int, parameters: Mapping[str, int]) -> tuple[Any, dict[str, int]]:
    """Return an index without views, and the parameters that it has."""
    if name == "flat":
        return faiss.IndexFlatIP(dim), {}
    used = {each.name: int(each.default or 0) for each in _HNSW_PARAMETERS} | dict(parameters)
    index = faiss.IndexHNSWFlat(dim, used["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = used["efConstruction"]
    return index, used


def _read_by_lists(settings: Mapping[str, Any], device: str | None) -> Collection[str]:
    """Return the files that are checked list by list as they are read."""
    return [INDEX_NAME] if is_mapped(settings, device) else []


def _open(name: str, directory: Path, settings: Mapping[str, Any], device: str | None) -> FaissRanking:
    faiss = require_faiss()
    if name == "ivf-pq" and is_mapped(settings, device):
        mapped = MappedLists(faiss, directory)
        scan = FastScan(faiss, mapped.index, mapped)
        return FaissRanking(faiss, name, Held(mapped.index, fast_scan=scan, mapped=mapped), settings)
    index = read_index(faiss, directory / INDEX_NAME)
    fast_scan = FastScan(faiss, index) if name == "ivf-pq" else None
    return FaissRanking(faiss, name, Held(index, gpu_copy(faiss, name, index, device), fast_scan), settings)


def _hnsw_bytes(dim: int) -> ViewBytes:
    """Return a view's bytes in a graph: 64 links at its bottom, 32 above for one view in 31, a level and an offset."""
    return ViewBytes(code=4 * dim, beside=64 * 4 + 32 * 4 / 31 + 4 + 8)


def _pq_bytes(dim: int) -> ViewBytes:
    """Return a view's bytes as codes of 4 bits for two dimensions."""
    return ViewBytes(code=-(-(dim + dim % 2) // 4), beside=_ID_BYTES, is_in_blocks=True)


def _rabitq_bytes(dim: int) -> ViewBytes:
    """Return a view's bytes as codes of a bit for each dimension, and 8 bytes of factors."""
    return ViewBytes(code=-(-(dim + dim % 2) // 8) + 8, beside=_ID_BYTES, is_in_blocks=True)


def _ivf(name: str, help: str, view_bytes: Callable[[int], ViewBytes]) -> EngineKind:
    return EngineKind(
        name=name,
        help=help,
        build=partial(_build_ivf, name),
        open=partial(_open, name),
        checks=_read_by_lists if name == "ivf-pq" else None,
        train=partial(_train, name),
        parameters=(Parameter(name="nlist", help="Inverted lists; by the number of views.", default=None),),
        view_bytes=view_bytes,
        extends=True,
    )


FLAT = EngineKind(
    name="flat",
    help="All views in float32, compared one by one; exact.",
    build=partial(_build_rows, "flat"),
    open=partial(_open, "flat"),
    view_bytes=lambda dim: ViewBytes(code=4 * dim),
)
HNSW = EngineKind(
    name="hnsw",
    help="A graph over all views in float32; approximate, fast for single queries.",
    build=partial(_build_rows, "hnsw"),
    open=partial(_open, "hnsw"),
    parameters=_HNSW_PARAMETERS,
    view_bytes=_hnsw_bytes,
)
IVF_FLAT = _ivf(
    "ivf-flat", "Inverted lists of views in float32.", lambda dim: ViewBytes(code=4 * dim, beside=_ID_BYTES)
)
IVF_SQ8 = _ivf(
    "ivf-sq8", "Inverted lists of a byte for each dimension.", lambda dim: ViewBytes(code=dim, beside=_ID_BYTES)
)
IVF_PQ = _ivf("ivf-pq", "Inverted lists of 4 bits for two dimensions.", _pq_bytes)
IVF_RABITQ = _ivf("ivf-rabitq", "Inverted lists of a bit for each dimension.", _rabitq_bytes)
