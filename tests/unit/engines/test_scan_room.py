"""The exact scans where documents, queries or dims are more than a kernel has room for."""

import sys

import numpy as np
import pytest

from mvindex.engines import scan_vnni as exact_native
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_vnni import VnniConfig, VnniScan
from mvindex.index import embedded_store_of
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.store import views as stored_views
from mvindex.store.snapshot import MAX_DIM
from mvindex.testing import true_scores
from tests.helpers.scan_cases import (
    EACH_ARITHMETIC,
    SCANS,
    Wanted,
    assert_holds_and_ranks,
    assert_holds_the_best,
    assert_ranks_as,
    build,
    each_of,
)
from tests.helpers.scan_vectors import (
    Case,
    a_crowd,
    duplicates,
    make_queries,
    near_ties,
    one_huge_vector,
    random_rows,
    scales_by_dimension,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class CountingScan(NumpyScan):
    """The NumPy scan, and how many queries it was asked."""

    num_queries = 0

    def candidates(self, snapshot, queries, top_k, allowed, scoring):
        self.num_queries += len(queries)
        return super().candidates(snapshot, queries, top_k, allowed, scoring)


@pytest.mark.needs("vnni")
@pytest.mark.parametrize(("room", "threads"), [(1, 1), (3, 2), (20, 2)])
@pytest.mark.parametrize("kind", [random_rows, duplicates, a_crowd, one_huge_vector, scales_by_dimension, near_ties])
def test_queries_without_room_are_answered_by_the_wider_scan(kind, room, threads, monkeypatch, tmp_path):
    monkeypatch.setattr(exact_native, "_ROOM", room)
    monkeypatch.setattr(exact_native, "_ROOM_PER_DOCUMENT", 0)
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(room)
    starts = np.cumsum([0, *rng.integers(1, 9, 300)])
    stored = kind(rng, starts, 24).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 20), 1)
    wider = CountingScan()
    scan = VnniScan(lambda: wider, VnniConfig(threads=threads))
    with build(case, tmp_path / "x.mvx") as index:
        for scoring in (Scoring(), Scoring(Aggregate.DRPQ, 0.3)):
            truth = true_scores(stored, starts, case.queries, scoring.temperature if scoring != Scoring() else None)
            for top_k in (1, 10, 299):
                wanted = Wanted(case.queries, top_k, np.ones(300, dtype=bool), scoring)
                before = wider.num_queries
                assert_holds_the_best(scan.candidates(embedded_store_of(index).snapshot, *wanted), truth, wanted)
                assert_ranks_as(embedded_store_of(index).snapshot, scan, truth, wanted)
                if top_k > room:  # a query of zeros is asked of a scan the first time only
                    asked = np.concatenate([case.queries, case.queries[case.queries.any(axis=1)]])
                    assert wider.num_queries - before == len(asked)


@pytest.mark.needs("vnni")
def test_the_widest_views_an_index_takes_are_within_what_the_compiled_product_can_sum(tmp_path):
    rng = np.random.default_rng(4)
    dim, starts = MAX_DIM, np.arange(41)
    rows = np.where(rng.random((40, dim)) < np.linspace(0, 1, 40)[:, None], 1.0, -1.0)
    case = Case(rows.astype(np.float32), starts, np.ones((1, dim), dtype=np.float32), 1 << 22)
    with build(case, tmp_path / "x.mvx") as index:
        wanted = Wanted(case.queries, 3, np.ones(40, dtype=bool), Scoring())
        truth = true_scores(case.stored, starts, case.queries)
        found = VnniScan(NumpyScan).candidates(embedded_store_of(index).snapshot, *wanted)
        assert_holds_the_best(found, truth, wanted)


