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
from mvindex_train.step import StepContext, Stepper, read_figures  # noqa: E402
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
    # Private: the views of a step, chunk by chunk, are given to nobody.
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
    # Private: as above.
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
    (figures,) = read_figures([stepper.step(TinyBatches().batch([0, 1, 2]), replace(LOSS, answer_view=False), MOMENT)])
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in encoder.parameters() if p.grad is not None))
    assert figures["gradient_norm"] > 1e-2
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_bf16_autocast_runs_the_products_in_bf16_and_keeps_the_loss_near():
    encoder = TinyEncoder(dropout=0.0).train()
    seen = []
    # Private: where the arithmetic of a step can be seen.
    real = encoder._vector
    encoder._vector = lambda text: seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype) or real(text)
    in_bf16, _ = gradients(replace(CONFIG, precision="bf16"), encoder=encoder)
    in_fp32, _ = gradients(CONFIG, encoder=TinyEncoder(dropout=0.0).train())
    assert set(seen) == {torch.bfloat16}
    assert float(in_bf16.total) == pytest.approx(float(in_fp32.total), rel=0.05)


def test_a_loss_that_is_not_finite_names_the_step_and_the_first_question():
    encoder = TinyEncoder().train()
    with torch.no_grad():
        encoder.words[:] = float("nan")
    stepper = Stepper(encoder, CONFIG, Processes("cpu"))
    steps = [stepper.step(TinyBatches().batch([own, 2, 3]), LOSS, replace(MOMENT, number=own)) for own in (4, 5)]
    with pytest.raises(EncoderError, match=r"step 5: expected a finite loss .*which paint4x0"):
        read_figures(steps)


def test_groups_keep_their_rates_under_the_schedule():
    stepper = Stepper(TinyEncoder().train(), CONFIG, Processes("cpu"))
    (figures,) = read_figures([stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, replace(MOMENT, rate=0.25))])
    assert [group["lr"] for group in stepper.optimiser.param_groups] == pytest.approx([0.0025, 0.005])
    assert figures["learning_rate"] == pytest.approx(0.0025)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    pytest.importorskip("transformers")
    return str(make_base(tmp_path_factory.mktemp("base")))


