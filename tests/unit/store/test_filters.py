"""The filter grammar against a plain evaluation in Python, on SQLite."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.errors import QueryError
from mvindex.store.filter_match import FilterMatcher
from mvindex.store.filters import matches_everything, parse_filter
from tests.helpers.filter_oracle import holds

DATES = ["2024-05-01", "2024-05-01T12:30:00Z", "2024-05-01T00:30:00+02:00", "2024-05-02T00:00:00", "2024-02-30"]
VALUES = [None, True, False, 0, 1, -3, 2.5, 1.0, "a", "b", "1", "", "é", "'; DROP", [1], {"x": 1}, 2**60, 2**60 + 1]
scalars = st.sampled_from(VALUES[:14] + VALUES[16:] + DATES + [{"$date": date} for date in DATES[:4]])
fields = st.sampled_from(["a", "b", "a.x", "id"])
rows = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(VALUES + DATES))


def conditions():
    comparable = scalars.filter(lambda v: v is not None and not isinstance(v, bool))
    leaf = st.one_of(
        st.builds(lambda f, v: {f: v}, fields, scalars),
        st.builds(lambda f, op, v: {f: {op: v}}, fields, st.sampled_from(["eq", "ne"]), scalars),
        st.builds(lambda f, op, v: {f: {op: v}}, fields, st.sampled_from(["lt", "lte", "gt", "gte"]), comparable),
        st.builds(lambda f, op, v: {f: {op: v}}, fields, st.sampled_from(["in", "nin"]), st.lists(scalars, max_size=4)),
        st.builds(lambda f, v: {f: {"exists": v}}, fields, st.booleans()),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda part: {"not": part}, inner),
        ),
        max_leaves=6,
    )


@settings(max_examples=600)
@given(conditions(), rows, st.sampled_from(["a", "b", "doc"]))
def test_a_filter_selects_what_its_description_says(condition, row, doc_id):
    matched = FilterMatcher(condition).matching({doc_id: row})
    assert bool(matched) == holds(condition, row, doc_id)


@pytest.mark.parametrize(
    "condition",
    [
        [],
        "lang = 'en'",
        {"": 1},
        {"lang": {}},
        {"lang": {"like": "e%"}},
        {"lang": {"$eq": "en"}},
        {"year": {"gt": None}},
        {"year": {"gt": True}},
        {"year": {"gt": [1]}},
        {"year": float("nan")},
        {"year": 2**64},
        {"tags": ["a"]},
        {"year": {"in": "1990"}},
        {"year": {"exists": 1}},
        {"and": {"a": 1}},
        {"or": "x"},
        {"not": [1]},
        {'a"b': 1},
        {"a..b": 1},
        {"lang": "\ud800"},
        {1: 2},
        {"day": {"$date": "tomorrow"}},
        {"day": {"gte": {"$date": "2024-02-30"}}},
        {"day": {"gte": {"$date": 20240501}}},
        {"day": {"in": [{"$date": None}]}},
    ],
)
def test_what_is_not_in_the_grammar_is_refused(condition):
    with pytest.raises(QueryError, match="filter"):
        parse_filter(condition)


def test_a_deep_filter_is_refused_and_a_long_one_taken():
    deep = {"a": 1}
    for _ in range(60):
        deep = {"not": deep}
    with pytest.raises(QueryError, match="nested"):
        parse_filter(deep)
    connection = sqlite3.connect(":memory:")
    sql = parse_filter({"or": [{"a": number} for number in range(5000)]})
    query = f"SELECT count(*) FROM (SELECT 'x' AS id) AS d, (SELECT '{{\"a\": 4999}}' AS json) AS m WHERE {sql.text}"
    assert connection.execute(query, sql.parameters).fetchone() == (1,)
    connection.close()


def test_a_list_of_a_hundred_thousand_ids_is_one_parameter(tmp_path: Path):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(50)], np.ones((50, 1, 2)))
        wanted = {"id": {"in": [str(n) for n in range(40, 100_000)]}}
        assert len(index.search(np.ones(2), top_k=50, filter=wanted).hits) == 10


class Endless(Sequence):
    """A list of so many filters that nobody reads them all."""

    def __len__(self):
        return 1 << 60

    def __getitem__(self, place):
        return [{}] * len(range(*place.indices(len(self)))) if isinstance(place, slice) else {}


@pytest.mark.parametrize(
    "condition", [{"or": [{"n": 1}] * 5_001}, {"or": Endless()}, {"not": {"and": [{"a": 1, "b": 2}] * 2_501}}]
)
def test_more_conditions_than_sqlite_takes_are_refused_before_all_are_read(condition):
    with pytest.raises(QueryError, match="at most 5,000 conditions"):
        parse_filter(condition)
    assert parse_filter({"or": [{"n": 1}] * 5_000}).size == 5_000


@settings(max_examples=600)
@given(conditions(), rows)
def test_a_filter_that_is_said_to_match_everything_does(condition, row):
    assert holds(condition, row, "doc") or not matches_everything(condition)
