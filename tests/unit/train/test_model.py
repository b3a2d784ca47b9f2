"""The encoder that is trained: what of it learns, where new weights come from, and how the optimiser sees them."""

import numpy as np
import pytest

from mvindex.encoder.batches import BatchShape
from mvindex.encoder.checkpoint import load_model
from mvindex.errors import CheckpointError, ConfigError
from mvindex.records import Document
from mvindex_train.checkpoints import save_checkpoint
from mvindex_train.config import EncoderConfig, OptimiserConfig
from mvindex_train.model import build_encoder
from tests.helpers.tiny_encoders import DOCUMENTS, FAMILIES, VIEWS, build, shaken
from tests.helpers.tiny_models import ATOL, make_model, torch

pytestmark = pytest.mark.usefixtures("plain_arithmetic")
VIEWER_FAMILIES = ("viewers", "context-viewers")
QUESTIONS = ["was it the cat?", "she ran"]
WORDS = "embeddings.word_embeddings"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("base"))


def gradients(encoder):
    """The parameters by name with a gradient that is not all zero, after a loss over views and questions."""
    encoder.eval()
    questions, views = encoder.encode(QUESTIONS, DOCUMENTS)
    (questions @ views.rows.T).pow(3).sum().backward()
    return {name: value.grad for name, value in encoder.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_all_weights_learn_through_the_views_of_each_family(base, family):
    pooling = "cls" if family in VIEWER_FAMILIES else None  # the mean of a question has no viewer
    encoder = build(base, family, pooling=pooling)
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    found = gradients(encoder)
    moved = {name for name, gradient in found.items() if gradient.abs().max() > 0}
    for layer in range(2):
        for part in ("attention.self.query", "attention.self.value", "intermediate.dense", "output.dense"):
            assert f"documents.encoder.layer.{layer}.{part}.weight" in moved
    assert any(name.startswith(f"documents.{WORDS}") for name in moved)
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    if family == "poly":
        assert (found["codes"].abs().sum(dim=1) > 0).all()
    if family in VIEWER_FAMILIES:  # [VIE] of questions, and every viewer of documents
        assert (found[f"documents.{WORDS}.viewers"].abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("family", "options", "forwards"),
    [
        *((family, {}, 1) for family in FAMILIES),
        ("viewers", {"own_snippet": True}, 1),
        ("snippets", {"separate": True}, 2),
    ],
)
def test_one_forward_gives_questions_and_documents_what_each_gets_alone(base, family, options, forwards, monkeypatch):
    monkeypatch.setattr("mvindex_train.module._CPU_PASSES", BatchShape(max_tokens=1 << 17, least_spared=1 << 17))
    encoder, called = build(base, family, **options).eval(), []
    for model in {encoder.documents, encoder.queries}:
        model.register_forward_hook(lambda *_: called.append(1))
    questions, views = encoder.encode(QUESTIONS, DOCUMENTS)
    assert len(called) == forwards
    alone = encoder.encode_documents(DOCUMENTS)
    np.testing.assert_allclose(questions.detach(), encoder.encode_queries(QUESTIONS).detach(), atol=ATOL)
    np.testing.assert_allclose(views.rows.detach(), alone.rows.detach(), atol=ATOL)
    assert views.starts.tolist() == alone.starts.tolist() and views.spans.tolist() == alone.spans.tolist()


def names_of_graph(tensor):
    """The names of the backward operations behind a tensor."""
    found, todo = {}, [tensor.grad_fn]
    while todo:
        one = todo.pop()
        if one is not None and one not in found:
            found[one] = one.name()
            todo += [before for before, _ in one.next_functions]
    return set(found.values())


def test_on_a_cpu_training_leaves_out_fused_attention_whose_backward_pass_is_slow(base):
    # With dropout torch takes other kernels by itself.
    encoder = build(base, "snippets", dropout=0.0)
    assert encoder.documents.config._attn_implementation == "sdpa"
    names = names_of_graph(encoder.encode_documents(DOCUMENTS).rows)
    assert any("Softmax" in name for name in names)
    assert not any("DotProduct" in name for name in names)


@pytest.mark.parametrize("family", ["snippets", "poly", "viewers", "context-viewers"])
def test_with_lora_only_adapters_viewers_and_codes_learn(base, family):
    encoder = shaken(build(base, family, lora_rank=2))
    trained = {name for name, parameter in encoder.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name == "codes" or name.endswith(".viewers") for name in trained)
    assert any(name.endswith(".viewers") for name in trained) is (family in VIEWER_FAMILIES)
    assert ("codes" in trained) is (family == "poly")
    found = gradients(encoder)
    assert set(found) == trained
    assert all(gradient.abs().max() > 0 for gradient in found.values())


def test_words_that_are_frozen_get_no_gradient_while_viewers_do(base):
    encoder = build(base, "viewers", freeze_word_embeddings=True)
    found = gradients(encoder)
    assert f"documents.{WORDS}.table.weight" not in found
    assert found[f"documents.{WORDS}.viewers"].abs().max() > 0
    table = encoder.documents.get_input_embeddings()
    assert not table.weight.requires_grad
    np.testing.assert_array_equal(table.weight, load_model(base).get_input_embeddings().weight.detach())


def test_separate_encoders_learn_from_their_own_side_alone(base):
    encoder = build(base, "viewers", separate=True, pooling="cls")
    encoder.encode_queries(QUESTIONS).sum().backward()
    grads = {name: value.grad for name, value in encoder.named_parameters() if value.grad is not None}
    assert grads and all(name.startswith("queries.") for name in grads)
    viewers = grads[f"queries.{WORDS}.viewers"].abs().sum(dim=1) > 0
    assert viewers.tolist() == [True, False, False, False]
    encoder.zero_grad()
    encoder.encode_documents(DOCUMENTS).rows.sum().backward()
    grads = {name: value.grad for name, value in encoder.named_parameters() if value.grad is not None}
    assert grads and all(name.startswith("documents.") for name in grads)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("family", "lora_rank"), [("snippets", None), ("poly", 2), ("viewers", None), ("viewers", 2)])
