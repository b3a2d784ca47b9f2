"""The contract of every index, for one behind a server, and for one whose shards are behind several."""

import itertools

import pytest
from serving_tools import ServedHere, served

import mvindex
from mvindex.testing import HybridContract, IndexContract
from mvindex_connectors.remote import ShardedClient


class _Served:
    """A contract on a server of many empty indexes; each test uses the next one."""

    num_indexes = 110
    arguments = ()
    settings = {}

    @classmethod
    def place(cls, folder, number):
        """The place of an index."""
        return str(folder / f"i{number}.mvx")

    @pytest.fixture(scope="class")
    @classmethod
    def served_indexes(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("served")
        places = [cls.place(folder, number) for number in range(cls.num_indexes)]
        for place in places:
            mvindex.create(place, dim=cls.dim, **cls.settings).close()
        indexes = [f"--index=i{number}={place}" for number, place in enumerate(places)]
        with served(*indexes, *cls.arguments) as serving:
            yield (serving.url(f"i{number}") for number in itertools.count())

    @pytest.fixture(autouse=True)
    def _served(self, served_indexes):
        self.urls = served_indexes

    def open_index(self, tmp_path):
        return mvindex.open(next(self.urls))


class TestRemote(_Served, IndexContract):
    pass


class TestRemoteHybrid(_Served, HybridContract):
    num_indexes = 20
    settings = {"lexical": HybridContract.lexical}


@pytest.mark.needs("milvus-lite")
class TestRemoteMilvusHybrid(TestRemoteHybrid):
    """A server over indexes in Milvus Lite, which takes a fifth of a second a query: each way to ask three times."""

    num_queries = 36

    @classmethod
    def place(cls, folder, number):
        return f"milvus-lite:{folder / 'x.db'}?collection=i{number}"


class TestRemoteShards(_Served, IndexContract):
    settings = {"shards": 3}


@pytest.mark.long
class TestRemoteOneByOne(_Served, IndexContract):
    """Without micro-batching."""

    arguments = ("--batch", "1")


class _WrittenBeside(ShardedClient):
    """Served shards that another process writes, as `mvindex ingest` does: here the writes of a test."""

    def __init__(self, path, count):
        self._written = mvindex.open(path)
        shards = [[("s", str(path / f"shard-{number:05d}-of-{count:05d}"))] for number in range(count)]
        self._servers = ServedHere(*shards)
        super().__init__([f"{address}/s" for address in self._servers.addresses])

    def _write(self, name, *args, **options):
        owner = self._written.admin if name == "build" else self._written
        done = getattr(owner, name)(*args, **options)
        self._servers.refresh()
        return done

    def add(self, *args, **options):
        return self._write("add", *args, **options)

    def add_views(self, *args, **options):
        return self._write("add_views", *args, **options)

    def update(self, *args, **options):
        return self._write("update", *args, **options)

    def delete(self, *args, **options):
        return self._write("delete", *args, **options)

    @property
    def admin(self):
        return self

    def build(self, kind):
        return self._write("build", kind)

    def close(self):
        super().close()
        self._servers.close()
        self._written.close()


class TestServedShards(IndexContract):
    shards = 3

    def open_index(self, tmp_path):
        mvindex.create(tmp_path / "x.mvx", dim=self.dim, shards=self.shards).close()
        return _WrittenBeside(tmp_path / "x.mvx", self.shards)


@pytest.mark.long
class TestServedShardsIvfPq(TestServedShards):
    shards = 2
    is_exact = False

    def settle(self, index):
        index.admin.build("ivf-pq")
