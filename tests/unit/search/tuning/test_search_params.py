"""How an approximate engine's search is chosen: recall against the exact answer, the frontier, what is kept."""

import itertools

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.search.tuning import TunePoint, Tuning, choose
from mvindex_connectors.engines.faiss import FaissRanking

DIM, COUNT = 32, 3000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """An index of ivf-pq: so many lists that few of them hold few of the answers."""
    rng = np.random.default_rng(5)
    views = rng.standard_normal((COUNT, 1, DIM)) + 0.5 * rng.standard_normal((COUNT, 4, DIM))
    path = tmp_path_factory.mktemp("tuned") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(COUNT)], views)
        index.admin.build("ivf-pq", nlist=64)
    return path


@pytest.fixture
def queries():
    return np.random.default_rng(6).standard_normal((60, DIM)).astype(np.float32)


def found_share(index, queries, top_k):
    """The mean share of the exact documents that a search finds, worked out from ids."""
    exact, found = index.search(queries, top_k=top_k, exact=True), index.search(queries, top_k=top_k)
    pairs = zip(exact, found, strict=True)
    return np.mean([len({hit.id for hit in one.hits} & {hit.id for hit in two.hits}) / top_k for one, two in pairs])


def test_the_chosen_setting_reaches_the_target_and_is_what_later_searches_use(path, queries):
    with mvindex.open(path) as index:
        report = index.admin.tune(queries, top_k=10, target_recall=0.9)
        assert report.chosen is not None and report.chosen.recall >= 0.9
        assert index.info().search == report.chosen.search
    with mvindex.open(path) as again:
        assert found_share(again, queries, 10) == pytest.approx(report.chosen.recall, abs=1e-9)
        assert all(point.recall < 0.9 or point.ms >= report.chosen.ms for point in report.points)


def test_more_of_everything_finds_more_and_the_frontier_rises(path, queries):
    with mvindex.open(path) as index:
        report = index.admin.tune(queries, top_k=10, target_recall=1.0)
    by_probes = [point.recall for point in report.points if point.search["k_factor"] == 15]
    assert len(by_probes) >= 4
    assert all(later >= earlier - 0.005 for earlier, later in zip(by_probes[:-1], by_probes[1:], strict=True))
    recalls, times = zip(*((point.recall, point.ms) for point in report.frontier), strict=True)
    assert list(recalls) == sorted(recalls) and list(times) == sorted(times)
    assert not report.are_own_views and report.queries == 60


def test_what_is_tuned_for_one_top_k_is_scaled_for_others(path, queries):
    with mvindex.open(path) as index:
        report = index.admin.tune(queries, top_k=10, target_recall=0.5)
        assert {point.search["top_k"] for point in report.points} == {10}
        assert index.info().search == report.chosen.search and report.chosen.search["top_k"] == 10


def test_a_target_that_is_out_of_reach_changes_nothing(path, queries, monkeypatch):
    monkeypatch.setattr(
        FaissRanking, "choices", lambda self: [{"nprobe": 1, "k_factor": 4}, {"nprobe": 2, "k_factor": 4}]
    )
    with mvindex.open(path) as index:
        before = index.info().search
        report = index.admin.tune(queries, top_k=10, target_recall=1.0)
        assert report.chosen is None and max(point.recall for point in report.points) < 1
        assert index.info().search == before


def test_without_queries_views_of_the_index_are_asked_for_and_said_to_be(path):
    with mvindex.open(path) as index:
        report = index.admin.tune(top_k=5, target_recall=0.8)
    assert report.are_own_views and report.queries == 256


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_exact_kinds_have_nothing_to_tune(tmp_path, kind):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 2)))
        index.admin.build(kind)
        with pytest.raises(ConfigError, match="nothing to tune: build an approximate kind first .graph"):
            index.admin.tune(np.ones((1, 2)))


@pytest.mark.parametrize("target", [0, -1, 1.5, float("nan"), True, "0.9"])
def test_a_target_that_is_no_share_is_refused(path, queries, target):
    with mvindex.open(path) as index, pytest.raises(ConfigError, match="target_recall"):
        index.admin.tune(queries, target_recall=target)


def test_no_setting_is_measured_that_cannot_be_chosen(path, queries):
    with mvindex.open(path) as index:
        report = index.admin.tune(queries, top_k=10, target_recall=0.5)
    assert len(report.points) + sum(report.unmeasured.values()) == 7 * 5
    reached = [point.search for point in report.points if point.recall >= 0.5]
    for one in reached:
        assert not any(other != one and all(other[name] >= one[name] for name in one) for other in reached)
    assert any("reaches the target" in reason for reason in report.unmeasured)


def test_a_setting_slower_than_the_scan_ends_its_row_of_the_ladder(path, queries, monkeypatch):
    monkeypatch.setattr(Tuning, "_batch", lambda self, parts, batch=Tuning._batch: (batch(self, parts)[0], next(times)))
    times = itertools.chain([5000.0], itertools.repeat(6000.0))
    with mvindex.open(path) as index:
        report = index.admin.tune(queries, top_k=10, target_recall=1.0)
    assert len(report.points) == 1 and list(report.unmeasured.values()) == [7 * 5 - 1]
    assert "certified scan" in next(iter(report.unmeasured))


def test_after_the_time_limit_nothing_further_is_measured(path, queries):
    with mvindex.open(path) as index:
        before, progress = index.info().search, []
        report = index.admin.tune(queries, time_limit_s=1e-9, on_progress=lambda *step: progress.append(step))
        assert report.points == () and report.chosen is None and index.info().search == before
        assert list(report.unmeasured.values()) == [7 * 5] and progress[-1] == ("measuring", 35, 35)
        with pytest.raises(ConfigError, match="time_limit_s"):
            index.admin.tune(queries, time_limit_s=float("nan"))


def test_the_fastest_point_that_reaches_the_target_is_chosen():
    def point(recall, ms):
        return TunePoint(search={}, recall=recall, low=recall, ms=ms, ms_batch=ms, documents_scored=1.0)

    slow, right, poor = point(0.99, 9.0), point(0.97, 4.0), point(0.96, 1.0)
    assert choose([slow, right, poor], 0.97) is right
    assert choose([poor], 0.97) is None
