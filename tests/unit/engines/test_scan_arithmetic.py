"""The arithmetic under the exact scans: rounding, and settings of torch that change it."""

import numpy as np
import pytest
import torch

from mvindex.index import search_engine_of
from mvindex.search import parts
from mvindex.testing import true_scores, unit
from tests.helpers.scan_cases import SCANS, assert_holds_and_ranks, build
from tests.helpers.scan_vectors import Case, make_queries, near_ties, random_rows

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_the_float32_scan_holds_the_best_where_torch_may_round_factors(precision, tmp_path):
    rng = np.random.default_rng(17)
    starts = np.cumsum([0, *rng.integers(1, 9, 300)])
    stored = near_ties(rng, starts, 96).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 80), 1 << 22)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert_holds_and_ranks(SCANS["torch"](), case, tmp_path / "x.mvx")
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", ["numpy", "torch", pytest.param("native", marks=pytest.mark.needs("vnni"))])
@pytest.mark.parametrize("compiled", [True, False])
def test_scores_are_the_same_where_the_process_flushes_denormals(name, compiled, monkeypatch, tmp_path):
    """A setting of the thread, which libraries change; small numbers of fp16 must not pass through it."""
    if not compiled:
        monkeypatch.setattr(parts, "has_numba", lambda: False)
    rng = np.random.default_rng(18)
    starts = np.cumsum([0, *rng.integers(1, 5, 100)])
    stored = (unit(random_rows(rng, starts, 24)) * 1e-4).astype(np.float16)
    case = Case(stored, starts, rng.standard_normal((20, 24)).astype(np.float32), 1 << 22)
    if not torch.set_flush_denormal(True):
        pytest.skip("NOT RUN: needs a CPU that can flush denormals")
    try:
        with build(case, tmp_path / "x.mvx") as index:
            search_engine_of(index).use_scan(SCANS[name])
            found = [index.search(case.queries, 10, scoring=scoring) for scoring in ("max", "drpq")]
    finally:
        torch.set_flush_denormal(False)
    for results, temperature in zip(found, (None, 1.0), strict=True):
        for result, true in zip(results, true_scores(stored, starts, case.queries, temperature), strict=True):
            best = np.argsort(-true.scores, kind="stable")[:10]
            assert [hit.id for hit in result.hits] == [f"d{row}" for row in best]
            assert [hit.score for hit in result.hits] == true.scores[best].tolist()
