"""Kind graph: what a walk finds, how it is built, what it is asked that a walk cannot do."""

import json
import resource
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import mvindex
from mvindex.engines import graph_build
from mvindex.engines.build import save_measured, save_search_params
from mvindex.engines.graph import GRAPH, GraphEngine, beam_of
from mvindex.errors import ConfigError, DamagedIndex, EngineError, EngineUnavailable, StoreError
from mvindex.index import embedded_store_of, store_of
from mvindex.kernels.walk import new_steps
from mvindex.search.local import EngineCache
from mvindex.search.views import is_scan_faster
from mvindex.testing import unit

DIM, COUNT, VIEWS = 24, 3000, 4


def clustered(rng, count=COUNT, views=VIEWS, dim=DIM):
    """Return views of documents around 30 centres, (count, views, dim)."""
    centres = rng.standard_normal((30, 1, dim))[rng.integers(0, 30, count)]
    return centres + rng.standard_normal((count, 1, dim)) + 0.5 * rng.standard_normal((count, views, dim))


def make(path, views):
    with mvindex.create(path, dim=views.shape[2]) as index:
        documents = [mvindex.Document(str(n), "t", metadata={"n": n % 100, "half": n % 2}) for n in range(len(views))]
        index.add_views(documents, views)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = make(tmp_path_factory.mktemp("graph") / "x.mvx", clustered(np.random.default_rng(8)))
    with mvindex.open(path) as index:
        index.admin.build("graph")
        # Of so few documents the scan may be as fast: who sets the beam decides that the graph answers.
        save_search_params(embedded_store_of(index), {"beam": 250, "top_k": 10})
    return path


def test_a_build_measures_itself_and_keeps_what_follows(tmp_path):
    with mvindex.open(make(tmp_path / "x.mvx", clustered(np.random.default_rng(8)))) as index:
        report = index.admin.build("graph", target_recall=0.9)
        measured, search = report.measured, index.info().search
        assert measured["recall_10"] >= 0.9 and measured["recall_100"] >= 0.9 and measured["documents"] == COUNT
        assert all(0 < measured[name] < 20 for name in ("ms_10", "ms_100", "exact_ms_10", "exact_ms_100"))
        assert search["measured"] == measured and search["top_k"] == 10 and search["beam"] <= search["beam_100"]
        assert recall(index, top_k=10) > 0.75
        wider = index.admin.build("graph", target_recall=0.999)
        assert wider.measured["recall_10"] > measured["recall_10"]
        assert index.info().search["beam_100"] > search["beam_100"]


# What a build may have measured: for the best 10 the graph is faster, for the best 100 the scan.
MEASURED = {"documents": COUNT, "ms_10": 0.5, "ms_100": 2.5, "exact_ms_10": 0.8, "exact_ms_100": 1.4}


@pytest.mark.parametrize(("top_k", "is_exact"), [(10, False), (100, True)])
def test_the_scan_answers_where_it_was_measured_to_be_faster(path, tmp_path, top_k, is_exact):
    shutil.copytree(path, tmp_path / "x.mvx")
    with mvindex.open(tmp_path / "x.mvx") as index:
        save_measured(embedded_store_of(index), {"beam": 200, "top_k": 10}, MEASURED)
        index.refresh()
        together = index.search(QUERIES, top_k)
        assert {result.exact for result in together} == {is_exact}
        alone = [index.search(query, top_k) for query in QUERIES]
        assert [[hit.id for hit in result] for result in alone] == [[hit.id for hit in result] for result in together]
        # Whoever tunes decides that the graph answers.
        save_search_params(embedded_store_of(index), {"beam": 100, "top_k": 10})
        index.refresh()
        assert not index.search(QUERIES[0], top_k).exact


@pytest.mark.parametrize(
    ("scan_ms", "share", "is_faster"), [(0.8, 1, False), (0.4, 1, True), (0.8, 0.1, True), (8, 0.1, False)]
)
def test_what_a_filter_leaves_counts(scan_ms, share, is_faster):
    assert is_scan_faster({**MEASURED, "exact_ms_10": scan_ms}, 10, share, COUNT) is is_faster


def test_graphs_of_shards_answer_where_they_were_measured_together_to_be_faster(tmp_path):
    views = clustered(np.random.default_rng(8))
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(COUNT)], views)
        index.admin.build("graph")
        for store in store_of(index).sharding.stores.values():
            save_measured(store, {"beam": 200, "top_k": 10}, MEASURED)
        index.refresh()
        assert [index.search(QUERIES[0], top_k).exact for top_k in (10, 100)] == [False, True]


def test_what_a_graph_has_taken_in_since_it_was_measured_counts():
    measured = {**MEASURED, "exact_ms_10": 0.4}
    assert [is_scan_faster(measured, 10, 1, count) for count in (COUNT, 2 * COUNT)] == [True, False]


