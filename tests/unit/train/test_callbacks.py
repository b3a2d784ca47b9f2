"""Callbacks: what they receive, what a failing one does, and what TensorBoard, W&B and MLflow read back."""

import asyncio
import json
import logging
import re
import struct

import pytest

pytest.importorskip("torch")

from mvindex.errors import ConfigError, ExtraMissing  # noqa: E402 - torch is asked for first
from mvindex.plugins import install_command
from mvindex_train import (  # noqa: E402 - as above
    Callback,
    CallbackError,
    Interrupted,
    MLflow,
    ProgressBar,
    RunStart,
    TensorBoard,
    Trainer,
    WandB,
    preset,
)
from mvindex_train.callbacks import CallbackList, figures_of  # noqa: E402 - as above

STEP = {"kind": "step", "stage": "train", "epoch": 1, "step": 1, "loss": 0.5, "seconds": 0.1}
STEP |= {"stage_step": 1, "stage_steps": 2}
DEV = {"kind": "dev", "stage": "train", "epoch": 1, "step": 2, "R@1": 0.25, "view_cosine": None}
CONFIG = preset("snippets").with_settings({"data.train": ["questions.jsonl"]})


class Recorder(Callback):
    """Appends the names of events to a list; raises ValueError at one of them."""

    def __init__(self, events, name="", fails_at=None):
        self.events, self.name, self.fails_at = events, name, fails_at

    def _add(self, event, *args):
        self.events.append((self.name + event, *args))
        if event == self.fails_at:
            raise ValueError("no space")

    def on_start(self, run):
        self._add("start")

    def on_step(self, record):
        self._add("step", record["step"])
        record["step"] = -1

    def on_evaluation(self, record):
        self._add("dev", record["R@1"])

    def on_end(self, report, error):
        self._add("end", report, error)


def start_of(folder, step=0):
    folder.mkdir(exist_ok=True)
    return RunStart(config=CONFIG, checkpoint=folder / "out", run_folder=folder, step=step, stop=lambda: None)


def run(callback, folder, records, step=0, error=None):
    """Drive a callback through a run with these records."""
    callback.on_start(start_of(folder, step))
    for record in records:
        (callback.on_step if record["kind"] == "step" else callback.on_evaluation)(record)
    callback.on_checkpoint(folder, records[-1]["step"])
    callback.on_end(None if error else {"steps": 2}, error)


def test_all_are_called_in_order_and_none_sees_what_another_does_to_a_record(tmp_path):
    events = []
    callbacks = CallbackList([Recorder(events, "a "), Recorder(events, "b ")])
    callbacks.start(start_of(tmp_path))
    callbacks.record(STEP)
    callbacks.record(DEV)
    callbacks.end({"steps": 1}, None)
    assert events == [
        ("a start",), ("b start",), ("a step", 1), ("b step", 1), ("a dev", 0.25), ("b dev", 0.25),
        ("a end", {"steps": 1}, None), ("b end", {"steps": 1}, None),
    ]  # fmt: skip


def test_a_base_callback_does_nothing_at_any_event(tmp_path):
    run(Callback(), tmp_path, [STEP, DEV])
    Callback().on_note("a note")


def test_an_exception_names_the_callback_and_its_method(tmp_path):
    callbacks = CallbackList([Recorder([], fails_at="step")])
    callbacks.start(start_of(tmp_path))
    with pytest.raises(CallbackError, match=r"^callback Recorder\.on_step\(\): ValueError: no space$") as failed:
        callbacks.record(STEP)
    assert isinstance(failed.value.__cause__, ValueError)


def test_the_end_reaches_those_that_were_started_also_after_a_failure(tmp_path, caplog):
    events = []
    parts = [Recorder(events, "a ", fails_at="end"), Recorder(events, "b "), Recorder(events, "c ", fails_at="start")]
    callbacks = CallbackList(parts)
    with pytest.raises(CallbackError, match="on_start") as failed:
        callbacks.start(start_of(tmp_path))
    with caplog.at_level(logging.ERROR):
        callbacks.end(None, failed.value)
    assert [event[0] for event in events] == ["a start", "b start", "c start", "a end", "b end"]
    assert "callback Recorder.on_end(): ValueError: no space" in caplog.text
    with pytest.raises(CallbackError, match="on_end"):
        callbacks.end({}, None)


def test_figures_are_the_numbers_without_place_and_progress():
    assert figures_of(STEP) == {"train/loss": 0.5, "train/seconds": 0.1}
    assert figures_of(DEV) == {"dev/R@1": 0.25}


def test_a_trainer_takes_callbacks_only():
    with pytest.raises(ConfigError, match="callbacks: expected objects of subclasses of Callback, got "):
        Trainer(CONFIG, "out", callbacks=[TensorBoard])


def test_settings_by_name_are_checked():
    assert CONFIG.with_settings({"optimiser.epochs": 7}).optimiser.epochs == 7
    with pytest.raises(ConfigError, match=r"settings: unknown key 'optimiser\.epoch'"):
        CONFIG.with_settings({"optimiser.epoch": 7})
    with pytest.raises(ConfigError, match=r"optimiser\.epochs"):
        CONFIG.with_settings({"optimiser.epochs": 0})
    assert preset("snippets", "small").optimiser.max_steps == 150
    with pytest.raises(ConfigError, match="budget: expected 'full' or 'small', got 'tiny'"):
        preset("snippets", "tiny")


