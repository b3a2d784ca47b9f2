"""Writes rejected rows to files that can be corrected and ingested again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeAlias

from mvindex.corpus.rows import Reject, Source
from mvindex.errors import CorpusError

_Key: TypeAlias = tuple[str, bytes | None, str | None, tuple[str, ...], str | None]


class RejectsWriter:
    """Writes rejects to STEM.rejects.tsv or .jsonl, and the reasons to STEM.rejects.reasons.jsonl.

    Rows are written as in their file, uncompressed, below their header (Parquet rows as JSON), so that the file can be
    corrected and read with the same options; give its format, since bad rows may not show it. A file is created
    with the first reject that needs it, one per format, header and fields; none is overwritten: a number is added.
    """

    def __init__(self, stem: str | os.PathLike[str]) -> None:
        self.count = 0
        self._stem = os.fspath(stem)
        self._files: dict[_Key, _RejectsFile] = {}
        self._reasons: BinaryIO | None = None

    @property
    def paths(self) -> list[Path]:
        """Return the files of rows written so far, without the file of reasons."""
        return list(self.formats)

    @property
    def formats(self) -> dict[Path, str]:
        """Return the files of rows written so far, each with the format to give when it is read again."""
        return {Path(file.path): key[0] for key, file in self._files.items()}

    @property
    def sources(self) -> dict[Path, Source]:
        """Return the files of rows written so far, each with how its rows were read."""
        return {Path(file.path): file.source for file in self._files.values()}

    @property
    def reasons_path(self) -> Path | None:
        """Return the file of reasons, one {path, line, reason} a reject; None while there is none."""
        return Path(self._reasons.name) if self._reasons else None

    def __enter__(self) -> RejectsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, reject: Reject, source: Source | None) -> None:
        """Write one reject of this source; None where a whole file is rejected, which has no rows to write.

        Raises CorpusError when a file cannot be written.
        """
        try:
            if source is not None:
                self._rows_file(source).write(reject)
            self._write_reason(reject)
        except OSError as err:
            raise CorpusError(f"{self._stem}: the rejects cannot be written: {err}") from err
        self.count += 1

    def flush(self) -> None:
        """Flush the files to the disk."""
        for file in self._open_files():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close all files."""
        for file in self._open_files():
            file.close()

    def _open_files(self) -> list[BinaryIO]:
        return [file.file for file in self._files.values()] + ([self._reasons] if self._reasons else [])

    def _rows_file(self, source: Source) -> _RejectsFile:
        key = (
            source.rejects_format or source.format,
            source.header,
            source.id_field,
            source.roles.text,
            source.title_field,
        )
        if key not in self._files:
            file = _create(f"{self._stem}.rejects", source.rejects_suffix)
            self._files[key] = _RejectsFile(file, source)
        return self._files[key]

    def _write_reason(self, reject: Reject) -> None:
        self._reasons = self._reasons or _create(f"{self._stem}.rejects", ".reasons.jsonl")
        entry = {"path": reject.location.path, "line": reject.location.line, "reason": reject.reason}
        # A file name may hold bytes that are not UTF-8; they are written as the escapes \udcXX.
        self._reasons.write((json.dumps(entry, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))


class _RejectsFile:
    """One file of rows, all with the same header."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self.file, self.source = file, source
        self.path = file.name
        self._header = header = source.header
        self._has_quote = False
        self._next_location: tuple[str, int] | None = None
        if header:
            file.write(header)

    def write(self, reject: Reject) -> None:
        location = (reject.location.path, reject.location.line)
        # A quote left open must not run on into rows that did not follow it in the source. The reader ends it at a
        # repeat of the header, and skips that.
        if self._header and self._has_quote and location != self._next_location:
            self.file.write(self._header)
            self._has_quote = False
        num_lines, last = 0, b""
        for piece in reject.raw:
            self.file.write(piece)
            self._has_quote |= b'"' in piece
            num_lines += piece.count(b"\n")
            last = piece or last
        if not last.endswith(b"\n"):
            self.file.write(b"\n")
        self._next_location = (reject.location.path, reject.location.line + num_lines)


def _create(stem: str, suffix: str) -> BinaryIO:
    """Create a file, numbered when the plain name is taken; exclusive creation never overwrites one."""
    number = 1
    while True:
        try:
            return open(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}", "xb")
        except FileExistsError:
            number += 1
