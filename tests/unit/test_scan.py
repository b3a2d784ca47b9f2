"""The exact scans against brute force: the proof must hold on whatever vectors there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.engines.exact import NumpyScan
from mvindex.engines.exact_native import NativeScan
from mvindex.engines.exact_torch import ScanConfig, TorchScan
from mvindex.engines.torch_blocks import Precision, has_exact_int8, rounded_down
from mvindex.testing import assert_same, brute_force, unit

SCANS = {
    "numpy": NumpyScan,
    "native": lambda: NativeScan(NumpyScan),
    "fp32": lambda: TorchScan(ScanConfig(precision=Precision.FP32)),
    "int8": lambda: TorchScan(ScanConfig(precision=Precision.INT8)),
    "bf16": lambda: TorchScan(ScanConfig(precision=Precision.BF16)),
}


def make_case(kind, rng, dim):
    """Views by document and queries, of a kind that is hard for a bound."""
    count = int(rng.integers(1, 60))
    sizes = rng.integers(1, rng.choice([2, 9, 65]), count)
    views = [rng.standard_normal((size, dim)) for size in sizes]
    if kind == "one huge vector":
        views[0][0] *= 1e4
    elif kind == "tiny":
        views = [rows * 1e-3 for rows in views]
    elif kind == "equal views":
        views = [np.repeat(rows[:1], len(rows), axis=0) for rows in views]
    elif kind == "duplicates":
        views = [views[0]] * count
    elif kind == "opposite signs":
        views = [rows * sign for rows, sign in zip(views, rng.choice([-1, 1], count), strict=True)]
        views[-1] = -views[0]
    elif kind == "near ties":
        base = unit(rng.standard_normal(dim))
        views = [base + 1e-3 * rng.standard_normal((size, dim)) for size in sizes]
    elif kind == "zeros":
        views = [rows * (rng.random() < 0.3) for rows in views]
    queries = rng.standard_normal((int(rng.integers(1, 5)), dim)) * 10.0 ** rng.integers(-20, 16)
    if kind == "zeros":
        queries[0] = 0
    return {f"d{n}": rows.astype(np.float32) for n, rows in enumerate(views)}, queries.astype(np.float32)


KINDS = ["random", "one huge vector", "tiny", "equal views", "duplicates", "opposite signs", "near ties", "zeros"]


@pytest.mark.parametrize("scan", SCANS)
@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([1, 2, 3, 17, 64, 384]))
def test_a_scan_gives_the_brute_force_ranking_on_anything(scan, kind, seed, dim, tmp_path_factory):
    rng = np.random.default_rng(seed)
    views, queries = make_case(kind, rng, dim)
    with mvindex.create(tmp_path_factory.mktemp("scan") / "x.mvx", dim=dim, dtype="fp32") as index:
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in views], list(views.values()))
        index._scan = SCANS[scan]()
        top_k = int(rng.integers(1, len(views) + 3))
        # fp32 keeps what was given; brute_force rounds to fp16, so it is shown views that are fp16 already.
        halves = {doc_id: rows.astype(np.float16).astype(np.float32) for doc_id, rows in views.items()}
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in halves], list(halves.values()))
        for query, result in zip(queries, index.search(queries, top_k=top_k), strict=True):
            assert result.exact
            assert_same(result, brute_force(halves, query, top_k))


@pytest.mark.parametrize("scan", SCANS)
def test_many_blocks_with_deletions_give_the_brute_force_ranking(scan, tmp_path):
    rng = np.random.default_rng(5)
    views = {f"d{n}": unit(rng.standard_normal((int(rng.integers(1, 12)), 32))) for n in range(6000)}
    with mvindex.create(tmp_path / "x.mvx", dim=32) as index:
        index._scan = SCANS[scan]()
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in views], list(views.values()))
        gone = [f"d{n}" for n in range(0, 6000, 5)]
        index.delete(ids=gone)
        for doc_id in gone:
            del views[doc_id]
        queries = unit(rng.standard_normal((3, 32)))
        for query, result in zip(queries, index.search(queries, top_k=150), strict=True):
            assert_same(result, brute_force(views, query, 150))


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
