"""k-means and learnt codes over token states, against plain loops."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from mvindex.encoder import load_encoder  # noqa: E402 - as above
from mvindex.encoder.arranged import arranged_of, joined  # noqa: E402 - as above
from mvindex.encoder.checkpoint import Settings, parse_family, read_checkpoint, write_settings  # noqa: E402 - as above
from mvindex.encoder.checkpoint.settings import ClusterInit  # noqa: E402 - as above
from mvindex.encoder.clusters import (  # noqa: E402 - as above
    attend_codes,
    cluster_tokens,
    pad_tokens,
    random_starts,
    token_views,
)
from mvindex.encoder.families.windows import Arrangement, Window  # noqa: E402 - as above
from mvindex.errors import ConfigError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from mvindex_train.config import EncoderConfig  # noqa: E402 - as above
from tests.helpers.tiny_models import ATOL, LENGTH, lloyd, make_model, plain_arithmetic  # noqa: E402 - only where torch is

DIM = 6


@pytest.fixture(autouse=True, scope="module")
def arithmetic():
    with pytest.MonkeyPatch.context() as monkeypatch, plain_arithmetic(monkeypatch):
        yield


def random_states(seed, count, dim=DIM):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def padded(rows, counts):
    """The rows of documents, padded, and which of them count."""
    counts = np.array(counts)
    return pad_tokens(rows, counts), torch.from_numpy(np.arange(counts.max()) < counts[:, None])


def clustered(tokens, num_views):
    """The centroids of one document alone."""
    states = torch.from_numpy(np.asarray(tokens, dtype=np.float32))[None]
    return cluster_tokens(states, torch.ones(states.shape[:2], dtype=torch.bool), num_views)[0]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 12))
def test_centroids_are_those_of_a_plain_lloyd_loop(seed, num_tokens, num_views):
    tokens = random_states(seed, num_tokens)
    expected, _, margin = lloyd(tokens, num_views)
    assume(margin > 1e-5)  # closer calls fall either way in fp32
    found = clustered(tokens, num_views).numpy()
    np.testing.assert_allclose(found[: len(expected)], expected, atol=ATOL)
    assert (found[len(expected) :] == 0).all()


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 8))
def test_neither_company_nor_padding_changes_a_document(seed, counts, num_views):
    documents = [random_states(seed + place, count) for place, count in enumerate(counts)]
    assume(min(lloyd(tokens, num_views)[2] for tokens in documents) > 1e-5)
    states, mask = padded(torch.from_numpy(np.concatenate(documents)), counts)
    together = cluster_tokens(states, mask, num_views)
    # What stands in the padding must not matter either.
    wide = torch.full((len(counts), states.shape[1] + 7, DIM), 9.0)
    wide[:, : states.shape[1]] = torch.where(mask[..., None], states, torch.tensor(-7.0))
    wide_mask = torch.zeros(wide.shape[:2], dtype=torch.bool)
    wide_mask[:, : mask.shape[1]] = mask
    widened = cluster_tokens(wide, wide_mask, num_views)
    for row, tokens in enumerate(documents):
        alone = clustered(tokens, num_views)
        torch.testing.assert_close(together[row], alone, rtol=0, atol=ATOL)
        torch.testing.assert_close(widened[row], alone, rtol=0, atol=ATOL)


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


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(1, 6))
def test_gradients_are_those_of_the_means(seed, num_tokens, num_views):
    tokens = random_states(seed, num_tokens)
    _, members, margin = lloyd(tokens, num_views)
    assume(margin > 1e-5)
    states, mask = padded(torch.from_numpy(np.concatenate([tokens, tokens[:1]])), [num_tokens, 1])
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


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 6))
def test_codes_give_what_plain_loops_give(seed, counts, num_codes):
    documents = [random_states(seed + place, count) for place, count in enumerate(counts)]
    codes = random_states(seed + 99, num_codes)
    states, mask = padded(torch.from_numpy(np.concatenate(documents)), counts)
    found = attend_codes(states, mask, torch.from_numpy(codes)).numpy()
    for row, tokens in enumerate(documents):
        for number, code in enumerate(codes.astype(np.float64)):
            weights = [np.exp(float(code @ token)) for token in tokens.astype(np.float64)]
            expected = sum(w * token for w, token in zip(weights, tokens, strict=True)) / sum(weights)
            np.testing.assert_allclose(found[row, number], expected, atol=5e-6)


def test_ragged_rows_are_padded_with_zeros_and_gradients_flow_back():
    rows = torch.arange(6.0).reshape(3, 2).requires_grad_(True)
    states, mask = padded(rows, [1, 2])
    assert states.tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]
    assert mask.tolist() == [[True, False], [True, True]]
    (states * torch.tensor([1.0, 2.0])).sum().backward()
    assert rows.grad.tolist() == [[1, 2]] * 3


def arranged(*ids):
    """Documents of these tokens, each token a row."""
    windows = [Window(np.array(own, dtype=np.int32), np.arange(len(own), dtype=np.int32)) for own in ids]
    return arranged_of([Arrangement([window], [(0, 1)], len(window.ids)) for window in windows])


def test_random_starts_are_distinct_tokens_of_each_document_in_rising_order():
    starts = random_starts(arranged(range(40), range(3), [7]), 5)
    assert starts.shape == (3, 5)
    assert (np.diff(starts[0]) > 0).all() and 0 <= starts[0, 0] and starts[0, -1] < 40
    assert starts[1].tolist() == [0, 1, 2, 0, 0]  # of three tokens all, and nothing beyond
    assert starts[2].tolist() == [0, 0, 0, 0, 0]


def test_random_starts_depend_on_the_documents_tokens_alone():
    first, second = arranged(range(40)), arranged(range(1, 41))
    state = np.random.get_state()[1].tolist()  # noqa: NPY002 - nobody's global numbers may be drawn
    together = random_starts(joined([first, second]), 6)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002 - as above
    np.testing.assert_array_equal(random_starts(second, 6)[0], together[1])
    np.testing.assert_array_equal(random_starts(first, 6)[0], together[0])
    # 6 of 40 tokens are the same for both with a chance of 1 in 3,838,380.
    assert together[0].tolist() != together[1].tolist()


def test_random_starts_reach_every_token():
    # Of 400 documents of 10 tokens each token is a start of 1 in 5: 80 times, with a standard deviation of 8.
    starts = random_starts(arranged(*(range(number, number + 10) for number in range(400))), 2)
    assert (np.abs(np.bincount(starts.ravel(), minlength=10) - 80) < 40).all()


def test_centroids_start_at_the_given_tokens():
    # Starts at 0, 50 and 51: {0, 10, 20}, {30, 40, 50} and {51}, with means 10, 40 and 51. Then 50 is nearer to 51, and
    # with means 10, 35 and 50.5 it stays so. At equal intervals the same tokens end elsewhere: see above.
    states = torch.tensor([[[0.0], [10], [20], [30], [40], [50], [51]]])
    mask = torch.ones((1, 7), dtype=torch.bool)
    found = cluster_tokens(states, mask, 3, torch.tensor([[0, 5, 6]]))
    assert found.flatten().tolist() == [10, 35, 50.5]


@pytest.mark.parametrize("init", list(ClusterInit))
def test_the_settings_say_where_clusters_start(init):
    states = torch.from_numpy(random_states(5, 30))[None]
    mask = torch.ones((1, 30), dtype=torch.bool)
    documents = arranged(range(30))
    made = Settings(family=parse_family("kmeans"), max_views=4, document_length=64, query_length=64, cluster_init=init)
    starts = None if init is ClusterInit.INTERVAL else torch.from_numpy(random_starts(documents, 4))
    torch.testing.assert_close(
        token_views(states, documents, made, None), cluster_tokens(states, mask, 4, starts), rtol=0, atol=0
    )


def test_random_starts_belong_to_kmeans():
    with pytest.raises(ConfigError, match="cluster_init: expected 'interval' .* got 'random'"):
        Settings(document_length=64, query_length=64, cluster_init=ClusterInit.RANDOM)
    with pytest.raises(
        ConfigError, match=r"encoder\.cluster_init: expected 'interval' for the family 'snippets'.* got 'random'"
    ):
        EncoderConfig(cluster_init="random")


def test_random_starts_survive_mvindex_json_and_change_the_fingerprint(tmp_path):
    folder = make_model(tmp_path / "model")
    plain = Settings(family=parse_family("kmeans"), max_views=3, document_length=LENGTH, query_length=LENGTH)
    write_settings(folder, plain)
    before, path = read_checkpoint(folder).fingerprint, folder / "mvindex.json"
    assert "cluster_init" not in path.read_text(encoding="utf-8")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"cluster_init": "interval"}))
    assert read_checkpoint(folder).fingerprint == before
    write_settings(folder, replace(plain, cluster_init=ClusterInit.RANDOM))
    after = read_checkpoint(folder)
    assert after.settings.cluster_init is ClusterInit.RANDOM and after.fingerprint != before
    assert read_checkpoint(folder, parse_family("snippets")).settings.cluster_init is ClusterInit.INTERVAL


def test_a_document_with_random_starts_has_the_same_views_in_any_company(tmp_path):
    folder = make_model(tmp_path / "model")
    plain = Settings(family=parse_family("kmeans"), max_views=4, document_length=LENGTH, query_length=LENGTH)
    document, other = Document("1", "the old cat sat on a red mat under the blue house"), Document("2", "a new dog ran")
    write_settings(folder, replace(plain, cluster_init=ClusterInit.RANDOM))
    encoder = load_encoder(folder)
    alone, together = encoder.encode_documents([document]), encoder.encode_documents([other, document])
    np.testing.assert_allclose(together.rows[4:], alone.rows, atol=ATOL)
    write_settings(folder, plain)
    at_intervals = load_encoder(folder).encode_documents([document])
    assert not np.allclose(alone.rows, at_intervals.rows, atol=0.01)