def bert(base, family="snippets", dropout=0.2):
    """A small BERT in training, with dropout, and a batch of documents of one to three snippets for it."""
    from mvindex_train.model import build_encoder

    config = EncoderConfig(base=base, family=family, dropout=dropout, document_length=40, query_length=20)
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
    # Private: as above.
    encoded = stepper._chunks(batch, MOMENT).encode()
    assert len(encoded.rows) > 4
    total_loss(stepper._inputs(batch, encoded), loss, 0).total.backward()
    wanted = {name: parameter.grad for name, parameter in whole.named_parameters() if parameter.grad is not None}
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest > 1e-3
    for name, gradient in wanted.items():
        torch.testing.assert_close(cached[name], gradient, atol=1e-6 * max(largest, 1.0), rtol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gradient_checkpointing_changes_no_gradient(base, dropout):
    loss = replace(LOSS, answer_view=False)
    encoder, batch = bert(base, dropout=dropout)
    _, plain = gradients(CONFIG, batch, loss, encoder)
    encoder, _ = bert(base, dropout=dropout)
    _, saving = gradients(replace(CONFIG, gradient_checkpointing=True), batch, loss, encoder)
    assert any(getattr(module, "gradient_checkpointing", False) for module in encoder.modules())
    for name, gradient in plain.items():
        if gradient is not None:
            torch.testing.assert_close(saving[name], gradient, atol=1e-6, rtol=1e-5)


class Reads(torch.overrides.TorchFunctionMode):
    """Lists what reads a value of a tensor that would be on the device, which a GPU would be waited for.

    On the device are parameters, what on_device() gives, and all that is computed of either.
    """

    NAMES = {"item", "tolist", "cpu", "numpy", "nonzero", "unique", "masked_select", "__bool__", "__float__", "__int__"}

    def __init__(self, module):
        super().__init__()
        self.found = []
        for parameter in module.parameters():
            parameter.is_on_device = True

    def __torch_function__(self, call, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(call, "__name__", "")
        if any(hasattr(each, "is_on_device") for each in tensors_of((args, kwargs))):
            by_mask = name in ("__getitem__", "__setitem__") and any(
                each.dtype == torch.bool for each in tensors_of(args[1:2])
            )
            unsized = name == "repeat_interleave" and "output_size" not in kwargs
            if name in self.NAMES or by_mask or unsized:
                self.found.append(name)
            result = call(*args, **kwargs)
            for each in tensors_of(result):
                each.is_on_device = True
            return result
        return call(*args, **kwargs)


def tensors_of(values):
    return [each for each in torch.utils._pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]


def sent(array, device):
    tensor = torch.from_numpy(array).to(device)
    tensor.is_on_device = True
    return tensor


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_step_reads_no_value_from_the_device_and_many_steps_are_read_at_once(base, chunk, monkeypatch):
    from mvindex.encoder import forward
    from mvindex_train import losses, module, step

    for room in (forward, losses, module, step):
        monkeypatch.setattr(room, "on_device", sent)
    loss = replace(LOSS, in_sequence_weight=0.1, distillation_weight=0.1, nested=True)
    encoder, batch = bert(base)
    teacher = np.full((3, 4), np.nan, np.float32)
    teacher[0, :2] = 1, 0
    batch = replace(batch, teacher=teacher, answer_spans=[None, (0, 9), (0, 6)])
    stepper = Stepper(encoder, replace(CONFIG, chunk_documents=chunk), Processes("cpu"))
    with Reads(encoder) as reads:
        steps = [stepper.step(batch, loss, replace(MOMENT, number=number)) for number in range(3)]
        assert reads.found == []
        figures = read_figures(steps)
        assert reads.found == ["tolist"]
    assert all(min(each["local"], each["in_sequence"], each["distillation"]) > 0 for each in figures)


def test_the_counter_sees_what_reads():
    values = torch.nn.Linear(2, 2)
    with Reads(values) as reads:
        product = values.weight * 2
        bool((product > 9).any()), product[product > 0], product.detach().cpu().numpy(), torch.ones(2).tolist()
    assert reads.found == ["__bool__", "__getitem__", "cpu", "numpy"]


@pytest.mark.needs("cuda")
def test_a_step_does_not_wait_for_a_gpu(base):
    encoder, batch = bert(base)
    stepper = Stepper(encoder.to("cuda"), CONFIG, Processes("cuda"))
    stepper.step(batch, LOSS, MOMENT)
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps = [stepper.step(batch, LOSS, MOMENT) for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(read_figures(steps)) == 3


def test_documents_arranged_ahead_by_other_processes_have_the_same_gradients(base):
    from mvindex.encoder.arranging import Arranging
    from mvindex_train.loop import arranged_ahead

    loss = replace(LOSS, answer_view=False)
    encoder, batch = bert(base)
    arranging = Arranging(encoder.inputs)
    try:
        found = list(
            arranged_ahead(iter([batch, replace(batch, documents=[]), batch]), arranging, lambda count: slice(count))
        )
    finally:
        arranging.close()
    assert [len(each.arranged) for each in found] == [4, 0, 4]
    for chunk in (None, 2):
        config = replace(CONFIG, chunk_documents=chunk)
        _, plain = gradients(config, batch, loss, bert(base)[0])
        _, ahead = gradients(config, found[2], loss, bert(base)[0])
        assert all(plain[name] is None or torch.equal(plain[name], ahead[name]) for name in plain)


def test_a_batch_without_memory_says_how_to_cut_it(monkeypatch):
    stepper = Stepper(TinyEncoder().train(), CONFIG, Processes("cpu"))

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stepper, "add_gradients", full)
    with pytest.raises(EncoderError, match=r"step 4: cpu has too little memory for 3 questions .*chunk_documents=N"):
        stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, MOMENT)
