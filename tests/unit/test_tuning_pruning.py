"""How many views an engine can do without: the recall that is told is never above what brute force finds."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.ingest.prune import kept_views, nearest_before
from mvindex.tuning import PrunePoint, choose_pruning

DIM, COUNT, NUM_VIEWS = 16, 400, 6


def made_views(seed):
    """Documents whose views are near to each other by twos: pruning pays, and costs, by degrees."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((COUNT, NUM_VIEWS // 2, DIM))
    away = rng.uniform(0.02, 1.2, (COUNT, NUM_VIEWS // 2, 1)) * rng.standard_normal((COUNT, NUM_VIEWS // 2, DIM)) / 4
    views = np.concatenate([centres, centres + away], axis=1)
    return (views / np.linalg.norm(views, axis=2, keepdims=True)).astype(np.float32)


def brute_recall(views, queries, eps, top_k):
    """The share of each query's true top_k that is the top_k by the kept views; ties are not to be expected."""
    stored = views.astype(np.float16).astype(np.float64)
    shares = []
    starts = np.arange(0, COUNT * NUM_VIEWS + 1, NUM_VIEWS)
    is_kept = kept_views(stored.reshape(-1, DIM).astype(np.float32), starts, eps).reshape(COUNT, NUM_VIEWS)
    for query in queries:
        scores = stored @ query.astype(np.float64)
        best, left = scores.max(axis=1), np.where(is_kept, scores, -np.inf).max(axis=1)
        first = [set(np.argsort(-column)[:top_k].tolist()) for column in (best, left)]
        shares.append(len(first[0] & first[1]) / top_k)
    return float(np.mean(shares)), float(is_kept.mean())


@pytest.fixture(params=[None, 3])
def index(request, tmp_path):
    views = made_views(1)
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=request.param) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(COUNT)], views)
        yield index, views


def test_the_recall_told_is_that_of_brute_force_or_below(index):
    index, views = index
    queries = np.random.default_rng(2).standard_normal((40, DIM)).astype(np.float32)
    report = index.tune_pruning(queries, top_k=5, budget=0.05)
    assert len(report.points) >= 6 and report.queries == 40 and not report.are_own_views
    told = [point.recall for point in report.points]
    for point in report.points:
        recall, kept = brute_recall(views, queries, point.prune_views, 5)
        assert recall - 0.05 <= point.recall <= recall + 1e-9
        assert point.kept == pytest.approx(kept)
    assert told[0] > 0.95 and told[-1] < 0.9


def test_the_fewest_views_within_the_budget_are_chosen(index):
    index, views = index
    strict, loose = (index.tune_pruning(budget=budget, top_k=5).chosen for budget in (0.0, 0.5))
    assert loose.kept < 0.8 and loose.recall >= 0.5
    assert strict is None or strict.recall == 1
    built = index.build("hnsw", prune_views=loose.prune_views)
    assert built.views / (COUNT * NUM_VIEWS) == pytest.approx(loose.kept, abs=0.001)


def test_a_budget_that_nothing_keeps_within_chooses_nothing():
    points = [PrunePoint(prune_views=0.1 * n, kept=1 - 0.1 * n, recall=0.99 - 0.02 * n) for n in range(1, 4)]
    assert choose_pruning(points, 0.001) is None
    assert choose_pruning(points, 0.05) is points[1]
    assert choose_pruning([], 0.5) is None


def test_documents_of_one_view_have_nothing_to_leave_out(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(20)], np.random.default_rng(0).random((20, 4)))
        report = index.tune_pruning(top_k=3)
    assert report.points == () and report.chosen is None


@pytest.mark.parametrize("budget", [-0.1, 1, 1.5, "much", True, float("nan")])
def test_a_budget_that_is_no_share_is_refused(tmp_path, budget):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index, pytest.raises(ConfigError, match="prune budget is"):
        index.tune_pruning(budget=budget)


def test_an_empty_index_is_refused(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index, pytest.raises(ConfigError, match="needs a query"):
        index.tune_pruning()


def test_the_nearest_view_before_is_by_plain_distances():
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((30, 5)).astype(np.float32)
    starts = np.array([0, 1, 4, 4 + 8, 30])
    wanted = np.full(30, np.inf)
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        for row in range(begin + 1, end):
            wanted[row] = min(np.linalg.norm(rows[row].astype(float) - rows[other]) for other in range(begin, row))
    assert nearest_before(rows, starts) == pytest.approx(wanted)
