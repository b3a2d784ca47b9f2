"""Integers of linear maps' weights, whose products with 8-bit inputs are the same on every processor.

Processors without VNNI add the products of two unsigned and two signed bytes in 16 bits, and cut what is over. These
are the weights of two inputs, 2 i and 2 i + 1, for one output. Where both have one sign, their sum is at most 128, and
255 x 128 = 32,640 fits. So the integer products are the same on every processor, and a weight has -127 to 127.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.records import Floats

Levels: TypeAlias = npt.NDArray[np.int8]

# The largest level of a weight; the largest sum of a pair of weights of one sign.
WEIGHT_LEVELS = 127
PAIR_LEVELS = 128
# What is added to the outputs of GELU, which are never below -.17: they take all levels of an unsigned byte.
GELU_OFFSET = 0.1701
_LEAST_SCALE = np.float32(1e-20)


def round_weights(weight: Floats) -> tuple[Levels, Floats]:
    """Return the levels, (inputs, outputs), and scales, (outputs,) float32, of a weight, each rounded to nearest.

    The scale of an output is the least at which no weight and no pair is over; its inputs are even in number.
    """
    first, second = weight[::2], weight[1::2]
    pairs = np.where(first * second > 0, np.abs(first + second), 0).max(axis=0) / PAIR_LEVELS
    scales = np.maximum(np.maximum(np.abs(weight).max(axis=0) / WEIGHT_LEVELS, pairs), _LEAST_SCALE)
    levels = np.rint(weight / scales)
    # Two halves may both have been rounded up.
    first, second = levels[::2], levels[1::2]
    over = np.where(first * second > 0, np.maximum(np.abs(first + second) - PAIR_LEVELS, 0), 0)
    second -= np.copysign(over, second)
    return np.ascontiguousarray(levels, dtype=np.int8), scales.astype(np.float32)
