import functools
import json

import numpy as np
import pytest

from mvindex.encoder import CallableEncoder, encoder_from_spec
from mvindex.errors import ConfigError, EncoderError
from mvindex.records import Document

DOCUMENTS = [Document("a", "one", "T"), Document("b", "two words"), Document("c", "", "only title")]


def two_dims(texts):
    return np.array([[len(text), 1] for text in texts])


def returning(result):
    return CallableEncoder(lambda texts: result, name="fixed", dim=2)


def test_the_function_reads_title_newline_text():
    read = []

    def function(texts):
        read.extend(texts)
        return two_dims(texts)

    CallableEncoder(function).encode_documents(DOCUMENTS)
    assert read == ["T\none", "two words", "only title"]


def test_one_vector_a_text_makes_one_view_without_a_span():
    views = CallableEncoder(two_dims).encode_documents(DOCUMENTS)
    assert views.rows.tolist() == [[5, 1], [9, 1], [10, 1]]
    assert (views.rows.dtype, views.starts.tolist()) == (np.float32, [0, 1, 2, 3])
    assert views.spans.tolist() == [[-1, -1]] * 3


@pytest.mark.parametrize(
    "result",
    [
        np.arange(12).reshape(3, 2, 2),
        np.arange(12, dtype=np.float64).reshape(3, 2, 2),
        [np.array([[0, 1], [2, 3]]), np.array([[4, 5], [6, 7]]), np.array([[8, 9], [10, 11]])],
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]],
    ],
    ids=["int", "float64", "arrays", "lists"],
)
def test_several_vectors_a_text_make_several_views(result):
    views = returning(result).encode_documents(DOCUMENTS)
    assert views.rows.ravel().tolist() == list(range(12))
    assert views.starts.tolist() == [0, 2, 4, 6]


def test_the_number_of_views_may_differ():
    views = returning([np.ones((1, 2)), np.ones((3, 2)), np.ones(2)]).encode_documents(DOCUMENTS)
    assert views.starts.tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.ones((2, 2)), "2 results for 3 texts"),
        ([np.ones(2)] * 4, "4 results for 3 texts"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((3, 1, 2, 2)), r"shape \(3, 1, 2, 2\)"),
        (np.ones((3, 0, 2)), r"document 'a' got shape \(0, 2\)"),
        ([np.ones(2), np.ones((0, 2)), np.ones(2)], r"document 'b' got shape \(0, 2\)"),
        ([np.ones(2), 3.0, np.ones(2)], r"document 'b' got shape \(\)"),
        (np.ones((3, 5)), "document 'a' got vectors of 5 dimensions; expected 2"),
        ([np.ones(2), np.ones(2), np.ones((1, 4))], "document 'c' got vectors of 4 dimensions"),
        (np.array([[0, 1], [0, 1], [0, np.nan]]), "vector 0 of document 'c' holds NaN"),
        ([np.ones((1, 2)), np.array([[1, 1], [1, np.inf]]), np.ones(2)], "vector 1 of document 'b' holds NaN"),
        (np.full((3, 2), 1e39), "more than float32 holds"),
        (np.array([["a", "b"]] * 3), "expected numbers"),
        (np.ones((3, 2), dtype=complex), "expected numbers, got complex128"),
        (np.ones((3, 2), dtype=bool), "expected numbers, got bool"),
        ([[1, 2], [1, None], [1, 2]], "document 'b': expected numbers, got None"),
        ([[[1, 2], [3]], [[1, 2]], [[1, 2]]], "document 'a': expected numbers of one shape"),
        (None, "the result: expected numbers, got None"),
    ],
)
def test_a_wrong_result_is_named(result, message):
    with pytest.raises(EncoderError, match=f"^fixed: .*{message}"):
        returning(result).encode_documents(DOCUMENTS)


def test_what_the_function_raises_passes_through():
    def broken(texts):
        raise KeyError("no key for the service")

    with pytest.raises(KeyError, match="no key"):
        CallableEncoder(broken).encode_documents(DOCUMENTS)


def test_queries_go_to_the_query_function():
    encoder = CallableEncoder(lambda texts: np.ones((len(texts), 3, 2)), query_function=two_dims, name="x")
    assert encoder.encode_queries(["ab", "abc"]).tolist() == [[2, 1], [3, 1]]


def test_a_query_is_one_vector():
    encoder = CallableEncoder(lambda texts: np.ones((len(texts), 3, 2)), name="x")
    with pytest.raises(EncoderError, match="query 1 got 3 vectors; expected 1 .*query_function"):
        encoder.encode_queries(["a"])
    with pytest.raises(EncoderError, match="vector 0 of query 2 holds NaN"):
        CallableEncoder(lambda texts: [[1, 1], [np.nan, 1]], name="x").encode_queries(["a", "b"])


def test_the_dim_is_found_by_one_query_and_then_kept():
    asked = []

    def function(texts):
        asked.append(len(texts))
        return two_dims(texts)

    encoder = CallableEncoder(function)
    assert (encoder.dim, encoder.dim, asked) == (2, 2, [1])
    later = CallableEncoder(function)
    later.encode_documents(DOCUMENTS)
    assert (later.dim, asked) == (2, [1, 3])


def test_a_dim_given_is_not_asked_for():
    encoder = CallableEncoder(lambda texts: pytest.fail("asked"), name="x", dim=7)
    assert encoder.dim == 7
    with pytest.raises(ConfigError, match="dim is 0"):
        CallableEncoder(two_dims, dim=0)


def test_no_text_is_no_call():
    encoder = CallableEncoder(lambda texts: pytest.fail("asked"), name="x", dim=7)
    assert encoder.encode_queries([]).shape == (0, 7)
    assert encoder.encode_documents([]).rows.shape == (0, 7)


def test_the_name_is_the_fingerprint():
    assert CallableEncoder(two_dims).fingerprint == f"callable:{__name__}.two_dims"
    assert CallableEncoder(two_dims, name="mine").fingerprint == "callable:mine"


@pytest.mark.parametrize("function", [lambda texts: two_dims(texts), functools.partial(two_dims)])
def test_a_function_without_a_name_needs_one(function):
    with pytest.raises(ConfigError, match="give it one: CallableEncoder"):
        CallableEncoder(function)
    assert CallableEncoder(function, name="mine").fingerprint == "callable:mine"


def test_a_callable_must_be_given_again():
    spec = CallableEncoder(two_dims, name="mine").spec
    assert spec["fingerprint"] == "callable:mine"
    with pytest.raises(ConfigError, match="made with the function 'mine'.*encoder="):
        encoder_from_spec(json.loads(json.dumps(spec)))


def test_progress_adds_up_to_all_documents():
    done = []
    CallableEncoder(two_dims).encode_documents(DOCUMENTS, done.append)
    assert sum(done) == 3
