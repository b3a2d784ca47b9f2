"""Two rankings made into one: by hand, and against a slow function over whole indexes."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import QueryError
from mvindex.search.fusion import Fusion, Method, parse_fusion
from mvindex.search.hybrid import RankedList, fuse
from tests.helpers import lexical_reference as slow
from tests.helpers.shard_examples import order


def lists(dense, lexical, dense_rows, lexical_rows):
    """Return both lists of three candidates; the best scores of each list are those of the candidates in it."""
    pairs = zip((dense, lexical), (dense_rows, lexical_rows), strict=True)
    return [
        RankedList(
            np.array(rows), np.sort(np.array(scores, dtype=np.float32))[::-1], np.array(scores, dtype=np.float32)
        )
        for scores, rows in pairs
    ]


CANDIDATES = np.array([4, 7, 9])
# Views: mean 2, variance (1 + 0 + 1) / 3; words: mean 2, variance (4 + 4 + 16) / 3 = 8.
BOTH = ([1.0, 2.0, 3.0], [0.0, 0.0, 6.0])


def test_standardised_scores_are_added_as_by_hand():
    found = fuse(CANDIDATES, lists(*BOTH, [9, 7, 4], [9]), Fusion())
    views, words = (2 / 3) ** -0.5, 8**-0.5
    want = [-views - 2 * words, -2 * words, views + 4 * words]
    np.testing.assert_allclose(found.scores, want, rtol=1e-6)
    np.testing.assert_allclose(found.parts[1], [-2 * words, -2 * words, 4 * words], rtol=1e-12)
    assert found.ranks.tolist() == [[3, 2, 1], [0, 0, 1]]


def test_scores_between_lowest_and_highest_are_added_with_their_weights_as_by_hand():
    found = fuse(CANDIDATES, lists(*BOTH, [9, 7, 4], [9]), Fusion(Method.MINMAX, (2.0, 0.5)))
    np.testing.assert_allclose(found.scores, [0, 1, 2.5], atol=1e-7)


def test_reciprocal_ranks_are_added_as_by_hand():
    found = fuse(CANDIDATES, lists(*BOTH, [9, 7, 4], [9]), Fusion(Method.RRF, (1.0, 3.0)))
    np.testing.assert_allclose(found.scores, [1 / 63, 1 / 62, 1 / 61 + 3 / 61], rtol=1e-6)


@pytest.mark.parametrize("method", [Method.ZSCORE, Method.MINMAX])
def test_a_list_without_spread_adds_nothing(method):
    # A mean of tenths in binary is not a tenth: no deviation of rounding alone may count.
    found = fuse(CANDIDATES, lists([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], [9, 7, 4], [4, 7, 9]), Fusion(method))
    assert not found.parts[1].any()
    assert np.argsort(-found.scores).tolist() == [2, 1, 0]


def test_what_is_no_fusion_is_refused():
    for method, weights in (("sum", None), (None, (1, 2, 3)), (None, ("a", 1)), (None, (float("inf"), 1)), (None, 3)):
        with pytest.raises(QueryError):
            parse_fusion(method, weights)
    # Letters are no numbers, a set has no order; the fused score of others would be no float32, or 0 for all.
    for weights in ("12", b"12", {1, 2}, {1: 2, 3: 4}, (1e308, 1e308), (1e39, 0), (1e-300, 1e-300), (10**400, 1)):
        with pytest.raises(QueryError, match="expected two numbers"):
            parse_fusion(None, weights)
    for weights in ((1e6, 1e-9), (1e-6, 0)):
        assert np.isfinite(fuse(CANDIDATES, lists(*BOTH, [9, 7, 4], [9]), Fusion(Method.ZSCORE, weights)).scores).all()
    assert parse_fusion("minmax", ["0", "2"]) == Fusion(Method.MINMAX, (0.0, 2.0))


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """The same 260 documents in one store and in four: some replaced, some deleted, so that not all candidates fit."""
    folder = tmp_path_factory.mktemp("fusion")
    made = []
    for name, options in (("one", {}), ("four", {"shards": 4})):
        index = mvindex.create(folder / f"{name}.mvx", dim=4, lexical="unicode", **options)
        for seed, count in ((1, 280), (2, 60)):
            index.add_views(*slow.corpus(count, seed))
        index.delete(ids=[f"d{number}" for number in range(0, 200, 10)])
        made.append(index)
    return made


@pytest.mark.parametrize("fusion", ["zscore", "minmax", "rrf"])
@pytest.mark.parametrize("scoring", ["max", "drpq"])
@pytest.mark.parametrize("condition", [None, {"third": True}])
def test_hybrid_is_what_a_slow_function_gives_in_one_store_and_in_shards(indexes, fusion, scoring, condition):
    index, sharded = indexes
    rng = np.random.default_rng(3)
    living = [index.get(doc_id) for doc_id in order(index)]
    allowed = [document for document in living if condition is None or document.metadata["third"]]
    questions = ("oil price", "river", "war the mountain delta crisis", "unheard")
    for question, top_k in zip(questions, (150, 20, 100, 300), strict=True):
        vector = rng.standard_normal(4)
        options = {"filter": condition, "scoring": scoring}
        scores = {hit.id: hit.score for hit in index.search(vector, 1000, exact=True, **options).hits}
        by_ordinal = {document.id: scores[document.id] for document in allowed}
        words = {doc_id: np.float32(score) for doc_id, score in slow.bm25(living, question).items()}
        lexical = {document.id: float(words[document.id]) for document in allowed}
        want = slow.fused(by_ordinal, lexical, fusion, (1, 0.7), depth=max(top_k, 100))
        asked = {"mode": "hybrid", "text": question, "fusion": fusion, "weights": (1, 0.7), **options}
        found = index.search(vector, top_k, **asked)
        assert sharded.search(vector, top_k, **asked).hits == found.hits
        assert len(found.hits) == min(top_k, len(want))
        assert (found.exact, found.short_by) == (True, max(0, min(top_k, len(allowed)) - len(found.hits)))
        got = {hit.id: hit.score for hit in found.hits}
        assert got == pytest.approx({doc_id: want[doc_id] for doc_id in got}, rel=1e-5, abs=1e-5)
        left = [score for doc_id, score in want.items() if doc_id not in got]
        assert not left or max(left) <= min(got.values()) + 1e-5
        for hit in found.hits:
            dense_part, lexical_part = hit.components
            assert dense_part.score == scores[hit.id]
            assert lexical_part.score == pytest.approx(lexical[hit.id], rel=1e-6)
            assert hit.score == pytest.approx(dense_part.contribution + lexical_part.contribution, rel=1e-6, abs=1e-6)


def test_hits_show_the_view_that_is_nearest(indexes):
    index, _ = indexes
    vector = np.array([1.0, -1.0, 0.5, 0.0])
    for hit in index.search(vector, mode="hybrid", text="oil").hits:
        assert hit.slot == index.explain(vector, hit.id)[0].slot


def test_one_list_alone_by_weight_gives_its_own_order(indexes):
    index, _ = indexes
    vector = np.array([0.3, 0.1, -1.0, 0.8])
    dense = [hit.id for hit in index.search(vector).hits]
    words = [hit.id for hit in index.search("oil war", mode="lexical").hits]
    assert [hit.id for hit in index.search(vector, mode="hybrid", text="oil war", weights=(1, 0)).hits] == dense
    assert [hit.id for hit in index.search(vector, mode="hybrid", text="oil war", weights=(0, 1)).hits] == words


def test_a_word_of_one_document_alone_counts_for_it(indexes):
    index, _ = indexes
    with_word = mvindex.Document("rare", "zymurgy")
    index.add_views([with_word], -np.ones((1, 2, 4)))
    try:
        vector = np.ones(4)
        assert index.search(vector, mode="hybrid", text="zymurgy").hits[0].id == "rare"
    finally:
        index.delete(ids=["rare"])


def test_several_questions_at_once_are_answered_as_one_by_one(indexes):
    index, _ = indexes
    vectors, texts = np.random.default_rng(8).standard_normal((3, 4)), ["oil", "war peace", "?"]
    together = index.search(vectors, 7, mode="hybrid", text=texts)
    alone = [index.search(vector, 7, mode="hybrid", text=text) for vector, text in zip(vectors, texts, strict=True)]
    assert together == alone


def test_an_empty_index_and_an_impossible_filter_give_nothing(tmp_path, indexes):
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as empty:
        assert empty.search(np.ones(4), mode="hybrid", text="oil").hits == ()
        assert empty.search("oil", mode="lexical").hits == ()
    found = indexes[0].search(np.ones(4), mode="hybrid", text="oil", filter={"third": "never"})
    assert (found.hits, found.short_by, found.exact) == ((), 0, True)