def test_a_graph_is_not_walked_under_a_tight_filter_whatever_was_measured(path, tmp_path):
    shutil.copytree(path, tmp_path / "x.mvx")
    with mvindex.open(tmp_path / "x.mvx") as index:
        measured = {**MEASURED, "ms_10": 1e-6, "ms_100": 1e-6}
        save_measured(embedded_store_of(index), {"beam": 200, "top_k": 10}, measured)
        index.refresh()
        assert not index.search(QUERIES[0], 10).exact
        assert index.search(QUERIES[0], 10, filter={"n": 3}).exact


def test_an_engine_that_has_measured_itself_does_so_again_when_compaction_builds_it_anew(tmp_path):
    with mvindex.open(make(tmp_path / "x.mvx", clustered(np.random.default_rng(8), 600))) as index:
        index.admin.build("graph")
        index.delete(ids=[str(number) for number in range(300)])
        index.admin.compact()
        assert index.info().search["measured"]["documents"] == 300


QUERIES = unit(np.random.default_rng(9).standard_normal((40, DIM))).astype(np.float32)


def ids(result):
    return [hit.id for hit in result.hits]


def recall(index, queries=QUERIES, **options):
    found, exact = (index.search(queries, exact=is_exact, **options) for is_exact in (False, True))
    assert all(len(set(ids(one))) == len(one.hits) == len(other.hits) for one, other in zip(found, exact, strict=True))
    return float(np.mean([len(set(ids(a)) & set(ids(b))) / len(b.hits) for a, b in zip(found, exact, strict=True)]))


@pytest.mark.parametrize("scoring", ["max", "drpq"])
@pytest.mark.parametrize("top_k", [1, 10, 100, COUNT])
def test_nearly_all_is_found(path, scoring, top_k):
    with mvindex.open(path) as index:
        assert recall(index, top_k=top_k, scoring=scoring) > 0.95


@pytest.mark.parametrize("condition", [{"half": 1}, {"n": {"lt": 3}}, {"n": 5}, {"n": -1}])
def test_a_list_is_filled_under_a_filter(path, condition):
    with mvindex.open(path) as index:
        if condition != {"n": -1}:
            assert recall(index, top_k=50, filter=condition) > 0.95
        assert {len(one.hits) for one in index.search(QUERIES, top_k=50, filter=condition)} <= {50, 30, 0}


def test_scores_are_those_of_the_exact_scan_and_nothing_is_called_exact(path):
    with mvindex.open(path) as index:
        for found, exact in zip(index.search(QUERIES, 10), index.search(QUERIES, 10, exact=True), strict=True):
            scores = {hit.id: (hit.score, hit.slot) for hit in exact.hits}
            assert all((hit.score, hit.slot) == scores.get(hit.id, (hit.score, hit.slot)) for hit in found.hits)
            assert exact.exact and not found.exact and found.short_by == 0


def test_a_graph_whose_loops_are_still_compiled_is_answered_by_the_exact_scan(path, monkeypatch):
    query = QUERIES[0]
    with mvindex.open(path) as index:
        walked = index.search(query, 10)
        monkeypatch.setattr(GraphEngine, "is_ready", lambda self: False)
        scanned, expected = index.search(query, 10), index.search(query, 10, exact=True)
    assert scanned.exact and scanned == expected and not walked.exact


def test_one_query_is_answered_as_in_a_batch_and_by_any_number_of_threads(path, monkeypatch):
    with mvindex.open(path) as index:
        alone = [ids(index.search(query, 10)) for query in QUERIES]
        for threads in ("1", "3"):
            monkeypatch.setenv("OMP_NUM_THREADS", threads)
            assert [ids(one) for one in index.search(QUERIES, 10)] == alone


def test_what_is_deleted_added_or_replaced_after_the_build_counts(tmp_path):
    views = clustered(np.random.default_rng(3), 600)
    with mvindex.open(make(tmp_path / "x.mvx", views)) as index:
        index.admin.build("graph")
        best = ids(index.search(QUERIES[0], 3))
        index.delete(ids=best[:1])
        index.add_views(
            [mvindex.Document("new", "t"), mvindex.Document(best[1], "t")], np.stack([[QUERIES[0] * 50]] * 2)
        )
        found = index.search(QUERIES[0], 10)
        assert set(ids(found)[:2]) == {"new", best[1]} and best[0] not in ids(found)
        assert recall(index, top_k=10) > 0.95


