"""Conditions of --filter."""

import gc
import time

import pytest

from mvindex.cli.conditions import parse_conditions
from mvindex.cli.options import parse_filter
from mvindex.errors import QueryError


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("date >= 2024-05-01", {"date": {"gte": {"$date": "2024-05-01"}}}),
        ("date<2024-05-01T12:30+02:00", {"date": {"lt": {"$date": "2024-05-01T12:30+02:00"}}}),
        ("date = 2024-05", {"date": {"eq": {"$date": "2024-05"}}}),
        ('date >= "2024-05-01"', {"date": {"gte": "2024-05-01"}}),
        ("year == 1990", {"year": {"eq": 1990}}),
        ("year > -1.5", {"year": {"gt": -1.5}}),
        ("lang != en", {"lang": {"ne": "en"}}),
        ('author.name = "Ada and \\"Bob\\""', {"author.name": {"eq": 'Ada and "Bob"'}}),
        ("open = true AND end = null", {"and": [{"open": {"eq": True}}, {"end": {"eq": None}}]}),
        ("tags contains red", {"tags": {"contains": "red"}}),
        (
            'tags contains "dark red" and n contains 3',
            {"and": [{"tags": {"contains": "dark red"}}, {"n": {"contains": 3}}]},
        ),
        ('a.b contains_any [red, "dark, red", 3,true]', {"a.b": {"contains_any": ["red", "dark, red", 3, True]}}),
        ("tags contains_all [ ]", {"tags": {"contains_all": []}}),
        ("day in[2024-05-01, 7] ", {"day": {"in": [{"$date": "2024-05-01"}, 7]}}),
        ("contains nin [x]", {"contains": {"nin": ["x"]}}),
        ("id = 17 and id in [1, 2024-05-01]", {"and": [{"id": {"eq": "17"}}, {"id": {"in": ["1", "2024-05-01"]}}]}),
        (" größe <= 3 and größe >= 1 ", {"and": [{"größe": {"lte": 3}}, {"größe": {"gte": 1}}]}),
    ],
)
def test_conditions_are_a_filter(text, condition):
    assert parse_conditions(text) == condition


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("year", "year"),
        ("year >=", "year >="),
        ("year like 3", "year like 3"),
        ("tagscontains red", "tagscontains red"),
        ("tags contains_any [a b]", "tags contains_any [a b]"),
        ("tags containsred", "tags containsred"),
        ("year = 3 or year = 4", "or year = 4"),
        ("year = 3 and", "and"),
        ("year = 3 and 4", "4"),
        ("= 3", "= 3"),
        ('lang = "en', 'lang = "en'),
        ("", ""),
    ],
)
def test_what_cannot_be_read_is_named(text, rest):
    with pytest.raises(QueryError) as caught:
        parse_conditions(text)
    assert str(caught.value).endswith(f"got {rest!r}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year = [1990]", "year eq: expected a number, word or text in quotes, got '[1990]'"),
        ("tags contains [red]", "tags contains: expected a number, word"),
        ("tags contains_any red", "tags contains_any: expected a list such as [red, blue], got 'red'"),
    ],
)
def test_a_list_belongs_to_operators_on_lists(text, expected):
    with pytest.raises(QueryError) as caught:
        parse_conditions(text)
    assert expected in str(caught.value)


def test_what_begins_with_a_brace_is_json():
    assert parse_filter(' {"year": {"in": [1990]}}') == {"year": {"in": [1990]}}
    assert parse_filter("year = 1990") == {"year": {"eq": 1990}}
    with pytest.raises(QueryError, match="expected JSON"):
        parse_filter('{"year": ')


def test_many_conditions_take_time_that_grows_with_their_number():
    def cpu_s(count):
        text = " and ".join(["a=1"] * count)
        begin = time.process_time()
        assert len(parse_conditions(text)["and"]) == count
        return time.process_time() - begin

    # A collection of garbage looks at all that other tests of this process keep, too.
    gc.disable()
    try:
        short, long = (min(cpu_s(count) for _ in range(3)) for count in (5_000, 40_000))
    finally:
        gc.enable()
    # What is copied for each condition grows with the square: 64 times as much.
    assert long < 24 * short
