"""The commands `mvindex train` and `mvindex mine`. Imports no torch before training begins."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import (
    DeviceOption,
    JsonOption,
    Output,
    OutputOption,
    ThreadsOption,
    option,
    print_report,
    switch,
)
from mvindex_train.mine_cli import mine

if TYPE_CHECKING:
    from mvindex_train.callbacks import Callback
    from mvindex_train.config import TrainConfig
    from mvindex_train.trainer import Trainer

app = typer.Typer(
    name="train",
    help="Training of encoders.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(mine)

_DEFAULT_PRESET = "snippets"
# Headings of options in the help.
_DATA, _METHOD, _WARM_UP = "Data", "Method", "Warm-up"


@app.command()
def train(  # noqa: PLR0913 - each option is a flag of the command
    out: Annotated[
        Path | None, option("Write the checkpoint to this folder; required.", metavar="DIR", names=("--out", "-o"))
    ] = None,
    files: Annotated[
        list[str] | None,
        option(
            "Train on the questions of this file, in any supported format; may be repeated.",
            _DATA,
            "FILE",
            names=("--train",),
        ),
    ] = None,
    passages: Annotated[
        str | None,
        option("Look up the ids of the files in this corpus, and search it for the dev questions.", _DATA, "FILE"),
    ] = None,
    dev: Annotated[
        list[str] | None,
        option("Keep the epoch that answers the questions of this file best; may be repeated.", _DATA, "FILE"),
    ] = None,
    negatives: Annotated[
        list[str] | None,
        option("Also contrast with the negatives of this file of mvindex mine; may be repeated.", _DATA, "FILE"),
    ] = None,
    format: Annotated[
        str | None,
        option(
            "Read the files as dpr, squad, questions, beir, triples, triple-ids, tevatron, pairs or examples "
            "(default: detected).",
            _DATA,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option(
            "Train by this method: snippets (default), dpr, mvr, camvr, drpq, me-bert, poly, sentences or splits.",
            _METHOD,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "Take the method's own settings (full, the default), or some that need CPU minutes (small).",
            _METHOD,
            "full|small",
        ),
    ] = None,
    base: Annotated[
        str | None, option("Start from this checkpoint: minilm (default), a folder or a hub id.", _METHOD)
    ] = None,
    config: Annotated[
        Path | None, option("Take settings from this TOML file; options override it.", _METHOD, "FILE")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        option(
            "Set any setting that --show-config prints, such as loss.tau=0.5; may be repeated.",
            _METHOD,
            "NAME=VALUE",
            names=("--set",),
        ),
    ] = None,
    epochs: Annotated[int | None, option("Pass over the data so many times.", _METHOD)] = None,
    batch: Annotated[int | None, option("Put so many passages in a batch, over all processes.", _METHOD)] = None,
    learning_rate: Annotated[float | None, option("Train at this learning rate.", _METHOD)] = None,
    seed: Annotated[int | None, option("Draw all random numbers from this seed.", _METHOD)] = None,
    scale: Annotated[
        str | None,
        option(
            "Multiply what LoRA learnt by this (default: 1); auto takes the best for the dev questions.",
            _METHOD,
            "NUMBER|auto",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        option(
            "Let --scale auto answer the questions of this BEIR folder no worse than the base; may be repeated.",
            _METHOD,
            "DIR",
        ),
    ] = None,
    warm_up: Annotated[str | None, option("First train on this corpus, without questions.", _WARM_UP, "FILE")] = None,
    warm_up_steps: Annotated[int | None, option("End the warm-up after so many steps.", _WARM_UP)] = None,
    save_every: Annotated[
        int | None, option("Save the state every so many steps, and at the end of every epoch.")
    ] = None,
    log_to: Annotated[
        list[str] | None,
        option(
            "Also log to Weights & Biases or MLflow (the extras wandb and mlflow); may be repeated.",
            metavar="wandb|mlflow",
            names=("--log-to",),
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    show_config: Annotated[
        bool, switch("--show-config", "Print every setting and where it is from, and exit.")
    ] = False,
    force: Annotated[bool, switch("--force", "Replace an existing checkpoint, or the state of another run.")] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Train an encoder on questions and the passages that answer them.

    The result is a checkpoint, for mvindex ingest --encoder.

    After an interruption, the same command continues. On several GPUs, run accelerate launch -m mvindex train with
    the same options.

    Example: mvindex train --train questions.jsonl --passages corpus.tsv --budget small --out my-encoder

    Example: mvindex train --preset snippets --train questions.jsonl --passages corpus.tsv --out my-encoder
    """
    from mvindex.cli.options import parse_choice
    from mvindex_train.data.options import TrainingFormat

    scale = "none" if scale == "auto" else scale  # which lets training choose
    overrides = [*(overrides or []), *_as_overrides(base, epochs, batch, learning_rate, seed, scale)]
    settings = _load(config, preset, budget, overrides)
    if format is not None:
        parse_choice("--format", format, TrainingFormat)
    paths = {"train": files, "dev": dev, "negatives": negatives, "passages": passages, "format": format}
    settings = _with_data(settings, paths, warm_up)
    if keep:
        settings = replace(settings, evaluation=replace(settings.evaluation, keep=tuple(keep)))
    if show_config:
        from mvindex_train.config_cli import describe

        is_json = output is Output.JSON
        typer.echo(json.dumps(settings.as_dict(), ensure_ascii=False) if is_json else describe(settings), nl=is_json)
        return
    if out is None:
        raise typer.BadParameter("expected the folder of the checkpoint: --out DIR")
    from mvindex_train.trainer import Trainer

    trainer = Trainer(
        settings, out, callbacks=_callbacks(log_to or []), warm_up=warm_up, warm_up_steps=warm_up_steps, device=device,
        save_every=save_every, force=force,
    )  # fmt: skip
    _run(trainer, output)