@pytest.mark.parametrize(
    "views",
    [
        np.ones((1, 1, 3)),
        np.ones((300, 2, 3)),  # all the same
        np.random.default_rng(1).standard_normal((200, 1, 1)),
        np.random.default_rng(1).standard_normal((200, 3, 70)) * np.logspace(-3, 3, 200)[:, None, None],  # of all sizes
        np.zeros((50, 2, 5)) + np.eye(5)[0] * (np.arange(50) % 7 == 0)[:, None, None],  # most without a direction
    ],
    ids=["one", "same", "line", "sizes", "zeros"],
)
def test_odd_views_are_found_too(tmp_path, views):
    queries = np.random.default_rng(2).standard_normal((10, views.shape[2])).astype(np.float32)
    with mvindex.open(make(tmp_path / "x.mvx", views)) as index:
        index.admin.build("graph")
        save_search_params(embedded_store_of(index), {"beam": 400, "top_k": 10})
        index.refresh()
        for found, exact in zip(index.search(queries, 5), index.search(queries, 5, exact=True), strict=True):
            assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in exact.hits])
        assert len(index.search(queries[0] * 0, 5).hits) == min(5, len(views))


def test_documents_of_very_many_views_are_walked_through(tmp_path):
    rng = np.random.default_rng(2)
    counts = [1000 if number % 4 == 0 else 1 for number in range(24)]
    with mvindex.create(tmp_path / "x.mvx", dim=8) as index:
        for number, count in enumerate(counts):
            index.add_views([mvindex.Document(str(number), "t")], [rng.standard_normal((count, 8))])
        index.admin.build("graph")
        queries = rng.standard_normal((10, 8)).astype(np.float32)
        assert recall(index, queries, top_k=10) > 0.95


def test_memory_holds_steps_among_documents_of_very_many_views():
    graph = SimpleNamespace(links=np.empty((0, 32), np.int32), codes=np.empty((0, 32), np.uint8))
    held = len(new_steps(graph, 1 << 14, 20_000).reached)
    assert held > 2 * 32 * 20_000 and held & held - 1 == 0
    assert len(new_steps(graph, 1 << 14, 8).reached) == 1 << 14


def files_of_graph(path):
    """Return the bytes of the files of an index's graph."""
    with mvindex.open(path) as index:
        directory = embedded_store_of(index).snapshot.settings["engine"]["directory"]
    return {file.name: file.read_bytes() for file in (path / "generation-000001" / directory).iterdir()}


def built_files(path):
    """Return the bytes of the files of a graph built over the index."""
    with mvindex.open(path) as index:
        index.admin.build("graph")
    return files_of_graph(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """An index of 800 documents, and the files of the graph that one thread builds over it."""
    path = make(tmp_path_factory.mktemp("small") / "x.mvx", clustered(np.random.default_rng(5), 800))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "1")
        files = built_files(path)
    with mvindex.open(path) as index:
        index.admin.build("exact")
    return path, files


def test_the_graph_is_the_same_for_any_number_of_threads(small, tmp_path, monkeypatch):
    path, files = shutil.copytree(small[0], tmp_path / "x.mvx"), small[1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert built_files(path) == files and len(files) == 7


@pytest.mark.parametrize("name", ["codes.npy", "factors.npy", "links.npy"])
def test_a_full_disk_is_an_error_and_leaves_the_index_as_it_was(tmp_path, name):
    path = make(tmp_path / "x.mvx", clustered(np.random.default_rng(5), 2000))
    size = len(built_files(path)[name])
    with mvindex.open(path) as index:
        index.admin.build("exact")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, hard))
        try:
            with pytest.raises(StoreError, match="cannot build"):
                index.admin.build("graph")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert index.info().kind == "exact" and index.search(QUERIES[0], 3).exact
        assert not list(path.glob("*/engine-*"))


@pytest.mark.parametrize("harm", [None, "links.npy", "state.json"])
def test_a_build_that_was_stopped_goes_on_to_the_same_graph(small, tmp_path, monkeypatch, harm):
    path, whole = shutil.copytree(small[0], tmp_path / "x.mvx"), small[1]
    monkeypatch.setattr(graph_build, "KEPT_EVERY_S", 0.0)
    seen = []

    def stop(step, done, total):
        if step == "linking documents":
            seen.append(done)
            if len(seen) == 60:
                raise KeyboardInterrupt

    with mvindex.open(path) as index, pytest.raises(KeyboardInterrupt):
        index.admin.build("graph", on_progress=stop)
    work = path / "generation-000001" / "building-graph"
    stopped_at = json.loads((work / "state.json").read_text())["done"]
    if harm is not None:
        (work / harm).write_bytes((work / harm).read_bytes()[:-3])
    seen.clear()
    with mvindex.open(path) as index:
        index.admin.build(
            "graph", on_progress=lambda step, done, total: seen.append(done) if step == "linking documents" else None
        )
    assert (min(seen) > stopped_at) == (harm is None)
    assert not work.exists()
    assert files_of_graph(path) == whole


