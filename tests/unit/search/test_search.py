"""Search by view ranking, and to a fixed depth, against brute force.

check_case() asks Faiss flat and every scan of one index; bench/fuzz_search.py does so for many.
"""

import importlib.util
import sys

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_vnni import VnniScan
from mvindex.errors import QueryError
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.kernels import has_int8_products
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.search import ann as ranked
from mvindex.search import parts
from mvindex.search.local import EngineCache
from mvindex.search.ranking import Engines, Request
from mvindex.search.request import as_vectors
from mvindex.search.views import search_documents
from mvindex.testing import assert_same, brute_force, true_scores, unit
from tests.helpers.scan_vectors import random_case

SCANS = {"numpy": NumpyScan, "native": lambda: VnniScan(NumpyScan)}
if importlib.util.find_spec("torch") is not None:
    from mvindex.engines.scan_torch import TorchScan

    SCANS["torch"] = TorchScan
# Without Faiss an index is scanned.
KIND = "exact" if importlib.util.find_spec("faiss") is None else "flat"
TEMPERATURES = [0.01, 0.1, 1.0, 10.0]
pytestmark = pytest.mark.usefixtures("one_torch_thread")


# --- the oracle of a fixed depth -------------------------------------------------------------------------------------


def documents_to_depth(view_scores, owners, depth, top_k, growth):
    """DRPQ section 3.3 in plain words: the documents that own the `depth` best views, and the depths looked to.

    Views of equal score come in the order of the store. Where those are fewer than top_k documents, `growth` times as
    many views are looked at, and so on; growth 0: one by one.
    """
    order = sorted(range(len(view_scores)), key=lambda row: (-view_scores[row], row))
    ranks = {}
    for rank, row in enumerate(order):
        ranks.setdefault(owners[row], rank)
    needed = sorted(ranks.values())[top_k - 1] + 1
    depths = [min(max(depth, top_k), len(order))]
    while depths[-1] < needed:
        depths.append(min(depths[-1] * growth, len(order)) if growth else needed)
    return {owner for owner, rank in ranks.items() if rank < depths[-1]}, depths


def is_clear(view_scores, depths, size):
    """True where no rounding of float32 sums can change which views come before one of the depths."""
    falling = np.append(-np.sort(-view_scores.astype(np.float64)), -np.inf)
    return all(falling[depth - 1] - falling[depth] > rounding_of(size) for depth in depths)


def rounding_of(size):
    """More than what a float32 sum may be off by, size being |q| |v|; products below 1e-38 lose digits or vanish."""
    return 1e-3 * size + 1e-30


# --- many cases ------------------------------------------------------------------------------------------------------


def runnable():
    """Return the names of the engines that this machine can search with."""
    return ["flat", "depth on flat", *(f"depth on {name}" for name in SCANS if name != "native" or has_int8_products())]


def build(case, path):
    dtype = "fp16" if case.stored.dtype == np.float16 else "fp32"
    index = mvindex.create(path, dim=case.stored.shape[1], dtype=dtype)
    views = np.split(case.stored.astype(np.float32), case.starts[1:-1])
    index.add_views([mvindex.Document(f"d{n}", "t") for n in range(len(views))], views)
    index.admin.build(kind="flat")
    return index


