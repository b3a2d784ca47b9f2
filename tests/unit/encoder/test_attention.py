"""The attention of views equals attention computed from the weights of the last layer."""

import numpy as np
import pytest
import torch

from mvindex.encoder import load_encoder
from mvindex.errors import Unsupported
from mvindex.records import Document
from tests.helpers.tiny_models import add_viewers, make_model, plain_arithmetic, reference_of, write_settings

TEXT = "The cat sat on the mat. It ran."


@pytest.fixture(autouse=True)
def arithmetic(monkeypatch):
    with plain_arithmetic(monkeypatch):
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of viewers and one of snippets, of the same kind of model."""
    viewers = add_viewers(make_model(tmp_path_factory.mktemp("viewers")), 3, "viewers", pooling="cls")
    snippets = make_model(tmp_path_factory.mktemp("snippets"))
    write_settings(snippets, family="snippets", max_views=8)
    return {"viewers": viewers, "snippets": snippets}


def attention_by_hand(reference, ids, positions, reads=None):
    """softmax(Q K^T / sqrt(d)) of the last layer, mean over heads, (t, t), in float64."""
    inputs = {"position_ids": torch.tensor([positions])} if positions else {}
    if reads is not None:
        inputs["attention_mask"] = torch.from_numpy(reads)[None, None]
    with torch.no_grad():
        states = reference.model(input_ids=torch.tensor([ids]), output_hidden_states=True, **inputs).hidden_states[-2][
            0
        ]
    layer = reference.model.encoder.layer[-1].attention.self
    heads = reference.model.config.num_attention_heads
    size = states.shape[1] // heads
    total = np.zeros((len(ids), len(ids)))
    for head in range(heads):
        at = slice(head * size, (head + 1) * size)
        query, key = ((states @ part.weight.T + part.bias).detach().numpy()[:, at] for part in (layer.query, layer.key))
        scores = query @ key.T / size**0.5
        scores = scores if reads is None else np.where(reads, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        total += weights / weights.sum(axis=1, keepdims=True) / heads
    return total


def test_a_viewers_attention_is_its_tokens(folders):
    reference = reference_of(folders["viewers"])
    viewers = [reference.token(f"[VIE_{number}]") for number in (1, 2, 3)]
    ids = [*viewers, *reference.tokens(TEXT), reference.sep]
    expected = attention_by_hand(reference, ids, [0, 0, 0, *range(1, len(ids) - 2)])[:3]
    (found,) = load_encoder(folders["viewers"]).view_attentions([Document("1", TEXT)])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_snippets_attention_is_the_mean_of_its_tokens(folders):
    reference = reference_of(folders["snippets"])
    one, two = reference.tokens("The cat sat on the mat."), reference.tokens(" It ran.")
    whole = attention_by_hand(reference, [reference.cls, *one, *two, reference.sep], None)
    expected = [whole[1 : 1 + len(one)].mean(axis=0), whole[1 + len(one) : 1 + len(one) + len(two)].mean(axis=0)]
    (found,) = load_encoder(folders["snippets"]).view_attentions([Document("1", TEXT)])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_a_viewer_may_not_read_has_no_share(folders, tmp_path):
    folder = add_viewers(make_model(tmp_path / "own"), 2, "context-viewers", pooling="cls", own_snippet=True)
    reference = reference_of(folder)
    first, second = (reference.token(f"[VIE_{number}]") for number in (1, 2))
    one, two = reference.tokens("The cat sat on the mat."), reference.tokens(" It ran.")
    ids = [reference.cls, first, *one, second, *two, reference.sep]
    owner = np.array([-1, *[0] * (1 + len(one)), *[1] * (1 + len(two)), -1])
    is_viewer = np.isin(np.arange(len(ids)), [1, 2 + len(one)])
    reads = np.where(is_viewer[:, None], owner[:, None] == owner[None, :], ~is_viewer[None, :])
    expected = attention_by_hand(reference, ids, None, reads)[is_viewer]
    (found,) = load_encoder(folder).view_attentions([Document("1", TEXT)])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found[0][owner != 0] == 0).all()


def test_documents_keep_their_places_and_long_ones_have_none(folders):
    long = " ".join(["The dog ran under the house."] * 12)
    documents = [Document("1", "It ran."), Document("2", long), Document("3", TEXT)]
    found = load_encoder(folders["snippets"]).view_attentions(documents)
    assert found[1] is None
    assert [len(found[0]), len(found[2])] == [1, 2]
    np.testing.assert_allclose(found[2].sum(axis=1), 1, atol=1e-6)


def test_views_made_after_the_last_layer_attend_to_nothing(folders):
    encoder = load_encoder(folders["snippets"], family="kmeans", max_views=2)
    with pytest.raises(Unsupported, match="kmeans"):
        encoder.view_attentions([Document("1", TEXT)])
