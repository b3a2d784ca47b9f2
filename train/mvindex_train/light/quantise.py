"""Choose the integers of a linear map's weights, so that its outputs on given inputs change little (GPTQ).

Pairs of weights are limited as mvindex/encoder/levels.py says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from mvindex.encoder.levels import GELU_OFFSET, PAIR_LEVELS, WEIGHT_LEVELS, Levels
from mvindex.records import Floats

Doubles = npt.NDArray[np.float64]

Even: TypeAlias = Callable[[Doubles, Floats], tuple[Doubles, Doubles]]

# The largest level of a word's embedding, and how many of its elements have one scale.
WORD_LEVELS, WORD_BLOCK = 127, 32
_INPUT_LEVELS = 127
# Added to the diagonal of the inputs' products, as a share of its mean (GPTQ, section 3.3).
_DAMPING = 0.01
_SCALES = np.linspace(0.7, 2.0, 27)
_SMOOTHINGS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Of the choice of shifts and factors: rows, steps of Adam, and what the largest weight of an output gets, about.
_ROWS_COMPARED, _EVENING_STEPS, _EVENING_RATE = 768, 200, 0.03
_LIKELY_LEVELS = 96
# The share of the error of rounded weights that is left when inputs of later rows make up for those before.
_GPTQ_LEAVES = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A map of rows x to x @ weight + bias, in fp32.

    weight: (inputs, outputs); bias: (outputs,), float32. is_tapped: its inputs are an output of the graph, by which its
    integers are chosen then.
    """

    weight: Floats
    bias: Floats
    is_tapped: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedLinear:
    """A linear map of levels.

    levels: (inputs, outputs); scales: (outputs,) float32. centre, smooth: (inputs,) what is taken from the inputs
    first, and what they are divided by then, or None. is_shifted: GELU_OFFSET is added to the inputs first. The bias
    takes back what was taken and added.
    """

    levels: Levels
    scales: Floats
    bias: Floats
    centre: Floats | None
    smooth: Floats | None
    is_shifted: bool


def quantise_rows(rows: Floats) -> tuple[Levels, Floats]:
    """Return the levels and the scale, (n, 1), of each row."""
    scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True) / WORD_LEVELS, np.float32(1e-20))
    return np.rint(rows / scales).astype(np.int8), scales.astype(np.float32)


def quantise_linears(
    linears: list[Linear], inputs: Floats, *, even: Even | None = None, shifted: bool = False
) -> list[QuantisedLinear]:
    """Return the maps, which share their inputs, (rows, inputs), quantised.

    even: returns what to take from the inputs first, and factors to divide them by then, which the weights take over.
    shifted: whether inputs are outputs of GELU.
    """
    weight = np.concatenate([one.weight for one in linears], axis=1).astype(np.float64)
    bias = np.concatenate([one.bias for one in linears]).astype(np.float64)
    centre, factors = even(weight, inputs) if even else (None, None)
    if centre is not None and factors is not None:
        bias, inputs = bias + centre @ weight, ((inputs - centre) / factors).astype(np.float32)
        weight = weight * factors[:, None]
    mean = inputs.mean(axis=0, dtype=np.float64)
    centred = inputs - mean.astype(np.float32)
    levels, scales = _gptq(weight, (centred.T @ centred).astype(np.float64))
    # The error of the inputs' mean is known: the bias takes it back, with what shifted inputs add.
    bias = bias + mean @ weight - (mean + (GELU_OFFSET if shifted else 0)) @ (levels * scales)
    middle, smoothed = (None if each is None else each.astype(np.float32) for each in (centre, factors))
    borders = np.cumsum([one.weight.shape[1] for one in linears])[:-1]
    parts = zip(np.split(levels, borders, axis=1), np.split(scales, borders), np.split(bias, borders), strict=True)
    return [
        QuantisedLinear(
            np.ascontiguousarray(own), scale.astype(np.float32), rest.astype(np.float32), middle, smoothed, shifted
        )
        for own, scale, rest in parts
    ]


