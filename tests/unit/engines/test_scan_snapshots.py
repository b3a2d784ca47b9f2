"""The exact scans of an index that changes, is searched by many threads, or holds scores that tie."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.store import views as stored_views
from mvindex.testing import assert_same, brute_force, true_scores, unit
from tests.helpers.scan_cases import EACH_ARITHMETIC, EACH_SCAN, SCANS, Wanted, assert_holds_the_best, build
from tests.helpers.scan_vectors import Case, random_rows

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@EACH_SCAN
def test_a_scan_follows_what_is_added_deleted_and_replaced(name, monkeypatch, tmp_path):
    """Copies of blocks that were not touched are taken over from snapshot to snapshot, the others are made again."""
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(11)
    views = {}
    with mvindex.create(tmp_path / "x.mvx", dim=20) as index:
        search_engine_of(index).use_scan(SCANS[name])
        for turn in range(8):
            count = int(rng.choice([1, 30, 200]))
            given = {f"d{n}": unit(rng.standard_normal((rng.integers(1, 9), 20))) for n in rng.integers(0, 500, count)}
            index.add_views([mvindex.Document(doc_id, f"turn {turn}") for doc_id in given], list(given.values()))
            views |= given
            gone = [doc_id for doc_id in views if rng.random() < 0.1]
            index.delete(ids=gone)
            for doc_id in gone:
                del views[doc_id]
            queries = unit(rng.standard_normal((20, 20)))
            for scoring, options in (("max", {}), ("drpq", {"temperature": 0.1})):
                results = index.search(queries, top_k=7, scoring=scoring, **options)
                for query, result in zip(queries, results, strict=True):
                    assert result.exact
                    assert_same(result, brute_force(views, query, 7, scoring=scoring, **options))


@EACH_SCAN
def test_one_scan_may_be_asked_by_many_threads(name, monkeypatch, tmp_path):
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    rng = np.random.default_rng(12)
    starts = np.cumsum([0, *rng.integers(1, 9, 400)])
    case = Case(unit(random_rows(rng, starts, 32)), starts, unit(rng.standard_normal((200, 32))), 1)
    scan = SCANS[name]()
    with build(case, tmp_path / "x.mvx") as index, ThreadPoolExecutor(4) as pool:
        scorings = [Scoring(), Scoring(Aggregate.DRPQ, 0.1)]
        truths = [true_scores(case.stored, starts, case.queries, temperature) for temperature in (None, 0.1)]

        def ask(number):
            begin, scoring = 8 * number, scorings[number % 2]
            wanted = Wanted(case.queries[begin : begin + 1 + number], 10, np.ones(400, dtype=bool), scoring)
            found = scan.candidates(embedded_store_of(index).snapshot, *wanted)
            assert_holds_the_best(found, truths[number % 2][begin:], wanted)

        for done in [pool.submit(ask, number) for number in range(24)]:
            done.result()


@EACH_ARITHMETIC
def test_scores_that_round_to_one_float32_come_by_ordinal(name, tmp_path):
    """2^24 + 1 is half-way between two float32 and goes to the even one, as 2^24 itself does."""
    rows = np.array([[2.0**24, 0], [2.0**24, 1], [2.0**24, -1], [2.0**24, 2], [2.0**24, 1 + 2.0**-20], [1, 1]])
    expected = {2.0**24 + 2: [3, 4], 2.0**24: [0, 1], 2.0**24 - 1: [2], 2.0: [5]}
    with mvindex.create(tmp_path / "x.mvx", dim=2, dtype="fp32") as index:
        search_engine_of(index).use_scan(SCANS[name])
        index.add_views([mvindex.Document(str(n), "t") for n in range(6)], rows[:, None].astype(np.float32))
        for scoring in ("max", "drpq"):
            for top_k in (1, 2, 3, 4, 5):
                result = index.search(np.ones(2, dtype=np.float32), top_k=top_k, scoring=scoring)
                found = [(hit.score, int(hit.id)) for hit in result.hits]
                assert found == [(score, row) for score, rows_of in expected.items() for row in rows_of][:top_k]


@EACH_ARITHMETIC
def test_many_blocks_with_deletions_give_the_brute_force_ranking(name, tmp_path):
    rng = np.random.default_rng(5)
    views = {f"d{n}": unit(rng.standard_normal((int(rng.integers(1, 12)), 32))) for n in range(4000)}
    with mvindex.create(tmp_path / "x.mvx", dim=32) as index:
        search_engine_of(index).use_scan(SCANS[name])
        index.add_views([mvindex.Document(doc_id, "t") for doc_id in views], list(views.values()))
        gone = [f"d{n}" for n in range(0, 4000, 5)]
        index.delete(ids=gone)
        for doc_id in gone:
            del views[doc_id]
        queries = unit(rng.standard_normal((3, 32)))
        for scoring, options in (("max", {}), ("drpq", {"temperature": 0.05})):
            for query, result in zip(queries, index.search(queries, 150, scoring=scoring, **options), strict=True):
                assert_same(result, brute_force(views, query, 150, scoring=scoring, **options))