def check_case(seed, case, path, names):
    """How many searches there were, and what was wrong with them, in words."""
    rng = np.random.default_rng(seed)
    number, faults = 0, []
    with build(case, path) as index:
        snapshot, ranking = embedded_store_of(index).snapshot, EngineCache().open(embedded_store_of(index).snapshot)
        by_view = true_scores(case.stored, np.arange(len(case.stored) + 1), case.queries)
        for scoring in (Scoring(), Scoring(Aggregate.DRPQ, float(rng.choice(TEMPERATURES)))):
            temperature = scoring.temperature if scoring.aggregate is Aggregate.DRPQ else None
            truth = true_scores(case.stored, case.starts, case.queries, temperature)
            for name in names:
                if temperature is None and name != "flat":
                    continue
                allowed = rng.random(snapshot.num_rows) < rng.choice([0.5, 1.1])
                allowed[rng.integers(len(allowed))] = True
                top_k = int(min(rng.choice([1, 3, 10, 100]), np.count_nonzero(allowed)))
                depth = None if name == "flat" else int(rng.choice([1, 2, 10, 50, 100_000]))
                scan = NumpyScan() if "flat" in name else SCANS[name.split()[-1]]()
                engines = Engines(scan=scan, ranking=ranking if "flat" in name else None)
                request = Request(
                    top_k=top_k, allowed=allowed, num_allowed=int(allowed.sum()), scoring=scoring, depth=depth
                )
                results = search_documents(snapshot, engines, case.queries, request)
                number += len(results)
                try:
                    for query, result in enumerate(results):
                        assert_true(result, truth[query], request)
                        if depth is not None:
                            assert_deep(result, (case, query, by_view[query].scores), truth[query], request, name)
                except AssertionError as err:
                    what = f"query {query}, {request.scoring}, top_k {top_k}, depth {depth}"
                    faults.append(f"{name}, {what}: {err}"[:400])
    return number, faults


def assert_true(result, truth, request):
    """The result is brute force's where it says so and always at no fixed depth; its scores are true in any case."""
    rows = np.flatnonzero(request.allowed)
    best = rows[np.argsort(-truth.scores[rows], kind="stable")][: request.top_k]
    assert (len(result.rows), len(set(result.rows.tolist())), result.short_by) == (request.top_k, request.top_k, 0)
    assert request.allowed[result.rows].all()
    assert result.exact or request.depth is not None
    assert not result.exact or np.array_equal(result.rows, best), f"exact: {result.rows}, wanted {best}"
    assert (result.scores.view(np.int32) == truth.scores[result.rows].view(np.int32)).all(), f"{result.scores}"
    assert np.array_equal(result.slots, truth.slots[result.rows])
    order = np.lexsort((result.rows, -result.scores))
    assert np.array_equal(order, np.arange(len(order))), "not in order"


def assert_deep(result, asked, truth, request, name):
    """Check that a fixed depth gives what the plain procedure gives, wherever float32 sums cannot change the depth."""
    case, query, view_scores = asked
    owners = np.repeat(np.arange(len(case.starts) - 1), np.diff(case.starts))
    seen = np.flatnonzero(request.allowed[owners])
    growth = 4 if name == "depth on flat" else 0
    found, depths = documents_to_depth(view_scores[seen], owners[seen], request.depth, request.top_k, growth)
    size = np.linalg.norm(case.stored.astype(np.float64), axis=1).max() * np.linalg.norm(case.queries[query])
    if not is_clear(view_scores[seen], depths, size):
        return
    best = sorted(map(int, found), key=lambda row: (-truth.scores[row], row))[: request.top_k]
    assert result.rows.tolist() == best, f"{result.rows}, wanted {best}"
    last = np.sort(view_scores[seen])[-depths[-1]]
    # The bound of products that may vanish in float32 is far wider than what they lose.
    is_ordinary = size > 1e-15
    if depths[0] == len(seen) or (is_ordinary and last < truth.scores[best[-1]] - rounding_of(size)):
        assert result.exact, "proven, but does not say so"


