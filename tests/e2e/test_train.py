"""`mvindex train` as a user meets it: real processes and files, a tiny random BERT."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from typer.testing import CliRunner  # noqa: E402 - as above

import mvindex  # noqa: E402 - as above
from mvindex.encoder.registry import describe_queries  # noqa: E402 - as above
from mvindex.errors import ConfigError, CorpusError, MvindexError  # noqa: E402 - as above
from mvindex_train import Callback, CallbackError, Interrupted, Trainer  # noqa: E402 - as above
from mvindex_train.cli import app  # noqa: E402 - only where the extra is
from mvindex_train.config import TrainConfig  # noqa: E402 - as above
from mvindex_train.scaling import SCALES  # noqa: E402 - as above
from tests.helpers.tiny_training import NUM_WORDS, make_base  # noqa: E402 - as above

NUM_PASSAGES = 24
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A base, a corpus of passages of three sentences, and questions made of three words of a sentence."""
    folder = tmp_path_factory.mktemp("train")
    draw = random.Random(1)
    passages, questions = [], []
    for number in range(NUM_PASSAGES):
        sentences = [[f"w{draw.randrange(NUM_WORDS)}" for _ in range(6)] for _ in range(1 + number % 3)]
        text = " ".join(" ".join(["W", *words])[2:].capitalize() + "." for words in sentences)
        passages.append({"id": f"p{number}", "text": text.lower(), "title": ""})
        for part, words in enumerate(sentences):
            question = " ".join(draw.sample(words, 3))
            row = {"id": f"q{number}-{part}", "question": question, "answers": [words[0]], "passage_id": f"p{number}"}
            questions.append(row)
    corpus = write_lines(folder / "corpus.jsonl", passages)
    return {
        "folder": folder,
        "base": str(make_base(folder / "base")),
        "passages": corpus,
        "train": write_lines(folder / "train.jsonl", [row for row in questions if not row["id"].endswith("-1")]),
        "dev": write_lines(folder / "dev.jsonl", [row for row in questions if row["id"].endswith("-1")]),
        "questions": questions,
    }


def flags(files, out, *more):
    given = ["--train", files["train"], "--passages", files["passages"], "--dev", files["dev"], "--base", files["base"]]
    small = [
        "encoder.lora_rank=none",
        "data.article_runs=false",
        "optimiser.precision=fp32",
        "encoder.document_length=40",
    ]
    overrides = [part for text in [*small, "encoder.query_length=20"] for part in ("--set", text)]
    numbers = ["--epochs", "3", "--batch", "6", "--learning-rate", "3e-3", "--device", "cpu"]
    return ["train", *given, *overrides, *numbers, "--out", str(out), *more]


def run_cli(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=True)


def start(*args):
    code = "from mvindex.cli import app, main; from mvindex_train.cli import app as own; "
    code += "app.registered_commands.extend(own.registered_commands); main()"
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def history_of(out):
    path = out.with_name(out.name + ".run") / "history.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def trainer_of(files, out, changes=(), **options):
    overrides = [
        f"encoder.base={files['base']}", "encoder.document_length=40", "encoder.query_length=20",
        "data.batch_passages=6", "optimiser.epochs=3", "optimiser.learning_rate=3e-3", "loss.scale=20", *changes,
    ]  # fmt: skip
    config = TrainConfig().with_overrides(overrides)
    data = replace(config.data, train=(files["train"],), passages=files["passages"], dev=(files["dev"],))
    return Trainer(replace(config, data=data), out, device="cpu", **options)


class StopAfter(Callback):
    """Stops a run after a step."""

    def __init__(self, step):
        self.step = step

    def on_start(self, run):
        self.stop = run.stop

    def on_step(self, record):
        if record["step"] == self.step:
            self.stop()


@pytest.fixture(scope="module")
def trained(files):
    out = files["folder"] / "trained"
    result = run_cli(*flags(files, out, "--json"))
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout), result.stderr


