"""Views on a device, in as few tensors as its memory allows; the rest streams there from the files at each scan."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from mvindex.encoder.device import choose_device, on_device
from mvindex.engines.protocol import cache_bytes
from mvindex.kernels.copies import MEMORY, watch
from mvindex.kernels.score import decode
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

# Of a chunk at most: large ones cost few launches on a GPU, and on a CPU small ones stay in its caches.
_CHUNK_BYTES = {"cuda": 1 << 30, "cpu": 1 << 22}
_LEAST_CHUNK_BYTES = 1 << 16
# Of each of the two pinned buffers, and what one thread copies to them.
_PIECE_BYTES, _THREAD_BYTES = 1 << 26, 1 << 23
# A chunk that has grown to this part of the one before is joined with it, so that there are few.
_JOINED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """Where views are kept.

    Args:
        device: As torch names it.
        cache_bytes: How much of them may stay there; None for the default, divided by share.
        share: How many scans share the memory.
        as_gpu: Whether a CPU goes the way of a GPU, which is slower there: fp16 views stay fp16, nothing is waited for.
        chunk_bytes: Of a chunk at most; None for the default.

    """

    device: str = "cpu"
    cache_bytes: int | None = None
    share: int = 1
    as_gpu: bool = False
    chunk_bytes: int | None = None


class Group(NamedTuple):
    """Documents of a chunk that have the same number of views.

    View j of document i is row first_view + j * documents + i, so that a max over views reads neighbours together.
    """

    first_view: int
    first: int
    documents: int
    num_views: int


class Chunk(NamedTuple):
    """Documents on the device, by their number of views.

    views: (r, d); rows: (n,) int64, document rows; norms: (n,) float32, the largest norm of a document's views or more.
    """

    views: torch.Tensor
    rows: torch.Tensor
    norms: torch.Tensor
    groups: tuple[Group, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its tensors."""
        return sum(each.numel() * each.element_size() for each in self[:3])


# Document rows [begin, end).
Span: TypeAlias = tuple[int, int]


