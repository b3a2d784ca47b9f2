"""The loop: what a step does to the gradients, how the learning rate goes, what is measured between epochs."""

import json
import math
import os
import random
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
sys.path.insert(0, str(Path(__file__).parent))

from tiny_training import PATH, TinyBatches, TinyEncoder, make_base, make_documents, question_of  # noqa: E402

from mvindex.errors import ConfigError, CorpusError, EncoderError  # noqa: E402
from mvindex.records import Document, Views  # noqa: E402
from mvindex_train.cached import Chunks  # noqa: E402
from mvindex_train.config import EncoderConfig, LossConfig, OptimiserConfig  # noqa: E402
from mvindex_train.data import Example  # noqa: E402
from mvindex_train.evaluation import (  # noqa: E402
    DevSet,
    evaluate,
    gold_ranks,
    local_variation,
    make_dev_set,
    view_cosine,
)
from mvindex_train.history import History  # noqa: E402
from mvindex_train.loop import Interrupted, Run, Stage, run_stages  # noqa: E402
from mvindex_train.losses import total_loss  # noqa: E402
from mvindex_train.processes import Processes  # noqa: E402
from mvindex_train.progress import TrainingDisplay, dev_line  # noqa: E402
from mvindex_train.randomness import Purpose, own_random_state, seed_everything  # noqa: E402
from mvindex_train.resume import Position, RunFolder  # noqa: E402
from mvindex_train.schedule import learning_rate_share  # noqa: E402
from mvindex_train.step import Moment, Stepper  # noqa: E402

LOSS = LossConfig(scale=10.0, local_weight=0.1, answer_view=True)
CONFIG = OptimiserConfig(learning_rate=1e-2, epochs=3, seed=5)
MOMENT = Moment(number=3, epoch=0, rate=1.0)


@pytest.fixture(autouse=True)
def unchanged_random_state():
    with own_random_state():
        yield


def gradients(config, batch=None, loss=LOSS, encoder=None):
    encoder = encoder or TinyEncoder().train()
    stepper = Stepper(encoder, config, Processes("cpu"))
    parts = stepper.add_gradients(batch or TinyBatches().batch([0, 1, 2, 3, 4, 5], [8, 11]), loss, MOMENT)
    return parts, {name: parameter.grad for name, parameter in encoder.named_parameters()}


@pytest.fixture
def run_of():
    """Makes runs whose histories are closed after the test."""
    histories = []

    def make(folder, encoder, **options):
        histories.append(History(folder.history, 0, 0))
        return Run(encoder, Processes("cpu"), folder, histories[-1], **options)

    yield make
    for history in histories:
        history.close()


def steps_of(folder):
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"]


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
    with pytest.raises(EncoderError, match=r"step 4: the loss is nan.*which paint1x0"):
        stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, MOMENT)
    assert torch.equal(encoder.mix, before)


def test_groups_keep_their_rates_under_the_schedule():
    stepper = Stepper(TinyEncoder().train(), CONFIG, Processes("cpu"))
    figures = stepper.step(TinyBatches().batch([1, 2, 3]), LOSS, replace(MOMENT, rate=0.25))
    assert [group["lr"] for group in stepper.optimiser.param_groups] == pytest.approx([0.0025, 0.005])
    assert figures["learning_rate"] == pytest.approx(0.0025)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("cosine", [0.5, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
    ],
)
def test_the_rate_rises_over_the_warm_up_and_then_follows_its_schedule(schedule, wanted):
    config = OptimiserConfig(schedule=schedule, warmup_share=0.3)
    assert [learning_rate_share(step, 6, config) for step in range(6)] == pytest.approx(wanted)


@given(st.integers(1, 300), st.sampled_from(["linear", "constant", "cosine"]), st.floats(0, 0.9))
def test_every_step_has_a_rate_above_zero_up_to_one(num_steps, schedule, share):
    config = OptimiserConfig(schedule=schedule, warmup_share=share)
    assert all(0 < learning_rate_share(step, num_steps, config) <= 1 for step in range(num_steps))


