"""The index contract and every kind on a newer Milvus, where MVINDEX_MILVUS_URI gives one."""

import numpy as np
import pytest
from milvus_documents import embedded, fill, topical

import mvindex
from mvindex.testing import HybridContract, IndexContract


@pytest.mark.needs("milvus-newer")
class TestNewerMilvus(IndexContract):
    @pytest.fixture(autouse=True)
    def at(self, newer_address):
        self.address = newer_address

    def open_index(self, tmp_path):
        return mvindex.create(self.address, dim=self.dim)


@pytest.mark.needs("milvus-newer")
class TestNewerMilvusHybrid(HybridContract):
    @pytest.fixture(autouse=True)
    def at(self, newer_address):
        self.address = newer_address

    def open_index(self, tmp_path):
        return mvindex.create(self.address, dim=self.dim, lexical=self.lexical)


@pytest.mark.needs("milvus-newer")
@pytest.mark.parametrize("kind", ["diskann", "hnsw-sq", "ivf-rabitq"])
def test_kinds_of_newer_servers_propose_what_is_rescored(newer_address, tmp_path, kind):
    views = topical(800, 5)
    query = np.random.default_rng(3).standard_normal(16).astype(np.float32)
    with mvindex.create(newer_address, dim=16) as index, embedded(tmp_path, views) as same:
        if kind not in index.info().server["kinds"]:
            pytest.skip(f"this server does not build {kind}")
        fill(index, views)
        assert index.admin.build(kind).kind == kind
        exact = {hit.id: hit.score for hit in same.search(query, len(same)).hits}
        found = index.search(query, 20).hits
        assert [hit.score for hit in found] == [exact[hit.id] for hit in found]
        assert len({hit.id for hit in found} & set(list(exact)[:20])) >= 10
        assert index.search(query, 20, exact=True).hits == same.search(query, 20).hits
