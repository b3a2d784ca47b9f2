"""The log of a run: one JSON object a line in history.jsonl, and the same figures for TensorBoard if installed."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mvindex.store.fsync import flush_to_disk

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger(__name__)

# Called with each record when it is logged.
OnRecord: TypeAlias = Callable[[Mapping[str, Any]], None]


class History:
    """The log of a run. It resumes at the size and the step of the last state; later records are truncated.

    A record has a "kind" (step or dev), a "stage", an "epoch" of the stage and a "step" of the run, both from 1; its
    other numbers are figures.
    """

    def __init__(self, path: Path, size_bytes: int, step: int, on_record: OnRecord | None = None) -> None:
        path.touch()
        self._path = path
        self._file = path.open("r+b")
        self._file.truncate(size_bytes)
        self._file.seek(0, 2)
        self._board = _open_board(path.parent / "tensorboard", step)
        self._on_record = on_record

    def add(self, record: Mapping[str, Any]) -> None:
        """Log the record. It reaches the disk with the next flush()."""
        self._file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
        if self._board is not None:
            _add_scalars(self._board, record)
        if self._on_record is not None:
            self._on_record(record)

    def flush(self) -> int:
        """Write the history to disk; return its size in bytes."""
        self._file.flush()
        flush_to_disk(self._path)
        if self._board is not None:
            self._board.flush()
        return self._file.tell()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _open_board(folder: Path, step: int) -> SummaryWriter | None:
    """Return TensorBoard's writer, which hides what was logged after this step before; None without TensorBoard."""
    if importlib.util.find_spec("tensorboard") is None:
        logger.info("tensorboard is not installed: figures go to history.jsonl only")
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder, purge_step=step + 1)


def _add_scalars(board: SummaryWriter, record: Mapping[str, Any]) -> None:
    for name, value in record.items():
        if isinstance(value, int | float) and name not in ("step", "epoch"):
            place = f"{record['stage']}/{name}" if record["kind"] == "step" else f"{record['kind']}/{name}"
            board.add_scalar(place.replace("@", "_"), value, record["step"])
