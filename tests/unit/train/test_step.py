"""A step: its gradients against one graph of everything, in chunks, in bf16, of a small BERT."""

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from mvindex.errors import EncoderError  # noqa: E402
from mvindex.records import Document  # noqa: E402
from mvindex_train.config import EncoderConfig, LossConfig, OptimiserConfig  # noqa: E402
from mvindex_train.grad_cache import Chunks  # noqa: E402
from mvindex_train.losses import total_loss  # noqa: E402
from mvindex_train.processes import Processes  # noqa: E402
from mvindex_train.step import StepContext, Stepper  # noqa: E402
from tests.helpers.tiny_training import TinyBatches, TinyEncoder, make_base, make_documents  # noqa: E402

pytestmark = pytest.mark.usefixtures("preserve_random_state")

LOSS = LossConfig(scale=10.0, local_weight=0.1, answer_view=True)
# What is compared here to 1e-6 is not so in bf16, which "auto" takes on a CPU that has it.
CONFIG = OptimiserConfig(learning_rate=1e-2, epochs=3, seed=5, precision="fp32")
MOMENT = StepContext(number=3, epoch=0, rate=1.0)


def gradients(config, batch=None, loss=LOSS, encoder=None):
    encoder = encoder or TinyEncoder().train()
    stepper = Stepper(encoder, config, Processes("cpu"))
    parts = stepper.add_gradients(batch or TinyBatches().batch([0, 1, 2, 3, 4, 5], [8, 11]), loss, MOMENT)
    return parts, {name: parameter.grad for name, parameter in encoder.named_parameters()}


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_a_cached_step_has_the_gradients_of_one_graph_over_the_same_chunks_with_dropout_on(chunk):
    batch = TinyBatches().batch([0, 1, 2, 3, 4, 5], [8, 11])
    parts, cached = gradients(replace(CONFIG, chunk_documents=chunk), batch)
    # The reference keeps every chunk's graph, seeded alike, and lets torch go through all of it at once.
    encoder = TinyEncoder().train()
    stepper = Stepper(encoder, replace(CONFIG, chunk_documents=chunk), Processes("cpu"))
    whole = stepper._chunks(batch, MOMENT).encode()

    loss = total_loss(stepper._inputs(batch, whole), LOSS, 0).total
    loss.backward()
    assert float(parts.total) == pytest.approx(loss.item(), abs=1e-6)
    assert encoder.words.grad.abs().max() > 1e-3
    for name, parameter in encoder.named_parameters():
        if parameter.grad is None:
            assert cached[name] is None
        else:
            torch.testing.assert_close(cached[name], parameter.grad, atol=1e-6, rtol=0)


def test_a_cached_step_without_dropout_has_the_gradients_of_the_plain_step():
    _, plain = gradients(CONFIG, encoder=TinyEncoder(dropout=0.0).train())
    _, cached = gradients(replace(CONFIG, chunk_documents=2), encoder=TinyEncoder(dropout=0.0).train())
    for name in ("words", "mix"):
        torch.testing.assert_close(cached[name], plain[name], atol=1e-6, rtol=0)


def test_dropout_differs_between_steps_and_between_chunks():
    document = make_documents()[2]
    encoder = TinyEncoder(dropout=0.5).train()
    stepper = Stepper(encoder, replace(CONFIG, chunk_documents=1), Processes("cpu"))
    batch = TinyBatches().batch([2])
    batch = replace(batch, documents=[document, document], excluded=np.zeros((1, 2), bool))
    first = stepper._chunks(batch, MOMENT).encode().rows
    again = stepper._chunks(batch, MOMENT).encode().rows
    later = stepper._chunks(batch, replace(MOMENT, number=4)).encode().rows
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first[: len(first) // 2], first[len(first) // 2 :])


def test_chunks_without_questions_or_documents_give_no_rows():
    chunks = Chunks(TinyEncoder(), [], [], 2, lambda number: nullcontext())
    encoded = chunks.encode()
    assert encoded.queries.shape == encoded.rows.shape == (0, 0)
    assert encoded.starts.tolist() == [0]


def test_the_batch_learns_the_answer_view_where_it_is_known():
    parts, _ = gradients(CONFIG)
    assert float(parts.answer_share) == pytest.approx(1 / 6)


def test_the_gradient_is_clipped_to_its_norm():
    encoder = TinyEncoder().train()
    stepper = Stepper(encoder, replace(CONFIG, max_gradient_norm=1e-3), Processes("cpu"))
    figures = stepper.step(TinyBatches().batch([0, 1, 2]), replace(LOSS, answer_view=False), MOMENT)
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in encoder.parameters() if p.grad is not None))
    assert figures["gradient_norm"] > 1e-2
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_bf16_autocast_runs_the_products_in_bf16_and_keeps_the_loss_near():
    encoder = TinyEncoder(dropout=0.0).train()
    seen = []
    real = encoder._vector
    encoder._vector = lambda text: seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype) or real(text)
    in_bf16, _ = gradients(replace(CONFIG, precision="bf16"), encoder=encoder)
    in_fp32, _ = gradients(CONFIG, encoder=TinyEncoder(dropout=0.0).train())
    assert set(seen) == {torch.bfloat16}
    assert float(in_bf16.total) == pytest.approx(float(in_fp32.total), rel=0.05)


