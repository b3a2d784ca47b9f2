"""The compiled loops against NumPy's integers, float64 and rational arithmetic."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.engines.graph_build import code_bytes_of
from mvindex.kernels.score import view_sums
from mvindex.testing import unit

pytest.importorskip("numba", reason="NOT RUN: needs numba (the extra fast)")

from mvindex.kernels import walk  # noqa: E402 - needs numba
from mvindex.kernels.compiled import compiled, compiled_strict  # noqa: E402 - needs numba
from mvindex.kernels.copies import aligned_bytes  # noqa: E402 - needs numba
from mvindex.kernels.llvm import decoded  # noqa: E402 - needs numba
from mvindex.kernels.quantize import round_block  # noqa: E402 - needs numba
from mvindex.kernels.scan import _best, _soft  # noqa: E402 - needs numba
from mvindex.kernels.sums import sums_of_documents  # noqa: E402 - needs numba
from mvindex.kernels.vnni import (  # noqa: E402 - needs numba
    MAX_DIM,
    dot,
    float_at,
    products_6x64,
    products_12x32,
    products_16x16,
    trailing_zeros,
)
from mvindex.kernels.walk import decode_packed, encode_packed  # noqa: E402 - needs numba

SEEDS = st.integers(0, 2**32 - 1)
NEEDS_VNNI = pytest.mark.needs("vnni")
ROWS_OF_TILE = {64: 6, 32: 12, 16: 16}


def aligned(shape, dtype):
    """Zeros at a 64-byte aligned address."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = aligned_bytes(count).view(dtype).reshape(shape)
    array[...] = 0
    return array


# --- products --------------------------------------------------------------------------------------------------------


