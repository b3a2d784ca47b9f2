"""The documents that a filter leaves are kept for the next search with it, for one version of the catalog only."""

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store import filter_reader
from mvindex.store.filters import parse_filter
from mvindex.testing import unit

DIM, COUNT = 8, 40
VIEWS = unit(np.random.default_rng(1).standard_normal((COUNT, 2, DIM)))
FILTER = {"year": {"lt": 10}}


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), f"text {n}", metadata={"year": n}) for n in range(COUNT)], VIEWS)
    return tmp_path / "x.mvx"


@pytest.fixture
def num_read(monkeypatch):
    """The filters that were evaluated, in a list."""
    evaluated, matching = [], filter_reader.FilterReader._matching

    def counted(reader, condition):
        evaluated.append(condition)
        return matching(reader, condition)

    monkeypatch.setattr(filter_reader.FilterReader, "_matching", counted)
    return evaluated


def found(index, condition=FILTER):
    return {hit.id for hit in index.search(VIEWS[0, 0], top_k=COUNT, filter=condition).hits}


def test_the_same_filter_is_evaluated_once(path, num_read):
    with mvindex.open(path) as index:
        assert found(index) == found(index) == {str(n) for n in range(10)}
    assert num_read == [parse_filter(FILTER)]


def test_equal_values_of_other_types_are_other_filters(path):
    with mvindex.open(path) as index:
        assert found(index, {"year": 1}) == {"1"}
        assert found(index, {"year": True}) == set()
        assert found(index, {"year": 1.0}) == {"1"}


def test_only_the_last_filters_are_kept(path, num_read):
    with mvindex.open(path) as index:
        for year in [*range(5), *range(4, 0, -1), 0]:
            assert found(index, {"year": year}) == {str(year)}
        assert len(embedded_store_of(index).snapshot.filtered) == 4
    assert num_read == [parse_filter({"year": year}) for year in [*range(5), 0]]


@pytest.mark.parametrize("is_other", [True, False], ids=["another writer", "its own writes"])
def test_a_change_of_metadata_is_seen_by_the_next_search(path, is_other):
    with mvindex.open(path) as index, mvindex.open(path) as other:
        assert found(index) == {str(n) for n in range(10)}
        (other if is_other else index).update("3", metadata={"year": 99})
        index.refresh()
        assert found(index) == {str(n) for n in range(10) if n != 3}
        (other if is_other else index).delete(ids=["4"])
        index.refresh()
        assert found(index) == {str(n) for n in range(10) if n not in (3, 4)}


@pytest.mark.parametrize("kind", ["hnsw", "ivf-pq"])
def test_engines_search_the_same_views_with_a_kept_filter(path, kind):
    with mvindex.open(path) as index:
        index.admin.build(kind)
        for condition in (FILTER, FILTER, {"year": {"gte": 30}}, None, FILTER, None):
            allowed = {None: range(COUNT), 10: range(10), 30: range(30, COUNT)}
            expected = allowed[None if condition is None else next(iter(condition["year"].values()))]
            assert found(index, condition) == {str(n) for n in expected}
