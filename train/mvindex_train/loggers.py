"""Callbacks that log a run to TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.durable import atomic_file, map_write_errors
from mvindex.plugins import require
from mvindex_train.callbacks import Callback, RunStart, figures_of
from mvindex_train.loop import Interrupted
from mvindex_train.resume import flatten

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# MLflow's largest number of parameters in a request.
_PARAMS_AT_ONCE = 100


class TensorBoard(Callback):
    """Writes the figures of steps and evaluations for TensorBoard (extra `train`).

    Args:
        folder: The folder of the event files; None takes `tensorboard` in the run's folder.

    """

    def __init__(self, folder: str | Path | None = None) -> None:
        require("tensorboard", "train", "logging to TensorBoard")
        self._folder = folder
        self._writer: SummaryWriter

    def on_start(self, run: RunStart) -> None:
        """Open the event file; what was logged after the last state of a resumed run is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(self._folder or run.run_folder / "tensorboard", purge_step=run.step + 1)

    def on_step(self, record: Mapping[str, Any]) -> None:
        """Write the figures."""
        for name, value in figures_of(record).items():
            self._writer.add_scalar(_plain(name), value, record["step"])

    on_evaluation = on_step

    def on_checkpoint(self, folder: Path, step: int) -> None:
        """Write what is buffered to disk."""
        self._writer.flush()

    def on_end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Close the event file."""
        self._writer.close()


class WandB(Callback):
    """Logs settings and figures to Weights & Biases (extra `wandb`); a resumed run continues its W&B run.

    Args:
        project: The W&B project; None takes WANDB_PROJECT, else "mvindex".
        options: Other arguments of `wandb.init`, such as `name`, `entity`, `tags`, or `mode="offline"`. Files are
            written to the run's folder unless `dir` is given.

    """

    def __init__(self, project: str | None = None, **options: Any) -> None:
        self._wandb = require("wandb", "wandb", "logging to Weights & Biases")
        self._options = {"project": project or os.environ.get("WANDB_PROJECT", "mvindex"), **options}
        self._run: Any

    def on_start(self, run: RunStart) -> None:
        """Start a W&B run, or continue the one of the run's folder."""
        own = {"id": _saved_id(run, "wandb"), "name": run.checkpoint.name, "dir": str(run.run_folder)}
        self._run = self._wandb.init(**{**own, "resume": "allow", "config": run.config.as_dict(), **self._options})
        _save_id(run, "wandb", self._run.id)

    def on_step(self, record: Mapping[str, Any]) -> None:
        """Log the figures."""
        self._run.log(figures_of(record), step=record["step"])

    on_evaluation = on_step

    def on_end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Finish the W&B run, as failed if the training did not end by itself."""
        self._run.finish(exit_code=0 if error is None else 1)


class MLflow(Callback):
    """Logs settings and figures to MLflow (extra `mlflow`); a resumed run continues its MLflow run.

    MLflow allows no @ in names, so that R@1 is R_1.

    Args:
        experiment: The experiment, created if missing; None takes MLFLOW_EXPERIMENT_NAME, else "mvindex".
        tracking_uri: The server or database; None takes MLflow's own setting, such as MLFLOW_TRACKING_URI.

    """

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        self._mlflow = require("mlflow", "mlflow", "logging to MLflow")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "mvindex")
        self._uri = tracking_uri
        self._client: Any
        self._id: str

    def on_start(self, run: RunStart) -> None:
        """Start an MLflow run, or continue the one of the run's folder."""
        self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
        saved = _saved_id(run, "mlflow")
        self._id = saved or self._create_run(run)
        if saved:
            self._client.update_run(self._id, status="RUNNING")
        _save_id(run, "mlflow", self._id)
        values = flatten(run.config.as_dict())
        params = [self._mlflow.entities.Param(name, str(value)) for name, value in values.items()]
        for begin in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._id, params=params[begin : begin + _PARAMS_AT_ONCE])

    def on_step(self, record: Mapping[str, Any]) -> None:
        """Log the figures."""
        now_ms, metric = int(time.time() * 1000), self._mlflow.entities.Metric
        figures = figures_of(record).items()
        self._client.log_batch(
            self._id, metrics=[metric(_plain(name), value, now_ms, record["step"]) for name, value in figures]
        )

    on_evaluation = on_step

    def on_end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """End the MLflow run: FINISHED, FAILED, or KILLED where it was interrupted."""
        self._client.set_terminated(self._id, _status(error))

    def _create_run(self, run: RunStart) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run_id: str = self._client.create_run(experiment, run_name=run.checkpoint.name).info.run_id
        return run_id


def _plain(name: str) -> str:
    """Return the name of a figure without @, which TensorBoard and MLflow do not allow."""
    return name.replace("@", "_")


def _status(error: BaseException | None) -> str:
    if error is None:
        return "FINISHED"
    return "KILLED" if isinstance(error, Interrupted | KeyboardInterrupt) else "FAILED"


def _saved_id(run: RunStart, service: str) -> str | None:
    """Return the id that an interrupted run has at the service; None for a run that begins."""
    file = _id_file(run, service)
    return file.read_text(encoding="ascii") if run.step and file.exists() else None


def _save_id(run: RunStart, service: str, run_id: str) -> None:
    file = _id_file(run, service)
    with map_write_errors(file), atomic_file(file) as unfinished:
        unfinished.write_text(run_id, encoding="ascii")


def _id_file(run: RunStart, service: str) -> Path:
    return run.run_folder / f"{service}-run-id.txt"
