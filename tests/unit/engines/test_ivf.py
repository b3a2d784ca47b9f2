"""Inverted nlist: more of them looked at finds no less, and a build that was stopped goes on to the same engine."""

import os
import signal
import subprocess
import sys
import tracemalloc

import faiss
import numpy as np
import pytest

import mvindex
from mvindex.engines.auto import GROUPED_NLIST, default_search, groups_for, nprobe_for_hits, num_groups
from mvindex.errors import ConfigError
from mvindex.index import embedded_store_of
from mvindex.search.exact import Best
from mvindex.search.local import EngineCache
from mvindex.testing import unit
from mvindex_connectors.engines import faiss_ivf, faiss_lists
from mvindex_connectors.engines.faiss_fast_scan import FastScan

DIM, COUNT, VIEWS = 32, 3000, 4
# What recall may lose from one step to the next: of 1-bit codes more, as more wrong ones come into the same number.
LOSS = {"ivf-flat": 0.005, "ivf-sq8": 0.005, "ivf-pq": 0.005, "ivf-rabitq": 0.03}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(8)
    views = rng.standard_normal((COUNT, 1, DIM)) + 0.5 * rng.standard_normal((COUNT, VIEWS, DIM))
    path = tmp_path_factory.mktemp("nlist") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(COUNT)], views)
    return path


def answers(index, top_k=20):
    queries = np.random.default_rng(9).standard_normal((50, DIM)).astype(np.float32)
    return [[(hit.id, hit.score) for hit in result.hits] for result in index.search(queries, top_k=top_k)]


@pytest.mark.parametrize("kind", LOSS)
def test_recall_does_not_fall_as_more_lists_are_looked_at(path, kind):
    queries = np.random.default_rng(9).standard_normal((50, DIM)).astype(np.float32)
    with mvindex.open(path) as index:
        index.admin.build(kind, nlist=64)
        engine = EngineCache().open(embedded_store_of(index).snapshot)
        exact = best_view_rows(index, queries)
        recalls = []
        for nprobe in (1, 4, 16, 64):
            _, rows = engine.with_search({"nprobe": nprobe, "k_factor": 15}).search(queries, 400, None)
            found = [len(set(some) & set(row.tolist())) / len(some) for some, row in zip(exact, rows, strict=True)]
            recalls.append(float(np.mean(found)))
    assert recalls[-1] > 0.8 and recalls[0] < 0.7
    assert all(after >= before - LOSS[kind] for before, after in zip(recalls[:-1], recalls[1:], strict=True)), recalls


def test_codes_of_differences_from_centroids_rank_views_better_than_codes_of_views():
    rng = np.random.default_rng(2)
    places = rng.standard_normal((64, DIM))
    views = unit(places[rng.integers(64, size=12_000)] + 0.5 * rng.standard_normal((12_000, DIM))).astype(np.float32)
    queries = unit(views[:100] + 0.1 * rng.standard_normal((100, DIM))).astype(np.float32)
    exact = np.argsort(-queries @ views.T, axis=1)[:, :10]
    shares = []
    for by_residual in (True, False):
        index = faiss_ivf.new_ivf(faiss, "ivf-pq", DIM, 64)
        lists = faiss.downcast_index(faiss_ivf.ivf_of(faiss, index))
        assert lists.by_residual
        lists.by_residual = by_residual
        faiss_ivf.train(faiss, index, views)
        index.add(views)
        lists.nprobe = 64
        _, rows = index.search(queries, 30)
        shares.append(np.mean([len(set(some) & set(own)) / 10 for some, own in zip(exact, rows, strict=True)]))
    assert shares[0] > shares[1] + 0.02, shares


