"""The codes of a graph's views, of 4 bits a dimension, by which it is built and walked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.kernels.score import decode
from mvindex.records import Floats, ProgressCallback
from mvindex.store.views import MappedViews

BITS = 4
CODES, FACTORS, MEAN = "codes.npy", "factors.npy", "mean.npy"
_READ_VIEWS = 65_536
_CHUNK_DIMS, _CHUNK_BYTES = 64, 32


def code_bytes_of(dim: int) -> int:
    """Return the bytes of the code of a view, whole vectors of 32 bytes."""
    return -(-dim // _CHUNK_DIMS) * _CHUNK_BYTES


def mean_of(views: MappedViews) -> Floats:
    """Return the mean of all views, (d,) float32."""
    mean = np.zeros(views.dim)
    for begin in range(0, views.num_views, _READ_VIEWS):
        rows = decode(views.read_views(begin, min(begin + _READ_VIEWS, views.num_views)))
        mean += rows.sum(axis=0, dtype=np.float64) / views.num_views
    return mean.astype(np.float32)


def load(path: Path) -> npt.NDArray[Any]:
    """Map an array."""
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return array


class OldCodes(NamedTuple):
    """The codes of a graph that is there; numbers: (n,) int32, the number in it of each view now, -1 for new ones."""

    directory: Path
    numbers: npt.NDArray[np.int32]


def write_codes(
    views: MappedViews, directory: Path, mean: Floats, old: OldCodes | None, on_progress: ProgressCallback
) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Write codes and factors of all views; return the codes, mapped, and factors, (n, 2) float32.

    A view's second factor is the square of the norm of its rest beside the mean. Codes in `old` are copied.
    """
    from mvindex.kernels.packed import encode_packed

    shape = (views.num_views, code_bytes_of(views.dim))
    factors: npt.NDArray[np.float32] = np.zeros((views.num_views, 2), dtype=np.float32)
    old_codes, old_factors = (load(old.directory / name) if old is not None else factors for name in (CODES, FACTORS))
    # Written, not mapped: a full disk is an error then, and no signal.
    with open(directory / CODES, "xb") as file:
        _write_header(file, np.dtype(np.uint8), shape)
        for begin in range(0, views.num_views, _READ_VIEWS):
            end = min(begin + _READ_VIEWS, views.num_views)
            codes: npt.NDArray[np.uint8] = np.empty((end - begin, shape[1]), dtype=np.uint8)
            fresh = np.arange(end - begin)
            if old is not None:
                numbers = old.numbers[begin:end]
                codes[:], factors[begin:end] = old_codes[numbers], old_factors[numbers]
                fresh = np.flatnonzero(numbers < 0)
            if len(fresh):
                rows = decode(views.read_views(begin + int(fresh[0]), begin + int(fresh[-1]) + 1)[fresh - fresh[0]])
                own_codes, own_factors = (
                    np.empty((len(fresh), shape[1]), np.uint8),
                    np.empty((len(fresh), 2), np.float32),
                )
                encode_packed(rows, mean, own_codes, own_factors)
                codes[fresh], factors[begin + fresh] = own_codes, own_factors
            file.write(codes.data)
            on_progress("packing codes", end, views.num_views)
    save(directory / FACTORS, factors)
    return load(directory / CODES), factors


def save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array to a new file; np.save() may miss that the disk did not take the last bytes."""
    with open(path, "xb") as file:
        _write_header(file, array.dtype, array.shape)
        file.write(array.data.cast("B") if array.size else b"")


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
