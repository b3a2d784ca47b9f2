"""Inverted lists take in documents, and give others up, without being trained anew."""

import logging
import shutil

import numpy as np
import pytest

import mvindex
from mvindex.engines import extend
from mvindex.errors import EngineError
from mvindex.index import embedded_store_of
from mvindex.search.local import EngineCache
from mvindex.testing import unit

faiss = pytest.importorskip("faiss")

from mvindex_connectors.engines import faiss_lists  # noqa: E402 - after the check that Faiss is there
from mvindex_connectors.engines.faiss_files import INDEX_NAME, read_index  # noqa: E402 - as the line before
from mvindex_connectors.engines.faiss_ivf import ivf_of  # noqa: E402 - as the line before

KINDS = ("ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq")
DIM, COUNT, NLIST = 24, 1200, 16
QUERIES = unit(np.random.default_rng(9).standard_normal((40, DIM))).astype(np.float32)


def document(number, version=0):
    """Return a document and its views, one to three of them."""
    rng = np.random.default_rng([number, version])
    return mvindex.Document(f"d{number}", "t"), unit(rng.standard_normal((1 + number % 3, DIM))).astype(np.float32)


def add(index, numbers, version=0):
    documents, views = zip(*(document(number, version) for number in numbers), strict=True)
    index.add_views(documents, list(views))


