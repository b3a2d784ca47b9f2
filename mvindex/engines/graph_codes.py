"""The codes of a graph's views: of 8 bits a dimension, by which it is built, then of 4, by which it is walked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mvindex.kernels.score import decode
from mvindex.records import Floats, ProgressCallback
from mvindex.store.views import MappedViews

# Bits a dimension while a graph is built, and when it is walked.
BUILT_BITS, BITS = 8, 4
CODES, FACTORS = "codes.npy", "factors.npy"
_READ_VIEWS = 65_536


def code_bytes_of(dim: int, bits: int) -> int:
    """Return the bytes of the code of a view, in whole vectors of 64 bytes, or of 32 for 4 bits a dimension."""
    width = 64 if bits == BUILT_BITS else 32
    return -(-dim * bits // (8 * width)) * width


def write_bytes(
    views: MappedViews, directory: Path, on_progress: ProgressCallback
) -> tuple[npt.NDArray[np.uint8], Floats, np.float32]:
    """Write codes of 8 bits and their factors; return both, the codes mapped, and the square of all norms."""
    from mvindex.kernels.walk import encode_views

    shape = (views.num_views, code_bytes_of(views.dim, BUILT_BITS))
    factors: npt.NDArray[np.float32] = np.empty((views.num_views, 2), dtype=np.float32)
    block = np.empty((min(_READ_VIEWS, views.num_views), shape[1]), dtype=np.uint8)
    # Written, not mapped: a full disk is an error then, and no signal.
    with open(directory / CODES, "xb") as file:
        _write_header(file, block.dtype, shape)
        for begin, end, rows in _blocks(views):
            encode_views(rows, block[: end - begin], factors[begin:end])
            factors[begin:end, 1] = np.einsum("ij,ij->i", rows, rows)
            file.write(block[: end - begin].data)
            on_progress("rounding views", end, views.num_views)
    codes = np.load(directory / CODES, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    square = factors[:, 1].max(initial=np.float32(0))
    factors[:, 1] = np.sqrt(square - factors[:, 1])
    save(directory / FACTORS, factors)
    return codes, factors, square


def replace_by_packed(views: MappedViews, directory: Path, on_progress: ProgressCallback) -> None:
    """Write codes of 4 bits and their factors in the place of those of 8."""
    from mvindex.kernels.packed import encode_packed

    mean = np.zeros(views.dim)
    for _, _, rows in _blocks(views):
        mean += rows.sum(axis=0, dtype=np.float64) / views.num_views
    shape = (views.num_views, code_bytes_of(views.dim, BITS))
    factors: npt.NDArray[np.float32] = np.zeros((views.num_views, 2), dtype=np.float32)
    block = np.empty((min(_READ_VIEWS, views.num_views), shape[1]), dtype=np.uint8)
    for name in (CODES, FACTORS):
        (directory / name).unlink()
    with open(directory / CODES, "xb") as file:
        _write_header(file, block.dtype, shape)
        for begin, end, rows in _blocks(views):
            encode_packed(rows, mean.astype(np.float32), block[: end - begin], factors[begin:end, 0])
            file.write(block[: end - begin].data)
            on_progress("packing codes", end, views.num_views)
    save(directory / FACTORS, factors)


def save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array to a new file; np.save() may miss that the disk did not take the last bytes."""
    with open(path, "xb") as file:
        _write_header(file, array.dtype, array.shape)
        file.write(array.data.cast("B") if array.size else b"")


def _blocks(views: MappedViews) -> Iterator[tuple[int, int, Floats]]:
    """Yield stretches of views, (r, d) float32, and where they begin and end."""
    for begin in range(0, views.num_views, _READ_VIEWS):
        end = min(begin + _READ_VIEWS, views.num_views)
        yield begin, end, decode(views.read_views(begin, end))


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
