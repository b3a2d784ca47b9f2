"""A graph takes in documents, and gives others up, without being built from nothing."""

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import mvindex
from mvindex.engines import extend, graph_build
from mvindex.engines.build import build_engine, engine_choice, save_search_params
from mvindex.engines.graph_build import Carried
from mvindex.index import embedded_store_of
from mvindex.search.local import EngineCache
from mvindex.testing import unit

DIM, COUNT, VIEWS = 24, 2000, 4
QUERIES = unit(np.random.default_rng(9).standard_normal((300, DIM))).astype(np.float32)
CENTRES = np.random.default_rng(1).standard_normal((30, 1, DIM))


def clustered(seed, count, centres=CENTRES):
    """Return views of documents around the centres, (count, VIEWS, DIM)."""
    rng = np.random.default_rng(seed)
    documents = centres[rng.integers(0, len(centres), count)] + rng.standard_normal((count, 1, DIM))
    return documents + 0.5 * rng.standard_normal((count, VIEWS, DIM))


def add(index, first, views):
    index.add_views([mvindex.Document(f"d{first + number}", "t") for number in range(len(views))], views)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("growth") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        add(index, 0, clustered(8, COUNT))
        index.admin.build("graph")
    return path


@pytest.fixture
def index(built, tmp_path):
    shutil.copytree(built, tmp_path / "x.mvx")
    with mvindex.open(tmp_path / "x.mvx") as index:
        yield index


def graph_of(index):
    """Return the arrays of the active graph."""
    # Private: links, which no answer shows.
    return EngineCache().open(embedded_store_of(index).snapshot)._graph


def settings_of(index):
    return embedded_store_of(index).settings["engine"]["settings"]


def recall(index, queries=QUERIES, beam=120, top_k=10):
    """Return the share of the best documents that a walk with this beam finds."""
    save_search_params(embedded_store_of(index), {"beam": beam, "top_k": top_k})
    index.refresh()
    found, exact = (index.search(queries, top_k=top_k, exact=is_exact) for is_exact in (False, True))
    assert not any(result.exact for result in found)
    pairs = zip(found, exact, strict=True)
    return np.mean([len({h.id for h in a} & {h.id for h in b}) / len(b.hits) for a, b in pairs])


def find_reachable(graph):
    """Return which documents a walk that leaves out nothing would reach; (m,) bool."""
    reached, todo = np.zeros(len(graph.starts) - 1, dtype=bool), set(graph.owners[graph.entries].tolist())
    while todo:
        row = todo.pop()
        reached[row] = True
        links = graph.links[graph.starts[row] : graph.starts[row + 1]]
        todo |= {owner for owner in graph.owners[links[links >= 0]].tolist() if not reached[owner]}
    return reached


