"""The exact scans, and what a scan must give: check_case() asks every one of them and compares with brute force.

A case is one query asked of one scan. bench/fuzz_search.py runs the same cases by the ten thousand.
"""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

import mvindex
from mvindex.engines.device_views import DeviceConfig
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_torch import TorchScan
from mvindex.engines.scan_vnni import VnniConfig, VnniScan
from mvindex.index import embedded_store_of
from mvindex.kernels import has_int8_products
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.search.ranking import Engines, Request
from mvindex.search.views import search_documents
from mvindex.store import views as stored_views
from mvindex.testing import true_scores
from tests.helpers.scan_vectors import BATCHES, TEMPERATURES

SCANS = {
    "numpy": NumpyScan,
    "native": lambda: VnniScan(NumpyScan, VnniConfig(threads=1)),
    "native without cache": lambda: VnniScan(NumpyScan, VnniConfig(cache_bytes=0)),
    "native, half a cache": lambda: VnniScan(NumpyScan, VnniConfig(threads=2, cache_bytes=100_000)),
    "native, 2 threads": lambda: VnniScan(NumpyScan, VnniConfig(threads=2)),
    "native, 3 threads": lambda: VnniScan(NumpyScan, VnniConfig(threads=3)),
    "torch": TorchScan,
    "torch, small chunks": lambda: TorchScan(DeviceConfig(chunk_bytes=1 << 12)),
    "torch, half a cache": lambda: TorchScan(DeviceConfig(chunk_bytes=1 << 14, cache_bytes=1 << 17)),
    "torch as on a GPU": lambda: TorchScan(DeviceConfig(as_gpu=True)),
    "torch as on a GPU, in small chunks": lambda: TorchScan(
        DeviceConfig(as_gpu=True, chunk_bytes=1 << 12, cache_bytes=0)
    ),
}


def each_of(names):
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.needs("vnni") if "native" in name else ()) for name in names]
    )


EACH_SCAN = each_of(SCANS)
# One of each that has arithmetic of its own.
EACH_ARITHMETIC = each_of(["numpy", "native", "torch", "torch as on a GPU"])


class Wanted(NamedTuple):
    """The arguments of one scan."""

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
        snapshot = embedded_store_of(index).snapshot
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
        is_low = ~(part.upper >= truth[query].unrounded[part.rows])
        assert not is_low.any(), f"query {query}: {part.rows[is_low]} are bounded by {part.upper[is_low]}"


def assert_ranks_as(snapshot, scan, truth, wanted):
    request = Request(
        top_k=wanted.top_k, allowed=wanted.allowed, num_allowed=int(wanted.allowed.sum()), scoring=wanted.scoring
    )
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
                assert_holds_the_best(scan.candidates(embedded_store_of(index).snapshot, *wanted), truth, wanted)
                assert_ranks_as(embedded_store_of(index).snapshot, scan, truth, wanted)
