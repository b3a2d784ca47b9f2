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
from mvindex.store.filter_sql import to_sql
from mvindex.store.filters import matches_everything, parse_filter
from tests.helpers.filter_oracle import holds

DATES = ["2024-05-01", "2024-05-01T12:30:00Z", "2024-05-01T00:30:00+02:00", "2024-05-02T00:00:00", "2024-02-30"]
SCALARS = [None, True, False, 0, 1, -3, 2.5, 1.0, "a", "b", "1", "", "é", "'; DROP", 2**60, 2**60 + 1]
LISTS = [[], [1], ["a", 1.0], [True, "é"], [[1], {"x": 1}, None], ["2024-05-01", "b", "a"], [2**60 + 1, 10**30, 2.5]]
VALUES = [*SCALARS, *LISTS, {"x": 1}, {"x": ["a"]}]
OPERANDS = [*SCALARS, *DATES, *({"$date": date} for date in DATES[:4])]
FIELDS = ["a", "b", "a.x", "id"]


def conditions(operands=OPERANDS):
    """Draw a filter that compares fields of metadata with some of these operands."""
    texts = [each for each in OPERANDS if isinstance(each, str | dict)]
    leaf = st.one_of(
        _tests(texts if name == "id" else operands, has_lists=name != "id").map(lambda test, name=name: {name: test})
        for name in FIELDS
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


def _tests(operands, has_lists):
    """Draw what a filter says of a field."""
    scalars = st.sampled_from(operands)
    members = st.sampled_from([each for each in operands if each is not None])
    in_order = st.sampled_from([each for each in operands if not isinstance(each, bool | None)])
    of_lists = {"contains": members} | dict.fromkeys(["contains_any", "contains_all"], st.lists(members, max_size=3))
    by_operator = {"eq": scalars, "ne": scalars, "exists": st.booleans()} | (of_lists if has_lists else {})
    by_operator |= dict.fromkeys(["lt", "lte", "gt", "gte"], in_order)
    by_operator |= dict.fromkeys(["in", "nin"], st.lists(scalars, max_size=4))
    return st.one_of(
        scalars,
        *(
            operand.map(lambda each, name=prefix + operator: {name: each})
            for operator, operand in by_operator.items()
            for prefix in ("", "$")
        ),
    )


rows = st.dictionaries(st.sampled_from(["a", "b", "a.x"]), st.sampled_from(VALUES + DATES))


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
    for _ in range(60):
        deep = {"not": deep}
    with pytest.raises(QueryError, match="nested"):
        parse_filter(deep)
    connection = sqlite3.connect(":memory:")
    sql = to_sql(parse_filter({"or": [{"a": number} for number in range(5000)]}))
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
    assert len(parse_filter({"or": [{"n": 1}] * 5_000}).parts) == 5_000


@settings(max_examples=600)
@given(conditions(), rows)
def test_a_filter_that_is_said_to_match_everything_does(condition, row):
    assert holds(condition, row, "doc") or not matches_everything(condition)
