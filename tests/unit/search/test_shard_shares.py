"""Approximate searches of several shards look at what one index of all documents would, and find as much."""

from contextlib import ExitStack

import numpy as np
import pytest

import mvindex
from mvindex import engines
from mvindex.engines.build import EngineChoice, build_engine, save_search_params
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.errors import StaleReader
from mvindex.index import embedded_store_of, search_engine_of, store_of
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.search.plan import make_plan
from mvindex.search.ranking import Share, ViewHits
from mvindex.search.request import parse_options
from mvindex.search.result_merge import is_cut_short
from mvindex.search.views import rank_views
from mvindex.store.shard_layout import shard_of
from mvindex.testing import unit

pytest.importorskip("faiss")

COUNT, VIEWS, DIM, SHARDS = 6000, 4, 16, 8
# Of 64 lists; 8 view hits a document.
SEARCH = {"nprobe": 16, "k_factor": 8}


def ids_of_shard(number, count):
    """Ids that all belong to one shard."""
    found, place = [], 0
    while len(found) < count:
        if shard_of(f"s{place}", SHARDS) == number:
            found.append(f"s{place}")
        place += 1
    return found


def built(folder, ids, views):
    """Return one index and one in shards of the same documents, both with the lists and codes of the shards."""
    documents = [mvindex.Document(doc_id, "text", metadata={"n": n}) for n, doc_id in enumerate(ids)]
    one = mvindex.create(folder / "one.mvx", dim=DIM)
    shards = mvindex.create(folder / "shards.mvx", dim=DIM, shards=SHARDS)
    for index in (one, shards):
        index.add_views(documents, views)
    shards.admin.build("ivf-pq")
    (trained,) = (folder / "shards.mvx").glob("trained-*.faiss")
    build_engine(embedded_store_of(one), EngineChoice(kind="ivf-pq", trained=trained))
    for store in [embedded_store_of(one), *store_of(shards).sharding.stores.values()]:
        save_search_params(store, SEARCH)
        store.refresh()
    return one, shards


def random_views(count, seed=0):
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((count, 1, DIM)) + 0.6 * rng.standard_normal((count, VIEWS, DIM)))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    ids = [f"d{n}" for n in range(COUNT)]
    with ExitStack() as stack:
        found = built(tmp_path_factory.mktemp("shares"), ids, random_views(COUNT))
        yield [stack.enter_context(index) for index in found]


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(1)
    near = random_views(COUNT)[rng.integers(0, COUNT, 200), 0]
    return unit(near + 0.6 * rng.standard_normal(near.shape)).astype(np.float32)


def found_by(index, queries, **options):
    """Return the rankings of all queries, with the work that they took."""
    plan = make_plan(parse_options(**options), index._state(index.settings), has_text=False)
    with search_engine_of(index).opened(plan) as parts:
        return rank_views(parts, queries)


def recall(index, queries, **options):
    found = [{hit.id for hit in result.hits} for result in index.search(queries, **options)]
    true = [{hit.id for hit in result.hits} for result in index.search(queries, exact=True, **options)]
    return np.mean([len(one & two) / len(two) for one, two in zip(found, true, strict=True)])


@pytest.mark.parametrize("top_k", [1, 10, 50])
def test_shards_find_what_one_index_finds_and_score_as_many_documents(both, queries, top_k):
    one, shards = (found_by(index, queries, top_k=top_k) for index in both)
    scored = [np.mean([ranking.num_scored for ranking in found]) for found in (one, shards)]
    assert scored[1] == pytest.approx(scored[0], rel=0.03)
    # View hits that tie with the last are looked at as well, so that no document is worse.
    assert not any((two.scores < each.scores).any() for each, two in zip(one, shards, strict=True))
    found = [recall(index, queries, top_k=top_k) for index in both]
    assert found[1] == pytest.approx(found[0], abs=0.002)


