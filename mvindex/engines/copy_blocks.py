"""Blocks of 8-bit copies of views: how they lie in memory and in the file of copies, and how they are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.kernels.aligned import ALIGNMENT, aligned_bytes
from mvindex.kernels.llvm import LANES
from mvindex.kernels.quantize import round_block
from mvindex.kernels.scan import SPARE_ROWS
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Floats, ProgressCallback
from mvindex.store.copies_file import BLOCK_DTYPE, CopiesLayout, copies_path, write_copies
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

# Of what decides the bytes of a block: to be raised where round_block() or the parts of a block change.
_VERSION = 1
# From this many dims on, views are padded to whole vectors, which a single query is multiplied by.
_DIMS_OF_VECTORS = 192
# Blocks that are made at a time before they are written.
_WRITTEN_BLOCKS = 16


class BlockParts(NamedTuple):
    """The parts of a block's bytes, in this order, each a view of them.

    codes: (views + SPARE_ROWS, pitch) uint8; bounds: (documents, 2) float32, norm and error; scale: (d,) float32.
    """

    codes: npt.NDArray[np.uint8]
    bounds: Floats
    scale: Floats


def copies_layout(dim: int) -> CopiesLayout:
    """Return the layout of blocks: views take whole vectors of 64 bytes where that adds little, whole fours else."""
    unit = 4 * LANES if dim > _DIMS_OF_VECTORS or dim % (4 * LANES) == 0 else 4
    return CopiesLayout(_VERSION, dim, -(-dim // unit) * unit)


def block_bytes(num_views: int, num_documents: int, layout: CopiesLayout) -> int:
    """Return the bytes of a block, a multiple of ALIGNMENT."""
    size_bytes = (num_views + SPARE_ROWS) * layout.pitch + 8 * num_documents + 4 * layout.dim
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def block_parts(block: npt.NDArray[np.uint8], num_views: int, num_documents: int, layout: CopiesLayout) -> BlockParts:
    """Return the parts of a block's bytes, which must be ALIGNMENT-aligned."""
    bounds_at = (num_views + SPARE_ROWS) * layout.pitch
    scale_at = bounds_at + 8 * num_documents
    return BlockParts(
        codes=block[:bounds_at].reshape(-1, layout.pitch),
        bounds=block[bounds_at:scale_at].view(np.float32).reshape(-1, 2),
        scale=block[scale_at : scale_at + 4 * layout.dim].view(np.float32),
    )


def make_block(views: MappedViews, first: int, last: int, block: npt.NDArray[np.uint8], layout: CopiesLayout) -> None:
    """Write the block of document rows [first, last) to its bytes; DamagedIndex where stored views are damaged."""
    packed, starts = views.read_block(first, last)
    parts = block_parts(block, len(packed), last - first, layout)
    parts.codes[len(packed) :] = 0
    norms, errors = np.empty((2, last - first), dtype=np.float32)
    stored = packed.view(np.int16) if packed.dtype == np.float16 else packed
    round_block(stored, starts, parts.codes, parts.scale, norms, errors)
    parts.bounds[:] = np.stack([norms, errors], axis=1)
    used_bytes = parts.codes.nbytes + parts.bounds.nbytes + parts.scale.nbytes
    block[used_bytes:] = 0


def write_blocks(snapshot: Snapshot, on_progress: ProgressCallback) -> None:
    """Write the file of copies of all views of the snapshot. Call as the one writer.

    Args:
        snapshot: Of views, one at least.
        on_progress: Called with the step, the blocks done, and all blocks.

    Raises:
        DamagedIndex: A stored view is damaged.
        StoreError: The file cannot be written.

    """
    views = snapshot.views
    bounds, layout = views.block_bounds(), copies_layout(views.dim)
    blocks = np.zeros(len(bounds) - 1, dtype=BLOCK_DTYPE)
    blocks["first"], blocks["last"] = bounds[:-1], bounds[1:]
    for block in blocks:
        first, last = int(block["first"]), int(block["last"])
        block["size_bytes"] = block_bytes(views.view_start(last) - views.view_start(first), last - first, layout)
        block["key"] = views.rows_key(first, last)

    def contents() -> Iterator[npt.NDArray[np.uint8]]:
        for begin in range(0, len(blocks), _WRITTEN_BLOCKS):
            some = blocks[begin : begin + _WRITTEN_BLOCKS]
            made = [aligned_bytes(int(size_bytes)) for size_bytes in some["size_bytes"]]
            work = deque(zip(some["first"].tolist(), some["last"].tolist(), made, strict=True))

            def make(work: deque[tuple[int, int, npt.NDArray[np.uint8]]] = work) -> None:
                for first, last, block in taken_from(work):
                    make_block(views, first, last, block, layout)

            run_in_threads(make, min(default_threads(), len(made)))
            yield from made
            on_progress("copying views", begin + len(made), len(blocks))

    write_copies(copies_path(snapshot.directory, snapshot.generation), layout, blocks, contents())