def test_training_lowers_the_loss_and_logs_every_step(tmp_path, run_of):
    encoder = TinyEncoder()
    run = run_of(RunFolder(tmp_path, {}), encoder)
    stage = Stage(name="train", source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=8)
    position = run_stages(run, [stage], Position())
    run.history.flush()
    steps = steps_of(tmp_path)
    assert (position.total_step, position.stage, len(steps)) == (32, 1, 32)
    assert [step["step"] for step in steps] == list(range(1, 33))
    assert [step["epoch"] for step in steps] == [1 + number // 4 for number in range(32)]
    assert np.mean([step["loss"] for step in steps[-4:]]) < 0.7 * np.mean([step["loss"] for step in steps[:4]])
    assert {"loss", "contrastive", "local", "distillation", "tau", "learning_rate", "answer_share", "seconds"} <= set(
        steps[0]
    )


def test_max_steps_end_a_stage_within_an_epoch_and_its_end_is_called_once_as_the_last(tmp_path, run_of):
    calls = []
    stage = Stage(
        name="train",
        source=TinyBatches(),
        loss=LOSS,
        optimiser=CONFIG,
        epochs=3,
        max_steps=6,
        at_end=lambda position, is_last: calls.append((position.total_step, is_last)) or position,
    )
    position = run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position())
    assert position.total_step == 6
    assert calls == [(4, False), (6, True)]


def test_a_stage_stops_when_its_end_says_so(tmp_path, run_of):
    stage = Stage(
        name="train",
        source=TinyBatches(),
        loss=LOSS,
        optimiser=CONFIG,
        epochs=9,
        at_end=lambda position, is_last: replace(position, is_stopped=position.epoch == 1),
    )
    assert run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position()).total_step == 8


def test_stages_follow_each_other_and_count_their_steps_together(tmp_path, run_of):
    stages = [
        Stage(name=name, source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=1, max_steps=steps)
        for name, steps in (("warm-up", 2), ("train", 3))
    ]
    run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), stages, Position())
    found = [(step["stage"], step["step"], step["stage_step"]) for step in steps_of(tmp_path)]
    assert found == [("warm-up", 1, 1), ("warm-up", 2, 2), ("train", 3, 1), ("train", 4, 2), ("train", 5, 3)]


def test_a_stage_without_a_batch_is_refused(tmp_path, run_of):
    stage = Stage(name="train", source=TinyBatches(count=3), loss=LOSS, optimiser=CONFIG, epochs=2)
    with pytest.raises(ConfigError, match="stage train: the data make no batch"):
        run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position())


def test_asked_to_stop_it_saves_after_the_step_and_says_where(tmp_path, run_of):
    folder = RunFolder(tmp_path, {})
    run = run_of(folder, TinyEncoder(), should_stop=lambda: len(asked) >= 3 or asked.append(1))
    asked = []
    stage = Stage(name="train", source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=3)
    with pytest.raises(Interrupted, match="stopped after step 4, saved in"):
        run_stages(run, [stage], Position())
    assert folder.load(TinyEncoder()).total_step == 4


def test_random_numbers_follow_from_their_key_and_leave_the_callers_generators_alone():
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    drawn = []
    for key in ((1, 2), (1, 3), (1, 2)):
        with own_random_state():
            seed_everything(9, Purpose.STEP, *key)
            drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))  # noqa: NPY002
    assert drawn[0] == drawn[2]
    assert all(one != other for one, other in zip(drawn[0], drawn[1], strict=True))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002


def test_ranks_are_those_of_a_plain_sort_by_score_then_ordinal():
    random_numbers = np.random.default_rng(3)
    counts = random_numbers.integers(1, 4, 40)
    rows = random_numbers.integers(-2, 3, (counts.sum(), 4)).astype(np.float32)  # small integers: many ties
    views = Views(rows, np.concatenate([[0], np.cumsum(counts)]), np.full((len(rows), 2), -1))
    queries = random_numbers.integers(-2, 3, (25, 4)).astype(np.float32)
    gold = [random_numbers.choice(40, size=1 + question % 3, replace=False) for question in range(25)]
    found = gold_ranks(views, queries, gold, LossConfig())
    for question, query in enumerate(queries):
        scores = [max(rows[views.starts[row] : views.starts[row + 1]] @ query) for row in range(40)]
        order = sorted(range(40), key=lambda row: (-scores[row], row))
        assert found[question] == 1 + min(order.index(row) for row in gold[question])


