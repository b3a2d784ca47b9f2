"""The torch scan: a product in fp16 or float32 on a device, the max over views, and the best documents kept there.

Its scores are only ever used to leave documents out, and only by a proven bound; what stays is rescored from the store.
A batch waits for the device once, whatever the number of chunks: everything between is enqueued. What a single query
enqueues is recorded and replayed: see recorded.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from mvindex.encoder.device import on_device, torch_threads
from mvindex.engines.device_views import Chunk, DeviceConfig, DeviceViews, to_host
from mvindex.engines.protocol import (
    Candidates,
    ScanRequest,
    aggregate_error,
    query_exponents,
    rounding_slack,
    scaled_queries,
    scaled_temperatures,
    sum_error,
    underflow_error,
)
from mvindex.engines.recorded import Recorded, Recordings
from mvindex.errors import EngineUnavailable
from mvindex.kernels.score import Aggregate, Scoring, lipschitz_constant
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot

# Documents kept for each query beyond top_k: half as many, or so many. Where they are too few, see _all_reaching().
_SPARE = 54
# Documents kept of all queries together, which bounds what a pass holds.
_MAX_ENTRIES = 1 << 22
# Of a product of all views of a chunk and some queries; less where memory falls short.
_PRODUCT_BYTES = {"cuda": 1 << 31, "cpu": 1 << 23}
_LEAST_PRODUCT_BYTES = 1 << 22
_SCANS_UNTIL_MORE = 64
# Queries for which a GPU is waited for once.
_GPU_QUERIES = 1024
# Bounds are computed in float32: they are widened by this part of the largest score there can be.
_ROUNDING = 2.0**-20


class TorchScan:
    """The exact scan for CPU and CUDA. Thread-safe; keeps views on the device as far as its memory goes."""

    def __init__(self, config: DeviceConfig | None = None) -> None:
        self._views = DeviceViews(config or DeviceConfig())
        self._device = self._views.device
        self._product_bytes = self._most_bytes = _PRODUCT_BYTES["cuda" if self._device.type == "cuda" else "cpu"]
        self._scans_until_more = 0
        self.at_once = _GPU_QUERIES if self._views.as_gpu else 0
        self._recordings = Recordings()

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine. What is left out provably scores below the top_k-th: see _Tile."""
        num_allowed = int(np.count_nonzero(allowed))
        room = min(top_k + max(top_k // 2, _SPARE), num_allowed)
        at_once = max(1, _MAX_ENTRIES // room)
        request = ScanRequest(top_k, allowed, scoring)
        # No tensor of a program's own inference mode or stream: what is kept is used outside of it too.
        with torch.inference_mode(False), torch.no_grad(), torch_threads().limited(), self._stream():
            parts = [
                self._within_memory(snapshot, queries[begin : begin + at_once], request, room)
                for begin in range(0, len(queries), at_once)
            ]
        return Candidates.joined(parts)

    def copy_bytes(self) -> int:
        """See ScanEngine. On a GPU they are in its memory."""
        return self._views.copy_bytes()

    def mapped_bytes(self) -> int:
        """See ScanEngine. The file has no copies in torch's layouts."""
        return 0

    def give_back(self) -> None:
        """Drop the copies; scans that use them finish with them."""
        self._recordings.keep_for(())
        self._views.give_back()

    def _within_memory(self, snapshot: Snapshot, queries: Floats, request: ScanRequest, room: int) -> Candidates:
        """Return the candidates; where the device's memory is full, in smaller steps."""
        while True:
            try:
                found = self._scan(snapshot, queries, request, room)
            except torch.cuda.OutOfMemoryError as err:
                self._recordings.keep_for(())
                self._scans_until_more = _SCANS_UNTIL_MORE
                if self._product_bytes > _LEAST_PRODUCT_BYTES:
                    self._product_bytes //= 8
                elif not self._views.shrink():
                    raise EngineUnavailable(
                        f"{self._device}: not enough memory left to scan a few views at a time; end what else uses it, "
                        "or open the index with device='cpu'"
                    ) from err
            else:
                self._take_more()
                return found

    def _take_more(self) -> None:
        """After many scans with less memory, which others may have taken for a while only, try with twice as much."""
        if self._product_bytes < self._most_bytes:
            self._scans_until_more -= 1
            if self._scans_until_more <= 0:
                self._product_bytes = min(2 * self._product_bytes, self._most_bytes)
                self._scans_until_more = _SCANS_UNTIL_MORE

    def _stream(self) -> AbstractContextManager[Any]:
        is_cuda = self._device.type == "cuda"
        return torch.cuda.stream(torch.cuda.default_stream(self._device)) if is_cuda else nullcontext()

    def _scan(self, snapshot: Snapshot, queries: Floats, request: ScanRequest, room: int) -> Candidates:
        scan = _Scan(self._views, snapshot, request, self._product_bytes)
        exponents = query_exponents(queries)
        best = scan.best(queries, exponents, room, self._recording_of(scan, queries, exponents, room))
        # All that was left out is at most the last that was kept.
        has_more = best.upper.shape[1] < np.count_nonzero(request.allowed)
        is_kept = (best.upper >= best.thresholds[:, None]) & (best.upper > -np.inf)
        again = np.flatnonzero(is_kept[:, -1]) if has_more else np.empty(0, dtype=np.int64)
        counts = is_kept.sum(axis=1)
        found = _candidates(counts, best.rows[is_kept], best.upper[is_kept], exponents)
        if not len(again):
            return found
        parts = list(found.each())
        others = scan.all_reaching(queries[again], exponents[again], best.thresholds[again])
        for query, part in zip(again.tolist(), others.each(), strict=True):
            parts[query] = part
        return Candidates.joined(parts)

    def _recording_of(self, scan: _Scan, queries: Floats, exponents: Ints, room: int) -> Recorded | None:
        """Return a recording of such a scan; None where it has several queries, views stream, or none was made yet."""
        if not self._views.as_gpu:
            return None
        chunks = scan.all_kept()
        self._recordings.keep_for(chunks)
        wanted = scan.wanted(room) if chunks and len(queries) == 1 else None
        if wanted is None:
            return None
        return self._recordings.find(wanted, lambda: scan.recorded(chunks, queries, exponents, room))


def _candidates(counts: Ints, rows: Ints, upper: Doubles, exponents: Ints) -> Candidates:
    return Candidates(np.append(0, np.cumsum(counts)), rows, np.ldexp(upper, -np.repeat(exponents, counts)))


class _Tile(NamedTuple):
    """Some queries on the device, scaled by powers of two (see scaled_queries).

    planes: (p q, d), the queries are their sum over p; columns: (3, q) float32, which are sizes and offsets, see
    _TiledQueries, and rates, one over DRPQ's temperature, unused without.
    """

    planes: torch.Tensor
    columns: torch.Tensor
    sizes: torch.Tensor
    offsets: torch.Tensor
    rates: torch.Tensor


class _TiledQueries(NamedTuple):
    """Queries in tiles, and what bounds their scores: a score is off by at most size * width + offset.

    The width is the largest norm of a document's views, and the size the query's norm times its relative error. With q'
    for the query q as it is multiplied, that is |q - q'| / |q| (Cauchy-Schwarz), and that of the sum, 2^-23 as scores
    that round to one float32 tie, and that of the bounds themselves, which are computed in float32. Offsets, (q,)
    float64, stand for numbers below float32's normal range. DRPQ's aggregate is off by more, see _Scan._widths().
    """

    tiles: list[_Tile]
    offsets: Doubles


class _Kept(NamedTuple):
    """The documents of the highest upper bounds of each query, descending, (q, m) each.

    upper: bounds without offsets; widths: see _Scan._widths(); rows: int64.
    """

    upper: torch.Tensor
    widths: torch.Tensor
    rows: torch.Tensor


class _Best(NamedTuple):
    """The same on the host: upper bounds, (q, m) float64, rows, (q, m), and thresholds, (q,) float32.

    A document is out when its upper bound lies below the threshold, the top_k-th largest lower bound of those kept:
    then top_k documents truly score higher.
    """

    upper: Doubles
    rows: Ints
    thresholds: Floats


def _unpacked(found: npt.NDArray[np.int32], offsets: Doubles) -> _Best:
    """Return what _Scan._packed() has packed, from its copy on the host."""
    room = found.shape[1] // 2
    upper = found[:, :room].copy().view(np.float32).astype(np.float64) + offsets[:, None]
    return _Best(upper, found[:, room + 1 :].astype(np.int64), found[:, room].copy().view(np.float32))


class _Wanted(NamedTuple):
    """The differences between scans of one query over the same chunks, beside its vector. mask: its id()."""

    top_k: int
    room: int
    aggregate: Aggregate
    least_error: float
    mask: int


class _Scan:
    """The scan of one snapshot for one batch of queries."""

    def __init__(self, views: DeviceViews, snapshot: Snapshot, request: ScanRequest, product_bytes: int) -> None:
        self._views, self._snapshot, self._device = views, snapshot, views.device
        self._top_k, self._allowed, self._scoring = request
        self._spans = views.spans(snapshot)
        self._type = views.type_of(snapshot)
        self._mask = views.mask(self._allowed, self._spans[-1][1])
        self._product_bytes = product_bytes
        self._is_drpq = self._scoring.aggregate is Aggregate.DRPQ
        self._least = self._least_error(snapshot.views.dim)
        # Products are written to the same memory each time: a CPU's caches hold it.
        self._output = torch.empty(0, dtype=torch.float32, device=self._device)

    def wanted(self, room: int) -> _Wanted | None:
        """Return what a recording of this scan is found by; None where its mask is that of one search."""
        if self._allowed.flags.writeable:
            return None
        return _Wanted(self._top_k, room, self._scoring.aggregate, self._least, id(self._mask))

    def all_kept(self) -> tuple[Chunk, ...]:
        """Return the chunks, where all of them stay on the device; none otherwise."""
        return self._views.all_kept(self._snapshot, self._spans)

    def recorded(self, chunks: tuple[Chunk, ...], queries: Floats, exponents: Ints, room: int) -> Recorded:
        """Return best() for one query, recorded; it reads these chunks."""
        # A scan of its own: this one goes on, and the recording writes its products to the same memory at each call.
        own = copy(self)
        own._output = self._output.new_empty(0)
        (tile,) = own._tiled(queries, exponents, num_planes=1).tiles
        inputs = tile.planes, tile.columns
        # That memory is of the first computation, before the graph's.
        return Recorded(lambda: own._packed(chunks, [tile], room), inputs, lambda: (chunks, own._mask, own._output))

    def best(self, queries: Floats, exponents: Ints, room: int, recorded: Recorded | None) -> _Best:
        """Return the `room` documents of the highest upper bounds; waits for the device once."""
        if recorded is not None:
            (rows,), columns, offsets = self._arrays(queries, exponents, num_planes=1)
            return _unpacked(recorded([rows, columns]), offsets)
        tiled = self._tiled(queries, exponents, num_planes=1)
        return _unpacked(to_host(self._packed(self._all(), tiled.tiles, room)), tiled.offsets)

    def _packed(self, chunks: Iterable[Chunk], tiles: list[_Tile], room: int) -> torch.Tensor:
        """Return the best documents on the device, (q, 2 room + 1) int32: upper bounds, the threshold, rows."""
        parts = []
        for tile, kept in zip(tiles, self._kept(chunks, tiles, room), strict=True):
            columns = (kept.upper, self._thresholds(tile, kept)[:, None])
            parts.append(torch.cat([*(each.view(torch.int32) for each in columns), kept.rows.int()], dim=1))
        return torch.cat(parts)

    def all_reaching(self, queries: Floats, exponents: Ints, thresholds: Floats) -> Candidates:
        """Return all documents whose upper bound reaches the threshold, however many there are; waits twice.

        Bounds are those of float32: fp16 views are multiplied by two fp16 parts of the query.
        """
        num_planes = 2 if self._type == torch.float16 else 1
        tiled = self._tiled(queries, exponents, num_planes)
        at = np.cumsum([0, *(len(tile.sizes) for tile in tiled.tiles)])
        lowest = [on_device(thresholds[begin:end], self._device) for begin, end in pairwise(at.tolist())]
        if num_planes == 2:
            finer = [
                self._thresholds(tile, kept)
                for tile, kept in zip(tiled.tiles, self._kept(self._all(), tiled.tiles, self._top_k), strict=True)
            ]
            lowest = [torch.maximum(*both) for both in zip(lowest, finer, strict=True)]
        counts = np.zeros(len(queries), dtype=np.int64)
        while True:
            # The first time only to count. A product that comes out otherwise the next time is as good.
            seen, rows, upper = self._reaching(tiled, lowest, counts)
            if (seen <= counts).all():
                break
            counts = seen
        owners = np.repeat(np.arange(len(queries)), counts)[rows >= 0]
        upper = upper[rows >= 0] + tiled.offsets[owners]
        return _candidates(np.bincount(owners, minlength=len(queries)), rows[rows >= 0], upper, exponents)

    def _tiled(self, queries: Floats, exponents: Ints, num_planes: int) -> _TiledQueries:
        """Return the queries on the device, in tiles."""
        planes, columns, offsets = self._arrays(queries, exponents, num_planes)
        step = self._queries_at_once(num_planes)
        tiles = []
        for begin in range(0, len(queries), step):
            rows = np.concatenate([plane[begin : begin + step] for plane in planes])
            mine = np.ascontiguousarray(columns[:, begin : begin + step])
            there = on_device(mine, self._device)
            tiles.append(_Tile(on_device(rows, self._device), there, *there))
        return _TiledQueries(tiles, offsets)

    def _arrays(
        self, queries: Floats, exponents: Ints, num_planes: int
    ) -> tuple[list[npt.NDArray[Any]], Floats, Doubles]:
        """Return the planes of the queries, (q, d) each, the columns, see _Tile, and the offsets, (q,)."""
        scaled, norms = scaled_queries(queries, exponents)
        is_half = self._type == torch.float16
        planes, left = [], scaled
        for _ in range(num_planes):
            planes.append(left.astype(np.float16) if is_half else left)
            left = left - planes[-1].astype(np.float32)
        lost = np.sqrt(np.einsum("ij,ij->i", left, left, dtype=np.float64)) / np.maximum(norms, 1e-300)
        offsets = (underflow_error(scaled.shape[1]) + rounding_slack(exponents)) * 1.001
        if self._is_drpq:
            offsets *= lipschitz_constant(self._snapshot.views.max_views)
        # Norms of what is multiplied are larger by up to 2^-11 a plane; and -inf times zero is no number.
        sizes = rates = np.maximum(norms * 1.002 * (self._least + lost * (1 + 1e-6)), 1e-30)
        if self._is_drpq:
            # Beyond 1e30 a gap of any size has weight zero, below 1e-30 none matters: float32 stays finite.
            rates = np.clip(1 / scaled_temperatures(self._scoring, exponents), 1e-30, 1e30)
        return planes, np.stack([sizes, offsets, rates]).astype(np.float32), offsets

    def _least_error(self, dim: int) -> float:
        """Return the relative error of a score of a query that is multiplied as it is."""
        is_half = self._type == torch.float16
        # A GPU adds up products of fp16 in float32, but cuts off where it should round (Fasi et al. 2021).
        error = (2 if is_half else 1) * sum_error(dim) + 2.0**-23 + _ROUNDING
        # The user may have let torch round the factors of float32 products, down to bf16.
        return error if is_half or _has_plain_float32() else error + 2.0**-6

    def _queries_at_once(self, num_planes: int) -> int:
        """Return how many queries are multiplied at once; DRPQ holds several arrays of the product's size."""
        starts = self._snapshot.views.starts
        ends = np.minimum(np.array(self._spans), self._snapshot.num_rows)
        most = int((starts[ends[:, 1]] - starts[ends[:, 0]]).max())
        return max(1, self._product_bytes // (4 * most * num_planes * (4 if self._is_drpq else 1)))

    def _kept(self, chunks: Iterable[Chunk], tiles: list[_Tile], room: int) -> list[_Kept]:
        """Return what is kept of each tile, on the device; nothing waits."""
        found: list[_Kept | None] = [None] * len(tiles)
        for chunk in chunks:
            widths, open_widths = self._both_widths(chunk)
            for number, tile in enumerate(tiles):
                upper = self._upper(chunk, tile, open_widths)
                before = found[number]
                values, at = self._best_new(upper, room, before)
                found[number] = _joined(before, _Kept(values, widths[at], chunk.rows[at]), room)
        return [kept for kept in found if kept is not None]

    def _thresholds(self, tile: _Tile, kept: _Kept) -> torch.Tensor:
        """Return the top_k-th largest lower bound of each query, (q,)."""
        lower = kept.upper - 2 * tile.sizes[:, None] * kept.widths - tile.offsets[:, None]
        return lower.topk(self._top_k, dim=1).values[:, -1].contiguous()

    def _reaching(self, tiled: _TiledQueries, lowest: list[torch.Tensor], counts: Ints) -> tuple[Ints, Ints, Doubles]:
        """Return how many documents reach each query's threshold, (q,), and up to counts of them, -1 where fewer.

        The rows and upper bounds without offsets, (sum of counts,), of one query after the other.
        """
        total, ends = int(counts.sum()), np.cumsum(counts)
        firsts, at = on_device(ends - counts, self._device), 0
        upper_out = torch.zeros(total + 1, dtype=torch.float32, device=self._device)
        rows_out = torch.full((total + 1,), -1, dtype=torch.int64, device=self._device)
        limits, nexts = on_device(ends, self._device), firsts.clone()
        for chunk in self._all():
            _, open_widths = self._both_widths(chunk)
            at = 0
            for tile, threshold in zip(tiled.tiles, lowest, strict=True):
                mine = slice(at, at + len(tile.sizes))
                at += len(tile.sizes)
                upper = self._upper(chunk, tile, open_widths)
                reaches = (upper + tile.offsets[:, None] >= threshold[:, None]) & (upper > -torch.inf)
                if total:
                    places = nexts[mine, None] + reaches.cumsum(1) - 1
                    places = torch.where(reaches & (places < limits[mine, None]), places, total).flatten()
                    upper_out.scatter_(0, places, upper.flatten())
                    rows_out.scatter_(0, places, chunk.rows.expand(len(upper), -1).flatten())
                nexts[mine] += reaches.sum(1)
        bits = upper_out[:total].view(torch.int32).long()
        found = to_host(torch.cat([nexts - firsts, rows_out[:total], bits]))
        seen, rows, values = np.split(found, [len(counts), len(counts) + total])
        return seen, rows, values.astype(np.int32).view(np.float32).astype(np.float64)

    def _all(self) -> Iterator[Chunk]:
        """Yield the chunks in which something is allowed."""
        return self._views.chunks(self._snapshot, self._spans, self._allowed)

    def _both_widths(self, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the widths of a chunk's documents, (n,), and those with -inf for what is not allowed."""
        widths = self._widths(chunk)
        if self._mask is None:
            return widths, widths
        return widths, widths.where(self._mask[chunk.rows], -torch.inf)

    def _widths(self, chunk: Chunk) -> torch.Tensor:
        """Return by how many of a query's sizes a document's score may be off, (n,): see _TiledQueries."""
        if not self._is_drpq:
            return chunk.norms
        # No query's relative error is smaller than the least.
        factors = [
            lipschitz_constant(group.num_views) + aggregate_error(group.num_views, 1.0) / self._least
            for group in chunk.groups
        ]
        return torch.cat(
            [
                chunk.norms[group.first : group.first + group.documents] * factor
                for group, factor in zip(chunk.groups, factors, strict=True)
            ]
        )

    def _upper(self, chunk: Chunk, tile: _Tile, widths: torch.Tensor) -> torch.Tensor:
        """Return the upper bounds of a chunk's documents without offsets, (q, n) float32."""
        products = self._products(chunk.views, tile)
        upper = torch.empty(len(tile.sizes), len(widths), dtype=torch.float32, device=self._device)
        for first_view, first, count, num_views in chunk.groups:
            scores = products[:, first_view : first_view + count * num_views].view(len(products), num_views, count)
            at = slice(first, first + count)
            scores = _soft_means(scores, tile.rates) if self._is_drpq else scores.amax(1)
            torch.addr(scores, tile.sizes, widths[at], out=upper[:, at])
        return upper

    def _products(self, views: torch.Tensor, tile: _Tile) -> torch.Tensor:
        """Return the inner products, (q, r) float32, of views (r, d) and the tile's queries; good until the next."""
        size = len(tile.planes) * len(views)
        if self._output.numel() < size:
            self._output = self._output.new_empty(size)
        products = multiplied(tile.planes, views, self._output[:size].view(len(tile.planes), -1))
        num_queries = len(tile.sizes)
        return products if len(products) == num_queries else products.view(-1, num_queries, len(views)).sum(0)

    def _best_new(self, upper: torch.Tensor, room: int, before: _Kept | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the highest bounds and their columns, (q, m) each, of (q, n); -inf where fewer pass the last one kept.

        On a CPU, where to look costs no wait, few pass, and finding these is cheaper than sorting.
        """
        if before is not None and not self._views.as_gpu and before.upper.shape[1] == room:
            queries, at = (upper > before.upper[:, -1:]).nonzero(as_tuple=True)
            counts = queries.bincount(minlength=len(upper))
            most = int(counts.max())
            if most <= room:
                places = torch.arange(len(at)) - (counts.cumsum(0) - counts)[queries]
                values, columns = upper.new_full((len(upper), most), -torch.inf), at.new_zeros(len(upper), most)
                values[queries, places], columns[queries, places] = upper[queries, at], at
                return values, columns
        values, at = upper.topk(min(room, upper.shape[1]), dim=1)
        return values, at


def multiplied(planes: torch.Tensor, views: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the inner products of planes (p, d) and views (r, d) of one type in out, (p, r) float32."""
    if views.dtype != torch.float32 and not views.is_cuda:
        # A CPU multiplies the same numbers in float32.
        planes, views = planes.float(), views.float()
    if views.dtype == torch.float32:
        return torch.mm(planes, views.T, out=out)
    return torch.mm(planes, views.T, out_dtype=torch.float32, out=out)


def _joined(before: _Kept | None, found: _Kept, room: int) -> _Kept:
    if before is None:
        return found
    both = _Kept._make(torch.cat(columns, dim=1) for columns in zip(before, found, strict=True))
    upper, at = both.upper.topk(min(room, both.upper.shape[1]), dim=1)
    return _Kept(upper, both.widths.gather(1, at), both.rows.gather(1, at))


def _soft_means(scores: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """Return DRPQ's aggregate (eq. 4-6) of view scores, (q, k, n) to (q, n)."""
    best = scores.amax(1)
    gaps = best[:, None] - scores
    weights = torch.exp(gaps * -rates[:, None, None])
    return best - (weights * gaps).sum(1) / weights.sum(1)


def _has_plain_float32() -> bool:
    """Return whether torch leaves the factors of float32 products as they are."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has an older and a newer way to set it, and refuses to say when both were used
        return False
