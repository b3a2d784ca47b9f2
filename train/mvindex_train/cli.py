"""The commands `mvindex train` and `mvindex mine`: parse, call, print. Imports no torch before training begins."""

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

from mvindex_train.mine_cli import mine

if TYPE_CHECKING:
    from mvindex_train.config import TrainConfig
    from mvindex_train.trainer import TrainJob

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
    files: Annotated[list[str] | None, typer.Option("--train", help="Files to train on, in any known format.")] = None,
    passages: Annotated[
        str | None, typer.Option(help="The corpus that ids in the files name; dev is asked over it.")
    ] = None,
    dev: Annotated[list[str] | None, typer.Option(help="Files of dev questions, which choose the best epoch.")] = None,
    negatives: Annotated[list[str] | None, typer.Option(help="Files of `mvindex mine`.")] = None,
    format: Annotated[str | None, typer.Option(help="Of the files; found by itself.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A method: snippets (default), dpr, mvr, camvr, drpq, me-bert, poly, sentences, splits."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="full (default), or small: CPU minutes in place of GPU days.")
    ] = None,
    base: Annotated[str | None, typer.Option(help="What is trained: minilm (default), a folder or a hub id.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags come before it.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, such as loss.tau=0.5; see --show-config.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Rounds over the data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Passages a batch, of all processes together.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the optimiser.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers.")] = None,
    warm_up: Annotated[str | None, typer.Option(help="A corpus to warm up on first, without questions.")] = None,
    warm_up_steps: Annotated[int | None, typer.Option(help="At most so many steps of that.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Save the state after so many steps too.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the best there is by default.")] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print all settings, with origins, and end.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the checkpoint, or another run's state.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Train an encoder on questions and the passages that answer them; the result is a checkpoint for `mvindex ingest`.

    Interrupted, give the same command again to go on. Several GPUs: accelerate launch -m mvindex train ...

    Example: mvindex train --preset snippets --train questions.jsonl --passages corpus.tsv --out my-encoder
    """
    overrides = [*(overrides or []), *_as_overrides(base, epochs, batch, learning_rate, seed)]
    settings = _load(config, preset, budget, overrides)
    given = {"train": files, "dev": dev, "negatives": negatives, "passages": passages, "format": format}
    settings = _with_data(settings, given, warm_up)
    if show_config:
        from mvindex_train.config_cli import describe

        typer.echo(json.dumps(settings.as_dict(), ensure_ascii=False) if as_json else describe(settings), nl=as_json)
        return
    if out is None:
        raise typer.BadParameter("say where the checkpoint goes: --out DIR")
    from mvindex_train.trainer import TrainJob

    job = TrainJob(
        config=settings, out=out, warm_up=warm_up, warm_up_steps=warm_up_steps, device=device, save_every=save_every,
        force=force, on_note=_note,
    )  # fmt: skip
    _run(job, as_json)


def _as_overrides(*values: Any) -> list[str]:
    names = ("encoder.base", "optimiser.epochs", "data.batch_passages", "optimiser.learning_rate", "optimiser.seed")
    return [f"{name}={value}" for name, value in zip(names, values, strict=True) if value is not None]


def _load(file: Path | None, preset: str | None, budget: str | None, overrides: list[str]) -> TrainConfig:
    """The settings; the preset snippets when neither a preset nor a file is named."""
    from mvindex_train.config_cli import ConfigRequest, load_config

    chosen = preset if preset or file else _DEFAULT_PRESET
    return load_config(ConfigRequest(file=file, preset=chosen, budget=budget, overrides=overrides))


def _with_data(settings: TrainConfig, given: dict[str, Any], warm_up: str | None) -> TrainConfig:
    """The settings with the files given by flags, which may hold commas; one epoch of warming up if none is set."""
    changes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value
    }
    settings = replace(settings, data=replace(settings.data, **changes))
    return replace(settings, warm_up_epochs=1) if warm_up and not settings.warm_up_epochs else settings


def _run(job: TrainJob, as_json: bool) -> None:
    """Nothing; the job is done and its report is on stdout."""
    from mvindex.cli import render as display
    from mvindex_train.loop import Interrupted
    from mvindex_train.progress import TrainingDisplay
    from mvindex_train.trainer import train as run_training

    with TrainingDisplay() as shown, _signals() as asked:
        try:
            report = run_training(replace(job, on_record=shown.show, should_stop=lambda: bool(asked())))
        except Interrupted as stop:
            _note(f"{stop}; give the same command again to go on")
            raise typer.Exit(128 + (asked() or signal.SIGINT)) from stop
    if not is_main_process():
        return
    if as_json:
        display.print_json(report)
    else:
        figures = {"before": None, "dev": None} | report
        rows = {name: _shown(value) for name, value in figures.items() if value is not None}
        display.print_table("train", rows)
    _note(f"next: mvindex ingest corpus.tsv --encoder {job.out}")


def is_main_process() -> bool:
    """True for the one process of a launch that prints."""
    import os

    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _signals() -> Iterator[Callable[[], int | None]]:
    """Inside it the first Ctrl-C or TERM only asks to stop, and is told by the function; a second one acts as ever."""
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(number, before[signal.Signals(number)])
        _note("stopping after this step, and saving; once more to stop at once")

    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: asked[0] if asked else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {figure}" for name, figure in value.items() if figure is not None)
    return str(value)


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