def test_ranks_follow_the_aggregate_that_is_trained_for():
    # By its best view document 0 wins (3 against 2), by DRPQ at a high temperature document 1 (mean 0 against 2).
    views = Views(np.array([[3.0], [-3.0], [2.0]], np.float32), np.array([0, 2, 3]), np.full((3, 2), -1))
    query, gold = np.ones((1, 1), np.float32), [np.array([1])]
    assert gold_ranks(views, query, gold, LossConfig()).tolist() == [2]
    assert gold_ranks(views, query, gold, LossConfig(aggregate="drpq", drpq_temperature=100.0)).tolist() == [1]


def test_ranks_do_not_depend_on_the_blocks(monkeypatch):
    import mvindex_train.evaluation as evaluation

    random_numbers = np.random.default_rng(4)
    rows = random_numbers.normal(size=(60, 8)).astype(np.float32)
    views = Views(rows, np.arange(0, 61, 2), np.full((60, 2), -1))
    queries = random_numbers.normal(size=(11, 8)).astype(np.float32)
    gold = [random_numbers.choice(30, 2, replace=False) for _ in range(11)]
    whole = gold_ranks(views, queries, gold, LossConfig())
    monkeypatch.setattr(evaluation, "_BLOCK_VIEWS", 5)
    monkeypatch.setattr(evaluation, "_SCORES_AT_ONCE", 20)
    assert gold_ranks(views, queries, gold, LossConfig()).tolist() == whole.tolist()
    assert len(set(whole.tolist())) > 3


def test_lv_and_view_cosine_are_worked_by_hand():
    # Views e1, e2 at right angles, a document of one view, and two views that are the same but for their length.
    rows = np.array([[1, 0], [0, 1], [1, 1], [2, 0], [5, 0]], np.float32)
    views = Views(rows, np.array([0, 2, 3, 5]), np.full((5, 2), -1))
    assert view_cosine(views) == pytest.approx((0 + 1) / 2)
    # Scores log 3 and 0 at scale 1: shares 3/4 and 1/4, LV 1/2; the second question's document has one view.
    queries = np.array([[math.log(3), 0], [7, 7]], np.float32)
    assert local_variation(views, queries, [0, 1], 1.0) == pytest.approx(0.5)
    assert local_variation(views, queries[1:], [1], 1.0) is None
    assert view_cosine(Views(rows[:2], np.array([0, 1, 2]), np.full((2, 2), -1))) is None


def test_an_evaluation_finds_what_the_encoder_was_made_to_find():
    documents = make_documents(30)
    encoder = TinyEncoder(dropout=0.0)
    questions = [documents[row].text.split(".")[0] + "." for row in range(0, 30, 3)]
    dev = DevSet(documents, questions, [np.array([row]) for row in range(0, 30, 3)])
    report = evaluate(encoder.frozen_encoder(), dev, LossConfig(), Processes("cpu"))
    assert report.recall == {1: 1.0, 5: 1.0, 20: 1.0, 100: 1.0}
    assert report.mrr == 1.0
    assert report.views == pytest.approx(2.0)
    assert report.as_json()["R@20"] == 1.0
    assert "R@1 100.00 %" in dev_line({"epoch": 0} | report.as_json())


def test_a_dev_set_takes_the_passages_and_finds_any_positive():
    corpus = make_documents(6)
    dev = make_dev_set([Example("q", "where?", (Document("x", "not there"), corpus[4], corpus[2]))], corpus)
    assert [document.id for document in dev.documents] == [f"d{row}" for row in range(6)]
    assert dev.gold[0].tolist() == [4, 2]
    own = make_dev_set([Example("q", "where?", (corpus[1],), (corpus[3],))], None)
    assert [document.id for document in own.documents] == ["d1", "d3"]


