"""The output of a long run, resumable after its last batch."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from mvindex.durable import atomic_file, flush_to_disk
from mvindex.errors import ConfigError


class ResumableOutput:
    """A JSONL file that is written to PATH.part in batches and renamed when it is complete.

    Beside it are PATH.part.json (settings, finished questions, counts, committed bytes) and PATH.part.work, a folder
    for what the run builds; both are deleted at the end. finished and counts are those of the interrupted run. A
    context manager: inside the block the output is locked against other processes.

    Args:
        path: The output.
        settings: JSON values that determine the output; a part with other settings is not resumed.
        force: Replace the file at PATH, and restart over a part with other settings.

    Raises:
        ConfigError: PATH exists, there is a part with other settings or without state, or another process writes it.

    """

    def __init__(self, path: Path, settings: Mapping[str, Any], force: bool = False) -> None:
        self.path, self.force = path, force
        self._settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self._part = path.with_name(path.name + ".part")
        self._state_path = path.with_name(path.name + ".part.json")
        self.work_folder = path.with_name(path.name + ".part.work")
        self.finished = 0
        self.counts: Counter[str] = Counter()
        self._handle = -1

    def __enter__(self) -> ResumableOutput:
        self._check_target()
        is_new = not self._part.exists()
        try:
            self._handle = os.open(self._part, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as err:
            raise ConfigError(f"{self._part}: cannot be written: {err.strerror or err}") from err
        try:
            self._lock()
            self._resume(is_new)
        except BaseException:
            os.close(self._handle)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._handle)

    def add(self, lines: Iterable[bytes], num_questions: int, counts: Mapping[str, int]) -> None:
        """Append the lines of further questions, durably; a resumed run continues after them.

        counts: of the whole run so far. Raises ConfigError when the disk is full.
        """
        try:
            with open(os.dup(self._handle), "ab") as file:
                file.writelines(lines)
            os.fsync(self._handle)
            self.finished += num_questions
            self.counts = Counter(counts)
            self._save_state()
        except OSError as err:
            raise ConfigError(f"{self._part}: cannot be written: {err.strerror or err}") from err

    def finish(self) -> None:
        """Rename the file to its name, and delete the files beside it."""
        self._check_target()
        os.replace(self._part, self.path)
        flush_to_disk(self.path.parent)
        self._state_path.unlink()
        shutil.rmtree(self.work_folder, ignore_errors=True)

    def _check_target(self) -> None:
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path}: not a plain file. Name a new file")
        if self.path.exists() and not self.force:
            raise ConfigError(f"{self.path}: exists already. Choose another name, or overwrite it with --force")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise ConfigError(
                f"{self._part}: another process is writing it. Wait for it, or name another file"
            ) from err

    def _resume(self, is_new: bool) -> None:
        """Truncate the part to the committed batches of a run with these settings, or to nothing."""
        state = None if is_new else self._read_state()
        if state is not None and self._differs(state["settings"]):
            state = None
        if state is None:
            shutil.rmtree(self.work_folder, ignore_errors=True)
            state = {"finished": 0, "counts": {}, "bytes": 0}
        os.ftruncate(self._handle, state["bytes"])
        os.lseek(self._handle, 0, os.SEEK_END)
        self.finished, self.counts = state["finished"], Counter(state["counts"])
        self._save_state()

    def _read_state(self) -> dict[str, Any] | None:
        """Return the state of the interrupted run; None to restart."""
        try:
            state: dict[str, Any] = json.loads(self._state_path.read_bytes())
            is_complete = {"settings", "finished", "counts", "bytes"} <= set(state)
        except (OSError, ValueError, TypeError):
            is_complete = False
        size_bytes = os.fstat(self._handle).st_size
        if is_complete and size_bytes >= state["bytes"]:
            return state
        # The state is written before the first row: an empty part may be that of a run killed before.
        if size_bytes == 0 or self.force:
            return None
        raise ConfigError(
            f"{self._part}: exists, but {self._state_path.name} is not its state. Move it away, or restart with --force"
        )

    def _differs(self, before: Mapping[str, Any]) -> bool:
        """Return whether to restart over other settings; raise ConfigError for other settings without force."""
        other = [name for name in {**before, **self._settings} if before.get(name) != self._settings.get(name)]
        if other and not self.force:
            was, now = (_shorten(settings.get(other[0])) for settings in (before, self._settings))
            raise ConfigError(
                f"{self._part}: expected a run with {other[0]} {now}, got {was}. Give the same settings to resume, "
                f"or restart "
                "with --force"
            )
        return bool(other)

    def _save_state(self) -> None:
        state = {
            "settings": self._settings,
            "finished": self.finished,
            "counts": dict(self.counts),
            "bytes": os.fstat(self._handle).st_size,
        }
        with atomic_file(self._state_path) as unfinished:
            unfinished.write_text(json.dumps(state), encoding="utf-8")


def _shorten(value: Any) -> str:
    return json.dumps(value) if len(json.dumps(value)) <= 80 else json.dumps(value)[:77] + "..."
