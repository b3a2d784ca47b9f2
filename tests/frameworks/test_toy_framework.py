"""A framework's store is written outside the package, with its shared public pieces alone."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from word_vectors import OIL, PLAGUE, word_counts

import mvindex
from mvindex_connectors.frameworks.citations import HIT_KEY, citations, own_metadata, stored_metadata
from mvindex_connectors.frameworks.connection import AsyncIndexAPI, IndexHandle
from mvindex_connectors.frameworks.filter_pushdown import UNKNOWN, PushedFilter, all_of, checked, equal, is_key
from mvindex_connectors.frameworks.query import FilterPlan, Query, search_filtered
from mvindex_connectors.frameworks.views import group_rows, spans_of, unit_rows


class ToyStore:
    """A store of {"key", "body", "tags"} dicts, filtered by a dict of tags whose values are equal, or start so ("a*").

    A value that starts so is unknown to the index: Python checks it.
    """

    def __init__(self, index):
        self._handle = IndexHandle(index)

    def put(self, items):
        self._handle.run_sync(lambda api: self._put(api, items))

    async def put_async(self, items):
        await self._handle.run_async(lambda api: self._put(api, items))

    def find(self, text, limit, tags=None, **options):
        return self._handle.run_sync(lambda api: self._find(api, text, limit, tags or {}, options))

    async def find_async(self, text, limit, tags=None, **options):
        return await self._handle.run_async(lambda api: self._find(api, text, limit, tags or {}, options))

    def retag(self, tags_by_key):
        return self._handle.run_sync(lambda api: api.update_all(tags_by_key))

    def remove(self, keys):
        return self._handle.run_sync(lambda api: api.delete(ids=keys))

    def close(self):
        self._handle.close()

    async def _put(self, api: AsyncIndexAPI, items):
        spans = [spans_of(item["body"], 8) for item in items]
        snippets = [item["body"][begin:end] for item, own in zip(items, spans, strict=True) for begin, end in own]
        rows = unit_rows([word_counts(snippet) for snippet in snippets], len(snippets))
        documents = [
            mvindex.Document(item["key"], item["body"], "", stored_metadata(item["tags"], {"spans": own}))
            for item, own in zip(items, spans, strict=True)
        ]
        await api.add_views(documents, group_rows(rows, list(map(len, spans))))

    async def _find(self, api: AsyncIndexAPI, text, limit, tags, options):
        query = Query(source=unit_rows([word_counts(text)], 1)[0], text=text)
        plan = FilterPlan(push(tags), lambda stored: matches(tags, stored.metadata))
        result = await search_filtered(api, query, plan, limit, options)
        cited = await citations(api, query.vector, result)
        return [
            {"key": hit.id, "body": hit.text, "tags": own_metadata(hit.metadata), HIT_KEY: one}
            for hit, one in zip(result.hits, cited, strict=True)
        ]


def push(tags):
    return checked(all_of([push_one(key, value) for key, value in tags.items()]))


def push_one(key, value):
    is_prefix = isinstance(value, str) and value.endswith("*")
    condition = equal(key, value) if is_key(key) and not is_prefix else None
    return UNKNOWN if condition is None else PushedFilter(condition, True)


def matches(tags, metadata):
    return all(re.fullmatch(value.replace("*", ".*"), str(metadata.get(key))) for key, value in tags.items())


ITEMS = [
    {"key": "oil", "body": OIL, "tags": {"lang": "english"}},
    {"key": "plague", "body": PLAGUE, "tags": {"lang": "latin"}},
]


@pytest.fixture
def toy(tmp_path):
    store = ToyStore(tmp_path / "toy.mvx")
    yield store
    store.close()


def test_a_store_of_ones_own_finds_and_cites(toy):
    assert toy.find("population", 1) == []
    toy.put(ITEMS)
    (found,) = toy.find("population", 1)
    cited = found["mvindex"]
    assert (found["key"], found["body"], found["tags"]) == ("plague", PLAGUE, {"lang": "latin"})
    assert cited["snippet"] == "The population recovered late." == PLAGUE[slice(*cited["snippet_span"])]
    # The query is (population, 1), and so is the sentence; the others share the last dimension only.
    scores = [view["score"] for view in cited["view_scores"]]
    assert scores == pytest.approx([1, 1 / np.sqrt(6), 1 / np.sqrt(6)], abs=1e-3)


def test_its_filters_go_to_the_index_as_far_as_that_can_evaluate_them(toy):
    toy.put(ITEMS)
    assert push({"lang": "latin"}).is_exact and not push({"lang": "la*"}).is_exact
    for tags in ({"lang": "latin"}, {"lang": "la*"}):
        assert [item["key"] for item in toy.find("oil", 1, tags)] == ["plague"]
    assert toy.find("oil", 1, {"lang": "greek"}) == []


def test_it_updates_and_deletes_many_at_once(toy):
    toy.put(ITEMS)
    assert toy.retag({"oil": {"lang": "dutch"}, "missing": {}}) == 1
    assert [item["key"] for item in toy.find("oil", 2, {"lang": "dutch"})] == ["oil"]
    assert toy.remove(["oil", "missing"]) == 1
    assert [item["key"] for item in toy.find("oil", 2)] == ["plague"]


def test_its_methods_can_be_awaited(toy):
    async def run():
        await toy.put_async(ITEMS)
        return [item["key"] for item in await toy.find_async("oil", 2)]

    assert asyncio.run(run()) == ["oil", "plague"] == [item["key"] for item in toy.find("oil", 2)]


def test_it_works_on_a_server(server):
    async def run(remote):
        await remote.put_async(ITEMS)
        return [item["key"] for item in await remote.find_async("oil", 2, {"lang": "e*"})]

    remote = ToyStore(server.url("dim10"))
    assert asyncio.run(run(remote)) == ["oil"]
    assert remote.retag({"oil": {"lang": "dutch"}, "missing": {}}) == 1
    assert [item["key"] for item in remote.find("oil", 2, {"lang": "dutch"})] == ["oil"]
    assert remote.remove(["oil", "plague"]) == 2
    remote.close()


def test_adapters_know_no_kind_of_index_and_no_private_part_of_one():
    folder = Path(mvindex.__file__).parents[1] / "connectors/mvindex_connectors/frameworks"
    sources = {path: path.read_text() for path in folder.rglob("*.py")}
    assert len(sources) > 15
    for path, source in sources.items():
        assert not re.search(r"type\(index\)|isinstance\(index, \w*Index|\bindex\._", source), path
