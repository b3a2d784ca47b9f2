"""The state of a run on disk, from which it is resumed exactly: safetensors for tensors, JSON for the rest.

OUT.run/, beside the checkpoint OUT, contains run.json (settings and inputs of the run), history.jsonl (its log), one
state-N/ (after N steps of all stages), the best weights, mined negatives and TensorBoard's files. A state is written
atomically, so that a process killed at any instant leaves the last one. The random numbers of a step depend on seed and
step only (seeding.py): a state contains no generator.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.durable import atomic_file, flush_to_disk, map_write_errors, remove_unfinished, whole_folder
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.errors import CheckpointError, ConfigError, StoreError
from mvindex.store.files import FILE_NAME as LOCK_NAME

if TYPE_CHECKING:
    import torch


class History:
    """The log of a run. It resumes at the size of the last state; later records are truncated.

    A record has a "kind" (step or dev), a "stage", an "epoch" of the stage and a "step" of the run, both from 1; its
    other numbers are figures.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.touch()
        self._path = path
        self._file = path.open("r+b")
        self._file.truncate(size_bytes)
        self._file.seek(0, 2)

    def add(self, record: Mapping[str, Any]) -> None:
        """Log the record. It reaches the disk with the next flush()."""
        self._file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())

    def flush(self) -> int:
        """Write the history to disk; return its size in bytes."""
        self._file.flush()
        flush_to_disk(self._path)
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