def _as_overrides(*values: Any) -> list[str]:
    names = ("encoder.base", "optimiser.epochs", "data.batch_passages", "optimiser.learning_rate", "optimiser.seed",
             "evaluation.scale")  # fmt: skip
    return [f"{name}={value}" for name, value in zip(names, values, strict=True) if value is not None]


def _load(file: Path | None, preset: str | None, budget: str | None, overrides: list[str]) -> TrainConfig:
    """Load the settings; the preset is snippets when neither a preset nor a file is named."""
    from mvindex.cli.options import check_value
    from mvindex_train.config_cli import ConfigRequest, load_config
    from mvindex_train.presets import find_preset, parse_budget

    check_value("--preset", preset, find_preset)
    check_value("--budget", budget, parse_budget)
    chosen = preset if preset or file else _DEFAULT_PRESET
    return load_config(ConfigRequest(file=file, preset=chosen, budget=budget, overrides=overrides))


def _with_data(settings: TrainConfig, paths: dict[str, Any], warm_up: str | None) -> TrainConfig:
    """Set the files of the flags, whose paths may contain commas; one epoch of warm-up if none is set."""
    changes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in paths.items() if value
    }
    settings = replace(settings, data=replace(settings.data, **changes))
    return replace(settings, warm_up_epochs=1) if warm_up and not settings.warm_up_epochs else settings


def _callbacks(log_to: list[str]) -> list[Callback]:
    """Return the callbacks of the command: the bar, TensorBoard where it is installed, and those named by --log-to."""
    from importlib.util import find_spec

    from mvindex_train.loggers import MLflow, TensorBoard, WandB
    from mvindex_train.progress import ProgressBar

    services: dict[str, Callable[[], Callback]] = {"wandb": WandB, "mlflow": MLflow}
    unknown = [name for name in log_to if name not in services]
    if unknown:
        raise typer.BadParameter(f"--log-to: expected wandb or mlflow, got {unknown[0]!r:.80}")
    boards = [TensorBoard()] if find_spec("tensorboard") is not None else []
    return [ProgressBar(), *boards, *(services[name]() for name in log_to)]


def _run(trainer: Trainer, output: Output) -> None:
    """Train and print the report on stdout."""
    from mvindex.encoder.registry import leave_form, load_encoder
    from mvindex_train.loop import Interrupted

    with _stop_on_signal(trainer.stop) as stop_signal:
        try:
            report = trainer.train()
        except Interrupted as stop:
            _note(f"{stop}; repeat the command to resume")
            raise typer.Exit(128 + (stop_signal() or signal.SIGINT)) from stop
    if not is_main_process():
        return
    if output is not Output.TABLE:
        print_report("", report, output)
    else:
        figures = {"before": None, "dev": None} | report
        rows = {name: _format(value) for name, value in figures.items() if value is not None}
        print_report("train", rows, output)
    leave_form(load_encoder(trainer.checkpoint, device="cpu"), _note)
    _note(f"next: mvindex ingest {trainer.config.data.passages or 'corpus.tsv'} --encoder {trainer.checkpoint}")


def is_main_process() -> bool:
    """Return whether this is the process of a launch that prints."""
    import os

    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _stop_on_signal(stop: Callable[[], None]) -> Iterator[Callable[[], int | None]]:
    """Call stop() at SIGINT or SIGTERM; a second signal acts as by default. Yield a function that returns the first."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request_stop(number: int, frame: Any) -> None:
        received.append(number)
        stop()
        signal.signal(number, before[signal.Signals(number)])
        _note("stopping after this step to save the state; repeat to stop at once")

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {figure}" for name, figure in value.items() if figure is not None)
    return str(value)


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
