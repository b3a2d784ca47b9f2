"""The output of a long run, written so that a killed run goes on where its last batch ended."""

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

from mvindex.errors import ConfigError
from mvindex.store.fsync import flush_to_disk
from mvindex_train.fsync import whole_file


class ResumableOutput:
    """A JSONL file that grows as PATH.part, a batch at a time, and gets its name when it is whole.

    Beside it stand PATH.part.json (settings, finished questions, counts, committed bytes) and PATH.part.work, a folder
    for whatever the run builds; both are gone at the end. finished and counts say what an earlier run had done. Used as
    a context manager: inside the block no other process can write the same output.

    settings: JSON values that decide what is written; a part begun with others is not gone on with.
    force: replaces the file at PATH, and begins anew over a part of other settings.
    ConfigError: PATH exists, a part of other settings or of another run is there, or a process is writing it.
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
            self._begin(is_new)
        except BaseException:
            os.close(self._handle)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._handle)

    def add(self, lines: Iterable[bytes], num_questions: int, counts: Mapping[str, int]) -> None:
        """Nothing; the lines of so many more questions stand on disk, and a new run goes on after them.

        counts: of the whole run so far. ConfigError: the disk takes no more.
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
        """Nothing; the file has its name, and what stood beside it is gone."""
        self._check_target()
        os.replace(self._part, self.path)
        flush_to_disk(self.path.parent)
        self._state_path.unlink()
        shutil.rmtree(self.work_folder, ignore_errors=True)

    def _check_target(self) -> None:
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path}: is not a plain file; name a new file")
        if self.path.exists() and not self.force:
            raise ConfigError(f"{self.path}: exists; choose another name, or overwrite it with --force")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise ConfigError(
                f"{self._part}: another process is writing it; wait for it, or name another file"
            ) from err

    def _begin(self, is_new: bool) -> None:
        """Nothing; the part holds the committed batches of a run with these settings, if there was one."""
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
        """What the earlier run left; None to begin anew."""
        try:
            state: dict[str, Any] = json.loads(self._state_path.read_bytes())
            is_whole = {"settings", "finished", "counts", "bytes"} <= set(state)
        except (OSError, ValueError, TypeError):
            is_whole = False
        size_bytes = os.fstat(self._handle).st_size
        if is_whole and size_bytes >= state["bytes"]:
            return state
        # A run writes its state before its first row: an empty part may have been left by one that came not so far.
        if size_bytes == 0 or self.force:
            return None
        raise ConfigError(
            f"{self._part}: exists, and {self._state_path.name} does not say how it was made; move it away, or begin "
            "anew with --force"
        )

    def _differs(self, before: Mapping[str, Any]) -> bool:
        """True when a run of other settings is to be begun anew; ConfigError unless that is asked for."""
        other = [name for name in {**before, **self._settings} if before.get(name) != self._settings.get(name)]
        if other and not self.force:
            was, now = (_shown(settings.get(other[0])) for settings in (before, self._settings))
            raise ConfigError(
                f"{self._part}: was begun with {other[0]} {was}, not {now}; give the settings it was begun with to go "
                "on, or begin anew with --force"
            )
        return bool(other)

    def _save_state(self) -> None:
        state = {
            "settings": self._settings,
            "finished": self.finished,
            "counts": dict(self.counts),
            "bytes": os.fstat(self._handle).st_size,
        }
        with whole_file(self._state_path) as unfinished:
            unfinished.write_text(json.dumps(state), encoding="utf-8")


def _shown(value: Any) -> str:
    return json.dumps(value) if len(json.dumps(value)) <= 80 else json.dumps(value)[:77] + "..."
