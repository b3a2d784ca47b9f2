"""The exact scans against brute force: the proof must hold on whatever vectors there are.

A case is one query asked of one scan: random_case() makes an index and what it is asked, check_case() asks every scan.
bench/fuzz_search.py runs the same cases by the ten thousand.
"""

import decimal
import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.aggregate import Aggregate, Scoring
from mvindex.engines import exact_native
from mvindex.engines.exact import NumpyScan
from mvindex.engines.exact_native import NativeConfig, NativeScan
from mvindex.engines.exact_torch import ScanConfig, TorchScan
from mvindex.engines.torch_blocks import Precision, has_exact_int8, rounded_down
from mvindex.kernels import has_int8_products
from mvindex.search import Engines, Request, rescore, search_documents
from mvindex.store import views as stored_views
from mvindex.testing import assert_same, brute_force, nearest_float32, true_scores, unit

SCANS = {
    "numpy": NumpyScan,
    "native": lambda: NativeScan(NumpyScan, NativeConfig(threads=1)),
    "native without cache": lambda: NativeScan(NumpyScan, NativeConfig(cache_bytes=0)),
    "native, half a cache": lambda: NativeScan(NumpyScan, NativeConfig(threads=2, cache_bytes=100_000)),
    "native, 2 threads": lambda: NativeScan(NumpyScan, NativeConfig(threads=2)),
    "native, 3 threads": lambda: NativeScan(NumpyScan, NativeConfig(threads=3)),
    "fp32": lambda: TorchScan(ScanConfig(precision=Precision.FP32)),
    "int8": lambda: TorchScan(ScanConfig(precision=Precision.INT8)),
    "bf16": lambda: TorchScan(ScanConfig(precision=Precision.BF16)),
}


def each_of(names):
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.needs("vnni") if "native" in name else ()) for name in names]
    )


EACH_SCAN = each_of(SCANS)
# One of each that has arithmetic of its own.
EACH_ARITHMETIC = each_of(["numpy", "native", "fp32", "int8", "bf16"])
# Below, at and above the tiles of 16, 32 and 64 queries, and more than four of the largest.
BATCHES = [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130, 257, 300]
DIMS = [1, 2, 3, 4, 5, 17, 63, 64, 65, 128, 191, 192, 193, 256, 257, 384, 768, 1000, 4096]
TEMPERATURES = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
# Of all views, and of all views with all queries: what float64 brute force has to multiply.
MOST_NUMBERS, MOST_PRODUCTS = 1_000_000, 10_000_000


# --- vectors that are hard for a bound -------------------------------------------------------------------------------


def random_rows(rng, starts, dim):
    return rng.standard_normal((starts[-1], dim))