@pytest.mark.needs("faiss")
@settings(max_examples=8, phases=[Phase.reuse, Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_rankings_and_fixed_depths_give_what_brute_force_gives(tmp_path_factory, seed):
    case = random_case(seed)
    _, faults = check_case(seed, case, tmp_path_factory.mktemp("search") / "x.mvx", runnable())
    assert not faults


# --- one property each -----------------------------------------------------------------------------------------------


def clustered(rng, count, k, dim, noise=0.3):
    """Documents of k views around centres of their own: (count * k, dim) unit vectors, and starts."""
    centres = np.repeat(unit(rng.standard_normal((count, dim))), k, axis=0)
    rows = unit(centres + noise * rng.standard_normal((count * k, dim)) / np.sqrt(dim))
    return rows.astype(np.float16), np.arange(0, count * k + 1, k)


class Corpus:
    """An index with its engine, and what brute force says of it."""

    def __init__(self, path, stored, starts, kind=KIND):
        self.stored, self.starts = stored, starts
        self.index = mvindex.create(path, dim=stored.shape[1], dtype="fp16" if stored.dtype == np.float16 else "fp32")
        self.views = {f"d{n}": rows.astype(np.float32) for n, rows in enumerate(np.split(stored, starts[1:-1]))}
        self.index.add_views([mvindex.Document(doc_id, "t") for doc_id in self.views], list(self.views.values()))
        self.index.build(kind=kind)
        self.snapshot = embedded_store_of(self.index).snapshot
        self.ranking = EngineCache().open(self.snapshot)

    def search(self, queries, top_k, scoring, **options):
        engines = Engines(scan=NumpyScan(), ranking=self.ranking)
        request = Request(
            top_k=top_k,
            allowed=self.snapshot.alive,
            num_allowed=self.snapshot.num_documents,
            scoring=scoring,
            **options,
        )
        return search_documents(self.snapshot, engines, queries, request)

    def check(self, queries, top_k, scoring):
        """The rankings, which are exact and those of brute force."""
        temperature = scoring.temperature if scoring.aggregate is Aggregate.DRPQ else None
        truth = true_scores(self.stored, self.starts, queries, temperature)
        results = self.search(queries, top_k, scoring)
        for result, true in zip(results, truth, strict=True):
            assert result.exact
            assert_true(
                result, true, Request(top_k=top_k, allowed=self.snapshot.alive, num_allowed=self.snapshot.num_documents)
            )
        return results


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    rng = np.random.default_rng(1)
    corpus = Corpus(tmp_path_factory.mktemp("clusters") / "x.mvx", *clustered(rng, 2000, 8, 32))
    yield corpus
    corpus.index.close()


def near_queries(corpus, count, seed=2):
    rng = np.random.default_rng(seed)
    rows = corpus.stored[rng.integers(0, len(corpus.stored), count)].astype(np.float32)
    return unit(rows + 0.3 * rng.standard_normal(rows.shape) / np.sqrt(rows.shape[1]))


@pytest.mark.needs("faiss")
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_adaptive_stop_gives_the_brute_force_ranking(clusters, temperature):
    for top_k in (1, 10, 100):
        clusters.check(near_queries(clusters, 20), top_k, Scoring(Aggregate.DRPQ, temperature))


@pytest.mark.needs("faiss")
def test_the_adaptive_stop_scores_few_documents_when_it_is_cold(clusters):
    results = clusters.check(near_queries(clusters, 50), 10, Scoring(Aggregate.DRPQ, 0.01))
    assert np.mean([result.num_scored for result in results]) < 0.05 * clusters.snapshot.num_documents
    assert max(result.num_scored for result in results) < 0.2 * clusters.snapshot.num_documents


@pytest.mark.needs("faiss")
def test_the_adaptive_stop_scores_no_more_documents_for_a_query_in_a_batch(clusters):
    queries, scoring = near_queries(clusters, 30), Scoring(Aggregate.DRPQ, 0.1)
    together = clusters.search(queries, 10, scoring)
    for query, result in zip(queries, together, strict=True):
        [alone] = clusters.search(query[None], 10, scoring)
        assert np.array_equal(alone.rows, result.rows) and np.array_equal(alone.scores, result.scores)
        assert alone.num_scored == result.num_scored


@pytest.mark.parametrize("crowd", [2000, 6000])
def test_one_document_of_thousands_of_views_hides_no_other(crowd, tmp_path):
    rng = np.random.default_rng(5)
    query = unit(rng.standard_normal(16))
    counts = [1] * 40 + [crowd] + [2] * 40
    starts = np.cumsum([0, *counts])
    stored = unit(rng.standard_normal((starts[-1], 16)))
    stored[40 : 40 + crowd] = unit(query + 0.05 * rng.standard_normal((crowd, 16)))
    corpus = Corpus(tmp_path / "x.mvx", stored.astype(np.float16), starts)
    with corpus.index:
        queries = np.stack([query, -query, unit(rng.standard_normal(16))])
        for scoring in (Scoring(), *(Scoring(Aggregate.DRPQ, temperature) for temperature in TEMPERATURES)):
            for top_k in (1, 2, 10, 80):
                corpus.check(queries, top_k, scoring)


@pytest.mark.needs("faiss")
@pytest.mark.parametrize("hits_at_once", [1, 500])
def test_hits_taken_a_few_queries_at_a_time_are_the_same(clusters, hits_at_once, monkeypatch):
    monkeypatch.setattr(ranked, "HITS_AT_ONCE", hits_at_once)
    clusters.check(near_queries(clusters, 12), 10, Scoring(Aggregate.DRPQ, 0.1))


@pytest.mark.needs("faiss")
@pytest.mark.parametrize("few", [1, 40])
def test_what_a_ranking_may_not_go_deep_enough_for_is_scanned(clusters, few, monkeypatch):
    monkeypatch.setattr(ranked, "_FEW_VIEWS", few)
    monkeypatch.setattr(ranked, "_RANKED_SHARE", 1 << 20)
    for scoring in (Scoring(), Scoring(Aggregate.DRPQ, 1.0)):
        clusters.check(near_queries(clusters, 5), 10, scoring)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (parts, "_CHUNK_VIEWS", 7),
        (parts, "_VIEWS_PER_THREAD", 5),
        (parts, "_GATHERED_DOCUMENTS", 3),
        (sys.modules["mvindex.search.exact"], "_CANDIDATES_AT_ONCE", 11),  # the package has a function of that name
    ],
)
@pytest.mark.parametrize("compiled", [True, False])
def test_scores_taken_in_small_portions_are_the_same(clusters, module, name, value, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(parts, "has_numba", lambda: False)
    monkeypatch.setattr(module, name, value)
    queries = near_queries(clusters, 9)
    for scoring in (Scoring(), Scoring(Aggregate.DRPQ, 0.1)):
        temperature = scoring.temperature if scoring.aggregate is Aggregate.DRPQ else None
        truth = true_scores(clusters.stored, clusters.starts, queries, temperature)
        request = Request(
            top_k=20, allowed=clusters.snapshot.alive, num_allowed=clusters.snapshot.num_documents, scoring=scoring
        )
        results = search_documents(clusters.snapshot, Engines(scan=NumpyScan()), queries, request)
        for result, true in zip(results, truth, strict=True):
            assert_true(result, true, request)


def test_kinds_and_scans_give_the_same_list(clusters):
    queries = near_queries(clusters, 40)
    for scoring, options in (("max", {}), ("drpq", {"temperature": 0.05}), ("drpq", {"temperature": 3.0})):
        expected = clusters.index.search(queries, 10, scoring=scoring, **options)
        for query in (0, 7, 39):
            assert_same(expected[query], brute_force(clusters.views, queries[query], 10, scoring=scoring, **options))
        for name in SCANS:
            if name == "native" and not has_int8_products():
                continue
            search_engine_of(clusters.index).use_scan(SCANS[name])
            found = clusters.index.search(queries, 10, scoring=scoring, exact=True, **options)
            assert [result.hits for result in found] == [result.hits for result in expected]


def test_more_queries_than_are_searched_at_once_get_what_each_gets_alone(clusters):
    queries = near_queries(clusters, 300)
    options = {"scoring": "drpq", "temperature": 0.05}
    results = clusters.index.search(queries, 5, **options)
    assert len(results) == 300
    for number in (0, 1, 254, 255, 256, 257, 299):
        assert results[number] == clusters.index.search(queries[number], 5, **options)
        assert_same(results[number], brute_force(clusters.views, queries[number], 5, **options))


def test_no_queries_get_no_results(clusters):
    for options in ({}, {"scoring": "drpq"}, {"scoring": "drpq", "candidates": 3}, {"exact": True}):
        assert clusters.index.search(np.empty((0, 32)), 5, **options) == []


# --- fixed depth -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("faiss")
def test_a_fixed_depth_finds_what_the_plain_procedure_finds(clusters):
    """Depths at which a document whose mean is high, but whose best view is not, is still missed, and where not."""
    queries = near_queries(clusters, 6, seed=3)
    scoring = Scoring(Aggregate.DRPQ, 1.0)
    by_view = true_scores(clusters.stored, np.arange(len(clusters.stored) + 1), queries)
    truth = true_scores(clusters.stored, clusters.starts, queries, 1.0)
    owners = np.repeat(np.arange(len(clusters.starts) - 1), np.diff(clusters.starts))
    differs, is_exact = 0, set()
    for depth in (1, 5, 20, 80, 400, 3000, 16_000):
        results = clusters.search(queries, 10, scoring, depth=depth)
        for query, result in enumerate(results):
            found, _ = documents_to_depth(by_view[query].scores, owners, depth, 10, 4)
            best = sorted(found, key=lambda row: (-truth[query].scores[row], row))[:10]
            assert result.rows.tolist() == best
            assert result.num_scored == len(found)
            true = np.argsort(-truth[query].scores, kind="stable")[:10].tolist()
            differs += best != true
            assert not result.exact or best == true
            is_exact.add(result.exact)
    assert differs > 0
    assert is_exact == {True, False}


@pytest.mark.parametrize("name", SCANS)
def test_a_fixed_depth_looks_on_until_there_are_top_k_documents(name, tmp_path):
    if name == "native" and not has_int8_products():
        pytest.skip("NOT RUN: needs a CPU with AVX-512 VNNI, and numba (the extra fast)")
    rng = np.random.default_rng(6)
    query = unit(rng.standard_normal(8))
    starts = np.array([0, 30, 31, 32, 34])
    stored = unit(rng.standard_normal((34, 8)))
    stored[:30] = unit(query + 0.01 * rng.standard_normal((30, 8)))
    corpus = Corpus(tmp_path / "x.mvx", stored.astype(np.float16), starts)
    with corpus.index as index:
        search_engine_of(index).use_scan(SCANS[name])
        for kind in sorted({KIND, "exact"}, reverse=True):
            index.admin.build(kind=kind)
            for top_k in (1, 2, 3, 4, 9):
                for depth in (1, 2, 30, 31, 33, 34, 10**20):
                    result = index.search(query, top_k, scoring="drpq", candidates=depth)
                    assert (len(result.hits), result.short_by) == (min(top_k, 4), 0)
                    if result.exact:
                        assert_same(result, brute_force(corpus.views, query, top_k, scoring="drpq"))
                    if depth >= 34:
                        assert result.exact


@pytest.mark.parametrize("kind", ["exact", pytest.param("flat", marks=pytest.mark.needs("faiss"))])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_fixed_depth_claims_no_more_than_it_has_proven(kind, compiled, monkeypatch, tmp_path):
    """The float64 sum of the best document's view loses the 1 between two huge numbers."""
    if not compiled:
        monkeypatch.setattr(parts, "has_numba", lambda: False)
    huge = 2.0**57
    rows = np.array([[0, 0.5, 0], [0, 0.1, 0], [huge, 1, -huge], [0, 0.05, 0]], dtype=np.float32)
    views = {f"d{n}": row[None] for n, row in enumerate(rows)}
    with mvindex.create(tmp_path / "x.mvx", dim=3, dtype="fp32") as index:
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in views], list(views.values()))
        index.admin.build(kind=kind)
        query = np.ones(3, dtype=np.float32)
        for depth in (1, 2, 3, 4):
            result = index.search(query, 1, scoring="drpq", candidates=depth)
            assert len(result.hits) == 1
            if result.exact:
                assert_same(result, brute_force(views, query, 1, scoring="drpq", dtype="fp32"))


