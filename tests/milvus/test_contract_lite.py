"""The index contract on Milvus Lite, in this process."""

import pytest

import mvindex
from mvindex.testing import HybridContract, IndexContract


@pytest.mark.needs("milvus-lite")
class TestMilvusLite(IndexContract):
    def open_index(self, tmp_path):
        return mvindex.create(f"milvus-lite:{tmp_path / 'contract.db'}", dim=self.dim)


@pytest.mark.needs("milvus-lite")
class TestMilvusLiteHybrid(HybridContract):
    def open_index(self, tmp_path):
        return mvindex.create(f"milvus-lite:{tmp_path / 'contract.db'}", dim=self.dim, lexical=self.lexical)
