"""The papers' measures: hand-worked cases, and laws over random view scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.measure.analysis import measures
from mvindex.measure.analysis.measures import PairScores, SimilarityCounter, divergences, mean_divergences
from mvindex.measure.analysis.passages import plane
from mvindex.measure.analysis.ranks import NOT_FOUND, ViewBlock, gain, intervals, rank_array, recalls
from mvindex.records import Views


def pairs_of(*documents):
    starts = np.cumsum([0, *(len(scores) for scores in documents)])
    return PairScores(np.array([score for scores in documents for score in scores], dtype=np.float64), starts)


def block_of(*documents):
    starts = np.cumsum([0, *(len(views) for views in documents)])
    return ViewBlock(0, np.array([view for views in documents for view in views], dtype=np.float32), starts)


RAGGED = st.lists(st.lists(st.floats(-2, 2), min_size=2, max_size=6), min_size=1, max_size=8)


def test_local_variation_is_the_best_share_above_the_mean_of_the_others():
    # softmax of (ln 3, 0): 3/4 and 1/4; of (ln 2, 0, 0): 1/2, 1/4, 1/4.
    found = measures.local_variations(pairs_of([np.log(3), 0.0], [np.log(2), 0.0, 0.0]), 1.0)
    assert found == pytest.approx([0.5, 0.25])


def test_scores_are_multiplied_by_the_scale_before_the_softmax():
    found = measures.local_variations(pairs_of([np.log(3) / 20, 0.0]), 20.0)
    assert found == pytest.approx([0.5])


def test_equal_views_have_no_local_variation():
    assert measures.local_variations(pairs_of([0.3, 0.3, 0.3]), 20.0) == pytest.approx([0.0])


def test_the_margin_is_the_best_score_above_the_second():
    assert measures.margins(pairs_of([0.9, 0.5, 0.7], [0.2, 0.2])) == pytest.approx([0.2, 0.0])


def test_the_first_of_equal_views_wins():
    assert pairs_of([0.1, 0.4, 0.4], [0.5]).winners.tolist() == [1, 0]


def test_perplexity_counts_the_views_that_a_documents_questions_use():
    # Document 7: views 0 and 1 twice each, 2; document 9: one view, 1.
    documents, winners = np.array([7, 7, 9, 7, 7]), np.array([0, 1, 3, 1, 0])
    assert measures.perplexities(documents, winners) == pytest.approx([2, 1])


def test_unequal_use_counts_less():
    # Shares 3/4 and 1/4: exp(-(3/4 ln 3/4 + 1/4 ln 1/4)) = 4 / 3^(3/4).
    found = measures.perplexities(np.zeros(4, dtype=int), np.array([2, 2, 2, 5]))
    assert found == pytest.approx([4 / 3**0.75])


def test_gradient_weights_by_hand():
    # a = (e, 1) / (e + 1) = .731059, .268941; r_1 = (1 + .268941 x 1) a_1, r_2 = (1 - .731059 x 1) a_2.
    found = measures.gradient_weights(pairs_of([1.0, 0.0]), 1.0)
    assert found == pytest.approx([0.927671, 0.072329], abs=1e-6)


@given(RAGGED, st.floats(0.1, 3))
def test_gradient_weights_are_drpqs_equation_11_and_sum_to_one(documents, temperature):
    pairs = pairs_of(*documents)
    found = measures.gradient_weights(pairs, temperature)
    for scores, begin, end in zip(documents, pairs.starts[:-1], pairs.starts[1:], strict=True):
        weights = np.exp((np.array(scores) - max(scores)) / temperature)
        weights /= weights.sum()
        for j, score in enumerate(scores):
            inside = sum(weights[other] * (score - scores[other]) for other in range(len(scores)) if other != j)
            assert found[begin + j] == pytest.approx((1 + inside / temperature) * weights[j], abs=1e-9)
        assert found[begin:end].sum() == pytest.approx(1)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_gradient_weights_are_the_gradient_of_the_document_score(temperature):
    torch = pytest.importorskip("torch")
    scores = torch.tensor([0.3, 0.5, -0.2, 0.45], dtype=torch.float64, requires_grad=True)
    aggregate = (torch.softmax(scores / temperature, 0) * scores).sum()
    [expected] = torch.autograd.grad(aggregate, scores)
    found = measures.gradient_weights(pairs_of(scores.detach().numpy()), temperature)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.sum() == pytest.approx(1)


def test_pair_scores_are_products_of_the_query_and_the_documents_views():
    views = Views(
        np.array([[1, 0], [0, 1], [2, 2]], dtype=np.float32), np.array([0, 2, 3]), np.full((3, 2), -1, dtype=np.int64)
    )
    found = measures.pair_scores(views, np.array([[3, 1], [1, 5], [0, 1]], dtype=np.float32), np.array([1, 0, 0]))
    assert (found.scores.tolist(), found.starts.tolist()) == ([8, 1, 5, 0, 1], [0, 1, 3, 5])


@given(RAGGED)
def test_the_rank_of_a_view_decides_where_it_is_counted(documents):
    pairs = pairs_of(*documents)
    found = measures.by_rank(pairs.scores, pairs, 32)
    for rank, value in enumerate(found):
        column = [sorted(scores, reverse=True)[rank] for scores in documents if len(scores) > rank]
        assert value == pytest.approx(np.mean(column), abs=1e-12)
    assert len(found) == max(map(len, documents))


def test_variance_is_within_a_pair():
    assert measures.variances(np.array([1.0, 3.0, 5.0]), np.array([0, 2, 3])).tolist() == [1.0, 0.0]


def test_a_mask_selects_pairs_unchanged():
    selected = pairs_of([0.1, 0.2], [0.3], [0.4, 0.5]).where(np.array([False, True, True]))
    assert (selected.scores.tolist(), selected.starts.tolist()) == ([0.3, 0.4, 0.5], [0, 1, 3])


def test_divergence_by_hand():
    # a_1 = (1/2, 1/2), a_2 = (1/4, 3/4): KL(1, 2) = 1/4 ln 1/2 + 3/4 ln 3/2, KL(2, 1) = 1/2 ln 2 + 1/2 ln 2/3.
    found = divergences(np.array([[0.5, 0.5], [0.25, 0.75]], dtype=np.float32))
    expected = [[0, np.log(0.5) / 4 + 3 * np.log(1.5) / 4], [np.log(2) / 2 + np.log(2 / 3) / 2, 0]]
    assert found == pytest.approx(np.array(expected), abs=1e-7)


def test_views_with_equal_attention_do_not_diverge():
    assert divergences(np.array([[0.2, 0.8], [0.2, 0.8]], dtype=np.float32)).max() < 1e-9


def test_a_view_that_may_not_attend_diverges_by_a_finite_amount():
    found = divergences(np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32))
    assert found[0, 1] == pytest.approx(np.log(1e9), rel=1e-3)


def test_divergences_are_averaged_over_the_documents_that_have_both_views():
    one = np.array([[0.5, 0.5], [0.25, 0.75]], dtype=np.float32)
    found = mean_divergences([one, None, one[:1], np.concatenate([one, one[:1]])])
    assert found["documents"] == 2
    assert found["kl"][0][1] == pytest.approx(divergences(one)[0, 1])
    assert found["kl"][1][2] == pytest.approx(divergences(one)[1, 0])


def test_without_two_views_there_is_no_divergence():
    assert mean_divergences([None, np.ones((1, 3), dtype=np.float32) / 3]) is None


def test_similarity_by_hand():
    # Cosines: of the first document 0, of the second 1, 0 and 0.
    counter = SimilarityCounter()
    counter.add(block_of([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]))
    found = counter.report()
    assert found["mean_cosine"] == pytest.approx((0 + 1 / 3) / 2)
    assert found["heat"][0][1] == pytest.approx(0.5)
    assert (found["heat"][0][2], found["heat"][2][2], found["documents"]) == (pytest.approx(0), pytest.approx(1), 2)
    assert sum(found["histogram"]["counts"]) == 4


def test_documents_of_one_view_have_no_similarity():
    counter = SimilarityCounter()
    counter.add(block_of([[1.0, 0.0]], [[0.0, 1.0]]))
    assert counter.report() is None


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_similarity_is_that_of_a_plain_loop(num_views, num_documents, seed):
    views = np.random.default_rng(seed).normal(size=(num_documents, num_views, 3)).astype(np.float32)
    counter = SimilarityCounter()
    counter.add(block_of(*views))
    means = []
    for document in views.astype(np.float64):
        units = [row / np.linalg.norm(row) for row in document]
        means.append(np.mean([units[i] @ units[j] for i in range(num_views) for j in range(i)]))
    assert counter.report()["mean_cosine"] == pytest.approx(np.mean(means), abs=1e-5)


def test_points_on_a_line_lie_on_the_first_axis():
    placed, explained = plane(np.array([[1, 1, 1], [1, 4, 1], [1, 1, 1]], dtype=np.float32))
    assert placed == pytest.approx(np.array([[-1, 0], [2, 0], [-1, 0]]), abs=1e-6)
    assert explained == pytest.approx(1.0)


def test_distances_in_a_plane_stay():
    points = np.array([[0, 0, 5], [3, 0, 5], [0, 4, 5], [1, 1, 5]], dtype=np.float32)
    placed, explained = plane(points)
    for i in range(4):
        for j in range(4):
            assert np.linalg.norm(placed[i] - placed[j]) == pytest.approx(np.linalg.norm(points[i] - points[j]))
    assert explained == pytest.approx(1.0)


def test_one_point_has_a_place():
    assert plane(np.ones((1, 4), dtype=np.float32))[0].tolist() == [[0.0, 0.0]]


def test_recall_counts_ranks_up_to_k():
    assert recalls(rank_array([1, 2, None, 7]), (1, 5, 20)) == {"R@1": 0.25, "R@5": 0.5, "R@20": 0.75}


def test_an_interval_holds_the_share_and_narrows_with_questions():
    few, many = rank_array([1, None] * 20), rank_array([1, None] * 500)
    (low, high), (lower, higher) = intervals(few, (1,), 0)["R@1"], intervals(many, (1,), 0)["R@1"]
    assert low < lower < 0.5 < higher < high
    # 1.96 standard errors of a share of a half among 1,000.
    assert (higher - lower) / 2 == pytest.approx(1.96 * 0.5 / 1000**0.5, abs=0.004)


def test_a_gain_is_paired():
    # Twenty questions won, none lost: the gain is sure although the shares' own intervals would overlap.
    whole, other = rank_array([1] * 60 + [None] * 40), rank_array([1] * 40 + [None] * 60)
    value, low, high = gain(whole, other, 1, 0)
    assert value == pytest.approx(0.2)
    assert 0.1 < low < 0.2 < high < 0.3
    assert gain(whole, whole, 1, 0) == (0.0, 0.0, 0.0)


def test_a_question_never_found_is_past_every_document():
    assert rank_array([None])[0] == NOT_FOUND