@pytest.mark.parametrize("num_threads", [2, 3, 64])
def test_the_lists_of_one_query_in_several_threads_hold_what_they_hold_in_one(path, num_threads, monkeypatch):
    queries = np.random.default_rng(9).standard_normal((20, DIM)).astype(np.float32)
    allowed = np.random.default_rng(4).random(COUNT * VIEWS) < 0.7
    monkeypatch.setattr(FastScan, "fits", False)
    with mvindex.open(path) as index:
        index.admin.build("ivf-pq", nlist=64)
        engine = EngineCache().open(embedded_store_of(index).snapshot)
        engine = engine.with_search({"nprobe": 24, "k_factor": 15})
        for mask in (None, allowed):
            whole = [engine.search(query[None], 200, mask) for query in queries]
            with monkeypatch.context() as patch:
                # Private: the number of threads follows from the machine.
                patch.setattr(type(engine), "_threads_for", lambda self, nprobe: num_threads)
                split = [engine.search(query[None], 200, mask) for query in queries]
            for (scores, rows), (others, other_rows) in zip(whole, split, strict=True):
                assert np.array_equal(np.sort(scores), np.sort(others))
                # Codes that tie with the last may be others.
                sure = scores > scores.min()
                assert set(rows[sure]) == set(other_rows[others > scores.min()])
                assert mask is None or mask[other_rows[other_rows >= 0]].all()


def test_several_threads_are_taken_where_each_has_enough_codes(path, monkeypatch):
    monkeypatch.setattr("mvindex_connectors.engines.faiss.default_threads", lambda: 4)
    monkeypatch.setattr("mvindex_connectors.engines.faiss.CODES_PER_THREAD", COUNT * VIEWS // 8)
    with mvindex.open(path) as index:
        index.admin.build("ivf-pq", nlist=64)
        engine = EngineCache().open(embedded_store_of(index).snapshot)
        # Private: as above.
        assert [engine._threads_for(nprobe) for nprobe in (1, 16, 24, 64)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("search", "nlist", "limit", "nprobe"),
    [
        ({"nprobe": 100}, 1000, 30_000, 120),
        ({"nprobe": 100}, 1000, 10**9, 1000),
        ({"nprobe": 100, "k_factor": 15}, 1000, 15, 100),
        ({"nprobe": 100, "k_factor": 15, "top_k": 10}, 1000, 150, 100),
        ({"nprobe": 100, "k_factor": 15, "top_k": 10}, 1000, 15 * 320, 200),
        ({"nprobe": 100, "k_factor": 4, "top_k": 320}, 1000, 40, 50),
        ({"nprobe": 900, "k_factor": 4, "top_k": 1}, 1000, 4000, 1000),
        ({"nprobe": 1, "k_factor": 4, "top_k": 100}, 1000, 4, 1),
        (default_search("ivf-pq", 2048, 384), 2048, 1500, 724),
        (default_search("ivf-pq", 2048, 384), 2048, 150, 457),
    ],
)
def test_lists_looked_at_grow_with_the_documents_asked_for(search, nlist, limit, nprobe):
    assert nprobe_for_hits(search, nlist, 1_000_000, limit) == nprobe


def test_what_an_approximate_kind_finds_is_scored_in_one_round(path, monkeypatch):
    calls, add = [], Best.add
    monkeypatch.setattr(Best, "add", lambda self, pairs: (calls.append(len(pairs.which)), add(self, pairs)))
    with mvindex.open(path) as index:
        index.admin.build("ivf-pq", nlist=64)
        queries = np.random.default_rng(9).standard_normal((5, DIM)).astype(np.float32)
        assert [result.rounds for result in index.search(queries, top_k=10)] == [1] * 5
    assert len(calls) == 1 and calls[0] > 5 * 10


def best_view_rows(index, queries, limit=50):
    """The best view rows of each query, (q, limit), by a product with all of them."""
    matrix = embedded_store_of(index).snapshot.views.matrix.astype(np.float32)
    return np.argsort(-(queries @ matrix.T), axis=1)[:, :limit].tolist()


class Stopped(Exception):
    """A build that goes no further."""


@pytest.mark.parametrize("kind", ["ivf-pq", "ivf-rabitq", "ivf-sq8"])
def test_a_build_that_was_stopped_goes_on_and_gives_the_same_engine(path, kind, monkeypatch):
    monkeypatch.setattr(faiss_lists, "KEPT_EVERY", 2048)
    told = []

    def stop_at_half(what, done, total):
        if what == "adding views" and done > total // 2:
            raise Stopped

    with mvindex.open(path) as index:
        index.admin.build(kind)
        whole = answers(index)
        index.admin.build("exact")
        with pytest.raises(Stopped):
            index.admin.build(kind, on_progress=stop_at_half)
        assert index.info().kind == "exact"
        index.admin.build(kind, on_progress=lambda what, done, total: told.append((what, done)))
        assert answers(index) == whole
        assert not any("training" in what for what, _ in told)
        assert min(done for what, done in told if what == "adding views") > 2048 * 2
        assert not list(embedded_store_of(index).snapshot.directory.glob("building-*"))


def test_documents_that_came_while_a_build_was_stopped_are_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(faiss_lists, "KEPT_EVERY", 1024)
    rng = np.random.default_rng(3)

    def stop(what, done, total):
        if what == "adding views" and done > 2500:
            raise Stopped

    with mvindex.create(tmp_path / "x.mvx", dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(1000)], rng.standard_normal((1000, 3, DIM)))
        with pytest.raises(Stopped):
            index.admin.build("ivf-flat", on_progress=stop)
        index.add_views([mvindex.Document(f"new{n}", "t") for n in range(500)], rng.standard_normal((500, 3, DIM)))
        index.delete(ids=["3"])
        report = index.admin.build("ivf-flat")
        assert report.views == 4500
        found = {hit.id for hit in index.search(rng.standard_normal(DIM), top_k=1499).hits}
    assert len(found) == 1499 and "new499" in found and "3" not in found


