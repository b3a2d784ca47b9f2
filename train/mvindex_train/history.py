"""The log of a run: one JSON object a line in history.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.durable import flush_to_disk


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