class DeviceViews:
    """The views of a store on a device. Thread-safe."""

    def __init__(self, config: DeviceConfig) -> None:
        self.device = choose_device(config.device)
        is_cuda = self.device.type == "cuda"
        self.as_gpu = is_cuda or config.as_gpu
        self._as_stored = has_wide_products() if is_cuda else config.as_gpu
        self._chunk_bytes = config.chunk_bytes or _CHUNK_BYTES["cuda" if is_cuda else "cpu"]
        if is_cuda and config.chunk_bytes is None:
            self._chunk_bytes = min(self._chunk_bytes, torch.cuda.get_device_properties(self.device).total_memory // 32)
        given = config.cache_bytes
        self._room_bytes = _room_bytes(self.device) // config.share if given is None else given
        self._kept: dict[Span, Chunk] = {}
        # Document rows at which chunks begin, and the end of the last, of the newest snapshot seen.
        self._bounds: list[int] = [0]
        self._generation = 0
        self._mask: tuple[Bools, torch.Tensor | None] | None = None
        self._lock = Lock()

    def type_of(self, snapshot: Snapshot) -> torch.dtype:
        """Return the type in which the views are kept."""
        return torch.float16 if self._as_stored and snapshot.views.matrix.dtype == np.float16 else torch.float32

    def spans(self, snapshot: Snapshot) -> list[Span]:
        """Return the chunks of a snapshot; the last may have documents beyond it, which a newer one has added."""
        with self._lock:
            if snapshot.generation < self._generation:
                return list(pairwise(self._cut(snapshot, [0])))
            if snapshot.generation > self._generation:
                # A compaction has renumbered the rows.
                self._kept.clear()
                self._generation, self._bounds = snapshot.generation, [0]
            if snapshot.num_rows > self._bounds[-1]:
                self._bounds = self._cut(snapshot, self._bounds)
                for span in self._kept.keys() - set(pairwise(self._bounds)):
                    del self._kept[span]
            return [span for span in pairwise(self._bounds) if span[0] < snapshot.num_rows]

    def chunks(self, snapshot: Snapshot, spans: list[Span], allowed: Bools) -> Iterator[Chunk]:
        """Yield the chunks in which something is allowed, (num_rows,) bool."""
        uploads = _Uploads(self.device, snapshot.views)
        for begin, end in spans:
            if not allowed[begin:end].any():
                continue
            chunk = self._kept.get((begin, end)) if snapshot.generation == self._generation else None
            yield chunk if chunk is not None else self._made(snapshot, (begin, end), uploads)

    def all_kept(self, snapshot: Snapshot, spans: list[Span]) -> tuple[Chunk, ...]:
        """Return the chunks of a snapshot, where all of them stay on the device; none otherwise."""
        if snapshot.generation != self._generation:
            return ()
        chunks = tuple(chunk for span in spans if (chunk := self._kept.get(span)) is not None)
        return chunks if len(chunks) == len(spans) else ()

    def mask(self, allowed: Bools, end: int) -> torch.Tensor | None:
        """Return the mask of document rows [0, end) on the device, where nothing beyond it is allowed; None for all.

        That of an array that cannot change, as of the documents alive, stays there for the next search.
        """
        kept = self._mask
        if kept is not None and kept[0] is allowed and len(allowed if kept[1] is None else kept[1]) >= end:
            return kept[1]
        mask = None
        if len(allowed) < end or not allowed.all():
            padded = np.zeros(max(end, len(allowed)), dtype=bool)
            padded[: len(allowed)] = allowed
            mask = on_device(padded, self.device)
        if not allowed.flags.writeable:
            self._mask = (allowed, mask)
        return mask

    def copy_bytes(self) -> int:
        """Return the bytes that are kept."""
        with self._lock:
            return self._held()

    def give_back(self) -> None:
        """Drop what is kept, and give it back to the machine; scans that use it finish with it."""
        with self._lock:
            self._kept.clear()
        self._empty_cache()

    def shrink(self) -> bool:
        """Keep a quarter, in smaller chunks, from now on; False where they are as small as can be."""
        with self._lock:
            if self._chunk_bytes <= _LEAST_CHUNK_BYTES:
                return False
            self._kept.clear()
            self._bounds = [0]
            self._room_bytes //= 4
            self._chunk_bytes = max(self._chunk_bytes // 4, _LEAST_CHUNK_BYTES)
        self._empty_cache()
        return True

    def _empty_cache(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _cut(self, snapshot: Snapshot, bounds: list[int]) -> list[int]:
        """Return the bounds with those of the documents behind them; small chunks at the end are made anew as one."""
        starts, bounds = snapshot.views.starts, list(bounds)
        most = max(1, self._chunk_bytes // (snapshot.views.dim * self.type_of(snapshot).itemsize))
        end = snapshot.num_rows
        while len(bounds) > 1:
            before = starts[bounds[-1]] - starts[bounds[-2]]
            if before * 2 > most or (starts[end] - starts[bounds[-1]]) * _JOINED < before:
                break
            bounds.pop()
        return bounds + documents_of_views(snapshot.views, (bounds[-1], end), most)

    def _made(self, snapshot: Snapshot, span: Span, uploads: _Uploads) -> Chunk:
        """Return a chunk made of the files, and keep it where there is room."""
        begin, end = span[0], min(span[1], snapshot.num_rows)
        chunk = _make_chunk(snapshot.views, (begin, end), self.type_of(snapshot), uploads)
        size_bytes = chunk.size_bytes
        with self._lock:
            is_current = snapshot.generation == self._generation and span == (begin, end)
            is_wanted = is_current and span not in self._kept and span in pairwise(self._bounds)
            if not is_wanted or self._held() + size_bytes > self._room_bytes or not self._has_room(size_bytes):
                return chunk
            self._kept[span] = chunk
        if self.device.type == "cpu":
            watch(self)
        return chunk

    def _has_room(self, size_bytes: int) -> bool:
        """Return whether the machine has memory for so many bytes of copies more; a GPU's is its own."""
        return self.device.type != "cpu" or MEMORY.room_bytes(0, size_bytes) >= size_bytes

    def _held(self) -> int:
        return sum(chunk.size_bytes for chunk in self._kept.values())


def has_wide_products() -> bool:
    """Return whether torch multiplies fp16 matrices into float32 (on a GPU): nothing is rounded to fp16 on the way."""
    adds_in_fp16: bool = getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False)
    return hasattr(torch.ops.aten.mm, "dtype_out") and not adds_in_fp16


def documents_of_views(views: MappedViews, span: Span, most: int) -> list[int]:
    """Return the ends of stretches of documents [begin, end) of at most so many views, or of one document."""
    begin, end = span
    ends = []
    while begin < end:
        begin = max(begin + 1, int(np.searchsorted(views.starts, views.starts[begin] + most, side="right")) - 1)
        begin = min(begin, end)
        ends.append(begin)
    return ends


def _make_chunk(views: MappedViews, span: Span, dtype: torch.dtype, uploads: _Uploads) -> Chunk:
    begin, end = span
    counts = views.counts(begin, end)
    # Documents of equal counts stand together; where all are equal, in the order of the store.
    order = np.arange(len(counts)) if counts.min() == counts.max() else np.argsort(counts, kind="stable")
    groups = tuple(_groups(counts[order]))
    # Of the documents in the order of the store: the row of their first view, and how far behind it the next is.
    first_rows, steps = np.empty_like(counts), np.empty_like(counts)
    for group in groups:
        documents = order[group.first : group.first + group.documents]
        first_rows[documents], steps[documents] = group.first_view + np.arange(group.documents), group.documents
    device, num_views = uploads.device, int(views.starts[end] - views.starts[begin])
    rows = torch.empty(num_views, views.dim, dtype=dtype, device=device)
    norms = torch.empty(num_views, dtype=torch.float32, device=device)
    places = [on_device(each, device) for each in (counts, first_rows, steps)]
    for (first, last), piece in uploads.pieces(span):
        at = _places([each[first - begin : last - begin] for each in places], len(piece))
        rows.index_copy_(0, at, piece if piece.dtype == dtype else piece.to(dtype))
        norms.index_copy_(0, at, torch.linalg.vector_norm(piece, dim=1, dtype=torch.float32))
    largest = [
        norms[group.first_view :][: group.documents * group.num_views].view(group.num_views, -1).amax(0)
        for group in groups
    ]
    # The float32 sum of squares is off by at most d u; squares below float32's range vanish, each less than 2^-126.
    bounds = torch.cat(largest) * (1 + views.dim * 2.0**-22 + 2.0**-20) + float(np.sqrt(views.dim) * 2.0**-62)
    return Chunk(rows, on_device(begin + order, device), bounds, groups)


def _groups(counts: Ints) -> Iterator[Group]:
    """Yield the groups of documents whose numbers of views, rising, are given."""
    first_view = first = 0
    for size, count in zip(*(each.tolist() for each in np.unique(counts, return_counts=True)), strict=True):
        yield Group(first_view, first, count, size)
        first_view, first = first_view + size * count, first + count


def _places(documents: list[torch.Tensor], num_views: int) -> torch.Tensor:
    """Return the row of each view of some documents, (num_views,) int64."""
    counts, first_rows, steps = documents
    owners = torch.repeat_interleave(counts, output_size=num_views)
    slots = torch.arange(num_views, device=counts.device) - (counts.cumsum(0) - counts)[owners]
    return first_rows[owners] + slots * steps[owners]


class _Uploads:
    """Stored views on their way to the device: on a GPU through two pinned buffers, by a stream of its own."""

    def __init__(self, device: torch.device, views: MappedViews) -> None:
        self.device = device
        self._views = views
        self._buffers: list[_Buffer] = []

    def pieces(self, span: Span) -> Iterator[tuple[Span, torch.Tensor]]:
        """Yield documents [begin, end) and their views on the device, good until the next but one is taken."""
        if self.device.type == "cpu":
            stored, _ = self._views.read_block(*span)
            yield span, torch.from_numpy(decode(stored))
            return
        views = self._views
        most = max(_PIECE_BYTES // views.row_bytes, views.max_views)
        if not self._buffers:
            self._buffers = [_Buffer(self.device, min(most, views.num_views), views) for _ in range(2)]
        ends = documents_of_views(views, span, most)
        for number, (begin, end) in enumerate(pairwise([span[0], *ends])):
            buffer = self._buffers[number % 2]
            stored, _ = views.read_block(begin, end)
            yield (begin, end), buffer.sent(stored)
            buffer.release()


class _Buffer:
    """A pinned buffer and one on the GPU that it is copied to, while a stream computes with what the other brought."""

    def __init__(self, device: torch.device, rows: int, views: MappedViews) -> None:
        dtype = torch.from_numpy(np.empty(0, dtype=views.matrix.dtype)).dtype
        self._pinned = torch.empty(rows, views.dim, dtype=dtype, pin_memory=True)
        self._staged = torch.empty(rows, views.dim, dtype=dtype, device=device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._computing = torch.cuda.current_stream(device)
        self._arrived, self._used = (torch.cuda.Event() for _ in range(2))  # type: ignore[no-untyped-call]
        # The memory may still be in use by what the computing stream did before.
        self._used.record(self._computing)

    def sent(self, stored: npt.NDArray[Any]) -> torch.Tensor:
        """Return the views on the device; the computing stream waits for them, this thread for the buffer only."""
        self._arrived.synchronize()
        _copy_in_threads(self._pinned[: len(stored)].numpy(), stored)
        staged = self._staged[: len(stored)]
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._used)
            staged.copy_(self._pinned[: len(stored)], non_blocking=True)
            self._arrived.record(self._stream)
        self._computing.wait_event(self._arrived)
        return staged

    def release(self) -> None:
        """Let the next views in, once the computing stream is done with these."""
        self._used.record(self._computing)


def _copy_in_threads(to: npt.NDArray[Any], stored: npt.NDArray[Any]) -> None:
    """Copy rows: one thread reads memory slower than a GPU takes it."""
    step = max(1, _THREAD_BYTES // (stored.shape[1] * stored.itemsize))
    parts = deque(range(0, len(stored), step))

    def copy() -> None:
        for begin in taken_from(parts):
            np.copyto(to[begin : begin + step], stored[begin : begin + step])

    run_in_threads(copy, max(1, min(default_threads(), len(parts))))


def _room_bytes(device: torch.device) -> int:
    """Return three quarters of what a GPU has free now, for torch at least, a quarter of a CPU's memory."""
    if device.type == "cpu":
        return cache_bytes()
    held_free = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (torch.cuda.mem_get_info(device)[0] + held_free) * 3 // 4


def to_host(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a copy in this machine's memory: the one place where a scan waits for its device."""
    copied = tensor.to("cpu", non_blocking=True)
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
    return copied.numpy()
