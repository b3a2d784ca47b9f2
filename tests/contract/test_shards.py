"""The index contract on an index in shards, which must answer as one store does."""

import pytest

import mvindex
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.index import search_engine_of
from mvindex.testing import HybridContract, IndexContract


class TestShards(IndexContract):
    shards = 3

    def open_index(self, tmp_path):
        index = mvindex.create(tmp_path / "contract.mvx", dim=self.dim, shards=self.shards)
        search_engine_of(index).use_scan(NumpyScan)
        return index


class TestOneShard(TestShards):
    shards = 1


class TestManyShards(IndexContract):
    """More shards than some tests have documents, and the scan that this machine has."""

    def open_index(self, tmp_path):
        return mvindex.create(tmp_path / "contract.mvx", dim=self.dim, shards=5)


@pytest.mark.long
class TestShardsFlat(TestShards):
    def settle(self, index):
        index.admin.build(kind="flat")


class TestShardsIvfPq(TestShards):
    is_exact = False

    def settle(self, index):
        index.admin.build(kind="ivf-pq")


class TestShardsHybrid(HybridContract):
    def open_index(self, tmp_path):
        return mvindex.create(tmp_path / "contract.mvx", dim=self.dim, lexical=self.lexical, shards=3)
