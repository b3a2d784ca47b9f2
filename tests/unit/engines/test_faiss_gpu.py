"""Engines with a copy on a GPU: as many documents found as on the CPU, and what a GPU cannot do is done there."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import mvindex
from mvindex.engines.build import EngineCache
from mvindex.index import embedded_store_of

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
    from mvindex_connectors.engines.faiss_gpu import GpuCopy

    searched = []
    search = GpuCopy.search
    monkeypatch.setattr(GpuCopy, "search", lambda *args: searched.append(1) or search(*args))
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


def test_a_search_that_a_gpu_cannot_do_is_done_on_the_cpu(path):
    """A copy on the CPU stands for the one on a GPU: only where it is made differs."""
    import faiss

    from mvindex_connectors.engines.faiss import FaissRanking, Held
    from mvindex_connectors.engines.faiss_gpu import GpuCopy

    with mvindex.open(path) as index:
        snapshot = embedded_store_of(index).snapshot
        plain = EngineCache().open(snapshot)
    made = SimpleNamespace(
        StandardGpuResources=object,
        index_cpu_to_gpu=lambda resources, number, index: faiss.clone_index(index),
        SearchParametersIVF=faiss.SearchParametersIVF,
    )
    copy, taken = GpuCopy(made, plain._index, 0), []
    search = copy.search
    copy.search = lambda queries, limit, nprobe: taken.append((limit, nprobe)) or search(queries, limit, nprobe)
    lent = FaissRanking(faiss, plain._kind, Held(plain._index, copy), plain._settings)
    queries = np.random.default_rng(6).standard_normal((20, DIM)).astype(np.float32)
    even = np.arange(snapshot.views.num_views) % 2 == 0
    for limit, allowed in ((40, None), (2048, None), (2049, None), (40, even)):
        found, expected = (each.search(queries, limit, allowed) for each in (lent, plain))
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))
    assert [limit for limit, _ in taken] == [40, 2048]
    assert {nprobe for _, nprobe in taken} <= set(range(1, 65))
    assert not copy.takes(10, 2049, has_mask=False) and copy.takes(10, 2048, has_mask=False)


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
    gone = weakref.ref(lent)
    del lent, owned
    gc.collect()
    assert gone() is None
    index.add(rows)
    scores, found = index.search(rows[:50], 5)
    assert np.isfinite(scores).all() and (found >= 0).all()
