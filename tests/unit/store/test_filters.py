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
from mvindex.store.filter_sql import FilterMatcher, to_sql
from mvindex.store.filters import matches_everything, parse_filter
from tests.helpers.filter_oracle import holds
from tests.helpers.filter_strategies import conditions, rows


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
        {"lang": {"$date": "2024-05-01", "eq": 1}},
        {"lang": {"$like": "en"}},
        {"$lang": "en"},
        {"$nor": [{"lang": "en"}]},
        {"tags": {"contains": None}},
        {"tags": {"contains": ["a"]}},
        {"tags": {"contains_any": "a"}},
        {"tags": {"contains_all": [{"x": 1}]}},
        {"id": {"contains": "a"}},
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
    for _ in range(20):
        deep = {"not": deep}
    assert parse_filter(deep)
    with pytest.raises(QueryError, match="nested more than 20 deep"):
        parse_filter({"not": deep})
    connection = sqlite3.connect(":memory:")
    sql = to_sql(parse_filter({"or": [{"a": number} for number in range(4000)]}))
    query = f"SELECT count(*) FROM (SELECT 'x' AS id) AS d, (SELECT '{{\"a\": 3999}}' AS json) AS m WHERE {sql.text}"
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


def test_a_name_has_at_most_1000_characters():
    assert parse_filter({"a" * 1_000: 1})
    for condition in ({"a" * 1_001: 1}, {"not": {"a." * 600: {"exists": True}}}):
        with pytest.raises(QueryError, match="expected a name of at most 1,000 characters, got 'a.{78} of 1,"):
            parse_filter(condition)


@pytest.mark.parametrize(
    "condition", [{"or": [{"n": 1}] * 4_001}, {"or": Endless()}, {"not": {"and": [{"a": 1, "b": 2}] * 2_001}}]
)
def test_more_conditions_than_sqlite_takes_are_refused_before_all_are_read(condition):
    with pytest.raises(QueryError, match="at most 4,000 conditions, got more"):
        parse_filter(condition)
    assert len(parse_filter({"or": [{"n": 1}] * 4_000}).parts) == 4_000


@pytest.mark.parametrize(
    ("condition_of", "most"),
    [
        (lambda count: {"and": [{"d": {"lte": "2025-05-01"}}] * count}, 1_000),
        (lambda count: {"d": {"nin": [{"$date": "2025-05-01"}] * count}}, 1_000),
        (lambda count: {"d": {"contains_any": [{"$date": "2025"}] * count}}, 1_000),
        (lambda count: {"d": {"contains_all": ["red"] * count}}, 4_000),
        (lambda count: {"or": [{"a.b.c.d.e.f.g": "x"}] * count}, 62),
        (lambda count: {"and": [{"a.b.c": {"contains": "x"}}] * count}, 1_000),
        (lambda count: {"and": [{"not": {"a.b.c": {"gt": "2025-05-01"}}}] * count}, 250),
        (lambda count: {"a.b.c.d.e.f.g": {"in": [{"$date": "2025"}] * count}}, 15),
    ],
)
def test_conditions_count_by_what_sqlite_does_for_them(tmp_path, condition_of, most):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 2)))
        # Within the parameters that SQLite takes.
        index.search(np.ones(2), filter=condition_of(most))
        with pytest.raises(QueryError, match="at most 4,000 conditions, got more"):
            index.search(np.ones(2), filter=condition_of(most + 1))


def test_a_list_of_other_values_than_dates_is_one_condition():
    values = [str(number) for number in range(10_000)]
    assert parse_filter({"a.b.c": {"in": values}, "id": {"nin": values}, "n": {"in": list(range(10_000))}})


@settings(max_examples=600)
@given(conditions(), rows)
def test_a_filter_that_is_said_to_match_everything_does(condition, row):
    assert holds(condition, row, "doc") or not matches_everything(condition)
