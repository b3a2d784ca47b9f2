"""The compiled scan of ivf-pq finds the best codes, and the same ones for any threads, batch and filter."""

import faiss
import numpy as np
import pytest

import mvindex
from mvindex.errors import EngineUnavailable
from mvindex.index import embedded_store_of
from mvindex.kernels import expecting_work, has_int8_products
from mvindex.kernels.fast_scan import MAX_SCORE
from mvindex.search.local import EngineCache
from mvindex.testing import unit
from mvindex_connectors.engines import faiss_fast_scan, faiss_ivf
from mvindex_connectors.engines.faiss_ivf import has_groups

pytestmark = pytest.mark.skipif(not has_int8_products(), reason="the compiled scan needs AVX-512")

DIM, DOCUMENTS, VIEWS, NLIST, NPROBE, LIMIT = 24, 2500, 4, 32, 12, 150
QUERIES = np.random.default_rng(9).standard_normal((12, DIM)).astype(np.float32)
ALLOWED = np.random.default_rng(4).random(DOCUMENTS * VIEWS) < 0.3


@pytest.fixture(autouse=True)
def loops_are_loaded():
    with expecting_work():
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(8)
    views = rng.standard_normal((DOCUMENTS, 1, DIM)) + 0.5 * rng.standard_normal((DOCUMENTS, VIEWS, DIM))
    path = tmp_path_factory.mktemp("scan") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(DOCUMENTS)], unit(views))
        index.admin.build("ivf-pq", nlist=NLIST)
    return path


def opened(path):
    with mvindex.open(path) as index:
        engine = EngineCache().open(embedded_store_of(index).snapshot)
    # Private: whether the compiled loops search, no answer shows.
    assert engine._held.fast_scan.fits
    return engine.with_search({"nprobe": NPROBE, "k_factor": 15})


@pytest.fixture(scope="module")
def engine(path):
    return opened(path)


def use_threads(monkeypatch, num_threads):
    """Make the scan take so many threads, however few the codes."""
    monkeypatch.setattr(faiss_fast_scan, "default_threads", lambda: num_threads)
    monkeypatch.setattr(faiss_fast_scan, "CODES_PER_THREAD", 1)