def test_a_dev_set_without_questions_or_without_their_passages_is_refused():
    with pytest.raises(CorpusError, match=r"dev question 'q7': none of its passages \('lost'\) is in the corpus"):
        make_dev_set([Example("q7", "where?", (Document("lost", "text"),))], make_documents(3))
    with pytest.raises(CorpusError, match="the dev files hold no question"):
        make_dev_set([], make_documents(3))


def test_the_display_writes_lines_where_there_is_no_terminal(capsys):
    with TrainingDisplay() as shown:
        for step in (1, 2):
            record = {"kind": "step", "stage": "train", "epoch": 1, "step": step, "loss": 2.0, "seconds": 0.1}
            shown.show(record | {"stage_step": step, "stage_steps": 2})
    assert capsys.readouterr().err == "train: step 2 of 2, epoch 1, loss 2.0000, about 0 min left\n"


def test_tensorboard_gets_the_figures_of_every_step(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = History(tmp_path / "history.jsonl", 0, 0)
    for step in (1, 2):
        history.add({"kind": "step", "stage": "train", "epoch": 1, "step": step, "loss": step / 2})
    history.add({"kind": "dev", "stage": "train", "epoch": 1, "step": 2, "R@1": 0.25})
    history.flush()
    history.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.5), (2, 1.0)]
    assert [event.value for event in events.Scalars("dev/R_1")] == [0.25]


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


TWO_PROCESSES = """
import json, sys, torch
from tiny_training import TinyBatches, TinyEncoder
from dataclasses import replace
from mvindex_train.config import LossConfig, OptimiserConfig
from mvindex_train.processes import Processes
from mvindex_train.step import Moment, Stepper

processes = Processes("cpu")
found = []
for own, others, chunk in (([0, 1, 2, 3, 4], [8, 11], None), ([0, 1, 2, 3, 4], [8, 11], 2), ([2], [3], None)):
    encoder = TinyEncoder(dropout=0.0).train()
    config = OptimiserConfig(learning_rate=1e-2, chunk_documents=chunk)
    loss = LossConfig(scale=10.0, local_weight=0.1, answer_view=True)
    stepper = Stepper(encoder, config, processes)
    figures = stepper.step(TinyBatches().batch(own, others), loss, Moment(number=0, epoch=0, rate=1.0))
    found.append([figures["loss"], figures["gradient_norm"], encoder.words.detach().tolist()])
assert processes.any(processes.rank == processes.count - 1) and not processes.any(False)
joined = processes.join(torch.arange(2 * processes.rank + 1)).tolist()
json.dump([processes.count, joined, found], open(f"{sys.argv[1]}/{processes.rank}.json", "w"))
if processes.count > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.full
def test_two_processes_take_the_step_of_one(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATH), "OMP_NUM_THREADS": "1"}
    # What `accelerate launch` starts for several GPUs of one machine; it starts several CPU processes through MPI only.
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29571"]
    found = {}
    for name, command in (("one", []), ("two", launch)):
        (tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, *command, str(script), str(tmp_path / name)],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = [json.loads(path.read_text()) for path in sorted((tmp_path / name).iterdir())]
    [(_, _, alone)], ((count, joined, first), (_, _, second)) = found["one"], found["two"]
    assert (count, joined) == (2, [0, 0, 1, 2])
    assert first == second
    for mine, theirs in zip(alone, first, strict=True):
        assert mine[:2] == pytest.approx(theirs[:2], abs=1e-5)
        np.testing.assert_allclose(mine[2], theirs[2], atol=1e-5)
    assert question_of(0) == "which paint0x0 do they have at the house"


def test_the_first_process_takes_a_batch_that_is_too_small_to_share():
    processes = Processes("cpu")
    shares = {}
    for count, items in ((3, 2), (3, 7), (2, 2)):
        for rank in range(count):
            processes.rank, processes.count = rank, count
            shares[count, items, rank] = range(items)[processes.share(items)]
    assert [list(shares[3, 2, rank]) for rank in range(3)] == [[0, 1], [], []]
    assert [list(shares[3, 7, rank]) for rank in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [list(shares[2, 2, rank]) for rank in range(2)] == [[0], [1]]
