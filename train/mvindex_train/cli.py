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

from mvindex.cli.options import ThreadsOption
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report
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


@app.command()
def train(  # noqa: PLR0913 - each option is a flag of the command
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the checkpoint to write.")] = None,
    files: Annotated[
        list[str] | None, typer.Option("--train", help="Files of training data, in any supported format.")
    ] = None,
    passages: Annotated[
        str | None, typer.Option(help="Corpus that ids in the files refer to; dev questions are searched in it.")
    ] = None,
    dev: Annotated[
        list[str] | None, typer.Option(help="Files of dev questions, by which the best epoch is chosen.")
    ] = None,
    negatives: Annotated[list[str] | None, typer.Option(help="Files of negatives by `mvindex mine`.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of the files (default: detected).")] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Method: snippets (default), dpr, mvr, camvr, drpq, me-bert, poly, sentences, splits."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="full (default), or small: CPU minutes instead of GPU days.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Checkpoint to start from: minilm (default), a folder or a hub id.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; flags override it.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. loss.tau=0.5; see --show-config.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Passages in a batch, over all processes.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of the optimiser.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="Factor of what LoRA learnt (default: 1), or auto: the best for the dev questions."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="BEIR folders of judged questions that --scale auto must not answer worse than the base."),
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(help="Corpus for a warm-up without questions, before training.")
    ] = None,
    warm_up_steps: Annotated[int | None, typer.Option(help="Maximum number of warm-up steps.")] = None,
    save_every: Annotated[
        int | None, typer.Option(help="Steps between saved states, besides the ends of epochs.")
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option("--log-to", help="Where else to log to: wandb or mlflow (extras of these names)."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the fastest available).")] = None,
    threads: ThreadsOption = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print all settings with their sources, and exit.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing checkpoint, or the state of another run.")
    ] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Train an encoder on questions and the passages that answer them; write a checkpoint for `mvindex ingest`.

    Repeat the command to resume an interrupted run. Several GPUs: accelerate launch -m mvindex train ...

    Example: mvindex train --preset snippets --train questions.jsonl --passages corpus.tsv --out my-encoder
    """
    from mvindex.cli.options import parse_choice
    from mvindex_train.data.options import TrainingFormat

    overrides = [*(overrides or []), *_as_overrides(base, epochs, batch, learning_rate, seed, _scale(scale))]
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


def _scale(text: str | None) -> str | None:
    """Return the setting of --scale: "none" lets training choose."""
    return "none" if text == "auto" else text


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
    _note(f"next: mvindex ingest corpus.tsv --encoder {trainer.checkpoint}")


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