def estimates(engine, query):
    """The score of each row as its code and its list's centroid give it, by row; of the nearest lists only."""
    # Private: what Faiss itself finds.
    index = engine._index
    lists = faiss.downcast_index(faiss.extract_index_ivf(index))
    rotated = index.chain.at(0).apply(query[None])
    scores, numbers = lists.quantizer.search(rotated, NPROBE)
    codebook = faiss.vector_to_array(lists.pq.centroids).reshape(lists.pq.M, lists.pq.ksub, lists.pq.dsub)
    products = np.einsum("ijk,ik->ij", codebook, rotated.reshape(len(codebook), -1))
    order = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    found = {}
    for score, number in zip(scores[0].tolist(), numbers[0].tolist(), strict=True):
        size = lists.invlists.list_size(number)
        packed = faiss.rev_swig_ptr(lists.invlists.get_codes(number), -(-size // 32) * 32 * len(codebook) // 2)
        blocks = packed.reshape(-1, len(codebook), 16)
        codes = np.empty((len(blocks), 32, len(codebook)), dtype=np.int64)
        codes[:, order] = (blocks & 15).swapaxes(1, 2)
        codes[:, [place + 16 for place in order]] = (blocks >> 4).swapaxes(1, 2)
        sums = products[np.arange(len(codebook)), codes.reshape(-1, len(codebook))[:size]].sum(axis=1)
        rows = faiss.rev_swig_ptr(lists.invlists.get_ids(number), size)
        found |= dict(zip(rows.tolist(), (score + sums).tolist(), strict=True))
    spans = products.max(axis=1) - products.min(axis=1)
    # Tables of bytes are off by half a step a part, and so is the bias of a list.
    return found, (len(codebook) + 1) / 2 * spans.max() / 255 * 1.01


@pytest.mark.parametrize("mask", [None, ALLOWED], ids=["all", "some"])
def test_the_rows_of_the_best_codes_are_found_with_their_scores(engine, mask):
    scores, rows = engine.search(QUERIES, LIMIT, mask)
    for query, own, found in zip(QUERIES, scores, rows, strict=True):
        expected, error = estimates(engine, query)
        allowed = {row: score for row, score in expected.items() if mask is None or mask[row]}
        assert len(set(found.tolist())) == LIMIT and set(found.tolist()) <= set(allowed)
        assert np.allclose(own, [allowed[row] for row in found.tolist()], rtol=0, atol=error)
        assert (np.diff(own) <= 0).all()
        left_out = [score for row, score in allowed.items() if row not in set(found.tolist())]
        assert max(left_out) <= own[-1] + error


@pytest.mark.parametrize("mask", [None, ALLOWED], ids=["all", "some"])
@pytest.mark.parametrize("num_threads", [2, 3, 40])
def test_threads_and_batches_change_nothing(engine, mask, num_threads, monkeypatch):
    scores, rows = engine.search(QUERIES, LIMIT, mask)
    use_threads(monkeypatch, num_threads)
    monkeypatch.setattr(faiss_fast_scan, "_AT_ONCE", 5)
    batch = engine.search(QUERIES, LIMIT, mask)
    assert np.array_equal(batch[0], scores) and np.array_equal(batch[1], rows)
    for number, query in enumerate(QUERIES):
        single = engine.search(query[None], LIMIT, mask)
        assert np.array_equal(single[0][0], scores[number]) and np.array_equal(single[1][0], rows[number])


def test_faiss_finds_the_same_but_for_ties_with_the_last(engine, monkeypatch):
    scores, rows = engine.search(QUERIES, LIMIT, None)
    monkeypatch.setattr(faiss_fast_scan.FastScan, "fits", False)
    others, other_rows = engine.search(QUERIES, LIMIT, None)
    assert np.allclose(scores, others, rtol=0, atol=1e-5)
    for own, found, other in zip(scores, rows, other_rows, strict=True):
        sure = own > own[-1] + 1e-5
        assert set(found[sure].tolist()) <= set(other.tolist())


def test_views_alike_come_in_one_order_for_any_number_of_threads(tmp_path, monkeypatch):
    views = np.repeat(unit(np.random.default_rng(1).standard_normal((3, DIM))), 1000, axis=0)[:, None]
    with mvindex.create(tmp_path / "x.mvx", dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(len(views))], views)
        index.admin.build("ivf-pq", nlist=4)
    engine = opened(tmp_path / "x.mvx").with_search({"nprobe": 4, "k_factor": 15})
    # Far fewer than the views that tie: what is kept of them is cut down again and again.
    expected = engine.search(views[0], 20, None)
    assert len(set(expected[1][0].tolist())) == 20
    use_threads(monkeypatch, 3)
    batch = engine.search(views[::1000, 0], 20, None)
    for found in (engine.search(views[0], 20, None), batch):
        assert np.array_equal(found[0][0], expected[0][0]) and np.array_equal(found[1][0], expected[1][0])


@pytest.mark.parametrize("ulps", [1, 256, 4096])
def test_no_score_of_documents_that_are_nearly_alike_is_beyond_those_that_are_counted(ulps, tmp_path, monkeypatch):
    """Codes tell less apart there than the last digit of a list's score; a place beyond was written to."""
    rng = np.random.default_rng(0)
    one = unit(rng.standard_normal((1, 64))).astype(np.float32)
    views = np.repeat(one[None], 300, axis=0)
    views[:, 0, 5] *= 1 + np.float32(ulps * 2.0**-23) * rng.integers(0, 2, 300).astype(np.float32)
    with mvindex.create(tmp_path / "x.mvx", dim=64, dtype="fp32") as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(300)], views)
        index.admin.build("ivf-pq")
    # Private: a place beyond the last harms nobody at once.
    prepare, prepared = faiss_fast_scan.FastScan._prepared, []
    monkeypatch.setattr(
        faiss_fast_scan.FastScan,
        "_prepared",
        lambda self, nearest: prepared.append(prepare(self, nearest)) or prepared[-1],
    )
    opened(tmp_path / "x.mvx").search(8 * one + 0.1 * rng.standard_normal((8, 64)).astype(np.float32), 5, None)
    assert len(prepared) == 8
    for query in prepared:
        highest = query.tables.reshape(-1, 16).max(axis=1).sum(dtype=int) + query.lists[:, 2].max()
        assert highest <= query.most <= MAX_SCORE