def test_recall_after_deletions_and_as_many_additions_is_that_of_a_graph_built_from_nothing(index, tmp_path):
    gone = np.random.default_rng(2).choice(COUNT, 3 * COUNT // 10, replace=False)
    index.delete(ids=[f"d{number}" for number in gone])
    add(index, COUNT, clustered(3, len(gone)))
    index.admin.compact()
    assert settings_of(index)["origin"] == {"rows": COUNT, "gone": len(gone)}
    shutil.copytree(tmp_path / "x.mvx", tmp_path / "anew.mvx")
    with mvindex.open(tmp_path / "anew.mvx") as anew:
        anew.admin.build("graph")
        for beam, top_k in ((32, 10), (60, 10), (200, 100)):
            assert recall(index, beam=beam, top_k=top_k) >= recall(anew, beam=beam, top_k=top_k) - 0.005
    assert recall(index) > 0.95
    assert find_reachable(graph_of(index)).all()


def test_new_documents_that_are_near_to_each_other_only_are_found(index):
    # Far from all others, and as many as one batch of a build over both would link at once.
    views = clustered(4, 60, centres=CENTRES[:1] + 3)
    add(index, COUNT, views)
    assert index.info().fresh_documents == 60
    index.admin.compact()
    assert index.info().fresh_documents == 0
    queries = np.concatenate([views[:, 0], QUERIES[:60]]).astype(np.float32)
    assert recall(index, queries) > 0.95


def test_nothing_leads_nowhere_where_neighbours_and_entries_are_deleted(index):
    graph = graph_of(index)
    row = int(np.setdiff1d(np.arange(COUNT), graph.owners[graph.entries])[0])
    own = graph.links[graph.starts[row] : graph.starts[row + 1]]
    to_it = graph.owners[np.isin(graph.links, np.arange(graph.starts[row], graph.starts[row + 1])).any(axis=1)]
    near = np.unique(np.concatenate([graph.owners[own[own >= 0]], to_it]))
    # Those that its neighbours lead to as well.
    further = graph.links[np.isin(graph.owners, near)]
    gone = np.union1d(near, np.union1d(graph.owners[further[further >= 0]], graph.owners[graph.entries]))
    gone = gone[gone != row]
    assert len(gone) > 300
    views = index.views(f"d{row}").vectors
    index.delete(ids=[f"d{number}" for number in gone])
    index.admin.compact()
    graph = graph_of(index)
    assert find_reachable(graph).all() and (graph.links[:, 0] >= 0).all()
    assert not (graph.owners[graph.links] == graph.owners[:, None])[graph.links >= 0].any()
    save_search_params(embedded_store_of(index), {"beam": 40, "top_k": 10})
    index.refresh()
    assert [result.hits[0].id for result in index.search(views, top_k=1)] == [f"d{row}"] * VIEWS
    assert recall(index) > 0.95


def test_what_was_deleted_before_it_was_linked_is_no_entry_and_leads_nowhere(index):
    add(index, COUNT, clustered(3, 100))
    index.delete(ids=[f"d{COUNT + number}" for number in range(0, 100, 2)])
    best = index.search(QUERIES[0], 1, exact=True).hits[0].id
    index.delete(ids=[best])
    # Rows are not numbered anew: the engine is built over deleted documents, too.
    store = embedded_store_of(index)
    with store.writing() as writer:
        extend.renew(store, writer, extend.find_base(store.snapshot, np.arange(COUNT)))
    graph, alive = graph_of(index), store.snapshot.alive
    assert alive[graph.owners[graph.entries]].all()
    assert find_reachable(graph)[alive].all()
    assert not np.isin(np.flatnonzero(~alive[COUNT:]) + COUNT, graph.owners[graph.links[graph.links >= 0]]).any()
    assert index.info().fresh_documents == 0 and recall(index) > 0.95


def test_additions_are_taken_in_once_they_are_many(index, monkeypatch):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", 100)
    before = settings_of(index)
    add(index, COUNT, clustered(5, 99))
    assert index.info().fresh_documents == 99
    index.delete(ids=[f"d{COUNT}"])
    add(index, COUNT + 99, clustered(6, 1))
    assert index.info().fresh_documents == 99  # one is deleted: it does not count
    add(index, COUNT + 100, clustered(7, 1))
    assert index.info().fresh_documents == 0
    after = settings_of(index)
    assert after["measured"] == before["measured"] and after["search"] == before["search"]
    assert after["built_rows"] == COUNT + 101 and after["origin"] == {"rows": COUNT, "gone": 0}
    assert recall(index) > 0.95


@pytest.mark.parametrize(
    "call", [lambda index: add(index, COUNT, clustered(5, 1)), lambda index: index.admin.compact()]
)
def test_what_a_killed_process_has_left_of_the_graph_before_is_removed(index, call):
    active = embedded_store_of(index).snapshot.directory / embedded_store_of(index).settings["engine"]["directory"]
    others = [active.with_name(name) for name in ("engine-graph-000001", "gone-engine-graph-000000")]
    for other in others:
        shutil.copytree(active, other)
    call(index)
    assert active.exists() and not any(other.exists() for other in others)


@pytest.mark.parametrize("least", [1000, 1], ids=["scanned", "taken in"])
def test_an_unfinished_build_of_another_kind_stays_when_documents_are_added(index, monkeypatch, least):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", least)
    directory = embedded_store_of(index).snapshot.directory
    for name in ("building-hnsw", "building-graph", "engine-hnsw-000007"):
        (directory / name).mkdir()
    is_taken_in = least == 1
    add(index, COUNT, clustered(5, COUNT // 32))
    assert (index.info().fresh_documents == 0) == is_taken_in
    left = {path.name for path in directory.iterdir()}
    assert "building-hnsw" in left and "engine-hnsw-000007" not in left
    assert ("building-graph" in left) != is_taken_in


def grown(num_rows, built_rows, dead=(), **origin):
    """Return a snapshot with a graph, as far as the rules of growth look at it."""
    settings = {"origin": {"gone": 0, **origin}}
    record = {"kind": "graph", "directory": "engine", "built_rows": built_rows, "settings": settings}
    is_alive = np.ones(num_rows, dtype=bool)
    is_alive[list(dead)] = False
    return SimpleNamespace(
        directory=Path("no such"),
        settings={"engine": record},
        num_rows=num_rows,
        num_documents=int(is_alive.sum()),
        alive=is_alive,
    )


@pytest.mark.parametrize(
    "rows, dead, origin, is_outgrown",
    [
        (200, 0, {"rows": 100}, False),
        (201, 0, {"rows": 100}, True),
        (100, 100, {"rows": 100}, False),
        (100, 60, {"rows": 100, "gone": 40}, False),
        (100, 60, {"rows": 100, "gone": 41}, True),
    ],
)
def test_a_graph_is_outgrown_beyond_twice_its_first_size_or_once_it_has_lost_as_many(rows, dead, origin, is_outgrown):
    assert extend.is_outgrown(grown(rows, rows, range(dead), **origin)) == is_outgrown


@pytest.mark.parametrize(
    "built, lacking, is_due",
    [(1, 999, False), (1, 1000, True), (32_032, 1000, False), (32_032, 1001, True), (64_000, 1999, False)],
)
def test_a_graph_is_due_once_it_lacks_a_thousand_and_a_32nd(built, lacking, is_due):
    # Private: the rule for sizes that no test can build.
    assert extend._is_due(grown(built + lacking, built, rows=built)) == is_due


def test_a_document_that_no_link_leads_to_is_linked_again():
    # 0 and 1 lead to each other, 2 to 0, and 3 is gone.
    links = np.array([[1, -1], [0, -1], [0, 1]], dtype=np.int32)
    graph = SimpleNamespace(links=links, starts=np.arange(4), owners=np.arange(3))
    carried = Carried(np.zeros((4, 2), np.int32), np.array([0, 1, 2, -1], np.int32), None, np.arange(3))
    assert carried.find_linked(graph).tolist() == [True, True, False]
    assert links[2].tolist() == [-1, -1] and links[0].tolist() == [1, -1]


def test_compaction_builds_from_nothing_and_measures_again_what_has_doubled(index, monkeypatch):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", 100)
    add(index, COUNT, clustered(5, COUNT - 1))
    index.admin.compact()
    assert settings_of(index)["origin"]["rows"] == COUNT and settings_of(index)["measured"]["documents"] == COUNT
    add(index, 2 * COUNT, clustered(6, 201))
    assert settings_of(index)["origin"]["rows"] == COUNT and index.info().fresh_documents == 0
    index.admin.compact()
    assert settings_of(index)["origin"] == {"rows": 2 * COUNT + 200, "gone": 0}
    assert settings_of(index)["measured"]["documents"] == 2 * COUNT + 200


def test_a_damaged_graph_takes_in_nothing_and_compaction_builds_from_nothing(index, monkeypatch, caplog):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", 10)
    snapshot = embedded_store_of(index).snapshot
    file = snapshot.directory / snapshot.settings["engine"]["directory"] / "links.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink()
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        add(index, COUNT, clustered(5, 70))
    assert "new documents are scanned; the engine could not take them in" in caplog.text and "links.npy" in caplog.text
    assert index.info().documents == COUNT + 70 and index.info().fresh_documents == 70
    index.admin.compact()
    assert index.info().fresh_documents == 0 and settings_of(index)["origin"]["rows"] == COUNT + 70
    assert index.admin.verify().is_sound and recall(index) > 0.95


def test_verify_finds_damage_in_a_graph_that_has_grown(index):
    add(index, COUNT, clustered(5, 50))
    index.admin.compact()
    assert index.admin.verify().is_sound
    snapshot = embedded_store_of(index).snapshot
    file = snapshot.directory / snapshot.settings["engine"]["directory"] / "mean.npy"
    file.write_bytes(file.read_bytes()[:-1])
    report = index.admin.verify()
    assert not report.is_sound and any("mean.npy" in str(problem) for problem in report.problems)


def test_readers_go_on_while_a_graph_takes_in_documents(index, tmp_path):
    query = QUERIES[0]
    with mvindex.open(tmp_path / "x.mvx") as reader, mvindex.open(tmp_path / "x.mvx") as late:
        before = reader.search(query, 10)
        add(index, COUNT, np.stack([[query * 50] * VIEWS]))
        index.admin.compact()
        assert reader.search(query, 10) == before
        # One that has not opened the engine scans: the same documents, certified.
        assert {hit.id for hit in before} <= {hit.id for hit in late.search(query, 10, exact=True)}
        assert late.search(query, 10).hits == late.search(query, 10, exact=True).hits
        assert reader.refresh() and late.refresh()
        for each in (reader, late):
            assert each.search(query, 10).hits[0].id == f"d{COUNT}"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_linking_that_was_stopped_goes_on_to_the_same_graph_by_any_number_of_threads(index, monkeypatch, threads):
    add(index, COUNT, clustered(5, 200))
    store = embedded_store_of(index)
    base, work = extend.find_base(store.snapshot, np.arange(COUNT)), store.snapshot.directory / "building-graph"
    graphs = []
    for is_stopped in (False, True):
        seen = []

        def stop(step, done, total, seen=seen):
            if step == "linking documents":
                seen.append(done)
                if len(seen) == 20:
                    raise KeyboardInterrupt

        monkeypatch.setenv("OMP_NUM_THREADS", threads if is_stopped else "1")
        with store.writing() as writer:
            if is_stopped:
                monkeypatch.setattr(graph_build, "KEPT_EVERY_S", 0.0)
                with pytest.raises(KeyboardInterrupt):
                    extend.renew(store, writer, base, stop)
                assert work.exists()
            record = extend.build_files(store.snapshot, engine_choice("graph", None, None), base=base)
            graphs.append(
                {file.name: file.read_bytes() for file in (store.snapshot.directory / record["directory"]).iterdir()}
            )
            shutil.rmtree(work, ignore_errors=True)
    assert graphs[0] == graphs[1] and len(graphs[0]) == 7


def test_a_graph_of_an_earlier_version_is_built_from_nothing(index):
    store = embedded_store_of(index)
    record = store.settings["engine"]
    settings = {name: value for name, value in record["settings"].items() if name != "origin"}
    with store.writing() as writer:
        writer.change_settings(engine={**record, "settings": settings})
    add(index, COUNT, clustered(5, 1500))
    assert index.info().fresh_documents == 1500
    build_engine(store, engine_choice("graph", None, None))
    assert index.info().fresh_documents == 0 and settings_of(index)["origin"]["rows"] == COUNT + 1500
