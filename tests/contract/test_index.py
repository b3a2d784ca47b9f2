"""The index contract on every kind and scan, the engine contract on every ranking engine."""

import numpy as np
import pytest

import mvindex
from mvindex.engines.protocol import BuildOptions, Kind
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_torch import ScanConfig, TorchScan
from mvindex.engines.scan_vnni import NativeConfig, NativeScan
from mvindex.engines.torch_blocks import Precision
from mvindex.records import Document
from mvindex.store.embedded import EmbeddedStore
from mvindex.testing import EngineContract, IndexContract
from mvindex_connectors.engines.faiss import FaissEngine


class EmbeddedContract(IndexContract):
    kind = Kind.EXACT

    def scan(self):
        return NumpyScan()

    def open_index(self, tmp_path):
        index = mvindex.create(tmp_path / "contract.mvx", dim=self.dim)
        index._scan = self.scan()
        return index

    def settle(self, index):
        index.build(kind=self.kind.value)


class TestNumpyScan(EmbeddedContract):
    pass


@pytest.mark.needs("vnni")
class TestNativeScan(EmbeddedContract):
    def scan(self):
        return NativeScan(NumpyScan)


@pytest.mark.needs("vnni")
class TestNativeScanWithoutCache(EmbeddedContract):
    def scan(self):
        return NativeScan(NumpyScan, NativeConfig(threads=2, cache_bytes=0))


class TestTorchScanFp32(EmbeddedContract):
    def scan(self):
        return TorchScan(ScanConfig(precision=Precision.FP32))


class TestTorchScanBf16(EmbeddedContract):
    def scan(self):
        return TorchScan(ScanConfig(precision=Precision.BF16))


class TestTorchScanInt8(EmbeddedContract):
    def scan(self):
        return TorchScan(ScanConfig(precision=Precision.INT8))


class TestTorchScanWithoutCache(EmbeddedContract):
    def scan(self):
        return TorchScan(ScanConfig(cache_bytes=0))


@pytest.mark.needs("cuda")
class TestTorchScanCuda(EmbeddedContract):
    def scan(self):
        return TorchScan(ScanConfig(device="cuda"))


class TestFaissFlat(EmbeddedContract):
    kind = Kind.FLAT


class TestFaissHnsw(EmbeddedContract):
    kind = Kind.HNSW
    is_exact = False


class TestFaissFlatPruned(EmbeddedContract):
    """Views left out of the engine change no answer; documents of short views lose some in every test."""

    kind = Kind.FLAT
    prune_views = 0.5

    def settle(self, index):
        index.build(kind=self.kind.value, prune_views=self.prune_views)


class TestFaissFlatAlmostOneViewEach(TestFaissFlatPruned):
    prune_views = 2.0


class TestFaissHnswPruned(TestFaissFlatPruned):
    kind = Kind.HNSW
    is_exact = False


class TestFaissIvfFlat(EmbeddedContract):
    kind = Kind.IVF_FLAT
    is_exact = False


class TestFaissIvfSq8(EmbeddedContract):
    kind = Kind.IVF_SQ8
    is_exact = False


class TestFaissIvfPq(EmbeddedContract):
    kind = Kind.IVF_PQ
    is_exact = False


class TestFaissIvfRabitq(EmbeddedContract):
    kind = Kind.IVF_RABITQ
    is_exact = False


class TestFaissIvfPqPruned(TestFaissFlatPruned):
    kind = Kind.IVF_PQ
    is_exact = False


class TestManyDimensions(EmbeddedContract):
    dim = 1024

    def scan(self):
        return TorchScan(ScanConfig(precision=Precision.BF16))


@pytest.mark.needs("vnni")
class TestManyDimensionsNative(EmbeddedContract):
    dim = 1000

    def scan(self):
        return NativeScan(NumpyScan)


class TestOneDimension(EmbeddedContract):
    dim = 1

    def scan(self):
        return TorchScan(ScanConfig(precision=Precision.BF16))


class FaissContract(EngineContract):
    kind = Kind.FLAT

    def build(self, views, tmp_path):
        with mvindex.create(tmp_path / "engine.mvx", dim=self.dim) as index:
            index.add_views([Document(str(n), "x") for n in range(len(views))], views)
        store = EmbeddedStore(tmp_path / "engine.mvx")
        try:
            directory = tmp_path / "built"
            directory.mkdir()
            options = BuildOptions(work=tmp_path / "work")
            settings = FaissEngine().build(self.kind, store.snapshot, directory, options)
            return FaissEngine().open(self.kind, directory, {**settings, "built_rows": store.snapshot.num_rows})
        finally:
            store.close()


class TestFaissFlatEngine(FaissContract):
    pass


class TestFaissHnswEngine(FaissContract):
    kind = Kind.HNSW


class TestFaissIvfFlatEngine(FaissContract):
    kind = Kind.IVF_FLAT


class TestFaissIvfPqEngine(FaissContract):
    kind = Kind.IVF_PQ


class TestFaissIvfPqEngineOfOddDimensions(FaissContract):
    kind = Kind.IVF_PQ
    dim = 7


def test_hnsw_finds_most_of_what_brute_force_finds(tmp_path):
    rng = np.random.default_rng(11)
    views = rng.standard_normal((2000, 8, 32)).astype(np.float32)
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    with mvindex.create(tmp_path / "recall.mvx", dim=32) as index:
        index.add_views([Document(str(n), "x") for n in range(len(views))], views)
        index.build(kind="hnsw")
        queries = rng.standard_normal((40, 32)).astype(np.float32)
        found = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10)]
        true = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10, exact=True)]
    recall = np.mean([len(a & b) / 10 for a, b in zip(found, true, strict=True)])
    assert recall > 0.95