def test_a_trained_checkpoint_makes_an_index_that_answers(files, trained, tmp_path):
    out, report, notes = trained
    assert report["steps"] == len([line for line in history_of(out) if line["kind"] == "step"]) > 9
    assert 0 < report["dev"]["R@5"] < 1
    assert report["before"]["questions"] == report["dev"]["questions"] == NUM_PASSAGES * 2 // 3
    assert f"next: mvindex ingest {files['passages']} --encoder {out}" in notes
    encoder = mvindex.load_encoder(str(out), device="cpu")
    assert describe_queries(encoder.spec).startswith("ONNX Runtime")
    with mvindex.create(tmp_path / "i.mvx", encoder=encoder) as index:
        rows = [json.loads(line) for line in Path(files["passages"]).read_text().splitlines()]
        index.add(mvindex.Document(row["id"], row["text"]) for row in rows)
        asked = [row for row in files["questions"] if row["id"].endswith("-1")]
        found = index.search([row["question"] for row in asked], top_k=5, mode="dense")
        ids = [[hit.id for hit in result.hits] for result in found]
        right = sum(row["passage_id"] in hits for row, hits in zip(asked, ids, strict=True))
    assert right / len(asked) == pytest.approx(report["dev"]["R@5"], abs=1.5 / len(asked))


def test_the_checkpoint_is_clean_and_says_what_it_is(trained):
    out, report, _ = trained
    names = {file.name for file in out.iterdir()}
    assert {"model.safetensors", "mvindex.json", "README.md", "training.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl", ".jsonl")) or "state" in name]
    card = (out / "README.md").read_text()
    assert "preset snippets" in card
    assert f"after epoch {report['best_epoch']}" in card
    assert sorted(path.name for path in out.with_name("trained.run").glob("*-*")) == []


