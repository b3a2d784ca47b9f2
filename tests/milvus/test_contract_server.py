"""The index contract on a real Milvus server."""

import pytest

import mvindex
from mvindex.testing import IndexContract


@pytest.mark.needs("milvus-server")
class TestMilvusServer(IndexContract):
    @pytest.fixture(autouse=True)
    def at(self, address):
        self.address = address

    def open_index(self, tmp_path):
        return mvindex.create(self.address, dim=self.dim)