def test_every_trained_weight_is_in_one_group_at_its_own_rate(base, family, lora_rank, separate):
    encoder = build(base, family, lora_rank=lora_rank, separate=separate, freeze_word_embeddings=True)
    config = OptimiserConfig(learning_rate=0.001, viewer_learning_rate=0.1, weight_decay=0.01)
    groups = encoder.parameter_groups(config)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    trained = {id(parameter): name for name, parameter in encoder.named_parameters() if parameter.requires_grad}
    assert sorted(grouped) == sorted(trained)
    torch.optim.AdamW(groups)
    for group in groups:
        for parameter in group["params"]:
            is_new = trained[id(parameter)] == "codes" or trained[id(parameter)].endswith("viewers")
            assert group["lr"] == (0.1 if is_new else 0.001)
            assert group["weight_decay"] == (0.0 if is_new or parameter.ndim == 1 else 0.01)


def test_viewers_take_the_common_rate_where_none_is_given(base):
    groups = build(base, "viewers").parameter_groups(OptimiserConfig(learning_rate=0.5))
    assert {group["lr"] for group in groups} == {0.5}


def weights_of(encoder):
    return {name: parameter.detach().clone() for name, parameter in encoder.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [{"family": "viewers"}, {"family": "poly"}, {"lora_rank": 2}, {"family": "viewers", "viewer_init": "cls"},
     {"family": "viewers", "viewer_init": "pooled", "separate": True}],
)  # fmt: skip
def test_new_weights_come_from_the_seed_and_from_nothing_else(base, options):
    torch.manual_seed(1)
    first = weights_of(build(base, seed=5, **options))
    torch.manual_seed(2)
    again, other = weights_of(build(base, seed=5, **options)), weights_of(build(base, seed=6, **options))
    assert all(torch.equal(first[name], again[name]) for name in first | again)
    differing = {name for name in first if not torch.equal(first[name], other[name])}
    assert differing and all("viewers" in name or "lora_A" in name or name == "codes" for name in differing)


@pytest.mark.parametrize("options", [{}, {"family": "viewers", "lora_rank": 2, "separate": True}, {"family": "poly"}])
def test_building_freezing_and_saving_leave_the_random_numbers_alone(base, tmp_path, options):
    before = torch.get_rng_state()
    encoder = build(base, **options)
    assert torch.equal(torch.get_rng_state(), before)
    encoder.frozen_encoder().encode_documents(DOCUMENTS)
    assert torch.equal(torch.get_rng_state(), before)
    save_checkpoint(encoder, tmp_path / "saved", "card")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("how", "spread"), [("random", 0.02), ("cls", 0.002), ("pooled", 0.002)])
def test_viewers_start_where_they_are_told_and_all_differ(base, how, spread):
    encoder = build(base, "viewers", max_views=30, viewer_init=how)
    words = load_model(base).get_input_embeddings().weight.detach()
    start = {"random": torch.zeros(32), "cls": words[2], "pooled": words.mean(dim=0)}[how]
    noise = encoder.viewers(encoder.documents) - start
    assert noise.shape == (31, 32)
    # 992 draws: their standard deviation is within a tenth of the true one by far.
    assert abs(float(noise.std()) / spread - 1) < 0.1 and abs(float(noise.mean())) < spread / 5
    assert len(torch.unique(noise, dim=0)) == 31