# --- the graph -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    rng = np.random.default_rng(7)
    corpus = Corpus(tmp_path_factory.mktemp("graph") / "x.mvx", *clustered(rng, 1500, 4, 24), kind="hnsw")
    yield corpus
    corpus.index.close()


@pytest.mark.needs("faiss")
@pytest.mark.parametrize(
    ("scoring", "options"),
    [("max", {}), ("drpq", {"temperature": 0.05}), ("drpq", {"temperature": 1.0}), ("drpq", {"candidates": 60})],
)
def test_a_graph_scores_what_it_finds_and_never_claims_to_be_exact(graph, scoring, options):
    temperature = {"temperature": options["temperature"]} if "temperature" in options else {}
    recalls = []
    for query in near_queries(graph, 10):
        result = graph.index.search(query, 10, scoring=scoring, **options)
        everything = brute_force(graph.views, query, len(graph.views), scoring=scoring, **temperature)
        scores = {doc_id: score for doc_id, score, _ in everything}
        assert (result.exact, result.short_by, len({hit.id for hit in result.hits})) == (False, 0, 10)
        assert [np.float32(hit.score) for hit in result.hits] == [scores[hit.id] for hit in result.hits]
        assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
        recalls.append(len({hit.id for hit in result.hits} & {doc_id for doc_id, _, _ in everything[:10]}) / 10)
    assert np.mean(recalls) > 0.9


