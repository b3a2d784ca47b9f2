"""The index contract on every kind and scan, the engine contract on every ranking engine."""

import numpy as np
import pytest

import mvindex
from mvindex.engines import find_kind
from mvindex.engines.device_views import DeviceConfig
from mvindex.engines.protocol import EXACT, BuildOptions
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_torch import TorchScan
from mvindex.engines.scan_vnni import VnniConfig, VnniScan
from mvindex.index import search_engine_of
from mvindex.records import Document
from mvindex.store.embedded import EmbeddedStore
from mvindex.testing import EngineContract, IndexContract


class EmbeddedContract(IndexContract):
    kind = EXACT

    def scan(self):
        return NumpyScan()

    def open_index(self, tmp_path):
        index = mvindex.create(tmp_path / "contract.mvx", dim=self.dim)
        search_engine_of(index).use_scan(self.scan)
        return index

    def settle(self, index):
        index.admin.build(kind=self.kind)


class TestNumpyScan(EmbeddedContract):
    pass


@pytest.mark.needs("vnni")
class TestVnniScan(EmbeddedContract):
    def scan(self):
        return VnniScan(NumpyScan)


@pytest.mark.long
@pytest.mark.needs("vnni")
class TestVnniScanWithoutCache(EmbeddedContract):
    def scan(self):
        return VnniScan(NumpyScan, VnniConfig(threads=2, cache_bytes=0))


class TestTorchScan(EmbeddedContract):
    def scan(self):
        return TorchScan()


@pytest.mark.long
class TestTorchScanWithoutCache(EmbeddedContract):
    def scan(self):
        return TorchScan(DeviceConfig(as_gpu=True, cache_bytes=0))


@pytest.mark.needs("cuda")
class TestTorchScanCuda(EmbeddedContract):
    def scan(self):
        return TorchScan(DeviceConfig(device="cuda"))


class TestFaissFlat(EmbeddedContract):
    kind = "flat"


class TestFaissHnsw(EmbeddedContract):
    kind = "hnsw"
    is_exact = False


class TestGraph(EmbeddedContract):
    kind = "graph"
    is_exact = False


# Lists of other codes than those of ivf-pq: the same file, over the same lists.
@pytest.mark.long
class TestFaissIvfFlat(EmbeddedContract):
    kind = "ivf-flat"
    is_exact = False


@pytest.mark.long
class TestFaissIvfSq8(EmbeddedContract):
    kind = "ivf-sq8"
    is_exact = False


class TestFaissIvfPq(EmbeddedContract):
    kind = "ivf-pq"
    is_exact = False


class TestFaissIvfRabitq(EmbeddedContract):
    kind = "ivf-rabitq"
    is_exact = False


@pytest.mark.long
class TestManyDimensions(EmbeddedContract):
    dim = 1024

    def scan(self):
        return TorchScan(DeviceConfig(as_gpu=True))


@pytest.mark.needs("vnni")
class TestManyDimensionsNative(EmbeddedContract):
    dim = 1000

    def scan(self):
        return VnniScan(NumpyScan)


class TestOneDimension(EmbeddedContract):
    dim = 1

    def scan(self):
        return TorchScan(DeviceConfig(as_gpu=True))


class FaissContract(EngineContract):
    kind = "flat"

    def build(self, views, tmp_path):
        with mvindex.create(tmp_path / "engine.mvx", dim=self.dim) as index:
            index.add_views([Document(str(n), "x") for n in range(len(views))], views)
        store = EmbeddedStore(tmp_path / "engine.mvx")
        try:
            directory = tmp_path / "built"
            directory.mkdir()
            options = BuildOptions(work=tmp_path / "work")
            kind = find_kind(self.kind)
            settings = kind.build(store.snapshot, directory, options)
            return kind.open(directory, {**settings, "built_rows": store.snapshot.num_rows}, None)
        finally:
            store.close()


class TestFaissFlatEngine(FaissContract):
    pass


class TestFaissHnswEngine(FaissContract):
    kind = "hnsw"


class TestFaissIvfFlatEngine(FaissContract):
    kind = "ivf-flat"


class TestFaissIvfPqEngine(FaissContract):
    kind = "ivf-pq"


class TestFaissIvfPqEngineOfOddDimensions(FaissContract):
    kind = "ivf-pq"
    dim = 7


def test_hnsw_finds_most_of_what_brute_force_finds(tmp_path):
    rng = np.random.default_rng(11)
    views = rng.standard_normal((2000, 8, 32)).astype(np.float32)
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    with mvindex.create(tmp_path / "recall.mvx", dim=32) as index:
        index.add_views([Document(str(n), "x") for n in range(len(views))], views)
        index.admin.build(kind="hnsw")
        queries = rng.standard_normal((40, 32)).astype(np.float32)
        found = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10)]
        true = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10, exact=True)]
    recall = np.mean([len(a & b) / 10 for a, b in zip(found, true, strict=True)])
    assert recall > 0.95