@pytest.mark.parametrize("family", ["snippets", "first-k", "kmeans", "sentences", "splits", "single"])
def test_before_any_step_the_views_are_those_of_the_base(base, family):
    from mvindex.encoder import load_encoder

    encoder = build(base, family).eval()
    expected = load_encoder(base, family=family, max_views=VIEWS.get(family, 3))
    with torch.no_grad():
        found, questions = encoder.encode_documents(DOCUMENTS), encoder.encode_queries(QUESTIONS)
    views = expected.encode_documents(DOCUMENTS)
    np.testing.assert_allclose(found.rows, views.rows, atol=ATOL)
    np.testing.assert_allclose(questions, expected.encode_queries(QUESTIONS), atol=ATOL)
    assert found.starts.tolist() == views.starts.tolist() and found.spans.tolist() == views.spans.tolist()


def test_a_document_has_the_same_views_and_gradients_alone_and_in_company(base):
    encoder = build(base, "kmeans").eval()
    together = encoder.encode_documents([*DOCUMENTS, Document("3", "")])
    for number, document in enumerate(DOCUMENTS):
        rows = together.rows[together.starts[number] : together.starts[number + 1]]
        alone = encoder.encode_documents([document]).rows
        np.testing.assert_allclose(rows.detach(), alone.detach(), atol=ATOL)
        weight = encoder.documents.encoder.layer[0].output.dense.weight
        [one] = torch.autograd.grad(rows.pow(3).sum(), weight, retain_graph=True)
        [other] = torch.autograd.grad(alone.pow(3).sum(), weight)
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_dropout_is_on_in_training_as_configured_and_off_in_evaluation(base):
    encoder = build(base, dropout=0.5)
    first, second = encoder.encode_queries(QUESTIONS), encoder.encode_queries(QUESTIONS)
    assert (first - second).abs().max() > 0.01
    encoder.eval()
    assert torch.equal(encoder.encode_queries(QUESTIONS), encoder.encode_queries(QUESTIONS))
    still = build(base, dropout=0.0)
    assert torch.equal(still.encode_queries(QUESTIONS), still.encode_queries(QUESTIONS))


def test_a_frozen_encoder_is_a_copy_that_tells_its_weights_and_settings(base):
    encoder = build(base, "viewers", lora_rank=2)
    frozen = encoder.frozen_encoder()
    before = frozen.encode_documents(DOCUMENTS).rows
    shaken(encoder)
    np.testing.assert_array_equal(frozen.encode_documents(DOCUMENTS).rows, before)
    after = encoder.frozen_encoder()
    assert np.abs(after.encode_documents(DOCUMENTS).rows - before).max() > 0.01
    fingerprints = {frozen.fingerprint, after.fingerprint, build(base).frozen_encoder().fingerprint}
    assert len(fingerprints | {build(base, "single").frozen_encoder().fingerprint}) == 4
    assert build(base).frozen_encoder().fingerprint in fingerprints
    # Freezing changes nothing of what is trained.
    assert all("lora_" in name or name.endswith("viewers") for name in gradients(encoder))


def saved(encoder, folder):
    save_checkpoint(encoder, folder, "card")
    return folder


@pytest.mark.parametrize("num_views", [2, 3, 5])
@pytest.mark.parametrize("lora_rank", [None, 2])
def test_viewers_of_a_base_are_kept_and_missing_ones_drawn(base, tmp_path, num_views, lora_rank):
    first = shaken(build(base, "viewers"))
    folder = saved(first, tmp_path / "first")
    second = build(folder, "context-viewers", max_views=num_views, lora_rank=lora_rank)
    old, new = first.viewers(first.documents), second.viewers(second.documents)
    np.testing.assert_array_equal(new[: num_views + 1][:4], old[: num_views + 1])
    assert torch.unique(new, dim=0).shape == new.shape
    again = build_encoder(EncoderConfig(base=str(saved(second, tmp_path / "second")), family="snippets"), 0)
    assert again.viewers(again.documents) is None


def test_codes_of_a_base_are_kept(base, tmp_path):
    first = shaken(build(base, "poly"))
    second = build(saved(first, tmp_path / "first"), "poly", max_views=5)
    np.testing.assert_array_equal(second.codes[:3].detach(), first.codes.detach())
    assert second.codes.shape == (5, 32)


def test_bases_that_do_not_go_together_with_the_settings_are_refused(base, tmp_path):
    adapter = saved(build(base, lora_rank=2), tmp_path / "adapter")
    with pytest.raises(ConfigError, match=f"is an adapter itself.*start from '{base}'"):
        build(adapter, lora_rank=2)
    separate = saved(build(base, separate=True), tmp_path / "separate")
    with pytest.raises(ConfigError, match="has separate question weights"):
        build(separate)
    with pytest.raises(CheckpointError, match="a window of 4 tokens is too short"):
        build(base, "viewers", document_length=4)
    with pytest.raises(CheckpointError, match="no such directory"):
        build(tmp_path / "nothing")