def test_the_bar_writes_lines_where_there_is_no_terminal(tmp_path, capsys):
    bar = ProgressBar()
    bar.on_note("6 examples [not markup]")
    run(bar, tmp_path, [STEP | {"loss": 2.0}, STEP | {"loss": 2.0, "step": 2, "stage_step": 2}])
    assert capsys.readouterr().err.splitlines() == [
        "6 examples [not markup]",
        "train: step 2 of 2, epoch 1, loss 2.0000",
    ]


@pytest.mark.full
def test_a_notebook_without_widgets_gets_lines_and_no_warning():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    steps = [STEP | {"stage_step": number} for number in (1, 2)]
    lines = [
        "from mvindex_train import progress",
        "progress.find_spec = lambda name: None",
        "bar = progress.ProgressBar()",
        "bar.on_start(None)",
        *(f"bar.on_step({step})" for step in steps),
        "bar.on_end({}, None)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(lines))])
    # execute() would leave its event loop open.
    asyncio.run(nbclient.NotebookClient(book, timeout=120).async_execute())
    (output,) = book.cells[0].outputs
    assert output["data"]["text/plain"] == "train: step 2 of 2, epoch 1, loss 0.5000\n"


def test_tensorboard_gets_the_figures_of_every_step(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(TensorBoard(), tmp_path, [STEP, STEP | {"step": 2, "loss": 1.0}, DEV])
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.5), (2, 1.0)]
    assert [event.value for event in events.Scalars("dev/R_1")] == [0.25]


def test_tensorboard_hides_what_followed_the_last_state(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(TensorBoard(tmp_path / "board"), tmp_path, [STEP | {"step": step} for step in (1, 2, 3)], error=Interrupted())
    run(TensorBoard(tmp_path / "board"), tmp_path, [STEP | {"step": 2, "loss": 0.4}], step=1)
    events = accumulator.EventAccumulator(str(tmp_path / "board")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.5), (2, pytest.approx(0.4))]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    for make, module, extra in ((WandB, "wandb", "wandb"), (MLflow, "mlflow", "mlflow")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(ExtraMissing, match=re.escape(install_command(extra))):
            make()


@pytest.mark.full
def test_wandb_gets_settings_figures_and_how_the_run_ended(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    records = [STEP, STEP | {"step": 2, "loss": 1.0}, DEV]
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    run(WandB(mode="offline", settings={"silent": True}), tmp_path, records, error=Interrupted("stopped"))
    run(WandB(mode="offline", settings={"silent": True}), tmp_path, [STEP | {"step": 3, "loss": 2.0}], step=2)
    # Ends wandb's own process, which writes the files.
    wandb.teardown()
    first, second = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    stopped, resumed = wandb_records(first), wandb_records(second)
    assert [row["train/loss"] for row in history_of(stopped)] == [0.5, 1.0]
    assert [(row["_step"], row.get("dev/R@1")) for row in history_of(stopped)] == [(1, None), (2, 0.25)]
    assert [(row["_step"], row["train/loss"]) for row in history_of(resumed)] == [(3, 2.0)]
    begun = [record.run for record in (*stopped, *resumed) if record.HasField("run")]
    assert len({each.run_id for each in begun}) == 1
    assert (begun[0].project, begun[0].display_name) == ("mine", "out")
    settings = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
    assert settings["optimiser"]["epochs"] == CONFIG.optimiser.epochs
    assert [record.exit.exit_code for record in stopped if record.HasField("exit")] == [1]
    assert [record.exit.exit_code for record in resumed if record.HasField("exit")] == [0]


@pytest.mark.full
def test_mlflow_gets_settings_figures_and_how_the_run_ended(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    run(MLflow(tracking_uri=uri), tmp_path / "a", [STEP, DEV], error=Interrupted("stopped"))
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiments = [client.get_experiment_by_name("mvindex").experiment_id]
    (stopped,) = client.search_runs(experiments)
    assert (stopped.info.status, stopped.info.run_name) == ("KILLED", "out")
    run(MLflow(tracking_uri=uri), tmp_path / "a", [STEP | {"step": 2, "loss": 1.0}], step=1)
    (resumed,) = client.search_runs(experiments)
    assert resumed.info.status == "FINISHED"
    assert resumed.data.params["optimiser.epochs"] == str(CONFIG.optimiser.epochs)
    losses = client.get_metric_history(resumed.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in losses] == [(1, 0.5), (2, 1.0)]
    assert resumed.data.metrics["dev/R_1"] == 0.25
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    run(MLflow(tracking_uri=uri), tmp_path / "a", [STEP], error=ValueError("no"))
    experiments.append(client.get_experiment_by_name("mine").experiment_id)
    assert sorted(each.info.status for each in client.search_runs(experiments)) == ["FAILED", "FINISHED"]


def wandb_records(path):
    """The records of an offline run: LevelDB's log format, in blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, place, records, parts = path.read_bytes(), 7, [], b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        # 1 is a whole record, 2 to 4 are the first, middle and last part of one.
        if kind in (1, 4):
            records.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return records


def history_of(records):
    rows = [record.history.item for record in records if record.HasField("history")]
    return [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in row} for row in rows]