def test_a_list_of_more_views_than_a_key_has_bits_for_is_refused(path, monkeypatch):
    # Private: nobody has the memory for such a list.
    scan = opened(path)._held.fast_scan
    monkeypatch.setitem(vars(scan), "_table", scan._table * np.array([1, 1 << 28, 1]))
    with pytest.raises(EngineUnavailable, match=f"{NPROBE} lists, the longest of [0-9]+ views"):
        scan.search(QUERIES[:1], faiss_fast_scan.Depth(LIMIT, NPROBE, 1), None)


def test_more_hits_than_there_are_codes_leave_places_empty(engine):
    few = np.zeros(DOCUMENTS * VIEWS, dtype=bool)
    few[:40] = True
    scores, rows = engine.with_search({"nprobe": NLIST, "k_factor": 15}).search(QUERIES, LIMIT, few)
    for own, found in zip(scores, rows, strict=True):
        assert set(found[:40].tolist()) == set(range(40)) and (found[40:] == -1).all()
        assert np.isfinite(own[:40]).all() and (own[40:] == -np.inf).all()


def test_a_query_of_zeros_and_a_large_one_are_answered(engine):
    zeros, large = np.zeros((1, DIM), dtype=np.float32), 1e6 * QUERIES[:1]
    assert len(set(engine.search(zeros, LIMIT, None)[1][0].tolist())) == LIMIT
    assert np.array_equal(engine.search(large, LIMIT, None)[1], engine.search(QUERIES[:1], LIMIT, None)[1])


def test_deleted_documents_are_not_found_and_results_are_those_of_a_batch(path, tmp_path, monkeypatch):
    with mvindex.open(path) as index:
        index.admin.snapshot(tmp_path / "y.mvx")
    with mvindex.open(tmp_path / "y.mvx") as index:
        before = index.search(QUERIES, top_k=5)
        gone = {hit.id for result in before for hit in result.hits}
        index.delete(ids=sorted(gone))
        batch = index.search(QUERIES, top_k=5)
        use_threads(monkeypatch, 2)
        for query, result in zip(QUERIES, batch, strict=True):
            hits = [(hit.id, hit.score) for hit in index.search(query, top_k=5).hits]
            assert hits == [(hit.id, hit.score) for hit in result.hits]
            assert len(hits) == 5 and not gone & {id for id, _ in hits}


def test_lists_in_groups_are_those_that_faiss_finds(tmp_path, monkeypatch):
    nlist = 1024
    monkeypatch.setattr(faiss_ivf, "GROUPED_NLIST", nlist)  # a sixteenth of the lists, and of the time
    views = unit(np.random.default_rng(3).standard_normal((nlist * 40, 1, 16))).astype(np.float32)
    with mvindex.create(tmp_path / "x.mvx", dim=16) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(len(views))], views)
        index.admin.build("ivf-pq", nlist=nlist)
    engine = opened(tmp_path / "x.mvx").with_search({"nprobe": 100, "k_factor": 15})
    # Private: as above.
    assert has_groups(faiss, engine._index)
    scores, rows = engine.search(views[:5, 0], LIMIT, None)
    use_threads(monkeypatch, 2)
    split = [engine.search(query, LIMIT, None) for query in views[:5]]
    assert all(np.array_equal(found[0], own) for (_, found), own in zip(split, rows, strict=True))
    monkeypatch.setattr(faiss_fast_scan.FastScan, "fits", False)
    others, _ = engine.search(views[:5, 0], LIMIT, None)
    assert np.allclose(scores, others, rtol=0, atol=1e-5)