@pytest.mark.parametrize("top_k", [10, 50])
def test_shards_find_as_much_by_drpq_where_each_has_to_look_further_than_its_share(both, queries, top_k):
    one, shards = (found_by(index, queries, top_k=top_k, scoring="drpq") for index in both)
    scored = [np.mean([ranking.num_scored for ranking in found]) for found in (one, shards)]
    assert scored[1] < 2 * scored[0]
    found = [recall(index, queries, top_k=top_k, scoring="drpq", temperature=0.3) for index in both]
    assert found[1] >= found[0] - 0.002


@pytest.mark.parametrize("condition", [{"n": {"lt": 3000}}, {"n": {"lt": 100}}, {"n": {"lt": 4}}])
def test_a_filter_leaves_top_k_documents_where_there_are_so_many(both, queries, condition):
    one, shards = (index.search(queries[:40], top_k=10, filter=condition) for index in both)
    assert [len(result) for result in shards] == [len(result) for result in one]
    assert all(len({hit.id for hit in result}) == len(result) for result in shards)
    assert all(result.short_by == 0 for result in shards)
    shared = [len({hit.id for hit in a} & {hit.id for hit in b}) / len(a) for a, b in zip(one, shards, strict=True)]
    assert np.mean(shared) > 0.95


def test_more_documents_than_the_view_hits_hold_are_found(both, queries):
    for top_k in (500, COUNT, COUNT + 1):
        for result in both[1].search(queries[:2], top_k=top_k):
            assert len({hit.id for hit in result}) == min(top_k, COUNT)


@pytest.fixture(scope="module")
def lopsided(tmp_path_factory):
    """400 documents about one subject, all in shard 0, among others anywhere."""
    rng = np.random.default_rng(2)
    subject = unit(rng.standard_normal(DIM))
    near = unit(subject + 0.2 * rng.standard_normal((400, VIEWS, DIM)))
    ids = ids_of_shard(0, 400) + [f"d{n}" for n in range(4000)]
    views = np.concatenate([near, random_views(4000, seed=3)])
    with ExitStack() as stack:
        found = built(tmp_path_factory.mktemp("lopsided"), ids, views)
        asked = unit(subject + 0.2 * rng.standard_normal((50, DIM))).astype(np.float32)
        yield *(stack.enter_context(index) for index in found), asked


@pytest.mark.parametrize("scoring", ["max", "drpq"])
@pytest.mark.parametrize("top_k", [1, 10, 100])
def test_the_best_documents_are_found_where_all_are_in_one_shard(lopsided, top_k, scoring):
    one, shards, queries = lopsided
    expected, found = (found_by(index, queries, top_k=top_k, scoring=scoring) for index in (one, shards))
    assert all(len(ranking.rows) == top_k for ranking in found)
    behind = [(two.scores < each.scores).any() for each, two in zip(expected, found, strict=True)]
    assert np.mean(behind) <= 0.02
    # The shard that has them was searched again, for all that one index looks at.
    assert np.mean([ranking.rounds for ranking in found]) > np.mean([ranking.rounds for ranking in expected])


def test_documents_that_were_deleted_or_added_since_the_build_count_as_in_one_index(lopsided, tmp_path):
    _, _, queries = lopsided
    ids = ids_of_shard(0, 400) + [f"d{n}" for n in range(1000)]
    with ExitStack() as stack:
        one, shards = map(stack.enter_context, built(tmp_path, ids, random_views(1400, seed=4)))
        for index in (one, shards):
            index.delete(ids=ids[:395])
            fresh = [mvindex.Document(f"fresh{n}", "text") for n in range(20)]
            index.add_views(fresh, random_views(20, seed=5))
        expected, found = (index.search(queries, top_k=10) for index in (one, shards))
        assert all(len(result) == 10 for result in found)
        assert not {hit.id for result in found for hit in result} & set(ids[:395])
        behind = [
            any(b.score < a.score for a, b in zip(own, other, strict=True))
            for own, other in zip(expected, found, strict=True)
        ]
        assert np.mean(behind) <= 0.02