def test_a_killed_build_leaves_an_index_that_answers_and_builds(path):
    code = (
        "import sys, os, signal, mvindex\n"
        "from mvindex_connectors.engines import faiss_lists\n"
        "faiss_lists.KEPT_EVERY = 2048\n"
        "def told(what, done, total):\n"
        "    if what == 'adding views' and done > 6000: os.kill(os.getpid(), signal.SIGKILL)\n"
        "mvindex.open(sys.argv[1]).admin.build('ivf-flat', on_progress=told)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert mvindex.verify(path).is_sound
    with mvindex.open(path) as index:
        assert len(answers(index)[0]) == 20
        assert index.admin.build("ivf-flat").views == COUNT * VIEWS
        assert not list(embedded_store_of(index).snapshot.directory.glob("building-*"))


@pytest.mark.parametrize("nlist", [0, -1, 1 << 18, True])
def test_a_number_of_lists_that_cannot_be_is_refused(path, nlist):
    with mvindex.open(path) as index, pytest.raises(ConfigError, match="nlist: expected a whole number"):
        index.admin.build("ivf-flat", nlist=nlist)


def test_kinds_without_lists_refuse_them(path):
    with mvindex.open(path) as index, pytest.raises(ConfigError, match="has no parameter 'nlist'"):
        index.admin.build("hnsw", nlist=10)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Return an index of enough views for lists in groups, and its views (n, d)."""
    views = unit(np.random.default_rng(10).standard_normal((24_000, 1, 15)))
    path = tmp_path_factory.mktemp("groups") / "x.mvx"
    with mvindex.create(path, dim=15) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(len(views))], views)
    return path, views[:, 0].astype(np.float32)


@pytest.mark.parametrize("kind", LOSS)
def test_lists_in_groups_find_what_a_view_is_near_to(many, kind):
    path, views = many
    queries = unit(np.random.default_rng(11).standard_normal((50, 15))).astype(np.float32)
    with mvindex.open(path) as index:
        index.admin.build(kind, nlist=GROUPED_NLIST)
        engine = EngineCache().open(embedded_store_of(index).snapshot)
        # Private: whether centroids stand in groups, no answer shows.
        ivf = faiss_ivf.ivf_of(faiss, engine._index)
        assert faiss_ivf.has_groups(faiss, engine._index) and ivf.quantizer.ntotal == ivf.nlist == GROUPED_NLIST
        expected = best_view_rows(index, queries)
        every_list = engine.with_search({"nprobe": GROUPED_NLIST, "k_factor": 15})
        _, rows = every_list.search(queries, len(views), None)
        # All lists of all groups hold each view once.
        assert (np.sort(rows, axis=1) == np.arange(len(views))).all()
        few = engine.with_search({"nprobe": GROUPED_NLIST // 16, "k_factor": 15})
        _, rows = few.search(queries, 400, None)
        found = [len(set(some) & set(row.tolist())) / len(some) for some, row in zip(expected, rows, strict=True)]
    assert np.mean(found) > 0.7


def test_groups_are_given_as_many_centroids_as_they_have_views(many):
    _, views = many
    index = faiss_ivf.new_ivf(faiss, "ivf-flat", 15, GROUPED_NLIST)
    stages = []
    faiss_ivf.train(faiss, index, views[:GROUPED_NLIST].astype(np.float16), lambda *stage: stages.append(stage))
    # As many views as lists: each of them is a centroid.
    centroids = faiss_ivf.ivf_of(faiss, index).quantizer
    nearest, _ = centroids.search(views[:500], 1, params=faiss.SearchParametersIVF(nprobe=num_groups(GROUPED_NLIST)))
    np.testing.assert_allclose(nearest[:, 0], 1, atol=2e-3)
    assert stages[-1] == ("training lists", num_groups(GROUPED_NLIST), num_groups(GROUPED_NLIST))


@pytest.mark.parametrize(
    ("kind", "nlist", "k_factor"),
    [("ivf-pq", 32_768, 60), ("ivf-pq", 65_536, 85), ("ivf-pq", 131_072, 120), ("ivf-sq8", 131_072, 4)],
)
def test_coarse_codes_of_very_many_views_have_more_hits_scored_anew(kind, nlist, k_factor):
    assert default_search(kind, nlist, 96)["k_factor"] == k_factor


@pytest.mark.parametrize(
    ("kind", "dim", "k_factor"),
    [("ivf-pq", 768, 15), ("ivf-pq", 384, 15), ("ivf-pq", 96, 60), ("ivf-rabitq", 2, 60), ("ivf-sq8", 96, 4)],
)
def test_codes_of_fewer_dimensions_have_more_hits_scored_anew(kind, dim, k_factor):
    assert default_search(kind, 1024, dim)["k_factor"] == k_factor
    tried = {search["k_factor"] for search in faiss_ivf.searches(kind, 1024, dim)}
    assert {k_factor // 2, k_factor, 2 * k_factor} <= tried | {7}


@pytest.mark.parametrize(("nlist", "groups"), [(16_384, 512), (32_768, 512), (65_536, 1024), (131_072, 1024)])
def test_a_group_has_32_to_128_lists(nlist, groups):
    assert num_groups(nlist) == groups and 32 <= nlist // groups <= 128


@pytest.mark.parametrize(("nprobe", "groups"), [(1, 257), (3655, 371), (24_576, 1024), (131_072, 1024)])
def test_a_search_looks_in_a_quarter_of_the_groups_and_more_for_more_lists(nprobe, groups):
    assert groups_for(nprobe, 131_072) == groups


@pytest.mark.parametrize("count", [1, 2, 15, 40])
@pytest.mark.parametrize("kind", LOSS)
def test_a_handful_of_views_is_enough(tmp_path, kind, count):
    views = np.random.default_rng(count).standard_normal((count, 1, 5))
    with mvindex.create(tmp_path / "x.mvx", dim=5) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(count)], views)
        index.admin.build(kind)
        exact = [hit.id for hit in index.search(views[0, 0], top_k=count, exact=True).hits]
        assert [hit.id for hit in index.search(views[0, 0], top_k=count).hits] == exact


def test_a_sample_of_shards_is_one_array_with_all_views_of_the_smallest(tmp_path):
    views = unit(np.random.default_rng(3).standard_normal((400, 20, DIM)))
    documents = [mvindex.Document(f"d{n}", f"text {n}") for n in range(400)]
    with mvindex.create(tmp_path / "few.mvx", dim=DIM) as few, mvindex.create(tmp_path / "many.mvx", dim=DIM) as many:
        few.add_views(documents[:2], views[:2])
        many.add_views(documents, views)
        snapshots = [embedded_store_of(few).snapshot, embedded_store_of(many).snapshot]
        tracemalloc.start()
        sample = faiss_ivf.sample_views(snapshots, 4096)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # A shard of 40 views gives them all; of 8,000 views 64 at a time, its share of 4,096 being 4,076.
        assert len(sample) == 40 + 63 * 64
        assert (sample[:40] == embedded_store_of(few).snapshot.views.matrix).all()
        assert peak < 1.2 * sample.nbytes
