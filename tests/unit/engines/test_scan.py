"""The exact scans against brute force: the proof must hold on whatever vectors there are."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mvindex.index import embedded_store_of
from mvindex.kernels.score import Aggregate, Scoring, document_scores, view_sums
from mvindex.testing import true_scores, unit
from tests.helpers.scan_cases import (
    EACH_ARITHMETIC,
    SCANS,
    SEEDS,
    Wanted,
    assert_holds_and_ranks,
    assert_holds_the_best,
    assert_ranks_as,
    build,
    check_case,
    runnable,
)
from tests.helpers.scan_vectors import (
    BATCHES,
    DIMS,
    KINDS,
    TEMPERATURES,
    Case,
    make_queries,
    near_ties,
    random_case,
    random_rows,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def names():
    return runnable()


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(KINDS), st.sampled_from([1, 2, 7, 40]), st.sampled_from([None, *TEMPERATURES]))
def test_the_brute_force_scores_are_those_of_the_scoring_function(seed, kind, dim, temperature):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *rng.integers(1, 6, 8)])
    stored = kind(rng, starts, dim).astype(np.float32)
    queries = make_queries(rng, stored, 2)
    scoring = Scoring() if temperature is None else Scoring(Aggregate.DRPQ, float(temperature))
    for query, truth in zip(queries, true_scores(stored, starts, queries, temperature), strict=True):
        found = document_scores(view_sums(stored, query), starts, scoring)
        np.testing.assert_array_equal(found.scores, truth.scores)
        np.testing.assert_array_equal(found.slots, truth.slots)
        assert (np.float32(truth.unrounded) >= truth.scores).all()


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
            assert_holds_the_best(scan.candidates(embedded_store_of(index).snapshot, *wanted), truth, wanted)
            assert_ranks_as(embedded_store_of(index).snapshot, scan, truth, wanted)


@EACH_ARITHMETIC
def test_vectors_of_the_largest_norm_there_may_be_do_not_overflow(name, tmp_path):
    rng = np.random.default_rng(16)
    starts = np.cumsum([0, *rng.integers(1, 9, 200)])
    stored, queries = (unit(rng.standard_normal((count, 5))) * 0.9999e18 for count in (starts[-1], 20))
    case = Case(stored.astype(np.float32), starts, queries.astype(np.float32), 1)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", temperatures=(None, 1e-3, 1e35))
