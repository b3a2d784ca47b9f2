"""Answers from Milvus are those of an index in a directory, however deep and crowded; Lite and a real server."""

import numpy as np
import pytest
from milvus_documents import assert_equal, embedded, fill, topical

import mvindex
from mvindex import Document
from mvindex.testing import unit

SCORINGS = [{}, {"scoring": "drpq", "temperature": 0.1}]


def both(place, tmp_path, views, metadata=None, **settings):
    dim = next(iter(views.values())).shape[1]
    index = mvindex.create(place, dim=dim, **settings)
    fill(index, views, metadata)
    return index, embedded(tmp_path, views, metadata, **settings)


@pytest.mark.parametrize("dtype", ["fp16", pytest.param("fp32", marks=pytest.mark.long)])
def test_answers_are_those_of_an_index_in_a_directory(place, tmp_path, dtype):
    views = topical(500, 6)
    metadata = {doc_id: {"group": number % 7, "name": f"é{number}"} for number, doc_id in enumerate(views)}
    index, same = both(place, tmp_path, views, metadata, dtype=dtype)
    queries = np.random.default_rng(3).standard_normal((5, 16)).astype(np.float32)
    with index, same:
        for options in ({}, {"filter": {"group": {"gte": 2}}}, {"filter": {"name": "é7"}}, {"filter": {"id": "d3"}}):
            for scoring in SCORINGS:
                for top_k in (1, 10, 120):
                    found = index.search(queries, top_k, **options, **scoring)
                    for one, other in zip(found, same.search(queries, top_k, **options, **scoring), strict=True):
                        assert_equal(one, other)
        assert index.explain(queries[0], "d3", "drpq") == same.explain(queries[0], "d3", "drpq")


@pytest.mark.parametrize(("top_k", "num_views"), [(3000, 8), pytest.param(1000, 32, marks=pytest.mark.long)])
def test_more_rows_than_the_server_returns_at_once_leave_nothing_out(place, tmp_path, top_k, num_views):
    views = topical(top_k + 200, num_views, spread=0.02)
    index, same = both(place, tmp_path, views)
    query = unit(np.random.default_rng(1).standard_normal(16))
    with index, same:
        found = index.search(query, top_k)
        assert_equal(found, same.search(query, top_k))
        assert len(found.hits) == top_k
        assert found.rounds > 1


@pytest.mark.parametrize("num_views", [8, 16, 32])
def test_a_crowd_of_near_identical_views_takes_few_rounds(place, num_views):
    views = topical(150, num_views, spread=0.005)
    with mvindex.create(place, dim=16) as index:
        fill(index, views)
        result = index.search(views["d7"][0], 20)
        assert (len({hit.id for hit in result.hits}), result.short_by, result.exact) == (20, 0, True)
        assert result.rounds <= 3


def test_a_query_of_zeros_gives_the_first_documents(place, tmp_path):
    index, same = both(place, tmp_path, topical(120, 3))
    with index, same:
        assert_equal(index.search(np.zeros(16), 7), same.search(np.zeros(16), 7))


def test_one_long_document_among_short_ones_is_found(place, tmp_path):
    rng = np.random.default_rng(2)
    views = {"long": unit(rng.standard_normal((700, 16)))}
    views |= {f"s{number}": unit(rng.standard_normal((1, 16))) for number in range(300)}
    index, same = both(place, tmp_path, views)
    with index, same:
        for query in (views["long"][3], views["s9"][0]):
            for top_k in (1, 50, 301):
                assert_equal(index.search(query, top_k), same.search(query, top_k))


def test_documents_come_back_as_they_were_given(place):
    metadata = {f"field {number}": [number, {"deep": None, "é": 1.5}] for number in range(300)}
    given = [
        Document("plain", "A text.", "A title"),
        Document("quotes \" and \\ and ' and %", "line\nbreak\ttab", "", metadata),
        Document("日本語 🎉 ​", "🎉" * 100, "título"),
        Document("x" * 1024, "y" * 65_000),
    ]
    rows = [unit(np.random.default_rng(number).standard_normal((2, 8))) for number in range(len(given))]
    with mvindex.create(place, dim=8) as index:
        index.add_views(given, rows)
        assert [index.get(document.id) for document in given] == given
        assert list(index) == given
        assert index.get("plai") is None
        assert all(document.id in index for document in given)
        assert index.delete(ids=[given[1].id, "not there"]) == 1
        assert index.get(given[1].id) is None
        assert len(index) == 3


def test_a_reopened_index_has_everything(place):
    views = topical(60, 3)
    with mvindex.create(place, dim=16, temperature=0.3) as index:
        fill(index, views)
        wanted = index.search(views["d5"][0], 60)
    with mvindex.open(place) as index:
        assert index.search(views["d5"][0], 60) == wanted
        info = index.info()
        assert (info.documents, info.views, info.dim, info.temperature, info.dtype) == (60, 180, 16, 0.3, "fp16")
        assert "2.3.5" in info.server["server"] or "lite" in info.server["server"]
        index.add_views([Document("new", "text")], [views["d5"]])
        assert [hit.id for hit in index.search(views["d5"][0], 2).hits] == ["d5", "new"]