def one_huge_vector(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    rows[rng.integers(len(rows))] *= 1e4
    return rows


def a_huge_document_in_each_block(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    chosen = np.minimum(np.arange(0, len(rows), 256) + rng.integers(256), len(rows) - 1)
    for document in np.unique(np.searchsorted(starts, chosen, side="right") - 1):
        rows[starts[document] : starts[document + 1]] *= 3000
    return rows


def tiny_rows(rng, starts, dim):
    return random_rows(rng, starts, dim) * 1e-3


def denormal_rows(rng, starts, dim):
    """Below the smallest normal number of either type."""
    return random_rows(rng, starts, dim) * 10.0 ** rng.choice([-5, -7, -39, -43])


def giant_rows(rng, starts, dim):
    return random_rows(rng, starts, dim) * rng.choice([1e4, 1e17 / math.sqrt(dim)])


def mixed_sizes(rng, starts, dim):
    return random_rows(rng, starts, dim) * 10.0 ** rng.uniform(-4, 3.5, (starts[-1], 1))


def equal_views(rng, starts, dim):
    return np.repeat(rng.standard_normal((len(starts) - 1, dim)), np.diff(starts), axis=0)


def duplicates(rng, starts, dim):
    return np.repeat(rng.standard_normal((1, dim)), starts[-1], axis=0)


def few_different_rows(rng, starts, dim):
    return rng.standard_normal((3, dim))[rng.integers(0, 3, starts[-1])]


def opposite_signs(rng, starts, dim):
    return rng.standard_normal(dim) * rng.choice([-1, 1], (starts[-1], 1)) * rng.choice([0.5, 1, 2], (starts[-1], 1))


def near_ties(rng, starts, dim):
    """Neighbours of one vector: a few units in the last place of float32 or fp16 away."""
    step = rng.choice([2.0**-23, 2.0**-10])
    return unit(rng.standard_normal(dim)) * (1 + step * rng.integers(-2, 3, (starts[-1], dim)))


def a_crowd(rng, starts, dim):
    return unit(rng.standard_normal(dim)) + 1e-3 * random_rows(rng, starts, dim)


def whole_numbers(rng, starts, dim):
    return rng.integers(-2, 3, (starts[-1], dim))


def zeros(rng, starts, dim):
    """No view of some documents, no number of some dimensions, is anything but zero."""
    rows = random_rows(rng, starts, dim) * (rng.random(dim) < 0.7)
    return rows * np.repeat(rng.random(len(starts) - 1) < 0.3, np.diff(starts))[:, None]


def nothing_but_zeros(rng, starts, dim):
    return np.zeros((starts[-1], dim))


def one_number_a_view(rng, starts, dim):
    rows = np.zeros((starts[-1], dim))
    rows[np.arange(len(rows)), rng.integers(0, dim, len(rows))] = rng.standard_normal(len(rows))
    return rows


def scales_by_dimension(rng, starts, dim):
    return random_rows(rng, starts, dim) * 10.0 ** rng.uniform(-6, 4, dim)


def one_strong_dimension(rng, starts, dim):
    """What all views have in common is far more than what tells them apart."""
    rows = random_rows(rng, starts, dim)
    rows[:, 0] = 300 + rows[:, 0] / 100
    return rows


def cancelling_numbers(rng, starts, dim):
    rows = random_rows(rng, starts, dim)
    rows[:, 0] = 3e4 * rng.choice([-1, 1, 0], len(rows))
    rows[:, -1] = -rows[:, 0] if dim > 1 else rows[:, 0]
    return rows


KINDS = [
    random_rows, one_huge_vector, a_huge_document_in_each_block, tiny_rows, denormal_rows, giant_rows, mixed_sizes,
    equal_views, duplicates, few_different_rows, opposite_signs, near_ties, a_crowd, whole_numbers, zeros,
    nothing_but_zeros, one_number_a_view, scales_by_dimension, one_strong_dimension, cancelling_numbers,
]  # fmt: skip


def view_counts(rng):
    """How many views each document has."""
    shape = rng.choice(["few", "ragged", "single", "eight", "sixty-four", "one of 2,000"])
    count = int(rng.integers(1, 90))
    if shape == "one of 2,000":
        counts = rng.integers(1, 4, count)
        counts[rng.integers(count)] = 2000
        return counts
    most = {"few": 9, "ragged": 65}.get(shape)
    if most:
        return rng.integers(1, most, count)
    each = {"single": 1, "eight": 8, "sixty-four": 64}[shape]
    return np.full(count * (8 if each == 1 else 1) if each < 64 else min(count, 20), each)


def make_queries(rng, rows, count):
    """Queries of all sizes, some of them of a kind of their own: (count, d) float32."""
    dim = rows.shape[1]
    queries = rng.standard_normal((count, dim))
    with np.errstate(over="ignore"):
        near = rows[rng.integers(0, len(rows), count)].astype(np.float64)
    kinds = rng.integers(0, 8, count)
    queries[kinds == 1] = near[kinds == 1] + 0.01 * queries[kinds == 1]
    queries[kinds == 2] = near[kinds == 2]
    queries[kinds == 3] = rng.integers(-1, 2, (count, dim))[kinds == 3]
    queries[kinds == 4] *= rng.random((count, dim))[kinds == 4] < 0.2
    queries[rng.random(count) < 0.03] = 0
    queries[kinds == 5] *= 10.0 ** rng.uniform(-12, 0, (count, dim))[kinds == 5]
    largest = np.abs(queries).max(axis=1, keepdims=True)
    queries = np.divide(queries, largest, out=np.zeros_like(queries), where=largest > 0)
    sizes = rng.choice([1.0, 1.0, 1e-3, 30.0, 1e-30, 1e15, 1e-42], count)
    return (queries * (sizes / math.sqrt(dim))[:, None]).astype(np.float32)


class Case(NamedTuple):
    """An index and what its scans are asked: rows as stored and starts, queries, block size."""

    stored: np.ndarray
    starts: np.ndarray
    queries: np.ndarray
    block_elements: int


def random_case(seed, kind=None, dim=None, most_queries=33):
    """A case of the kind and the dim, of any where none is given."""
    rng = np.random.default_rng(seed)
    kind = kind or KINDS[rng.integers(len(KINDS))]
    dim = dim or int(rng.choice(DIMS))
    counts = view_counts(rng)
    counts = counts[: max(1, np.searchsorted(np.cumsum(counts), MOST_NUMBERS // dim))]
    counts[0] = min(counts[0], MOST_NUMBERS // dim)
    starts = np.cumsum([0, *counts])
    rows = kind(rng, starts, dim)
    if rng.random() < 0.5:
        stored = np.clip(rows, -6e4, 6e4).astype(np.float16)
    else:
        stored = rows.astype(np.float32)
    most = max(1, min(most_queries, MOST_PRODUCTS // stored.size))
    queries = make_queries(rng, stored, int(rng.choice([batch for batch in BATCHES if batch <= most])))
    return Case(stored, starts, queries, int(rng.choice([1, 1 << 22])))


# --- what a scan must give -------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What one scan is asked for at once."""

    queries: np.ndarray
    top_k: int
    allowed: np.ndarray
    scoring: Scoring


def build(case, path):
    dtype = "fp16" if case.stored.dtype == np.float16 else "fp32"
    index = mvindex.create(path, dim=case.stored.shape[1], dtype=dtype)
    views = np.split(case.stored.astype(np.float32), case.starts[1:-1])
    index.add_views([mvindex.Document(f"d{n}", "t") for n in range(len(views))], views)
    return index


def random_masks(rng, starts):
    """Every document, about half of them, and all but a stretch that holds whole blocks."""
    count = len(starts) - 1
    half = rng.random(count) < 0.5
    half[rng.integers(count)] = True
    stretch = np.ones(count, dtype=bool)
    begin = rng.integers(count)
    stretch[begin : begin + count // 2] = False
    stretch[begin] |= not stretch.any()
    return [np.ones(count, dtype=bool), np.ones(count, dtype=bool), half, stretch]


def check_case(seed, case, path, names=tuple(SCANS), rounds=2):
    """How many queries the scans were asked, and what they got wrong, in words."""
    rng = np.random.default_rng(seed)
    number, faults = 0, []
    with pytest.MonkeyPatch.context() as patch, build(case, path) as index:
        patch.setattr(stored_views, "_BLOCK_ELEMENTS", case.block_elements)
        snapshot = index._store.snapshot
        scans = {name: SCANS[name]() for name in names}
        for scoring in (Scoring(), Scoring(Aggregate.DRPQ, float(rng.choice(TEMPERATURES)))):
            temperature = scoring.temperature if scoring.aggregate is Aggregate.DRPQ else None
            truth = true_scores(case.stored, case.starts, case.queries, temperature)
            for name, scan in scans.items():
                for round_number in range(rounds):
                    # The first time the whole batch is asked, then fewer queries, of the same copies.
                    count = len(truth) if round_number == 0 else int(min(rng.choice(BATCHES), len(truth)))
                    wanted = random_wish(rng, case, count, scoring)
                    number += count
                    try:
                        assert_holds_the_best(scan.candidates(snapshot, *wanted), truth, wanted)
                        assert_ranks_as(snapshot, scan, truth, wanted)
                    except AssertionError as err:
                        faults.append(f"{name}, {scoring}, {count} queries, top_k {wanted.top_k}: {err}"[:400])
    return number, faults


def random_wish(rng, case, count, scoring):
    masks = random_masks(rng, case.starts)
    allowed = masks[rng.integers(len(masks))]
    top_k = rng.choice([1, 2, 5, 10, 100, rng.integers(1, 1000)])
    return Wanted(case.queries[:count], int(min(top_k, np.count_nonzero(allowed))), allowed, scoring)


def assert_holds_the_best(found, truth, wanted):
    """The candidates hold each query's top_k, ties at the end included, and no bound is below a score."""
    assert len(found.starts) == len(wanted.queries) + 1
    assert (found.starts[0], found.starts[-1]) == (0, len(found.rows))
    assert len(found.rows) == len(found.upper)
    for query, part in enumerate(found.each()):
        scores = np.where(wanted.allowed, truth[query].scores, -np.inf)
        lowest = -np.partition(-scores, wanted.top_k - 1)[wanted.top_k - 1]
        is_found = np.zeros(len(scores), dtype=bool)
        is_found[part.rows] = True
        assert np.count_nonzero(is_found) == len(part.rows), f"query {query}: a document is found twice"
        assert not (is_found & ~wanted.allowed).any(), f"query {query}: what is not allowed is found"
        missing = np.flatnonzero((scores >= lowest) & ~is_found)
        assert not len(missing), f"query {query}: {missing} are missing, of {scores[missing]}, the last is {lowest}"
        is_low = ~(part.upper >= truth[query].lows[part.rows])
        assert not is_low.any(), f"query {query}: {part.rows[is_low]} are bounded by {part.upper[is_low]}"


def assert_ranks_as(snapshot, scan, truth, wanted):
    request = Request(top_k=wanted.top_k, allowed=wanted.allowed, scoring=wanted.scoring)
    results = search_documents(snapshot, Engines(scan=scan), wanted.queries, request)
    rows = np.flatnonzero(wanted.allowed)
    for query, (result, true) in enumerate(zip(results, truth, strict=False)):
        best = rows[np.argsort(-true.scores[rows], kind="stable")][: wanted.top_k]
        assert (result.exact, result.short_by) == (True, 0), f"query {query}: {result}"
        assert np.array_equal(result.rows, best), f"query {query}: {result.rows}, wanted {best}"
        assert (result.scores.view(np.int32) == true.scores[best].view(np.int32)).all(), f"query {query}: {result}"
        assert np.array_equal(result.slots, true.slots[best]), f"query {query}: {result}"


SEEDS = st.integers(0, 2**32 - 1)


def runnable():
    """The scans that this machine can run."""
    return [name for name in SCANS if "native" not in name or has_int8_products()]


@pytest.fixture
def names():
    return runnable()


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """Blocks of a few hundred views are not worth the wait for another thread; tests/contract has torch's own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the tests -------------------------------------------------------------------------------------------------------


def plain_mean(sums, temperature):
    """DRPQ eq. 4-6 in decimals of so many digits that the least weight kept still counts."""
    best, divisor = max(sums), Fraction(temperature)
    kept = [each for each in sums if best - each <= 800 * divisor]
    if min(kept) == best:
        return best
    with decimal.localcontext(decimal.Context(prec=100 + int((best - min(kept)) / divisor))):
        weights = [(Decimal(each.numerator) / each.denominator).exp() for each in [(s - best) / divisor for s in kept]]
        terms = [weight * s.numerator / s.denominator for weight, s in zip(weights, kept, strict=True)]
        return Fraction(sum(terms) / sum(weights))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(KINDS), st.sampled_from([1, 2, 7]), st.sampled_from([None, *TEMPERATURES]))
def test_the_brute_force_scores_are_those_of_rational_arithmetic(seed, kind, dim, temperature):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *rng.integers(1, 6, 8)])
    stored = kind(rng, starts, dim).astype(np.float32)
    queries = make_queries(rng, stored, 2)
    for query, found in zip(queries, true_scores(stored, starts, queries, temperature), strict=True):
        sums = [sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row, query, strict=True)) for row in stored]
        for document, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
            its = sums[begin:end]
            rounded = [nearest_float32(each) for each in its]
            real = max(its) if temperature is None else plain_mean(its, temperature)
            assert found.slots[document] == rounded.index(max(rounded))
            assert found.scores[document] == nearest_float32(real)
            assert Fraction(float(found.lows[document])) <= real


@pytest.mark.parametrize("kind", KINDS)
def test_every_scan_holds_the_best_of_each_kind(kind, names, tmp_path):
    number = KINDS.index(kind)
    _, faults = check_case(number, random_case(number, kind), tmp_path / "x.mvx", names)
    assert not faults


@pytest.mark.parametrize("dim", DIMS)
def test_every_scan_holds_the_best_at_any_dim(dim, names, tmp_path):
    _, faults = check_case(dim, random_case(dim, random_rows, dim), tmp_path / "x.mvx", names, rounds=1)
    assert not faults


# A smaller seed makes no simpler case: nothing to shrink.
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(SEEDS)
def test_every_scan_holds_the_best_of_anything(names, tmp_path_factory, seed):
    _, faults = check_case(seed, random_case(seed), tmp_path_factory.mktemp("scan") / "x.mvx", names)
    assert not faults


@pytest.mark.parametrize("batch", BATCHES)
def test_every_scan_holds_the_best_in_any_batch(batch, names, tmp_path):
    """Queries that fill tiles of lanes, and that leave some of the last one empty."""
    case = random_case(batch, near_ties, 8)
    queries = make_queries(np.random.default_rng(batch), case.stored, batch)
    names = [name for name in names if "cache" not in name]
    number, faults = check_case(batch, case._replace(queries=queries), tmp_path / "x.mvx", names, rounds=1)
    assert not faults
    assert number == 2 * batch * len(names)


class CountingScan(NumpyScan):
    """The NumPy scan, and how many queries it was asked."""

    num_queries = 0

    def candidates(self, snapshot, queries, top_k, allowed, scoring):
        self.num_queries += len(queries)
        return super().candidates(snapshot, queries, top_k, allowed, scoring)


@pytest.mark.needs("vnni")
@pytest.mark.parametrize(("room", "threads"), [(1, 1), (3, 2), (20, 2)])
@pytest.mark.parametrize("kind", [random_rows, duplicates, a_crowd, one_huge_vector, scales_by_dimension, near_ties])
def test_queries_without_room_are_answered_by_the_wider_scan(kind, room, threads, monkeypatch, tmp_path):
    monkeypatch.setattr(exact_native, "_ROOM", room)
    monkeypatch.setattr(exact_native, "_ROOM_PER_DOCUMENT", 0)
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(room)
    starts = np.cumsum([0, *rng.integers(1, 9, 300)])
    stored = kind(rng, starts, 24).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 20), 1)
    wider = CountingScan()
    scan = NativeScan(lambda: wider, NativeConfig(threads=threads))
    with build(case, tmp_path / "x.mvx") as index:
        for scoring in (Scoring(), Scoring(Aggregate.DRPQ, 0.3)):
            truth = true_scores(stored, starts, case.queries, scoring.temperature if scoring != Scoring() else None)
            for top_k in (1, 10, 299):
                wanted = Wanted(case.queries, top_k, np.ones(300, dtype=bool), scoring)
                before = wider.num_queries
                assert_holds_the_best(scan.candidates(index._store.snapshot, *wanted), truth, wanted)
                assert_ranks_as(index._store.snapshot, scan, truth, wanted)
                if top_k > room:  # a query of zeros is asked of a scan the first time only
                    asked = np.concatenate([case.queries, case.queries[case.queries.any(axis=1)]])
                    assert wider.num_queries - before == len(asked)


@EACH_SCAN
def test_a_scan_follows_what_is_added_deleted_and_replaced(name, monkeypatch, tmp_path):
    """Copies of blocks that were not touched are taken over from snapshot to snapshot, the others are made again."""
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(11)
    views = {}
    with mvindex.create(tmp_path / "x.mvx", dim=20) as index:
        index._scan = SCANS[name]()
        for turn in range(8):
            count = int(rng.choice([1, 30, 200]))
            given = {f"d{n}": unit(rng.standard_normal((rng.integers(1, 9), 20))) for n in rng.integers(0, 500, count)}
            index.add_views([mvindex.Document(doc_id, f"turn {turn}") for doc_id in given], list(given.values()))
            views |= given
            gone = [doc_id for doc_id in views if rng.random() < 0.1]
            index.delete(ids=gone)
            for doc_id in gone:
                del views[doc_id]
            queries = unit(rng.standard_normal((20, 20)))
            for scoring, options in (("max", {}), ("drpq", {"temperature": 0.1})):
                results = index.search(queries, top_k=7, scoring=scoring, **options)
                for query, result in zip(queries, results, strict=True):
                    assert result.exact
                    assert_same(result, brute_force(views, query, 7, scoring=scoring, **options))


@EACH_SCAN
def test_one_scan_may_be_asked_by_many_threads(name, monkeypatch, tmp_path):
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(12)
    starts = np.cumsum([0, *rng.integers(1, 9, 400)])
    case = Case(unit(random_rows(rng, starts, 32)), starts, unit(rng.standard_normal((200, 32))), 1)
    scan = SCANS[name]()
    with build(case, tmp_path / "x.mvx") as index, ThreadPoolExecutor(4) as pool:
        scorings = [Scoring(), Scoring(Aggregate.DRPQ, 0.1)]
        truths = [true_scores(case.stored, starts, case.queries, temperature) for temperature in (None, 0.1)]

        def ask(number):
            begin, scoring = 8 * number, scorings[number % 2]
            wanted = Wanted(case.queries[begin : begin + 1 + number], 10, np.ones(400, dtype=bool), scoring)
            found = scan.candidates(index._store.snapshot, *wanted)
            assert_holds_the_best(found, truths[number % 2][begin:], wanted)

        for done in [pool.submit(ask, number) for number in range(24)]:
            done.result()


@EACH_ARITHMETIC
def test_scores_that_round_to_one_float32_come_by_ordinal(name, tmp_path):
    """2^24 + 1 is half-way between two float32 and goes to the even one, as 2^24 itself does."""
    rows = np.array([[2.0**24, 0], [2.0**24, 1], [2.0**24, -1], [2.0**24, 2], [2.0**24, 1 + 2.0**-20], [1, 1]])
    expected = {2.0**24 + 2: [3, 4], 2.0**24: [0, 1], 2.0**24 - 1: [2], 2.0: [5]}
    with mvindex.create(tmp_path / "x.mvx", dim=2, dtype="fp32") as index:
        index._scan = SCANS[name]()
        index.add_views([mvindex.Document(str(n), "t") for n in range(6)], rows[:, None].astype(np.float32))
        for scoring in ("max", "drpq"):
            for top_k in (1, 2, 3, 4, 5):
                result = index.search(np.ones(2, dtype=np.float32), top_k=top_k, scoring=scoring)
                found = [(hit.score, int(hit.id)) for hit in result.hits]
                assert found == [(score, row) for score, rows_of in expected.items() for row in rows_of][:top_k]


@EACH_ARITHMETIC
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-12, 1e12, 1e300, 1.7e308, 1, 3, 10**30])
def test_any_temperature_is_taken(name, temperature, tmp_path):
    """Scaled to queries of any size it may leave the range of floats; and it may be a whole number."""
    rng = np.random.default_rng(3)
    starts = np.cumsum([0, *rng.integers(1, 6, 80)])
    case = Case(random_rows(rng, starts, 3).astype(np.float32), starts, rng.standard_normal((5, 3)), 1)
    scan, scoring = SCANS[name](), Scoring(Aggregate.DRPQ, temperature)
    with build(case, tmp_path / "x.mvx") as index:
        for size in (1.0, 1e-30, 1e9, 1e15):
            wanted = Wanted((case.queries * size).astype(np.float32), 5, np.ones(80, dtype=bool), scoring)
            truth = true_scores(case.stored, starts, wanted.queries, float(temperature))
            assert_holds_the_best(scan.candidates(index._store.snapshot, *wanted), truth, wanted)
            assert_ranks_as(index._store.snapshot, scan, truth, wanted)


@pytest.mark.needs("vnni")
def test_more_dims_than_the_compiled_product_can_sum_are_scanned_all_the_same(tmp_path):
    rng = np.random.default_rng(4)
    dim, starts = 70_000, np.arange(41)
    rows = np.where(rng.random((40, dim)) < np.linspace(0, 1, 40)[:, None], 1.0, -1.0)
    case = Case(rows.astype(np.float32), starts, np.ones((1, dim), dtype=np.float32), 1 << 22)
    with build(case, tmp_path / "x.mvx") as index:
        wanted = Wanted(case.queries, 3, np.ones(40, dtype=bool), Scoring())
        truth = true_scores(case.stored, starts, case.queries)
        found = NativeScan(NumpyScan).candidates(index._store.snapshot, *wanted)
        assert_holds_the_best(found, truth, wanted)


def assert_holds_and_ranks(scan, case, path, top_ks=(1, 10), temperatures=(None, 0.3)):
    """The scan gives what brute force gives for every query of the case."""
    allowed = np.ones(len(case.starts) - 1, dtype=bool)
    with pytest.MonkeyPatch.context() as patch, build(case, path) as index:
        patch.setattr(stored_views, "_BLOCK_ELEMENTS", case.block_elements)
        for temperature in temperatures:
            scoring = Scoring() if temperature is None else Scoring(Aggregate.DRPQ, temperature)
            truth = true_scores(case.stored, case.starts, case.queries, temperature)
            for top_k in top_ks:
                wanted = Wanted(case.queries, top_k, allowed, scoring)
                assert_holds_the_best(scan.candidates(index._store.snapshot, *wanted), truth, wanted)
                assert_ranks_as(index._store.snapshot, scan, truth, wanted)


@each_of(["native", "native without cache", "native, half a cache", "native, 2 threads", "native, 3 threads", "int8"])
def test_portions_of_many_blocks_hold_the_best(name, tmp_path):
    """Thirty blocks: threads take a few at a time, and the threshold of one spares the others work."""
    rng = np.random.default_rng(13)
    starts = np.cumsum([0, *rng.integers(1, 9, 1700)])
    stored = a_crowd(rng, starts, 8).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 17), 1)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", top_ks=(40,))


@EACH_ARITHMETIC
@pytest.mark.parametrize("dim", [3, 256])
@pytest.mark.parametrize("batch", [1, 20])
def test_hundreds_of_equal_documents_are_all_held(name, dim, batch, tmp_path):
    """More of one score, one after another, than a kernel lets wait."""
    rng = np.random.default_rng(14)
    starts = np.arange(701)
    stored = duplicates(rng, starts, dim).astype(np.float16)
    case = Case(stored, starts, rng.standard_normal((batch, dim)).astype(np.float32), 1 << 22)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", top_ks=(5,))


@pytest.mark.needs("vnni")
@pytest.mark.parametrize("entries", [1, 1000])
def test_queries_that_need_too_much_room_together_are_scanned_apart(entries, monkeypatch, tmp_path):
    monkeypatch.setattr(exact_native, "_MAX_ENTRIES", entries)
    rng = np.random.default_rng(15)
    starts = np.cumsum([0, *rng.integers(1, 9, 200)])
    stored = random_rows(rng, starts, 16).astype(np.float16)
    case = Case(stored, starts, make_queries(rng, stored, 40), 1)
    assert_holds_and_ranks(SCANS["native"](), case, tmp_path / "x.mvx")


@EACH_ARITHMETIC
def test_vectors_of_the_largest_norm_there_may_be_do_not_overflow(name, tmp_path):
    rng = np.random.default_rng(16)
    starts = np.cumsum([0, *rng.integers(1, 9, 200)])
    stored, queries = (unit(rng.standard_normal((count, 5))) * 0.9999e18 for count in (starts[-1], 20))
    case = Case(stored.astype(np.float32), starts, queries.astype(np.float32), 1)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", temperatures=(None, 1e-3, 1e35))


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_the_float32_scan_holds_the_best_where_torch_may_round_factors(precision, tmp_path):
    rng = np.random.default_rng(17)
    starts = np.cumsum([0, *rng.integers(1, 9, 300)])
    stored = near_ties(rng, starts, 96).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 80), 1 << 22)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert_holds_and_ranks(SCANS["fp32"](), case, tmp_path / "x.mvx")
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", ["numpy", "fp32", pytest.param("native", marks=pytest.mark.needs("vnni"))])
@pytest.mark.parametrize("compiled", [True, False])
def test_scores_are_the_same_where_the_process_flushes_denormals(name, compiled, monkeypatch, tmp_path):
    """A setting of the thread, which libraries change; small numbers of fp16 must not pass through it."""
    if not compiled:
        monkeypatch.setattr(rescore, "has_numba", lambda: False)
    rng = np.random.default_rng(18)
    starts = np.cumsum([0, *rng.integers(1, 5, 100)])
    stored = (unit(random_rows(rng, starts, 24)) * 1e-4).astype(np.float16)
    case = Case(stored, starts, rng.standard_normal((20, 24)).astype(np.float32), 1 << 22)
    if not torch.set_flush_denormal(True):
        pytest.skip("NOT RUN: needs a CPU that can flush denormals")
    try:
        with build(case, tmp_path / "x.mvx") as index:
            index._scan = SCANS[name]()
            found = [index.search(case.queries, 10, scoring=scoring) for scoring in ("max", "drpq")]
    finally:
        torch.set_flush_denormal(False)
    for results, temperature in zip(found, (None, 1.0), strict=True):
        for result, true in zip(results, true_scores(stored, starts, case.queries, temperature), strict=True):
            best = np.argsort(-true.scores, kind="stable")[:10]
            assert [hit.id for hit in result.hits] == [f"d{row}" for row in best]
            assert [hit.score for hit in result.hits] == true.scores[best].tolist()


@EACH_ARITHMETIC
def test_many_blocks_with_deletions_give_the_brute_force_ranking(name, tmp_path):
    rng = np.random.default_rng(5)
    views = {f"d{n}": unit(rng.standard_normal((int(rng.integers(1, 12)), 32))) for n in range(4000)}
    with mvindex.create(tmp_path / "x.mvx", dim=32) as index:
        index._scan = SCANS[name]()
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in views], list(views.values()))
        gone = [f"d{n}" for n in range(0, 4000, 5)]
        index.delete(ids=gone)
        for doc_id in gone:
            del views[doc_id]
        queries = unit(rng.standard_normal((3, 32)))
        for scoring, options in (("max", {}), ("drpq", {"temperature": 0.05})):
            for query, result in zip(queries, index.search(queries, 150, scoring=scoring, **options), strict=True):
                assert_same(result, brute_force(views, query, 150, scoring=scoring, **options))


@given(st.lists(st.floats(allow_nan=False, width=64, min_value=-1e30, max_value=1e30), min_size=1, max_size=20))
def test_rounding_down_never_rounds_up(values):
    wide = np.array(values)
    for precision in (Precision.FP32, Precision.BF16):
        low = rounded_down(wide, precision).double().numpy()
        assert (low <= wide).all()
        gap = 2.0**-7 if precision is Precision.BF16 else 2.0**-23
        assert (wide - low <= np.abs(wide) * gap + 1e-37).all()


@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1, max_size=20))
def test_an_integer_threshold_lets_through_just_what_reaches_the_value(values):
    wide = np.array(values)
    thresholds = rounded_down(wide, Precision.INT8).numpy()
    for value, threshold in zip(values, thresholds.tolist(), strict=True):
        for score in (threshold - 1, threshold, threshold + 1):
            if abs(score) < 2**31 - 1 and abs(value) < 2**31 - 2:
                assert (score >= threshold) == (score >= value)


def test_the_int8_product_is_probed_for_each_dim():
    assert all(has_exact_int8(dim) in (True, False) for dim in (1, 3, 384, 1000))
    assert has_exact_int8(384) == has_exact_int8(384)
