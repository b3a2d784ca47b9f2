"""Views rounded to 8 bits, a block at a time, with what that loses."""

from __future__ import annotations

from typing import Any

import numpy as np

from mvindex.kernels.compiled import compiled
from mvindex.kernels.llvm import decoded

# Dimensions whose largest value is below this are held as zeros: their scale could not be inverted.
_SMALLEST = 2.0**-90
# No bound is lower, so that products with it are never lost below float32's range.
_SMALLEST_BOUND = 2.0**-100


@compiled
def round_block(matrix: Any, starts: Any, copy: Any, scale: Any, norms: Any, errors: Any) -> None:
    """Write the copy, scale, norms and errors of a block of documents.

    matrix: (r, d) as stored (float32, or int16 with the bits of fp16); starts: (n + 1,) int64, document i owns rows
    starts[i]:starts[i + 1]. copy: (r, pitch >= d) uint8, gets round(v / scale) + 128; scale: (d,) float32, gets the
    largest |v| of each dimension / 127. norms, errors: (n,) float32, get upper bounds of |v'| and |v - v'|, v' being
    the copy's integers times scale, over the views of each document.
    """
    num_views, dim = matrix.shape
    largest, inverse = np.zeros(dim, np.float32), np.zeros(dim, np.float32)
    for row in range(num_views):
        for i in range(dim):
            largest[i] = max(largest[i], abs(decoded(matrix[row, i])))
    for i in range(dim):
        scale[i] = largest[i] / np.float32(127) if largest[i] > _SMALLEST else np.float32(0)
        inverse[i] = np.float32(1) / scale[i] if scale[i] > 0 else np.float32(0)
    for document in range(len(starts) - 1):
        norm, error = 0.0, 0.0
        for row in range(starts[document], starts[document + 1]):
            held_square, lost_square = 0.0, 0.0
            for i in range(dim):
                value = np.float64(decoded(matrix[row, i]))
                rounded = min(max(np.rint(value * np.float64(inverse[i])), -127.0), 127.0)
                copy[row, i] = np.uint8(np.int32(rounded) + 128)
                held = rounded * np.float64(scale[i])
                lost = value - held
                held_square += held * held
                lost_square += lost * lost
            for i in range(dim, copy.shape[1]):
                copy[row, i] = np.uint8(128)
            norm, error = max(norm, held_square), max(error, lost_square)
        # Float64 sums of squares, rounded to float32: far less than a millionth off.
        norms[document] = np.float32(max(np.sqrt(norm) * (1 + 1e-6), _SMALLEST_BOUND))
        errors[document] = np.float32(max(np.sqrt(error) * (1 + 1e-6), _SMALLEST_BOUND))