def test_a_loss_that_is_not_finite_names_the_step_and_the_first_question_and_changes_no_weight():
    encoder = TinyEncoder().train()
    with torch.no_grad():
        encoder.words[:] = float("nan")
    before = encoder.mix.detach().clone()
    stepper = Stepper(encoder, CONFIG, Processes("cpu"))
    with pytest.raises(EncoderError, match=r"step 4: expected a finite loss .*which paint1x0"):
        stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, MOMENT)
    assert torch.equal(encoder.mix, before)


def test_groups_keep_their_rates_under_the_schedule():
    stepper = Stepper(TinyEncoder().train(), CONFIG, Processes("cpu"))
    figures = stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, replace(MOMENT, rate=0.25))
    assert [group["lr"] for group in stepper.optimiser.param_groups] == pytest.approx([0.0025, 0.005])
    assert figures["learning_rate"] == pytest.approx(0.0025)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    pytest.importorskip("transformers")
    return str(make_base(tmp_path_factory.mktemp("base")))


def bert(base, family="snippets"):
    """A small BERT in training, with dropout, and a batch of documents of one to three snippets for it."""
    from mvindex_train.model import build_encoder

    config = EncoderConfig(base=base, family=family, dropout=0.2, document_length=40, query_length=20)
    texts = ["w1 w2 w3.", "w4 w5 w6. w7 w8 w9.", "w10 w11. w12 w13. w14 w15.", "w16 w17 w18."]
    batch = TinyBatches().batch([0, 1, 2], [3])
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    batch = replace(batch, questions=["w1 w3", "w8 w9", "w12"], documents=documents)
    return build_encoder(config, 0).train(), batch


@pytest.mark.parametrize("family", ["snippets", "viewers", "context-viewers", "kmeans"])
def test_a_cached_step_of_a_bert_has_the_gradients_of_one_graph(base, family):
    loss = replace(LOSS, answer_view=False)
    encoder, batch = bert(base, family)
    _, cached = gradients(replace(CONFIG, chunk_documents=2), batch, loss, encoder)
    whole, _ = bert(base, family)
    stepper = Stepper(whole, replace(CONFIG, chunk_documents=2), Processes("cpu"))
    encoded = stepper._chunks(batch, MOMENT).encode()
    assert len(encoded.rows) > 4
    total_loss(stepper._inputs(batch, encoded), loss, 0).total.backward()
    wanted = {name: parameter.grad for name, parameter in whole.named_parameters() if parameter.grad is not None}
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest > 1e-3
    for name, gradient in wanted.items():
        torch.testing.assert_close(cached[name], gradient, atol=1e-6 * max(largest, 1.0), rtol=0)


def test_gradient_checkpointing_changes_no_gradient_with_dropout_on(base):
    loss = replace(LOSS, answer_view=False)
    encoder, batch = bert(base)
    _, plain = gradients(CONFIG, batch, loss, encoder)
    encoder, _ = bert(base)
    _, saving = gradients(replace(CONFIG, gradient_checkpointing=True), batch, loss, encoder)
    assert any(getattr(module, "gradient_checkpointing", False) for module in encoder.modules())
    for name, gradient in plain.items():
        if gradient is not None:
            torch.testing.assert_close(saving[name], gradient, atol=1e-6, rtol=1e-5)