def test_a_scale_is_chosen_by_dev_questions_and_sets_to_keep(files, tmp_path):
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    shutil.copy(files["passages"], judged / "corpus.jsonl")
    write_lines(judged / "queries.jsonl", [{"_id": row["id"], "text": row["question"]} for row in files["questions"]])
    qrels = [f"{row['id']}\t{row['passage_id']}\t1\n" for row in files["questions"]]
    (judged / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(qrels))
    out = tmp_path / "out"
    chosen = ["--scale", "auto", "--keep", judged, "--set", "encoder.lora_rank=2", "--set", "encoder.lora_alpha=4"]
    done = run_cli(*flags(files, out, "--epochs", "1"), *chosen, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    trials = {trial["scale"]: trial for trial in report["scale"]["trials"]}
    assert list(trials) == [0.0, *SCALES]
    assert trials[0.0]["recall"] == pytest.approx(report["before"]["R@1"], abs=1e-4)
    assert trials[1.0]["recall"] == pytest.approx(report["dev"]["R@1"], abs=1e-4)
    assert 0 < trials[1.0]["nDCG@10"]["judged"] < 1
    scale = report["scale"]["chosen"]
    assert json.loads((out / "adapter_config.json").read_text())["lora_alpha"] == 4 * scale
    assert f"scale {scale:g}: recall" in done.stderr
    assert not list(tmp_path.glob("out.run/scaling-*"))


@pytest.mark.full
def test_an_existing_checkpoint_is_replaced_by_force_alone(files, tmp_path):
    out, short = tmp_path / "out", ("--set", "optimiser.max_steps=1")
    assert run_cli(*flags(files, out, *short)).exit_code == 0
    result = run_cli(*flags(files, out, *short))
    assert isinstance(result.exception, ConfigError)
    assert f"{out}: exists already. Give another --out, or --force to replace it" in str(result.exception)
    other = tmp_path / "mine"
    other.mkdir()
    result = run_cli(*flags(files, other, "--force"))
    assert "mine: not a checkpoint (it has no mvindex.json), so --force does not replace it" in str(result.exception)
    before = (out / "model.safetensors").read_bytes()
    assert run_cli(*flags(files, out, *short, "--force", "--seed", "4")).exit_code == 0
    assert (out / "model.safetensors").read_bytes() != before
    assert run_cli(*flags(files, out, *short, "--force")).exit_code == 0
    assert (out / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
@pytest.mark.full
def test_a_run_that_was_stopped_goes_on_by_the_same_command_to_the_same_losses(files, trained, tmp_path, number):
    out = tmp_path / "stopped"
    process = start(*flags(files, out, "--save-every", "1"))
    wanted, deadline = random.randrange(1, 8), time.monotonic() + 120
    while len(list(tmp_path.glob("stopped.run/state-*[0-9]"))) == 0 or _steps_saved(tmp_path) < wanted:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(number)
    _, notes = process.communicate()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert re.search(r"stopped after step \d+, saved in .*stopped.run; repeat the command to resume", notes)
    assert not out.exists()
    result = run_cli(*flags(files, out, "--save-every", "1"))
    assert result.exit_code == 0, result.output
    assert "resuming after step" in result.stderr
    assert history_of(out) == history_of(trained[0])
    assert (out / "model.safetensors").read_bytes() == (trained[0] / "model.safetensors").read_bytes()


def _steps_saved(folder):
    return max((int(path.name[6:15]) for path in folder.glob("stopped.run/state-*[0-9]")), default=0)


def test_a_run_is_not_taken_up_with_other_settings(files, tmp_path):
    with pytest.raises(Interrupted):
        trainer_of(files, tmp_path / "out", callbacks=[StopAfter(1)]).train()
    with pytest.raises(ConfigError, match=r"expected a run with config\.loss\.tau = 0\.5, got 1\.0"):
        trainer_of(files, tmp_path / "out", ["loss.tau=0.5"]).train()
    assert (
        trainer_of(files, tmp_path / "out", ["loss.tau=0.5", "optimiser.max_steps=1"], force=True).train()["steps"] == 1
    )


class Events(Callback):
    """Records events; fails at a step."""

    def __init__(self, fails_at=None):
        self.events, self.fails_at = [], fails_at

    def on_start(self, run):
        self.events.append(("start", run.step, run.run_folder.name))

    def on_note(self, text):
        self.events.append(("note", text))

    def on_step(self, record):
        self.events.append(("step", record["step"]))
        if record["step"] == self.fails_at:
            raise ValueError("no space left")

    def on_evaluation(self, record):
        self.events.append(("dev", record["epoch"], record["R@1"]))

    def on_checkpoint(self, folder, step):
        assert {"mvindex.json", "state.json"} & {file.name for file in folder.iterdir()}
        self.events.append(("checkpoint", folder.name, step))

    def on_end(self, report, error):
        self.events.append(("end", report, error))


def test_a_run_that_a_callback_ended_is_resumed_and_callbacks_receive_all_of_it(files, tmp_path):
    small = ["optimiser.max_steps=3", "optimiser.epochs=2"]
    whole, failed, resumed = Events(), Events(fails_at=3), Events()
    report = trainer_of(files, tmp_path / "whole", small, callbacks=[whole]).train()
    trainer = trainer_of(files, tmp_path / "out", small, callbacks=[failed], save_every=2)
    with pytest.raises(CallbackError, match=r"callback Events\.on_step\(\): ValueError: no space left") as error:
        trainer.train()
    assert failed.events[-1] == ("end", None, error.value)
    trainer = trainer_of(files, tmp_path / "out", small, callbacks=[resumed], save_every=2)
    assert trainer.train()["dev"] == report["dev"]
    before = ("dev", 0, report["before"]["R@1"])
    after = ("dev", 1, report["dev"]["R@1"])
    state = ("checkpoint", "state-000000003", 3)
    assert whole.events[0] == ("start", 0, "whole.run")
    rest = [("step", 1), ("step", 2), ("step", 3), after, state, ("checkpoint", "whole", 3), ("end", report, None)]
    assert [event for event in whole.events if event[0] != "note"][1:] == [before, *rest]
    assert ("checkpoint", "state-000000002", 2) in failed.events
    assert ("note", f"resuming after step 2, from {tmp_path / 'out.run'}") in resumed.events
    assert [event for event in resumed.events if event[0] != "note"][:-1] == [
        ("start", 2, "out.run"), ("step", 3), after, state, ("checkpoint", "out", 3),
    ]  # fmt: skip
    assert history_of(tmp_path / "out") == history_of(tmp_path / "whole")


STOPPED_BY_ONE = """
import json, os, sys, torch
from mvindex_train import Callback, Interrupted, TrainConfig, Trainer

class StopAfterTwo(Callback):
    def on_start(self, run):
        self.steps, self.stop = [], run.stop

    def on_step(self, record):
        self.steps.append(record["step"])
        if record["step"] == 2:
            self.stop()

config, out = TrainConfig.from_dict(json.loads(sys.argv[1])), sys.argv[2]
callback = StopAfterTwo()
try:
    Trainer(config, out, callbacks=[callback], device="cpu").train()
except Interrupted as stop:
    found = [str(stop), vars(callback).get("steps")]
    open(f"{out}-{os.environ['RANK']}.json", "w").write(json.dumps(found))
torch.distributed.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.long
def test_callbacks_are_called_in_the_main_process_and_stop_all_processes(files, tmp_path):
    script, config = tmp_path / "script.py", trainer_of(files, tmp_path / "out").config
    script.write_text(STOPPED_BY_ONE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29573"]
    command = [*launch, str(script), json.dumps(config.as_dict()), str(tmp_path / "out")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    main, other = (json.loads((tmp_path / f"out-{rank}.json").read_text()) for rank in (0, 1))
    stop = f"stopped after step 2, saved in {tmp_path / 'out.run'}"
    assert (main, other) == ([stop, [1, 2]], [stop, None])


def test_a_stop_before_the_first_step_ends_one_run_only(files, tmp_path):
    trainer = trainer_of(files, tmp_path / "out", ["optimiser.max_steps=2"])
    trainer.stop()
    with pytest.raises(Interrupted, match="stopped after step 1, saved in "):
        trainer.train()
    assert trainer.train()["steps"] == 2


@pytest.mark.full
def test_negatives_mined_anew_between_epochs_survive_an_interruption(files, tmp_path):
    changes = ["data.hard_negatives=1", "refresh_epochs=1", "optimiser.epochs=3"]
    whole = trainer_of(files, tmp_path / "whole", changes).train()
    steps_an_epoch = whole["steps"] // 3
    with pytest.raises(Interrupted):
        trainer_of(files, tmp_path / "cut", changes, callbacks=[StopAfter(steps_an_epoch + 2)]).train()
    assert [path.name for path in (tmp_path / "cut.run").glob("examples-*")] == ["examples-0001"]
    trainer_of(files, tmp_path / "cut", changes).train()
    assert history_of(tmp_path / "cut") == history_of(tmp_path / "whole")
    plain = trainer_of(files, tmp_path / "plain").train()
    assert plain["steps"] == whole["steps"]
    losses = {name: [line.get("loss") for line in history_of(tmp_path / name)] for name in ("plain", "whole")}
    # No negatives were given: the first epoch is the same without them, the later ones are not.
    assert losses["plain"][: steps_an_epoch + 1] == losses["whole"][: steps_an_epoch + 1]
    assert losses["plain"] != losses["whole"]


@pytest.mark.full
def test_training_stops_when_dev_recall_no_longer_rises_and_keeps_the_best_epoch(files, tmp_path):
    still = ["optimiser.learning_rate=1e-12", "optimiser.epochs=9", "evaluation.patience=2", "evaluation.cutoff=5"]
    report = trainer_of(files, tmp_path / "out", still).train()
    dev = [line for line in history_of(tmp_path / "out") if line["kind"] == "dev"]
    assert [line["epoch"] for line in dev] == [0, 1, 2, 3]
    assert (report["best_epoch"], report["stopped_early"]) == (1, True)
    assert report["before"]["R@5"] == report["dev"]["R@5"]


@pytest.mark.full
def test_warming_up_comes_first_and_counts_its_own_steps(files, tmp_path):
    result = run_cli(*flags(files, tmp_path / "out", "--warm-up", files["passages"], "--warm-up-steps", "2", "--json"))
    assert result.exit_code == 0, result.output
    steps = [line for line in history_of(tmp_path / "out") if line["kind"] == "step"]
    assert [line["stage"] for line in steps[:3]] == ["warm-up", "warm-up", "train"]
    assert json.loads(result.stdout)["steps"] == len(steps)


@pytest.mark.full
def test_everything_that_saves_memory_goes_together(files, tmp_path):
    changes = ["optimiser.gradient_checkpointing=true", "optimiser.precision=bf16", "optimiser.chunk_documents=2"]
    lora = ["encoder.lora_rank=2", "encoder.freeze_word_embeddings=true", "optimiser.max_steps=2"]
    report = trainer_of(files, tmp_path / "out", [*changes, *lora]).train()
    assert (report["steps"], report["dev"]["questions"]) == (2, NUM_PASSAGES * 2 // 3)
    assert (tmp_path / "out" / "adapter_model.safetensors").exists()


def test_training_leaves_the_callers_random_numbers_alone(files, tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    trainer_of(files, tmp_path / "out", ["optimiser.max_steps=1"]).train()
    assert torch.equal(torch.get_rng_state(), before)


def test_help_and_settings_come_without_torch(files):
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from mvindex_train.cli import app\n"
        "for args in (['train', '--help'], ['train', '--show-config', '--preset', 'mvr', '--epochs', '7']):\n"
        "    result = CliRunner().invoke(app, args)\n"
        "    assert result.exit_code == 0, result.output\n"
        "assert 'epochs = 7' in result.stdout, result.stdout\n"
        "heavy = {'torch', 'transformers', 'accelerate', 'peft', 'faiss'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert " mvindex train" in run_cli("train", "--help").output


def test_settings_are_shown_as_json_too():
    shown = json.loads(run_cli("train", "--show-config", "--json", "--batch", "5", "--set", "loss.tau=0.5").stdout)
    assert (shown["data"]["batch_passages"], shown["loss"]["tau"], shown["preset"]) == (5, 0.5, "snippets")


def test_wrong_usage_is_told_in_one_line(files, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    lost = write_lines(tmp_path / "lost.jsonl", [{"id": "q", "question": "w1 w2", "positives": []}])
    other = write_lines(tmp_path / "other.jsonl", [{"id": "pX", "text": "w1 w2 w3.", "title": ""}])
    out, base = tmp_path / "out", ["--base", files["base"], "--device", "cpu"]
    wanted = [
        (["--train", empty, *base], CorpusError, r"empty\.jsonl"),
        (["--train", lost, *base], MvindexError, "lost.jsonl"),
        (["--train", tmp_path / "none.jsonl", *base], ConfigError, r"none\.jsonl: cannot be read: No such file"),
        (["--train", files["train"], "--passages", other, *base], CorpusError, "p0"),
        ([*base], ConfigError, "data.train: expected at least one file"),
        (["--train", "-", *base], ConfigError, "expected input files, got -"),
        (
            ["--train", files["train"], "--set", "refresh_epochs=1", *base],
            ConfigError,
            "data.hard_negatives: expected 1 or more with refresh_epochs 1, got 0",
        ),
        (
            ["--train", files["train"], "--set", "warm_up_epochs=2"],
            ConfigError,
            "expected both warm_up_epochs and a warm-up file or neither",
        ),
        (["--train", files["train"], "--save-every", "0"], ConfigError, "save_every: expected 1 or more"),
    ]
    for args, error, message in wanted:
        result = run_cli("train", *args, "--out", out)
        assert isinstance(result.exception, error), (args, result.exception)
        assert re.search(message, str(result.exception)), (args, str(result.exception))
        assert "\n" not in str(result.exception)
        assert not out.exists()
    result = run_cli("train", "--train", files["train"], *base, "--out", out, "--log-to", "comet")
    assert (result.exit_code, "expected wandb or mlflow, got 'comet'" in result.stderr) == (2, True)
    for args in ([], ["--preset", "nope"], ["--budget", "nope"], ["--format", "xml"]):
        assert run_cli("train", "--train", files["train"], *args, *(["--out", out] if args else [])).exit_code == 2


def test_dev_questions_need_their_passages_in_the_corpus(files, tmp_path):
    rows = [{"question_id": "q9", "question": "w1 w2", "positives": [{"id": "pX", "text": "w1 w2.", "title": ""}]}]
    dev = write_lines(tmp_path / "dev.jsonl", rows)
    config = trainer_of(files, tmp_path / "out").config.with_settings({"data.dev": [dev]})
    with pytest.raises(CorpusError, match=r"dev question 'q9': expected one of its passages \('pX'\) in the corpus"):
        Trainer(config, tmp_path / "out", device="cpu").train()