@pytest.mark.needs("faiss")
@pytest.mark.parametrize(("scoring", "options"), [("max", {}), ("drpq", {"temperature": 0.05})])
def test_a_graph_that_is_left_for_a_scan_says_exact_and_is(graph, scoring, options):
    query = near_queries(graph, 1)[0]
    whole = {"top_k": len(graph.views)}
    for result in (
        graph.index.search(query, scoring=scoring, **whole, **options),
        graph.index.search(query, 10, scoring=scoring, exact=True, **options),
    ):
        expected = brute_force(graph.views, query, len(result.hits), scoring=scoring, **options)
        if result.exact:
            assert_same(result, expected)
        assert {hit.id for hit in result.hits} <= set(graph.views)
    assert result.exact


# --- fresh documents, deletions, filters -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_adaptive_stop_sees_what_was_added_and_deleted_since_the_build(temperature, tmp_path):
    rng = np.random.default_rng(8)
    corpus = Corpus(tmp_path / "x.mvx", *clustered(rng, 300, 4, 16))
    views = dict(corpus.views)
    with corpus.index as index:
        for turn in range(4):
            fresh = {f"new{turn}-{n}": unit(rng.standard_normal((rng.integers(1, 9), 16))) for n in range(40)}
            index.add_views([mvindex.Document(doc_id, "t") for doc_id in fresh], list(fresh.values()))
            views |= fresh
            gone = [doc_id for doc_id in views if rng.random() < 0.2]
            index.delete(ids=gone)
            for doc_id in gone:
                del views[doc_id]
            options = {"scoring": "drpq", "temperature": temperature}
            for query in unit(rng.standard_normal((5, 16))):
                for top_k in (1, 20, 200):
                    assert_same(index.search(query, top_k, **options), brute_force(views, query, top_k, **options))
                for depth in (1, 50, 10_000):
                    result = index.search(query, 20, candidates=depth, **options)
                    assert len(result.hits) == 20
                    if result.exact:
                        assert_same(result, brute_force(views, query, 20, **options))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_vector_beyond_all_norms_is_refused_without_a_warning(value, dtype):
    with np.errstate(over="ignore"):
        query = np.array([1.0, value], dtype=dtype)
    with pytest.raises(QueryError, match="query vector 0: expected finite numbers and a norm up to 1e18"):
        as_vectors(query, None)