FORMAT_VERSION = 1
# Settings without effect on the computation.
_NAMES_ONLY = ("config.preset", "config.budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The progress of a run. step: steps done of this epoch; stage_step: of this stage; total_step: of all stages.

    history_bytes: size of history.jsonl. before, dev, best_dev: figures of the evaluations before training, the last
    one and the best one, whose weights are saved; worse_evaluations: number since the best. negatives: the store with
    the last mined negatives. is_stopped: training was ended by patience.
    """

    stage: int = 0
    epoch: int = 0
    step: int = 0
    stage_step: int = 0
    total_step: int = 0
    history_bytes: int = 0
    before: Mapping[str, Any] | None = None
    dev: Mapping[str, Any] | None = None
    best_score: float | None = None
    best_epoch: int | None = None
    best_dev: Mapping[str, Any] | None = None
    worse_evaluations: int = 0
    negatives: str | None = None
    is_stopped: bool = False

    def after_step(self) -> Position:
        """Return the position after one more step."""
        return replace(self, step=self.step + 1, stage_step=self.stage_step + 1, total_step=self.total_step + 1)


class RunFolder:
    """The folder of one run, created if missing.

    record: settings and inputs of the run as JSON values. Raises ConfigError, with the first key that differs, when the
    folder contains a run with another record; one without a step is deleted.
    """

    def __init__(self, path: Path, record: Mapping[str, Any]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path)
        if not _has_begun(path):
            discard_other_run(path, record)
        if (path / "run.json").exists():
            _check_same(path, read_json_object(path / "run.json"), _as_json(record))
            return
        with atomic_file(path / "run.json") as file:
            file.write_text(json.dumps(_as_json(record), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def history(self) -> Path:
        """The file of the log, one JSON object a line."""
        return self.path / "history.jsonl"

    def save(self, position: Position, encoder: torch.nn.Module, optimiser: torch.optim.Optimizer) -> Path:
        """Save the state, then delete older ones; return its folder."""
        folder = self.path / f"state-{position.total_step:09d}"
        # The same step is saved again when only an evaluation came in between: the new state needs another name.
        while folder.exists():
            folder = folder.with_name(folder.name + "a")
        with map_write_errors(folder), whole_folder(folder) as unfinished:
            _write_tensors(collect_trained_weights(encoder), unfinished / "weights.safetensors")
            _write_tensors(_optimiser_tensors(encoder, optimiser), unfinished / "optimiser.safetensors")
            content = json.dumps(asdict(position), indent=2) + "\n"
            (unfinished / "state.json").write_text(content, encoding="utf-8")
        self._remove_all_but(folder, position)
        return folder

    def load(self, encoder: torch.nn.Module) -> Position:
        """Load the weights of the last state into the encoder; return its position, the beginning without a state."""
        folder = self._latest()
        if folder is None:
            return Position()
        position = _read_position(folder / "state.json")
        load_weights(encoder, folder / "weights.safetensors")
        return position

    def load_optimiser(self, encoder: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Load the optimiser of the last state; do nothing when there is none."""
        folder = self._latest()
        if folder is not None:
            _load_optimiser(encoder, optimiser, folder / "optimiser.safetensors")

    def save_best(self, encoder: torch.nn.Module, epoch: int) -> None:
        """Save the weights as those of the best epoch; older ones are deleted by the next save()."""
        with map_write_errors(self._best(epoch)), atomic_file(self._best(epoch)) as file:
            _write_tensors(collect_trained_weights(encoder), file)

    def load_best(self, encoder: torch.nn.Module, epoch: int) -> None:
        """Load the weights of the best epoch into the encoder."""
        load_weights(encoder, self._best(epoch))

    def remove_states(self) -> None:
        """Delete the files that only a resumed run needs, once the checkpoint is written."""
        for pattern in ("state-*", "best-*", "examples*", "mined"):
            for entry in self.path.glob(pattern):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _latest(self) -> Path | None:
        return max(self.path.glob("state-*"), default=None)

    def _best(self, epoch: int) -> Path:
        return self.path / f"best-{epoch:04d}.safetensors"

    def _remove_all_but(self, folder: Path, position: Position) -> None:
        for other in self.path.glob("state-*"):
            if other != folder:
                shutil.rmtree(other)
        for file in self.path.glob("best-*.safetensors"):
            if position.best_epoch is None or file != self._best(position.best_epoch):
                file.unlink()
        for store in self.path.glob("examples-*"):
            if store.name != position.negatives:
                shutil.rmtree(store)


def discard_other_run(path: Path, record: Mapping[str, Any]) -> None:
    """Delete a run with another record from the folder."""
    if not (path / "run.json").exists():
        return
    try:
        _check_same(path, read_json_object(path / "run.json"), _as_json(record))
    except (ConfigError, CheckpointError):
        for entry in path.iterdir():
            if entry.name != LOCK_NAME:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _has_begun(path: Path) -> bool:
    """Return whether the folder contains a state or a log."""
    history = path / "history.jsonl"
    return any(path.glob("state-*")) or (history.exists() and history.stat().st_size > 0)


def collect_trained_weights(encoder: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of the trained weights by name, on the CPU."""
    named = encoder.named_parameters()
    return {name: _copy(parameter) for name, parameter in named if parameter.requires_grad}


def load_weights(encoder: torch.nn.Module, path: Path) -> None:
    """Load the trained weights from a file; raise CheckpointError when names or shapes differ."""
    import torch

    saved = _read_tensors(path)
    trained = {name: parameter for name, parameter in encoder.named_parameters() if parameter.requires_grad}
    if saved.keys() != trained.keys():
        name = min(saved.keys() ^ trained.keys())
        raise CheckpointError(
            f"{path}: {name!r} is in the file or the encoder, but not in both. Delete the run's folder"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            if parameter.shape != saved[name].shape:
                raise CheckpointError(
                    f"{path}: {name!r}: expected shape {tuple(parameter.shape)}, got {tuple(saved[name].shape)}"
                )
            parameter.copy_(saved[name])


def _optimiser_tensors(encoder: torch.nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimiser's state by kind and name of the weight: "exp_avg/bert.pooler.weight"."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in encoder.named_parameters()}
    return {
        f"{kind}/{names[parameter]}": _copy(value)
        for parameter, values in optimiser.state.items()
        for kind, value in values.items()
    }


def _load_optimiser(encoder: torch.nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> None:
    names = {parameter: name for name, parameter in encoder.named_parameters()}
    numbers: dict[str, int] = {}
    for group in optimiser.param_groups:
        numbers |= {names[parameter]: number for number, parameter in enumerate(group["params"], len(numbers))}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in _read_tensors(path).items():
        kind, _, name = key.partition("/")
        if name not in numbers:
            raise CheckpointError(
                f"{path}: unexpected state of {name!r}, which is not trained. Delete the run's folder"
            )
        state.setdefault(numbers[name], {})[kind] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _as_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record as read back from JSON."""
    return {"format_version": FORMAT_VERSION, **json.loads(json.dumps(record))}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def _write_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path)
    except SafetensorError as err:
        raise StoreError(f"{path}: cannot be written: {err}") from err


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except (OSError, SafetensorError) as err:
        raise CheckpointError(f"{path}: cannot be read: {err}. Delete the run's folder to restart") from err
    return tensors


def _read_position(path: Path) -> Position:
    content = read_json_object(path)
    try:
        return Position(**content)
    except TypeError as err:
        raise CheckpointError(f"{path}: written by another version: {err}. Delete the run's folder to restart") from err


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    had, has = flatten(old), flatten(new)
    for key in sorted(had.keys() | has.keys()):
        if key not in _NAMES_ONLY and had.get(key) != has.get(key):
            raise ConfigError(
                f"{path}: expected a run with {key} = {json.dumps(has.get(key))}, got {json.dumps(had.get(key))}. "
                f"Give the "
                "same settings to resume it, another --out, or --force to delete it"
            )


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by "table.field"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
