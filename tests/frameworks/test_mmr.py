"""Maximal marginal relevance, beside a plain slow function and the frameworks' own ones."""

from math import sqrt

import numpy as np
import pytest

from mvindex.records import Hit, SearchResult
from mvindex_connectors.frameworks import query as frameworks


def choose_diverse(query, views, count, weight):
    """Choose among hits whose scores are inner products, as those of a search by views are."""
    scores = (views.astype(np.float64) @ query.astype(np.float64)).tolist()
    hits = tuple(Hit(str(row), score, 0, None, None, "", "", {}) for row, score in enumerate(scores))
    return frameworks.choose_diverse(SearchResult(hits, True, 0, 1), views, query, frameworks.MMR(count, 99, weight))


def cosine(one, other):
    product = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = sqrt(sum(a * a for a in one)) * sqrt(sum(b * b for b in other))
    return product / lengths if lengths else 0.0


def choose_slowly(query, views, count, weight):
    """Carbonell and Goldstein's MMR, as it is written down: 0 is the redundancy of the first."""
    rows, scores = [], []
    while len(rows) < min(count, len(views)):
        worth = {
            row: weight * cosine(query, view)
            - (1 - weight) * max((cosine(view, views[other]) for other in rows), default=0.0)
            for row, view in enumerate(views)
            if row not in rows
        }
        best = max(worth, key=worth.get)
        rows.append(best)
        scores.append(worth[best])
    return rows, scores


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_rows_and_scores_are_those_of_the_definition(weight):
    generator = np.random.default_rng(7)
    for count in (1, 3, 12, 40):
        views = generator.normal(size=(25, 6)).astype(np.float32)
        query = generator.normal(size=6).astype(np.float32)
        rows, scores = choose_slowly(query.tolist(), views.tolist(), count, weight)
        found = choose_diverse(query, views, count, weight)
        assert found.rows == rows and found.scores == pytest.approx(scores, abs=1e-9)


def test_langchains_function_chooses_the_same():
    utils = pytest.importorskip("langchain_core.vectorstores.utils", reason="NOT RUN: needs langchain-core")
    generator = np.random.default_rng(8)
    views = generator.normal(size=(25, 6)).astype(np.float32)
    query = generator.normal(size=6).astype(np.float32)
    for weight in (0.2, 0.5, 0.9):
        theirs = utils.maximal_marginal_relevance(query, views.tolist(), weight, 10)
        assert choose_diverse(query, views, 10, weight).rows == theirs


def test_a_twin_of_the_first_is_not_taken_third_although_it_is_unlike_the_second():
    # LlamaIndex's own function compares with the one chosen last, and would take the twin, row 2.
    views = np.array([[1, 0, 0], [0, 1, 0], [1, -0.01, 0], [0, 0, 1]], dtype=np.float32)
    assert choose_diverse(np.array([1, 0.9, 0.3], dtype=np.float32), views, 3, 0.5).rows == [0, 1, 3]


def test_nothing_is_chosen_of_nothing_and_a_zero_vector_is_like_no_other():
    assert choose_diverse(np.ones(2, np.float32), np.empty((0, 2), np.float32), 3, 0.5) == ([], [])
    rows, scores = choose_diverse(np.ones(2, np.float32), np.zeros((2, 2), np.float32), 2, 0.5)
    assert (rows, scores) == ([0, 1], [0.0, 0.0])