@compiled
def call_products(lanes, views_at, pitch, queries, out):
    if lanes == 64:
        products_6x64(views_at, pitch, queries.ctypes.data, pitch // 4, out.ctypes.data)
    elif lanes == 32:
        products_12x32(views_at, pitch, queries.ctypes.data, pitch // 4, out.ctypes.data)
    else:
        products_16x16(views_at, pitch, queries.ctypes.data, pitch // 4, out.ctypes.data)


@compiled
def call_dot(view, query):
    return dot(view.ctypes.data, query.ctypes.data, len(view) // 64)


@compiled
def call_best(lanes, products, thresholds, out):
    return _best(products.ctypes.data, len(products), lanes, thresholds.ctypes.data, out.ctypes.data)


def multiplied(views, queries, shift=0):
    """The products of a tile: views (n, pitch) uint8 and queries (lanes, pitch) int8, by the kernel.

    shift: bytes by which the views' address is not aligned.
    """
    (count, pitch), lanes = views.shape, len(queries)
    held = aligned(views.size + 64, np.uint8)
    held[shift : shift + views.size] = views.reshape(-1)
    packed = aligned((pitch // 4, lanes, 4), np.int8)
    packed[:] = queries.reshape(lanes, -1, 4).transpose(1, 0, 2)
    out = aligned((count + 2, lanes), np.int32)
    out[:] = 12345
    call_products(lanes, held.ctypes.data + shift, pitch, packed, out[1:])
    assert (out[0] == 12345).all() and (out[-1] == 12345).all()
    return out[1:-1]


@NEEDS_VNNI
@settings(max_examples=60)
@given(SEEDS, st.sampled_from([64, 32, 16]), st.integers(1, 300), st.integers(0, 63))
def test_products_are_numpys(seed, lanes, fours, shift):
    rng = np.random.default_rng(seed)
    views = rng.integers(0, 256, (ROWS_OF_TILE[lanes], 4 * fours)).astype(np.uint8)
    queries = rng.integers(-127, 128, (lanes, 4 * fours)).astype(np.int8)
    expected = views.astype(np.int64) @ queries.T.astype(np.int64)
    np.testing.assert_array_equal(multiplied(views, queries, shift), expected)


@NEEDS_VNNI
@pytest.mark.parametrize("lanes", [64, 32, 16])
@pytest.mark.parametrize("query", [-127, 127, -1])
@pytest.mark.parametrize("view", [0, 1, 255])
@pytest.mark.parametrize("pitch", [4, 64, 4096, MAX_DIM])
def test_products_of_the_largest_factors_fit(lanes, query, view, pitch):
    views = np.full((ROWS_OF_TILE[lanes], pitch), view, dtype=np.uint8)
    found = multiplied(views, np.full((lanes, pitch), query, dtype=np.int8))
    assert (found == view * query * pitch).all()


@NEEDS_VNNI
@settings(max_examples=60)
@given(SEEDS, st.integers(1, 70))
def test_one_product_is_numpys(seed, chunks):
    rng = np.random.default_rng(seed)
    view, query = aligned(64 * chunks, np.uint8), aligned(64 * chunks, np.int8)
    view[:] = rng.integers(0, 256, len(view))
    query[:] = rng.integers(-127, 128, len(query))
    assert call_dot(view, query) == view.astype(np.int64) @ query.astype(np.int64)


@NEEDS_VNNI
@pytest.mark.parametrize("factor", [-127, 127])
@pytest.mark.parametrize("dim", [64, MAX_DIM])
def test_one_product_of_the_largest_factors_fits(factor, dim):
    view, query = aligned(dim, np.uint8), aligned(dim, np.int8)
    view[:], query[:] = 255, factor
    assert call_dot(view, query) == 255 * factor * dim


@NEEDS_VNNI
@settings(max_examples=100)
@given(SEEDS, st.sampled_from([64, 32, 16]), st.integers(1, 130), st.sampled_from([3, 1000, 2**31 - 1]))
def test_the_best_products_are_numpys_and_bits_say_who_reaches_its_threshold(seed, lanes, count, size):
    rng = np.random.default_rng(seed)
    products, thresholds, out = aligned((count, lanes), np.int32), aligned(lanes, np.int32), aligned(lanes, np.int32)
    products[:] = rng.integers(-size, size, (count, lanes), endpoint=True)
    thresholds[:] = rng.integers(-size, size, lanes, endpoint=True)
    thresholds[:3] = 2**31 - 1, -(2**31) + 1, products[:, 2].max()
    reached = int(call_best(lanes, products, thresholds, out))
    best = products.max(axis=0)
    np.testing.assert_array_equal(out, best)
    assert [bool(reached >> lane & 1) for lane in range(lanes)] == (best >= thresholds).tolist()
    assert reached >> lanes == 0


@compiled
def call_trailing_zeros(bits):
    return trailing_zeros(bits)


@compiled
def call_float_at(values, at):
    return float_at(values.ctypes.data + 4 * at)


@NEEDS_VNNI
def test_the_lowest_bit_is_found():
    for place in range(64):
        for others in (0, 1 << 63, (1 << 64) - 1):
            bits = (others >> place << place) | 1 << place
            assert call_trailing_zeros(np.uint64(bits)) == place


@NEEDS_VNNI
def test_a_float_is_read_from_its_address():
    values = np.array([1.5, -0.0, 1e-44, 3e38, -np.inf], dtype=np.float32)
    assert [call_float_at(values, at) for at in range(5)] == values.tolist()


# --- DRPQ's aggregate ------------------------------------------------------------------------------------------------


@compiled_strict
def call_soft(products, arrays, numbers):
    best, rates, offsets, values, slopes, thresholds = arrays
    products_at, best_at, rates_at = products.ctypes.data, best.ctypes.data, rates.ctypes.data
    offsets_at, values_at, slopes_at = offsets.ctypes.data, values.ctypes.data, slopes.ctypes.data
    at = (products_at, len(products), best_at, rates_at, offsets_at, values_at, slopes_at, thresholds.ctypes.data)
    return _soft(len(best), at, numbers)


class SoftTile:
    """The arrays of a softmax tile, see kernels.softmax; slopes of zero make a bound of 0."""

    def __init__(self, products):
        lanes = products.shape[1]
        self.products = aligned(products.shape, np.int32)
        self.products[:] = products
        self.best, self.offsets = aligned(lanes, np.int32), aligned(lanes, np.int32)
        self.best[:] = products.max(axis=0)
        self.rates, self.values = aligned(lanes, np.float32), aligned(lanes, np.float32)
        self.slopes, self.thresholds = aligned((4, lanes), np.float32), aligned(lanes, np.float32)

    def reached(self, *numbers):
        arrays = (self.best, self.rates, self.offsets, self.values, self.slopes, self.thresholds)
        bits = int(call_soft(self.products, arrays, tuple(map(float, numbers or (0, 0, 0, 0)))))
        return np.array([bool(bits >> lane & 1) for lane in range(len(self.best))])

    def true_values(self):
        """The mean of each lane's scores, and the largest of them in size, both in steps: float64."""
        scores = self.products.astype(np.float64) - self.offsets
        weights = np.exp2((scores.max(axis=0) - scores) * self.rates.astype(np.float64))
        return (weights * scores).sum(axis=0) / weights.sum(axis=0), np.abs(scores).max(axis=0)


def random_soft_tile(rng, lanes):
    count = int(rng.choice([1, 2, 3, 8, 64, 2000]))
    size = int(rng.choice([2, 1000, 2**22, 2**29]))
    tile = SoftTile(rng.integers(-size, size, (count, lanes), endpoint=True))
    tile.offsets[:] = rng.integers(-size, size, lanes)
    tile.rates[:] = -(10.0 ** rng.uniform(-12, 3, lanes))
    tile.rates[:3] = 0, -1e30, -1 / size
    return tile


@NEEDS_VNNI
@settings(max_examples=150)
@given(SEEDS, st.sampled_from([64, 32, 16]))
def test_the_aggregate_is_that_of_float64(seed, lanes):
    tile = random_soft_tile(np.random.default_rng(seed), lanes)
    tile.reached()
    expected, sizes = tile.true_values()
    # As engines.protocol.aggregate_error has it.
    bound = (8 * len(tile.products) + 64) * 2.0**-22 * sizes
    assert (np.abs(tile.values - expected) <= bound).all()


@NEEDS_VNNI
@pytest.mark.parametrize("lanes", [64, 32, 16])
def test_weights_are_true_to_float32s_last_digits(lanes):
    """Check two views of which the lower has weight w: the value, measured from the best, is -w g / (1 + w)."""
    for exponent in np.linspace(-120, 0, 481):
        gap = 1 << 10
        tile = SoftTile(np.array([[0] * lanes, [-gap] * lanes]))
        tile.rates[:] = exponent / gap
        tile.reached()
        weight = 2.0 ** (float(tile.rates[0]) * gap)
        assert tile.values[0] == pytest.approx(-weight * gap / (1 + weight), rel=2.0**-20, abs=1e-42)


@NEEDS_VNNI
@settings(max_examples=100)
@given(SEEDS, st.sampled_from([64, 32, 16]))
def test_an_aggregate_reaches_its_threshold_when_its_bound_does(seed, lanes):
    rng = np.random.default_rng(seed)
    tile = random_soft_tile(rng, lanes)
    norm, error_norm, lipschitz_constant, own = rng.random(4) * [1, 0.01, 3, 1e-5]
    expected, sizes = tile.true_values()
    tile.slopes[:] = rng.random((4, lanes)) * (sizes + 1)
    error = lipschitz_constant * (error_norm * tile.slopes[0] + norm * tile.slopes[1] + tile.slopes[2])
    upper = expected + error + own * norm * tile.slopes[3]
    room = (8 * len(tile.products) + 128) * 2.0**-22 * (sizes + np.abs(upper) + 1)
    distances = rng.choice([-2, -1.01, 1.01, 2], lanes) * room
    tile.thresholds[:] = upper - distances
    tile.thresholds[3:5] = -np.inf, np.inf
    reached = tile.reached(norm, error_norm, lipschitz_constant, own)
    assert reached[3] and not reached[4]
    others = np.arange(lanes) > 4
    np.testing.assert_array_equal(reached[others], distances[others] > 0)


@NEEDS_VNNI
@pytest.mark.parametrize("lanes", [64, 32, 16])
@pytest.mark.parametrize("norm", [2.0**-100, 1e-20, 1.0])
@pytest.mark.parametrize("threshold", [-np.inf, -1.0, 0.0, 1e30])
def test_a_bound_without_end_reaches_any_finite_threshold(lanes, norm, threshold):
    """The copies of a block of zeros say nothing: their step is so small that errors in steps are infinite."""
    tile = SoftTile(np.zeros((2, lanes), dtype=np.int32))
    tile.slopes[:] = np.inf
    tile.thresholds[:] = threshold
    assert tile.reached(norm, norm, 1.2, 1e-5).all()


@pytest.mark.parametrize("lanes", [64, 32, 16])
@pytest.mark.parametrize("what", ["slopes", "thresholds"])
def test_a_bound_that_is_no_number_keeps_the_document(lanes, what):
    tile = SoftTile(np.zeros((2, lanes), dtype=np.int32))
    tile.thresholds[:] = 1
    assert not tile.reached(1.0, 1.0, 1.2, 1e-5).any()
    getattr(tile, what)[..., ::2] = np.nan
    assert tile.reached(1.0, 1.0, 1.2, 1e-5).tolist() == [True, False] * (lanes // 2)


# --- float64 sums ----------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([1, 2, 3, 31, 32, 33, 384, 1000]), st.sampled_from([np.float16, np.float32]))
def test_sums_of_documents_are_those_of_numpy_bit_for_bit(seed, dim, dtype):
    rng = np.random.default_rng(seed)
    view_starts = np.cumsum([0, *rng.integers(1, 6, 12)])
    size = 1.0 if dtype == np.float16 else 10.0 ** rng.choice([-44, -20, 0, 15])
    stored = (rng.standard_normal((view_starts[-1], dim)) * size).astype(dtype)
    queries = rng.standard_normal((4, dim)).astype(np.float32)
    documents, which = rng.integers(0, 12, 20), np.sort(rng.integers(0, 4, 20))
    begins, counts = view_starts[documents], np.diff(view_starts)[documents]
    starts = np.append(0, np.cumsum(counts))
    sums = np.full(starts[-1], np.nan)
    bits = stored.view(np.int16) if dtype == np.float16 else stored
    sums_of_documents(bits, begins, starts, queries, which, sums)
    for pair in range(20):
        views = stored[begins[pair] : begins[pair] + counts[pair]]
        expected = view_sums(views, queries[which[pair]])
        np.testing.assert_array_equal(sums[starts[pair] : starts[pair + 1]], expected)


@compiled
def decode_all(stored, out):
    for row in range(len(stored)):
        out[row] = decoded(stored[row])


def test_every_fp16_number_is_decoded():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    out = np.empty(len(finite), dtype=np.float32)
    decode_all(finite.view(np.int16), out)
    np.testing.assert_array_equal(out, finite.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(out), np.signbit(finite))
    decode_all(finite.astype(np.float32), out)
    np.testing.assert_array_equal(out, finite.astype(np.float32))


# --- copies ----------------------------------------------------------------------------------------------------------


def block_values(rng, kind, shape):
    values = rng.standard_normal(shape)
    if kind == "scales":
        values *= 10.0 ** rng.uniform(-30, 15, shape[1])
    elif kind == "huge":
        values *= 1e17 / math.sqrt(shape[1])
    elif kind == "denormal":
        values *= 10.0 ** rng.uniform(-46, -36, shape[1])
    elif kind == "around the smallest scale":
        values *= 2.0 ** rng.uniform(-92, -88, shape[1])
    elif kind == "zeros":
        values *= (rng.random(shape[1]) < 0.5) * (rng.random((shape[0], 1)) < 0.5)
    elif kind == "halves":
        values = rng.integers(-254, 255, shape) / 2
    elif kind == "one huge":
        values[rng.integers(shape[0])] *= 1e6
    return values


def whole(number):
    """A float32 number as a multiple of 2^-149."""
    return int(math.ldexp(float(number), 149))


@settings(max_examples=120)
@given(
    SEEDS,
    st.sampled_from(
        ["random", "scales", "huge", "denormal", "around the smallest scale", "zeros", "halves", "one huge"]
    ),
    st.sampled_from([1, 2, 3, 17, 64, 193]),
    st.sampled_from([np.float16, np.float32]),
)
def test_bounds_of_a_rounded_block_are_upper_bounds(seed, kind, dim, dtype):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *rng.integers(1, 5, 6)])
    values = block_values(rng, kind, (starts[-1], dim))
    stored = np.clip(values, -6e4, 6e4).astype(np.float16) if dtype == np.float16 else values.astype(np.float32)
    pitch = -(-dim // 64) * 64
    copy, scale = np.zeros((starts[-1] + 1, pitch), dtype=np.uint8), np.empty(dim, dtype=np.float32)
    norms, errors = np.empty((2, 6), dtype=np.float32)
    round_block(stored.view(np.int16) if dtype == np.float16 else stored, starts, copy, scale, norms, errors)
    assert (copy[:-1, dim:] == 128).all() and (copy[-1] == 0).all()
    integers = copy[:-1, :dim].astype(int) - 128
    assert np.abs(integers).max() <= 127
    assert (scale >= 0).all() and np.isfinite(scale).all()
    exact = stored.astype(np.float32)
    for document, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        held_squares, lost_squares = [], []
        for row in range(begin, end):
            held = [integer * whole(step) for integer, step in zip(integers[row].tolist(), scale, strict=True)]
            lost = [whole(value) - each for value, each in zip(exact[row], held, strict=True)]
            held_squares.append(sum(each * each for each in held))
            lost_squares.append(sum(each * each for each in lost))
        for bound, squares in ((norms[document], held_squares), (errors[document], lost_squares)):
            assert max(squares) <= whole(bound) ** 2
            # And little more: loose bounds would be right, but slow.
            assert whole(bound) <= 1.00001 * math.sqrt(max(squares)) + whole(2.0**-100)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([3, 64, 193]))
def test_a_copy_is_the_nearest_of_its_integers(seed, dim):
    rng = np.random.default_rng(seed)
    starts = np.array([0, 4, 9])
    stored = (rng.standard_normal((9, dim)) * 10.0 ** rng.uniform(-6, 6, dim)).astype(np.float32)
    copy, scale = np.zeros((9, dim), dtype=np.uint8), np.empty(dim, dtype=np.float32)
    norms, errors = np.empty((2, 2), dtype=np.float32)
    round_block(stored, starts, copy, scale, norms, errors)
    lost = stored - (copy.astype(np.float64) - 128) * scale
    np.testing.assert_allclose(scale, np.abs(stored).max(axis=0) / 127, rtol=1e-6)
    assert (np.abs(lost) <= 0.5001 * scale).all()


# --- with and without ------------------------------------------------------------------------------------------------

_SEARCH = """
import json, sys
import numpy as np
import mvindex
from mvindex.kernels import expect_work, has_int8_products, has_numba

expect_work()
queries = np.load(sys.argv[2])
answers = []
with mvindex.open(sys.argv[1]) as index:
    for options in ({}, {"scoring": "drpq", "temperature": 0.05}, {"scoring": "drpq", "candidates": 40}):
        for result in index.search(queries, 12, exact=False, **options):
            answers.append([result.exact, [[hit.id, hit.score.hex(), hit.slot] for hit in result.hits]])
print(json.dumps([has_numba(), has_int8_products(), answers]))
"""


def answers(index_path, queries_path, kernels):
    environment = {**os.environ, "MVINDEX_KERNELS": kernels}
    command = [sys.executable, "-c", _SEARCH, str(index_path), str(queries_path)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@NEEDS_VNNI
def test_results_without_kernels_are_those_with_them(tmp_path):
    rng = np.random.default_rng(21)
    with mvindex.create(tmp_path / "x.mvx", dim=48) as index:
        views = [unit(rng.standard_normal((rng.integers(1, 9), 48))) for _ in range(400)]
        index.add_views([mvindex.Document(f"d{n}", "t") for n in range(400)], views)
    np.save(tmp_path / "queries.npy", unit(rng.standard_normal((30, 48))))
    with_kernels = answers(tmp_path / "x.mvx", tmp_path / "queries.npy", "on")
    without = answers(tmp_path / "x.mvx", tmp_path / "queries.npy", "off")
    assert with_kernels[:2] == [True, True]
    assert without[:2] == [False, False]
    assert with_kernels[2] == without[2]
    assert len(without[2]) == 90


def levels_of(codes):
    """Return the levels of codes of 4 bits, (n, dimensions), in the order of the dimensions."""
    chunks = codes.reshape(len(codes), -1, 1, 32) >> np.array([[0], [4]], dtype=np.uint8)
    return (chunks & 15).reshape(len(codes), -1).astype(np.int64)


@pytest.mark.needs("vnni")
def test_products_of_codes_are_the_same_without_vnni():
    rng = np.random.default_rng(6)
    codes = aligned_bytes(40 * 192).reshape(40, 192)
    codes[:] = rng.integers(1, 256, codes.shape)
    query = aligned_bytes(192 * 2).view(np.int8)
    query[:] = rng.integers(-127, 128, len(query))
    graph = walk.Graph(codes, *[np.empty(0)] * 5)
    products = [compiled_strict(each) for each in (walk.vnni_product, walk.plain_product)]
    found = [[int(product(graph, view, query)) for view in range(40)] for product in products]
    assert found[0] == found[1] == (2 * levels_of(codes) @ query).tolist()


def test_packed_codes_keep_the_direction_and_a_views_own_product():
    error = 0.0115  # of the best quantizer of 16 levels for normal values (Max 1960)
    rng = np.random.default_rng(7)
    mean = rng.standard_normal(70).astype(np.float32)
    rest = rng.standard_normal((60, 70)).astype(np.float32) * np.logspace(-3, 3, 60, dtype=np.float32)[:, None]
    rest[0] = 0
    codes, factors = np.empty((60, code_bytes_of(70)), np.uint8), np.empty((60, 2), np.float32)
    encode_packed(mean + rest, mean, codes, factors)
    rest = ((mean + rest) - mean).astype(np.float64)
    integers = np.full((60, 128), 99, np.int8)
    for row in range(60):
        decode_packed(codes, row, integers[row], 70)
    assert not integers[:, 70:].any()
    assert np.array_equal(integers[:, :70], 2 * levels_of(codes)[:, :70] - 15)
    values = factors[:, :1] * integers[:, :70].astype(np.float64)
    own, square = np.einsum("ij,ij->i", values, rest), np.einsum("ij,ij->i", rest, rest)
    assert own == pytest.approx(square, rel=1e-5)
    assert factors[:, 1] == pytest.approx(square, rel=1e-5)
    assert not values[0].any()
    cosines = np.sqrt(square[1:] / np.einsum("ij,ij->i", values, values)[1:])
    assert cosines.mean() == pytest.approx(np.sqrt(1 - error), abs=error / 10)
