"""k-means and learnt codes over token states, against plain loops."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
sys.path.insert(0, str(Path(__file__).parent))

from tiny_models import ATOL, lloyd, plain_arithmetic  # noqa: E402 - only where torch is

from mvindex.encoder.clusters import attend_codes, cluster_tokens, pad_tokens  # noqa: E402 - as above

DIM = 6


@pytest.fixture(autouse=True, scope="module")
def arithmetic():
    with pytest.MonkeyPatch.context() as monkeypatch, plain_arithmetic(monkeypatch):
        yield


def random_states(seed, count, dim=DIM):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def clustered(tokens, num_views):
    """The centroids of one document alone."""
    states = torch.from_numpy(np.asarray(tokens, dtype=np.float32))[None]
    return cluster_tokens(states, torch.ones(states.shape[:2], dtype=torch.bool), num_views)[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 12))
def test_centroids_are_those_of_a_plain_lloyd_loop(seed, num_tokens, num_views):
    tokens = random_states(seed, num_tokens)
    expected, _, margin = lloyd(tokens, num_views)
    assume(margin > 1e-5)  # closer calls fall either way in fp32
    found = clustered(tokens, num_views).numpy()
    np.testing.assert_allclose(found[: len(expected)], expected, atol=ATOL)
    assert (found[len(expected) :] == 0).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 8))
def test_neither_company_nor_padding_changes_a_document(seed, counts, num_views):
    documents = [random_states(seed + place, count) for place, count in enumerate(counts)]
    assume(min(lloyd(tokens, num_views)[2] for tokens in documents) > 1e-5)
    states, mask = pad_tokens(torch.from_numpy(np.concatenate(documents)), counts)
    together = cluster_tokens(states, mask, num_views)
    # What stands in the padding must not matter either.
    wide = torch.full((len(counts), states.shape[1] + 7, DIM), 9.0)
    wide[:, : states.shape[1]] = torch.where(mask[..., None], states, torch.tensor(-7.0))
    wide_mask = torch.zeros(wide.shape[:2], dtype=torch.bool)
    wide_mask[:, : mask.shape[1]] = mask
    padded = cluster_tokens(wide, wide_mask, num_views)
    for row, tokens in enumerate(documents):
        alone = clustered(tokens, num_views)
        torch.testing.assert_close(together[row], alone, rtol=0, atol=ATOL)
        torch.testing.assert_close(padded[row], alone, rtol=0, atol=ATOL)


def test_the_start_is_at_equal_intervals():
    # Seven tokens far apart but for one pair: each start keeps its own, 6 joins 5's cluster only if 5 is a start.
    tokens = np.array([[0.0], [10], [20], [30], [40], [50], [51]])
    # k = 3: starts at 0, 7 // 3 = 2 and 14 // 3 = 4, that is 0, 20, 40. Token 10 is as near to 0 as to 20: first wins.
    # Then {0, 10}, {20, 30}, {40, 50, 51} with means 5, 25, 47: it stays so.
    assert clustered(tokens, 3).flatten().tolist() == [5, 25, 47]


def test_of_equally_near_centroids_the_first_takes_the_token():
    # Starts 0 and 2 (1 * 4 // 2): 0 and 4. Token 2 is 2 away from both.
    assert clustered([[0.0], [2], [4], [4]], 2).flatten().tolist() == [1, 4]


def test_an_empty_cluster_keeps_its_last_members():
    # Starts 0, 1 and 2 of [0, 0, 8]: token 1 goes to the first of two centroids at 0; the second keeps token 1.
    assert clustered([[0.0], [0], [8]], 3).flatten().tolist() == [0, 0, 8]
    # Starts 0, 2 and 4: 5, 5 and 9. The first takes 5, 1, 5, 1 and moves to 3; the second, left with none, waits at
    # its token 5, and in the next round both fives come to it.
    assert clustered([[5.0], [1], [5], [1], [9], [9]], 3).flatten().tolist() == [1, 5, 9]


@pytest.mark.parametrize(("num_tokens", "num_views"), [(1, 1), (1, 5), (4, 4), (7, 3), (40, 12)])
def test_identical_tokens_give_that_token(num_tokens, num_views):
    token = random_states(3, 1)
    found = clustered(np.repeat(token, num_tokens, axis=0), num_views).numpy()
    count = min(num_tokens, num_views)
    np.testing.assert_allclose(found[:count], np.repeat(token, count, axis=0), atol=ATOL)


@pytest.mark.parametrize("num_tokens", [1, 2, 3])
def test_fewer_tokens_than_views_are_the_views(num_tokens):
    tokens = random_states(1, num_tokens)
    found = clustered(tokens, 5).numpy()
    np.testing.assert_array_equal(found[:num_tokens], tokens)
    assert (found[num_tokens:] == 0).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(1, 6))
def test_gradients_are_those_of_the_means(seed, num_tokens, num_views):
    tokens = random_states(seed, num_tokens)
    _, members, margin = lloyd(tokens, num_views)
    assume(margin > 1e-5)
    states, mask = pad_tokens(torch.from_numpy(np.concatenate([tokens, tokens[:1]])), [num_tokens, 1])
    states.requires_grad_(True)
    for row, cluster in enumerate(members):
        views = cluster_tokens(states, mask, num_views)
        [gradient] = torch.autograd.grad(views[0, row].sum(), states)
        expected = np.zeros((2, num_tokens, DIM))
        expected[0, cluster] = 1 / len(cluster)  # 1 / size to each member, nothing to the others
        np.testing.assert_allclose(gradient.numpy(), expected, atol=ATOL)


def test_codes_attend_to_states_as_written_by_hand():
    # u . d = 0 and log 3: weights 1/4 and 3/4. The other code sees both alike.
    states = torch.tensor([[[0.0, 4.0], [1.0, 0.0], [77.0, 77.0]]])
    codes = torch.tensor([[float(np.log(3)), 0.0], [0.0, 0.0]])
    mask = torch.tensor([[True, True, False]])
    found = attend_codes(states, mask, codes)[0]
    np.testing.assert_allclose(found, [[0.75, 1.0], [0.5, 2.0]], atol=ATOL)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 6))
def test_codes_give_what_plain_loops_give(seed, counts, num_codes):
    documents = [random_states(seed + place, count) for place, count in enumerate(counts)]
    codes = random_states(seed + 99, num_codes)
    states, mask = pad_tokens(torch.from_numpy(np.concatenate(documents)), counts)
    found = attend_codes(states, mask, torch.from_numpy(codes)).numpy()
    for row, tokens in enumerate(documents):
        for number, code in enumerate(codes.astype(np.float64)):
            weights = [np.exp(float(code @ token)) for token in tokens.astype(np.float64)]
            expected = sum(w * token for w, token in zip(weights, tokens, strict=True)) / sum(weights)
            np.testing.assert_allclose(found[row, number], expected, atol=5e-6)


def test_ragged_rows_are_padded_with_zeros_and_gradients_flow_back():
    rows = torch.arange(6.0).reshape(3, 2).requires_grad_(True)
    states, mask = pad_tokens(rows, [1, 2])
    assert states.tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]
    assert mask.tolist() == [[True, False], [True, True]]
    (states * torch.tensor([1.0, 2.0])).sum().backward()
    assert rows.grad.tolist() == [[1, 2]] * 3
