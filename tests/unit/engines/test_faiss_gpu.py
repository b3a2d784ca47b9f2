"""Engines with a copy on a GPU: as many documents found as on the CPU, and what a GPU cannot do is done there."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import mvindex
from mvindex.errors import EngineError
from mvindex.index import embedded_store_of
from mvindex.search.local import EngineCache

DIM, COUNT = 32, 4000


@pytest.fixture(scope="module", params=["ivf-flat", "ivf-sq8"])
def path(request, tmp_path_factory):
    rng = np.random.default_rng(5)
    views = rng.standard_normal((COUNT, 1, DIM)) + 0.5 * rng.standard_normal((COUNT, 4, DIM))
    path = tmp_path_factory.mktemp("gpu") / "x.mvx"
    with mvindex.create(path, dim=DIM) as index:
        documents = [mvindex.Document(str(n), "t", metadata={"even": n % 2 == 0}) for n in range(COUNT)]
        index.add_views(documents, views)
        index.admin.build(request.param, nlist=64)
    return path


def found(path, device, **options):
    """The ids of each of 200 queries, and the exact ones."""
    queries = np.random.default_rng(6).standard_normal((200, DIM)).astype(np.float32)
    with mvindex.open(path, device=device) as index:
        results = [index.search(queries, exact=exact, **options) for exact in (False, True)]
    return [[[hit.id for hit in result.hits] for result in each] for each in results]


def recall(found, exact):
    return np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(found, exact, strict=True)])


@pytest.mark.needs("faiss-gpu")
@pytest.mark.parametrize("options", [{"top_k": 10}, {"top_k": 900}, {"top_k": 10, "filter": {"even": True}}])
def test_a_gpu_finds_as_much_as_the_cpu(path, options):
    on_gpu, exact = found(path, "cuda", **options)
    on_cpu, same = found(path, "cpu", **options)
    assert exact == same
    assert recall(on_gpu, exact) == pytest.approx(recall(on_cpu, exact), abs=0.002)
    assert all(len(ids) == options["top_k"] for ids in on_gpu)


@pytest.mark.needs("faiss-gpu")
def test_a_gpu_is_used(path, monkeypatch):
    from mvindex_connectors.engines.faiss_gpu import ListsCopy

    searched = []
    search = ListsCopy.search
    monkeypatch.setattr(ListsCopy, "search", lambda *args: searched.append(1) or search(*args))
    found(path, "cuda", top_k=10)
    assert searched


def test_a_faiss_without_a_gpu_says_so_and_answers_on_the_cpu(path, caplog, monkeypatch):
    import faiss

    monkeypatch.delattr(faiss, "StandardGpuResources", raising=False)
    caplog.set_level("INFO")
    queries = np.random.default_rng(6).standard_normal((20, DIM)).astype(np.float32)
    with mvindex.open(path) as index:
        asked, plain = (EngineCache(device).open(embedded_store_of(index).snapshot) for device in ("cuda", None))
    rankings = [engine.search(queries, 40, None) for engine in (asked, plain)]
    assert all((one == other).all() for one, other in zip(*rankings, strict=True))
    assert "has no GPU" in caplog.text


class Resources:
    """The memory that Faiss computes in on a GPU, by default its 1.5 GiB."""

    def __init__(self):
        self.size_bytes = 3 << 29

    def setTempMemory(self, size_bytes):  # noqa: N802 - as Faiss names it
        self.size_bytes = size_bytes


def gpu_that_is_a_cpu(faiss):
    """Faiss with a copy on the CPU in place of one on a GPU: only where it is made differs."""
    made = SimpleNamespace(**vars(faiss))
    made.StandardGpuResources, made.GpuClonerOptions = Resources, SimpleNamespace
    made.index_cpu_to_gpu = lambda resources, number, index, options: faiss.clone_index(index)
    return made


def test_a_search_that_a_gpu_cannot_do_is_done_on_the_cpu(path):
    import faiss

    from mvindex_connectors.engines.faiss import FaissRanking, Held
    from mvindex_connectors.engines.faiss_gpu import ListsCopy

    with mvindex.open(path) as index:
        snapshot = embedded_store_of(index).snapshot
        plain = EngineCache().open(snapshot)
    # Private: an index of Faiss is put where a GPU would hold its copy.
    copy, taken = ListsCopy(gpu_that_is_a_cpu(faiss), plain._index, 0), []
    search = copy.search
    copy.search = lambda queries, limit, nprobe: taken.append((limit, nprobe)) or search(queries, limit, nprobe)
    lent = FaissRanking(faiss, plain._kind, Held(plain._index, copy), plain._settings)
    queries = np.random.default_rng(6).standard_normal((20, DIM)).astype(np.float32)
    numbers = np.arange(snapshot.views.num_views)
    for limit, allowed in ((40, None), (2048, None), (2049, None), (40, numbers % 90 == 0)):
        found, expected = (each.search(queries, limit, allowed) for each in (lent, plain))
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))
    assert [limit for limit, _ in taken] == [40, 2048]
    assert {nprobe for _, nprobe in taken} <= set(range(1, 65))
    assert not copy.takes(10, 2049) and copy.takes(10, 2048)


@pytest.fixture
def lent(path):
    """An engine, one whose copy on a GPU is a copy on the CPU, and what that copy was asked for."""
    import faiss

    from mvindex_connectors.engines.faiss import FaissRanking, Held
    from mvindex_connectors.engines.faiss_gpu import ListsCopy

    with mvindex.open(path) as index:
        plain = EngineCache().open(embedded_store_of(index).snapshot)
        # Private, as above.
        copy, taken = ListsCopy(gpu_that_is_a_cpu(faiss), plain._index, 0), []
        search = copy.search
        copy.search = lambda queries, limit, nprobe: taken.append(limit) or search(queries, limit, nprobe)
        yield plain, FaissRanking(faiss, plain._kind, Held(plain._index, copy), plain._settings), taken


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-sq8", "ivf-pq"])
def test_views_are_added_to_the_lists_that_a_gpu_finds(kind, tmp_path, monkeypatch):
    """Centroids on the CPU stand for those on a GPU; ivf-pq packs its codes itself, and is filled on the CPU."""
    import faiss

    from mvindex_connectors.engines import faiss_lists
    from mvindex_connectors.engines.faiss_gpu import list_finder

    made, found = gpu_that_is_a_cpu(faiss), []
    made.get_num_gpus = lambda: 1
    made.index_cpu_to_gpu = lambda resources, number, index: found.append(index) or faiss.clone_index(index)
    views = np.random.default_rng(5).standard_normal((900, 3, DIM)).astype(np.float32)
    queries, results = views[:50, 0] + np.float32(0.1), []
    for name in ("cpu", "gpu"):
        if name == "gpu":
            monkeypatch.setattr(faiss_lists, "list_finder", lambda _, kind, index: list_finder(made, kind, index))
        with mvindex.create(tmp_path / f"{name}.mvx", dim=DIM) as index:
            index.add_views([mvindex.Document(str(n), "t") for n in range(900)], views)
            index.admin.build(kind, nlist=16)
            results.append([[hit.id for hit in result.hits] for result in index.search(queries)])
    assert results[0] == results[1]
    assert len(found) == (kind != "ivf-pq")


def test_deletions_leave_searches_on_the_gpu(lent):
    plain, on_gpu, taken = lent
    queries = np.random.default_rng(6).standard_normal((20, DIM)).astype(np.float32)
    _, best = plain.search(queries, 40, None)
    few = np.random.default_rng(1).random(4 * COUNT) > 0.02
    # Half of the best are gone as well, more than the spare rows.
    most_best = few.copy()
    most_best[best[:, :39].ravel()] = False
    for allowed, is_there in ((few, True), (np.arange(4 * COUNT) % 2 == 0, True), (most_best, False)):
        taken.clear()
        found, expected = (each.search(queries, 40, allowed) for each in (on_gpu, plain))
        assert (found[1] == expected[1]).all() and (found[0] == expected[0]).all(), is_there
        assert len(taken) == 1 and 40 < taken[0] < 200
    everything = np.ones(4 * COUNT, dtype=bool)
    everything[7] = False
    found, expected = (each.search(queries, 2000, everything) for each in (on_gpu, plain))
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


def test_a_gpu_that_fails_leaves_its_searches_to_the_cpu(lent, caplog):
    plain, on_gpu, _ = lent
    calls = []

    def fails(queries, limit, nprobe):
        calls.append(limit)
        raise EngineError("faiss: out of memory")

    on_gpu._on_gpu.search = fails
    queries = np.random.default_rng(6).standard_normal((3, DIM)).astype(np.float32)
    for _ in range(2):
        found, expected = (each.search(queries, 40, None) for each in (on_gpu, plain))
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))
    assert len(calls) == 1 and "on the CPU from now on: faiss: out of memory" in caplog.text


def test_a_copy_computes_in_a_quarter_of_a_gigabyte(path):
    import faiss

    from mvindex_connectors.engines.faiss_gpu import ListsCopy

    made, resources = gpu_that_is_a_cpu(faiss), []
    made.index_cpu_to_gpu = lambda own, number, index, options: resources.append(own) or faiss.clone_index(index)
    with mvindex.open(path) as index:
        plain = EngineCache().open(embedded_store_of(index).snapshot)
    copies = [ListsCopy(made, plain._index, 0) for _ in range(2)]
    assert [each.size_bytes for each in resources] == [256 << 20] * len(copies)
    assert resources[0] is not resources[1]


@pytest.mark.parametrize("dim", [DIM, DIM - 1])
def test_packed_codes_are_unpacked_for_a_gpu_and_rank_as_before(dim):
    """The rotation, lists and codes are those of the engine; only the tables of its own search are rounded."""
    import faiss

    from mvindex_connectors.engines.faiss_gpu import ListsCopy, unpacked
    from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf

    rng = np.random.default_rng(8)
    rows, queries = (rng.standard_normal((count, dim)).astype(np.float32) for count in (5000, 50))
    index = new_ivf(faiss, "ivf-pq", dim, 16)
    index.train(rows)
    index.add(rows)
    copy = ListsCopy(gpu_that_is_a_cpu(faiss), index, 0)
    gc.collect()
    assert ivf_of(faiss, unpacked(faiss, index)).own_invlists
    given = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=4))
    scores, found = copy.search(queries, 50, 4)
    packed_scores, packed = index.search(queries, 50, params=given)
    assert np.mean([len(set(one) & set(other)) / 50 for one, other in zip(found, packed, strict=True)]) > 0.95
    assert np.abs(scores - packed_scores).max() < 0.02 * np.abs(scores).max()
    # Until the engine is closed it goes on as it was.
    assert (index.search(queries, 50, params=given)[1] == packed).all()


def test_rows_of_a_graph_on_a_gpu_are_scored_here():
    """Brute force stands for CAGRA: scores, their order and what is missing are of this side."""
    import faiss

    from mvindex_connectors.engines.faiss_gpu import CagraCopy

    class Brute(faiss.IndexFlatIP):
        def __init__(self, resources, dim, metric, config):
            super().__init__(dim)

        def train(self, views):
            self.add(views)

        def search(self, queries, limit, params):
            scores, rows = super().search(queries, limit)
            return -scores[:, ::-1].copy(), rows[:, ::-1].copy()

    made = gpu_that_is_a_cpu(faiss)
    made.GpuIndexCagra, made.GpuIndexCagraConfig, made.SearchParametersCagra = Brute, SimpleNamespace, SimpleNamespace
    rng = np.random.default_rng(9)
    rows, queries = (rng.standard_normal((count, DIM)).astype(np.float32) for count in (100, 7))
    index = faiss.IndexHNSWFlat(DIM, 8, faiss.METRIC_INNER_PRODUCT)
    index.add(rows)
    copy = CagraCopy(made, index, 0)
    del index
    gc.collect()
    scores, found = copy.search(queries, 120, 0)
    products = queries @ rows.T
    order = np.argsort(-products, axis=1)
    assert (found[:, :100] == order).all() and (found[:, 100:] == -1).all()
    np.testing.assert_allclose(scores[:, :100], np.take_along_axis(products, order, axis=1), rtol=1e-5, atol=1e-5)
    assert (scores[:, 100:] == -np.inf).all()
    assert copy.takes(512, 0) and not copy.takes(513, 0)


@pytest.mark.parametrize("kind", ["ivf-pq", "hnsw", "ivf-rabitq", "ivf-flat"])
def test_why_a_kind_is_not_on_a_gpu_is_said(kind):
    import faiss

    from mvindex_connectors.engines.faiss_gpu import why_no_copy
    from mvindex_connectors.engines.faiss_ivf import new_ivf

    def why(dim, **has):
        lists = kind.startswith("ivf")
        index = new_ivf(faiss, kind, dim, 4) if lists else faiss.IndexHNSWFlat(dim, 8, faiss.METRIC_INNER_PRODUCT)
        return why_no_copy(SimpleNamespace(**{**vars(faiss), **has}), kind, index)

    with_gpu = {"StandardGpuResources": object, "get_num_gpus": lambda: 1}
    with_cuvs = with_gpu | {"GpuIndexCagra": object}
    expected = {
        "ivf-pq": ("no GPU", "without cuVS", "3 codes of 4 bits"),
        "hnsw": ("no GPU", "without cuVS", "fewer than 16,384 views"),
        "ivf-rabitq": ("no such kind",) * 3,
        "ivf-flat": ("no GPU", None, None),
    }
    for has, words in zip(({}, with_gpu, with_cuvs), expected[kind], strict=True):
        found = why(6, **has)
        assert found is None if words is None else words in found
    assert kind != "ivf-pq" or why(8, **with_cuvs) is None


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"])
def test_an_index_keeps_what_it_points_to_after_training_with_another(kind):
    """Its quantiser and rotation are alive after all garbage is collected, and the lent index is let go of."""
    import faiss

    from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, train_with

    rows = np.random.default_rng(7).standard_normal((2000, DIM)).astype(np.float32)
    index, lent = new_ivf(faiss, kind, DIM, 16), faiss.IndexFlatIP(DIM)
    owned = list(getattr(index, "referenced_objects", []))
    train_with(faiss, index, lent, rows)
    assert ivf_of(faiss, index).clustering_index is None
    assert owned and list(index.referenced_objects) == owned
    # Faiss would leave it to the index, which does not free it.
    assert lent.thisown
    gone = weakref.ref(lent)
    del lent, owned
    gc.collect()
    assert gone() is None
    index.add(rows)
    scores, found = index.search(rows[:50], 5)
    assert np.isfinite(scores).all() and (found >= 0).all()