@each_of(["native", "native without cache", "native, half a cache", "native, 2 threads", "native, 3 threads", "torch"])
def test_portions_of_many_blocks_hold_the_best(name, tmp_path):
    """Thirty blocks: threads take a few at a time, and the threshold of one spares the others work."""
    rng = np.random.default_rng(13)
    starts = np.cumsum([0, *rng.integers(1, 9, 1700)])
    stored = a_crowd(rng, starts, 8).astype(np.float32)
    case = Case(stored, starts, make_queries(rng, stored, 17), 1)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", top_ks=(40,))


@EACH_ARITHMETIC
@pytest.mark.parametrize("dim", [3, 256])
@pytest.mark.parametrize("batch", [1, 20])
def test_hundreds_of_equal_documents_are_all_held(name, dim, batch, tmp_path):
    """More of one score, one after another, than a kernel lets wait."""
    rng = np.random.default_rng(14)
    starts = np.arange(701)
    stored = duplicates(rng, starts, dim).astype(np.float16)
    case = Case(stored, starts, rng.standard_normal((batch, dim)).astype(np.float32), 1 << 22)
    assert_holds_and_ranks(SCANS[name](), case, tmp_path / "x.mvx", top_ks=(5,))


@pytest.mark.needs("vnni")
@pytest.mark.parametrize("entries", [1, 1000])
def test_queries_that_need_too_much_room_together_are_scanned_apart(entries, monkeypatch, tmp_path):
    monkeypatch.setattr(exact_native, "_MAX_ENTRIES", entries)
    rng = np.random.default_rng(15)
    starts = np.cumsum([0, *rng.integers(1, 9, 200)])
    stored = random_rows(rng, starts, 16).astype(np.float16)
    case = Case(stored, starts, make_queries(rng, stored, 40), 1)
    assert_holds_and_ranks(SCANS["native"](), case, tmp_path / "x.mvx")


@pytest.mark.parametrize(("most_pairs", "num_scanned"), [(120, 0), (119, 20)])
@pytest.mark.parametrize("top_k", [3, 6])
def test_few_allowed_documents_are_scored_without_a_scan_up_to_a_number_of_pairs(
    most_pairs, num_scanned, top_k, monkeypatch, tmp_path
):
    """Six of 400 documents and 20 queries are 120 pairs."""
    # The package has a function of the module's name.
    monkeypatch.setattr(sys.modules["mvindex.search.exact"], "_MOST_PAIRS", most_pairs)
    rng = np.random.default_rng(19)
    starts = np.cumsum([0, *rng.integers(1, 5, 400)])
    stored, queries = random_rows(rng, starts, 8).astype(np.float32), rng.standard_normal((20, 8)).astype(np.float32)
    allowed = np.zeros(400, dtype=bool)
    allowed[rng.choice(400, 6, replace=False)] = True
    scan = CountingScan()
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        wanted = Wanted(queries, top_k, allowed, Scoring())
        assert_ranks_as(embedded_store_of(index).snapshot, scan, true_scores(stored, starts, queries), wanted)
    assert scan.num_queries == num_scanned


@pytest.mark.needs("vnni")
@pytest.mark.parametrize(("num_queries", "threads"), [(1, 1), (64, 4)])
def test_a_scan_takes_as_many_threads_as_have_work(num_queries, threads, monkeypatch, tmp_path):
    """Starting a thread takes as long as a tenth of a millisecond of scanning."""
    taken, starts, queries = [], np.arange(0, 2001, 2), np.ones((num_queries, 16), dtype=np.float32)
    case = Case(random_rows(np.random.default_rng(0), starts, 16), starts, queries, 1)
    run = exact_native.run_in_threads
    monkeypatch.setattr(exact_native, "run_in_threads", lambda call, count: taken.append(count) or run(call, count))
    monkeypatch.setattr(exact_native, "default_threads", lambda: 4)
    monkeypatch.setattr(exact_native, "_WORK_PER_THREAD", 2000 * 16)
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    with build(case, tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        VnniScan(NumpyScan).candidates(snapshot, queries, 3, snapshot.alive, Scoring())
    assert taken == [threads]