def even_out(weight: Doubles, inputs: Floats) -> tuple[Doubles, Doubles]:
    """Return what to take from the inputs and what to divide them by, both (inputs,), for the least expected error.

    The error of rounding is that of a uniform distribution: of an input it grows with the largest one of its row, of a
    weight with the largest one of its output. Largest ones are taken as means of a high power, which have a slope.
    """
    some = torch.from_numpy(inputs[:: max(1, len(inputs) // _ROWS_COMPARED)].astype(np.float32))
    own = torch.from_numpy(weight.astype(np.float32))
    mean, variance, size = some.mean(0), some.var(0), (own**2).sum(1)
    spread = variance.sqrt().clamp_min(1e-6)
    # In units of the inputs' spread; and SmoothQuant's factors of one half to begin with.
    shift = torch.zeros_like(mean, requires_grad=True)
    power = torch.log((spread / size.sqrt().clamp_min(1e-12)).sqrt()).requires_grad_()
    optimiser = torch.optim.Adam([shift, power], lr=_EVENING_RATE)
    for _ in range(_EVENING_STEPS):
        factors = torch.exp(power)
        largest = _soft_max((some - mean - shift * spread) / factors, dim=1).square().mean()
        of_inputs = largest / _INPUT_LEVELS**2 * (factors**2 * size).sum()
        largest = _soft_max(own * factors[:, None], dim=0).square().sum()
        of_weights = largest / _LIKELY_LEVELS**2 * (variance / factors**2).sum()
        optimiser.zero_grad()
        torch.log(of_inputs + _GPTQ_LEAVES * of_weights).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    factors = torch.exp(power - power.mean())
    return (mean + shift * spread).detach().double().numpy(), factors.detach().double().numpy()


def _soft_max(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Return about the largest absolute value."""
    largest: torch.Tensor = torch.linalg.vector_norm(values, ord=16, dim=dim)
    return largest


def smooth(weight: Doubles, inputs: Floats) -> tuple[Doubles, Doubles]:
    """Return the middle of each input's range, and the factors of SmoothQuant of the least error, both (inputs,)."""
    centre = (inputs.max(axis=0).astype(np.float64) + inputs.min(axis=0)) / 2
    some = inputs[:: max(1, len(inputs) // _ROWS_COMPARED)] - centre
    expected = some @ weight
    size, own = np.abs(some).max(axis=0), np.abs(weight).max(axis=1)
    best = (np.inf, np.ones(len(size)))
    for strength in _SMOOTHINGS:
        factors = size**strength / own ** (1 - strength) if strength else np.ones(len(size))
        factors = factors / np.exp(np.log(factors).mean())
        found = _rounded(some / factors, axis=1, levels=_INPUT_LEVELS) @ _rounded(
            weight * factors[:, None], axis=0, levels=_LIKELY_LEVELS
        )
        error = float(((found - expected) ** 2).mean())
        if error < best[0]:
            best = (error, factors)
    return centre, best[1]


def _rounded(values: Doubles, axis: int, levels: int) -> Doubles:
    scales = np.abs(values).max(axis=axis, keepdims=True) / levels
    return np.asarray(np.rint(values / scales) * scales)


def _gptq(weight: Doubles, products: Doubles) -> tuple[Levels, Doubles]:
    """Return the levels and scales of a weight (Frantar et al. 2023, algorithm 1); products: the inputs' (k, k).

    Inputs are rounded one after the other, those of the largest products first; the error of each moves to those that
    are still to come.
    """
    scales = _best_scales(weight, np.diag(products))
    order = np.argsort(-np.diag(products), kind="stable")
    left, products = weight[order].copy(), products[np.ix_(order, order)].copy()
    products[np.diag_indices_from(products)] += _DAMPING * np.diag(products).mean()
    factor = np.linalg.cholesky(np.linalg.inv(products)).T
    levels, place = np.zeros(weight.shape, dtype=np.int8), np.argsort(order)
    for row, chosen in enumerate(order):
        partner = place[chosen ^ 1]
        other = levels[chosen ^ 1] if partner < row else left[partner] / scales
        rounded = _beside(left[row] / scales, other, is_fixed=partner < row)
        levels[chosen] = rounded
        error = (left[row] - rounded * scales) / factor[row, row]
        left[row + 1 :] -= factor[row, row + 1 :, None] * error
    return levels, scales


def _beside(values: Doubles, other: Doubles | Levels, *, is_fixed: bool) -> Doubles:
    """Return the levels of weights beside the other ones of their pairs.

    is_fixed: whether the others are rounded already; else they give way by half of what is over.
    """
    over = np.maximum(np.abs(values) + np.abs(other) - PAIR_LEVELS, 0) * (values * other > 0)
    size = np.abs(values) - (over if is_fixed else over / 2)
    rounded = np.minimum(np.rint(size), WEIGHT_LEVELS)
    return np.asarray(np.copysign(rounded, values))


def _best_scales(weight: Doubles, importance: Doubles) -> Doubles:
    """Return the scale of each output, (outputs,), of the least squared error weighted by the inputs' size."""
    largest = np.abs(weight).max(axis=0) / WEIGHT_LEVELS
    errors = []
    for share in _SCALES:
        scales = largest * share
        first, second = weight[::2] / scales, weight[1::2] / scales
        rounded = np.stack([_beside(first, second, is_fixed=False), _beside(second, first, is_fixed=False)], axis=1)
        found = rounded.reshape(weight.shape) * scales
        errors.append((importance[:, None] * (weight - found) ** 2).sum(axis=0))
    return np.asarray(largest * _SCALES[np.argmin(errors, axis=0)])
