"""The contract of every index, for one behind a server."""

import itertools

import pytest
from serving_tools import served

import mvindex
from mvindex.testing import IndexContract

_INDEXES = 80


class RemoteContract(IndexContract):
    arguments = ()
    settings = {}

    @pytest.fixture(scope="class")
    @classmethod
    def served_indexes(cls, tmp_path_factory):
        """A server of many empty indexes; each test uses the next one."""
        folder = tmp_path_factory.mktemp("served")
        for number in range(_INDEXES):
            mvindex.create(folder / f"i{number}.mvx", dim=cls.dim, **cls.settings).close()
        indexes = [f"--index=i{number}={folder / f'i{number}.mvx'}" for number in range(_INDEXES)]
        with served(*indexes, *cls.arguments) as serving:
            yield (serving.url(f"i{number}") for number in itertools.count())

    @pytest.fixture(autouse=True)
    def _served(self, served_indexes):
        self.urls = served_indexes

    def open_index(self, tmp_path):
        return mvindex.open(next(self.urls))


class TestRemote(RemoteContract):
    pass


class TestRemoteShards(RemoteContract):
    settings = {"shards": 3}


@pytest.mark.full
class TestRemoteOneByOne(RemoteContract):
    """Without micro-batching."""

    arguments = ("--batch", "1")
