"""The scan of a process that has just begun: equal results before and after a faster one is loaded."""

import sys
from threading import Event

import numpy as np
import pytest

import mvindex
from mvindex import engines, kernels
from mvindex.engines.scan_numpy import PlainFirstScan
from mvindex.index import store_of
from mvindex.kernels.score import Scoring
from tests.helpers.index_examples import documents, vectors

ELEMENTS = 10 * 2 * 4


@pytest.fixture
def beginning(monkeypatch):
    """A process that has done nothing yet."""
    monkeypatch.setattr(kernels, "_elements_so_far", 0)
    monkeypatch.setattr(kernels, "_is_expecting", False)
    monkeypatch.delitem(sys.modules, "mvindex.kernels.compiled", raising=False)


@pytest.fixture
def snapshot(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views(documents(10), vectors(10))
        yield store_of(index).parts()[0].store.snapshot


def test_the_faster_scan_is_opened_once_the_work_pays(beginning, snapshot, monkeypatch):
    monkeypatch.setattr(kernels, "WORTH_LOADING", 2 * ELEMENTS)
    opened = []
    # Private: the two scans of which one takes over from the other.
    scan = PlainFirstScan(lambda snapshot: opened.append(1) or engines._open_plain_scan(1))
    queries = vectors(1)[0][:1].astype(np.float32)
    found = []
    for _ in range(4):
        candidates = scan.candidates(snapshot, queries, 3, snapshot.alive, Scoring())
        found.append((len(opened), set(candidates.rows.tolist())))
    assert [count for count, _ in found] == [0, 0, 1, 1]
    assert all(rows >= found[0][1] or rows <= found[0][1] for _, rows in found)


def test_a_small_scan_does_not_wait_for_the_faster_one(beginning, snapshot, monkeypatch):
    monkeypatch.setattr(kernels, "WORTH_LOADING", 2 * ELEMENTS)
    released = Event()
    scan = PlainFirstScan(lambda snapshot: released.wait(10) and engines._open_plain_scan(1))
    queries = vectors(1)[0][:1].astype(np.float32)
    found = [scan.candidates(snapshot, queries, 3, snapshot.alive, Scoring()).rows.tolist() for _ in range(4)]
    # Were they waiting, the last two would have taken ten seconds and the faster scan.
    assert scan._fast is None and found == [found[0]] * 4
    released.set()


def test_a_batch_counts_with_all_its_queries(beginning, snapshot, monkeypatch):
    monkeypatch.setattr(kernels, "WORTH_LOADING", 2 * ELEMENTS)
    opened = []
    scan = PlainFirstScan(lambda snapshot: opened.append(1) or engines._open_plain_scan(1))
    scan.candidates(snapshot, np.ones((3, 4), dtype=np.float32), 3, snapshot.alive, Scoring())
    assert opened


def test_a_process_that_runs_for_long_says_so(beginning):
    kernels.expect_work()
    assert kernels.pays_to_load(0)


def test_loops_that_are_loaded_are_used(beginning, monkeypatch):
    assert not kernels.pays_to_load(1)
    monkeypatch.setitem(sys.modules, "mvindex.kernels.compiled", object())
    assert kernels.pays_to_load(1)


def test_an_index_gives_the_same_result_before_and_after(beginning, tmp_path, monkeypatch):
    generator = np.random.default_rng(3)
    views = generator.normal(size=(200, 3, 16)).astype(np.float32)
    query = generator.normal(size=16).astype(np.float32)
    results = []
    for worth in (1 << 40, -1):
        monkeypatch.setattr(kernels, "WORTH_LOADING", worth)
        with mvindex.create(tmp_path / f"{worth}.mvx", dim=16) as index:
            index.add_views(documents(200), list(views))
            results.append([index.search(query, 7, scoring=scoring) for scoring in ("max", "drpq")])
    assert results[0] == results[1]
