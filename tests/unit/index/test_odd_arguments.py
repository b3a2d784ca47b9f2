"""Arguments of the wrong kind: refused by name, never taken for something else."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DocumentError, EncoderError, QueryError

QUERY = np.array([1.0, 0.0])


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with mvindex.create(tmp_path_factory.mktemp("odd") / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a", "text", metadata={"n": 1})], np.eye(2)[:1])
        yield index


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda index: index.search(QUERY, exact="no"), QueryError, "exact: expected True or False, got 'no'"),
        (lambda index: index.search(QUERY, operators=1), QueryError, "operators: expected True or False, got 1"),
        (
            lambda index: index.search(QUERY, text=["a"]),
            QueryError,
            "text: expected a text for each query vector, got one vector and a list of 1 texts",
        ),
        (lambda index: index.update("a", metadata=None), DocumentError, "'a': metadata: expected an object, got None"),
        (lambda index: index.update("a", metadata=[("n", 2)]), DocumentError, "expected an object, got list"),
        (lambda index: index.add_views(None, QUERY[None]), EncoderError, "documents: expected several .* got NoneType"),
        (
            lambda index: index.add_views(mvindex.Document("b", "b"), QUERY[None]),
            EncoderError,
            "documents: expected several mvindex.Document, got Document",
        ),
    ],
)
def test_calls_of_an_index(index, call, error, told):
    with pytest.raises(error, match=told):
        call(index)
    assert [document.metadata for document in index] == [{"n": 1}]


def test_any_number_is_a_limit_of_a_list(index):
    assert [document.id for document in index.scan(limit=10**30)] == ["a"]
    assert [hit.id for hit in index.search(QUERY, 10**30)] == ["a"]


@pytest.mark.parametrize("path", [None, 5, b"a.mvx", "", []], ids=str)
def test_a_place_that_is_none_is_named(path):
    for use in (mvindex.open, lambda path: mvindex.create(path, dim=2)):
        if path != [] or use is mvindex.open:
            with pytest.raises(ConfigError, match="expected a path or an address, got"):
                use(path)


@pytest.mark.parametrize("fields", [["year"], "year", 5])
def test_filter_fields_that_have_no_types_are_named(tmp_path, fields):
    with pytest.raises(ConfigError, match="filter_fields: expected names with their types"):
        mvindex.create(tmp_path / "x.mvx", dim=2, filter_fields=fields)


def test_dimensions_may_be_a_number_of_numpy(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=np.int64(2)) as made:
        assert made.dim == 2 and type(made.settings["dim"]) is int