def test_a_tuned_beam_is_kept_and_grows_with_top_k(tmp_path):
    with mvindex.open(make(tmp_path / "x.mvx", clustered(np.random.default_rng(6)))) as index:
        index.admin.build("graph")
        report = index.admin.tune(QUERIES, top_k=10, target_recall=0.9)
        assert report.chosen is not None and report.chosen.recall >= 0.9
        snapshot = embedded_store_of(index).snapshot
        engine = EngineCache().open(snapshot)
        assert engine.search_settings == report.chosen.search
        assert recall(index, top_k=200) > 0.9


@pytest.mark.parametrize(
    ("search", "top_k", "beam"),
    [
        ({"beam": 400, "top_k": 10}, 10, 400),
        ({"beam": 400, "top_k": 10}, 1000, 4000),
        ({"beam": 400, "top_k": 40}, 10, 200),
        ({"beam": 30, "top_k": 10}, 90, 270),
        ({"beam": 30, "top_k": 10}, 4000, 8000),
        ({"beam": 1600, "top_k": 10}, 40, 3200),
        ({"beam": 16, "top_k": 100}, 100, 100),
        ({"beam": 40, "top_k": 10, "beam_100": 400}, 1, 40),
        ({"beam": 40, "top_k": 10, "beam_100": 400}, 10, 40),
        ({"beam": 40, "top_k": 10, "beam_100": 400}, 30, 120),
        ({"beam": 40, "top_k": 10, "beam_100": 400}, 100, 400),
        ({"beam": 40, "top_k": 10, "beam_100": 400}, 400, 800),
    ],
)
def test_the_beam_grows_with_the_documents_asked_for(search, top_k, beam):
    assert beam_of(search, {"beam": 400, "top_k": 10}, top_k) == beam


def test_a_fixed_depth_is_scanned(tmp_path):
    with mvindex.open(make(tmp_path / "x.mvx", clustered(np.random.default_rng(4), 500))) as index:
        options = {"top_k": 5, "scoring": "drpq", "candidates": 200}
        scanned = index.search(QUERIES, **options)
        index.admin.build("graph")
        assert index.search(QUERIES, **options) == scanned


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"degree": 3}, "degree: expected a whole number from 4 to 256, got 3"),
        ({"beam": 5000}, "beam: expected a whole number from 4 to 4096, got 5000"),
        ({"nlist": 3}, "kind 'graph': has no parameter 'nlist'; it has degree, beam"),
    ],
)
def test_wrong_parameters_are_refused(path, parameters, message):
    with mvindex.open(path) as index, pytest.raises(ConfigError, match=message):
        index.admin.build("graph", parameters=parameters)


def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path):
    with mvindex.open(make(tmp_path / "x.mvx", clustered(np.random.default_rng(7), 50))) as index:
        index.admin.build("graph")
        snapshot = embedded_store_of(index).snapshot
        record = snapshot.settings["engine"]
        np.save(snapshot.directory / record["directory"] / "owners.npy", np.zeros(3, dtype=np.int32))
        with pytest.raises(EngineError, match="expected arrays of 200 views"):
            GRAPH.open(snapshot.directory / record["directory"], record["settings"], None)
    with mvindex.open(tmp_path / "x.mvx") as again, pytest.raises(DamagedIndex, match=r"owners\.npy"):
        again.search(QUERIES[0])


def change_record(path, parameters, **settings):
    """Write parameters, and other settings, into the record of an index's engine."""
    with mvindex.open(path) as index:
        store = embedded_store_of(index)
        record = store.settings["engine"]
        changed = {"parameters": record["settings"]["parameters"] | parameters, **settings}
        with store.writing() as writer:
            writer.change_settings(engine=record | {"settings": record["settings"] | changed})


@pytest.mark.parametrize("bits", [2, 8])
def test_a_graph_of_other_bits_is_refused_until_it_is_built_again(path, tmp_path, bits):
    shutil.copytree(path, tmp_path / "x.mvx")
    change_record(tmp_path / "x.mvx", {"bits": bits})
    with mvindex.open(tmp_path / "x.mvx") as index:
        message = f"kind graph: expected codes of 4 bits a dimension, got {bits}; `mvindex build` makes it again"
        with pytest.raises(EngineUnavailable, match=message):
            index.search(QUERIES[0], 3)
        index.admin.build("graph")
        assert len(index.search(QUERIES[0], 3).hits) == 3


def test_a_graph_whose_bits_were_chosen_is_compacted(path, tmp_path):
    shutil.copytree(path, tmp_path / "x.mvx")
    change_record(tmp_path / "x.mvx", {}, requested={"bits": 2}, search={"beam": 300, "top_k": 10})
    with mvindex.open(tmp_path / "x.mvx") as index:
        index.delete(ids=ids(index.search(QUERIES[0], 3))[:1])
        index.admin.compact()
        assert index.info().kind == "graph" and recall(index, top_k=10) > 0.95