@pytest.fixture(scope="module", params=KINDS)
def built(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("growth") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        add(index, range(COUNT))
        index.admin.build(request.param, nlist=NLIST)
    return path


@pytest.fixture
def index(built, tmp_path):
    shutil.copytree(built, tmp_path / "x.mvx")
    with mvindex.open(tmp_path / "x.mvx") as index:
        yield index


def record_of(index):
    return embedded_store_of(index).settings["engine"]


def lists_of(index):
    """Return the active engine's index, as its file has it."""
    return read_index(faiss, embedded_store_of(index).snapshot.directory / record_of(index)["directory"] / INDEX_NAME)


def centroids_of(lists):
    return ivf_of(faiss, lists).quantizer.reconstruct_n(0, NLIST)


def ranking(lists):
    """Return all scores of the queries and their view rows, by row."""
    parameters = faiss.SearchParametersIVF(nprobe=NLIST)
    if isinstance(lists, faiss.IndexPreTransform):
        parameters = faiss.SearchParametersPreTransform(index_params=parameters)
    scores, rows = lists.search(QUERIES, lists.ntotal, params=parameters)
    order = np.argsort(rows, axis=1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def check_holds(index, rows):
    """Check that the engine has the codes of these documents' views, as its lists give them to all views anew."""
    lists, views = lists_of(index), embedded_store_of(index).snapshot.views
    packed, starts = views.fetch(rows)
    view_rows = np.concatenate([np.arange(views.starts[row], views.starts[row + 1]) for row in rows])
    assert lists.ntotal == starts[-1] == record_of(index)["settings"]["num_views"]
    scores, found = ranking(lists)
    lists.reset()
    lists.add_with_ids(packed.astype(np.float32), view_rows)
    wanted_scores, wanted = ranking(lists)
    assert np.array_equal(found, wanted)
    np.testing.assert_allclose(scores, wanted_scores, atol=1e-5)


def test_after_deletions_replacements_and_additions_lists_hold_what_there_is(index):
    before = centroids_of(lists_of(index))
    index.delete(ids=[f"d{number}" for number in range(0, COUNT, 3)])
    add(index, range(1, COUNT, 30), version=1)
    add(index, range(COUNT, COUNT + 50))
    index.admin.compact()
    store = embedded_store_of(index)
    assert np.array_equal(centroids_of(lists_of(index)), before)
    assert record_of(index)["settings"]["origin"] == {"rows": COUNT, "gone": COUNT // 3 + len(range(1, COUNT, 30))}
    check_holds(index, np.arange(store.snapshot.num_rows))
    assert index.info().fresh_documents == 0
    # The rows that lists give are those of the documents.
    for number in (1, 2, 31, COUNT + 49):
        views = document(number, version=int(number % 30 == 1 and number < COUNT))[1]
        assert [hit.hits[0].id for hit in index.search(views, 1)] == [f"d{number}"] * len(views)


def test_the_engine_takes_in_additions_once_they_are_many(index, monkeypatch, caplog):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", 40)
    before = centroids_of(lists_of(index))
    add(index, range(COUNT, COUNT + 39))
    assert index.info().fresh_documents == 39
    index.delete(ids=["d0"])
    caplog.set_level(logging.INFO)
    add(index, [COUNT + 39])
    assert "the engine takes in 40 documents" in caplog.text
    assert index.info().fresh_documents == 0
    # Rows stay until compaction, those of deleted documents as well.
    check_holds(index, np.arange(COUNT + 40))
    assert np.array_equal(centroids_of(lists_of(index)), before)
    assert index.search(document(COUNT + 39)[1], 1)[0].hits[0].id == f"d{COUNT + 39}"


def test_an_engine_too_large_for_whoever_adds_waits_for_compaction(index, monkeypatch):
    monkeypatch.setattr(extend, "LEAST_DOCUMENTS", 40)
    monkeypatch.setattr(extend, "cache_bytes", lambda: 1000)
    add(index, range(COUNT, COUNT + 60))
    assert index.info().fresh_documents == 60
    index.admin.compact()
    assert index.info().fresh_documents == 0
    check_holds(index, np.arange(COUNT + 60))


def test_more_than_twice_the_documents_are_trained_anew(index):
    before = centroids_of(lists_of(index))
    add(index, range(COUNT, 2 * COUNT + 1))
    index.admin.compact()
    assert not np.array_equal(centroids_of(lists_of(index)), before)
    assert record_of(index)["settings"]["origin"] == {"rows": 2 * COUNT + 1, "gone": 0}


@pytest.mark.parametrize("versions", [2, 3], ids=["taken over", "trained anew"])
def test_compaction_leaves_nothing_that_a_later_build_would_go_on_from(index, monkeypatch, versions):
    monkeypatch.setattr(faiss_lists, "KEPT_EVERY", 200)
    for version in range(1, versions):
        add(index, range(COUNT), version=version)
    index.admin.compact()
    assert record_of(index)["settings"]["origin"]["gone"] == (COUNT if versions == 2 else 0)
    assert not list(embedded_store_of(index).snapshot.directory.glob("building-*"))
    before = centroids_of(lists_of(index))
    add(index, range(COUNT, 2 * COUNT))
    index.admin.build(record_of(index)["kind"], nlist=NLIST)
    assert not np.array_equal(centroids_of(lists_of(index)), before)


def test_an_interrupted_growth_goes_on_where_it_was(index, monkeypatch):
    monkeypatch.setattr(faiss_lists, "KEPT_EVERY", 200)
    add(index, range(COUNT, COUNT + 600))
    rows_added, keep = [], faiss_lists._Work.filled_up_to

    def interrupted(work, end, before):
        rows_added.append((before.rows, end))
        if len(rows_added) == 3:
            raise KeyboardInterrupt
        return keep(work, end, before)

    # Private: a kill between two of the parts that are kept.
    monkeypatch.setattr(faiss_lists._Work, "filled_up_to", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.admin.compact()
    assert index.info().fresh_documents == 600
    index.admin.compact()
    assert rows_added[3][0] == rows_added[1][1] > COUNT
    assert index.info().fresh_documents == 0
    check_holds(index, np.arange(COUNT + 600))
    assert not list(embedded_store_of(index).snapshot.directory.glob("building-*"))


def test_lists_of_other_documents_are_refused(index):
    store = embedded_store_of(index)
    base = extend.find_base(store.snapshot, np.arange(COUNT)[::-1])
    with pytest.raises(EngineError, match="expected an engine of the documents in the index, got one of others"):
        faiss_lists.carried_over(faiss, base, store.snapshot.views)
    assert EngineCache().open(store.snapshot).num_rows == COUNT