def test_tuned_settings_find_what_tune_has_measured(both, queries, tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=SHARDS) as index:
        index.add_views([mvindex.Document(f"d{n}", "text") for n in range(COUNT)], random_views(COUNT))
        index.admin.build("ivf-pq")
        report = index.admin.tune(queries, target_recall=0.9)
        assert report.chosen is not None
        settings = [store.snapshot.settings["engine"]["settings"] for store in store_of(index).sharding.stores.values()]
        assert all(each["search"] == report.chosen.search for each in settings)
        assert recall(index, queries, top_k=report.top_k) == pytest.approx(report.chosen.recall, abs=0.005)
        with pytest.raises(StaleReader, match="expected the engine that was measured, hnsw, got ivf-pq"):
            save_search_params(store_of(index).sharding.stores[0], {"ef": 20}, "hnsw")


def test_exact_results_are_those_of_one_index(both, queries):
    one, shards = (index.search(queries, top_k=20, exact=True) for index in both)
    assert shards == one


def test_several_devices_take_the_shards_in_turn_and_share_their_memory(both, queries, monkeypatch):
    opened = []
    monkeypatch.setattr(engines, "open_scan", lambda device, share: opened.append((device, share)) or NumpyScan())
    _, shards = both
    with mvindex.open(shards.where, device="0, cuda:1,cpu") as index:
        assert index.search(queries, exact=True) == shards.search(queries, exact=True)
    mine = opened[:SHARDS]
    assert mine == [(("cuda:0", "cuda:1", "cpu")[number % 3], 3) for number in range(SHARDS)]


def test_a_share_is_the_mean_and_three_standard_deviations():
    share = Share(num_shards=4, top_k=10)
    # 100 / 4 + 3 sqrt(100 / 4 * 3 / 4) = 25 + 12.99
    assert share.of(100) == 38
    # Four at a time: 25 + 3 sqrt(4 * 18.75) = 25 + 25.98
    assert share.of(100, bunch=4) == 51
    assert share.of(1) == 1
    assert share.of(3) == 3


def view_hits(*scores, lowest=None, limit=4):
    return ViewHits(np.array(scores, dtype=np.float32), min(scores) if lowest is None else lowest, limit)


def test_a_shard_whose_last_view_hit_is_among_the_best_of_all_is_searched_again():
    best_view, aggregate = Scoring(), Scoring(Aggregate.DRPQ, 0.3)
    scores = np.array([9, 8], dtype=np.float32)
    # The best four of all are 9, 8, 7 and 6: the first shard may have more of them than its three.
    assert is_cut_short([view_hits(9, 8, 7), view_hits(6, 2, 1)], scores, 0, best_view) == [True, False]
    assert is_cut_short([view_hits(9, 8, 3), view_hits(7, 6, 1)], scores, 0, best_view) == [False, False]
    # The engine found no more in the first.
    first = view_hits(9, 8, 7, lowest=-np.inf)
    assert is_cut_short([first, view_hits(6, 2, 1)], scores, 0, best_view) == [False, False]
    # Too few documents in all shards: whatever was searched for its share is searched in full.
    assert is_cut_short([first, view_hits(6, 2, 1), None], scores, 1, best_view) == [True, True, False]
    assert is_cut_short([None, None], scores, 0, best_view) == [False, False]
    # An aggregate of 2 may belong to a document whose best view has little more.
    low = np.array([9, 2], dtype=np.float32)
    assert is_cut_short([view_hits(9, 8, 3), view_hits(7, 6, 1)], low, 0, aggregate) == [True, False]


def test_shards_that_were_searched_in_full_have_their_part_of_the_limit():
    scores = np.array([9, 8], dtype=np.float32)
    # Two of the best four are expected in the shards that were searched for a share.
    assert is_cut_short([view_hits(9, 8, 7), None], scores, 0, Scoring()) == [False, False]
    assert is_cut_short([view_hits(9, 8, 8), None], scores, 0, Scoring()) == [False, False]
    assert is_cut_short([view_hits(9), None], scores, 0, Scoring()) == [True, False]
