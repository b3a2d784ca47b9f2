"""The manifest of an export, manifest.json: an import checks by it that the files are complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mvindex.durable import replace_text
from mvindex.errors import CorpusError, DamagedIndex, StoreError
from mvindex.store.snapshot import check_kept

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_MARK = "export"
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One complete file of an export: its name in the directory, its size, and its counts."""

    name: str
    size_bytes: int
    documents: int
    views: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An export, finished or not. source: ids and versions of the stores; settings: of the index."""

    to: str
    source: list[list[Any]]
    settings: Mapping[str, Any]
    next_ordinal: int
    is_complete: bool = False
    documents: int = 0
    views: int = 0
    files: tuple[ExportedFile, ...] = ()

    def with_files(self, files: list[ExportedFile], documents: int, views: int) -> Manifest:
        """Return the manifest with one more part."""
        return replace(
            self, files=(*self.files, *files), documents=self.documents + documents, views=self.views + views
        )


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest atomically and durably."""
    record = {"mvindex": _MARK, "format_version": FORMAT_VERSION, **asdict(manifest)}
    fresh = directory / f".{MANIFEST}.new"
    replace_text(directory / MANIFEST, json.dumps(record, ensure_ascii=False, indent=1) + "\n", fresh)


def read_manifest(directory: Path) -> Manifest | None:
    """Read the manifest of a directory, None where there is none; raise CorpusError for a file that is no manifest."""
    path = directory / MANIFEST
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MAX_BYTES:
            raise CorpusError(f"{path}: is larger than any manifest of an export")
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
    except (ValueError, RecursionError) as err:
        raise CorpusError(f"{path}: is not JSON: {err}") from err
    if not isinstance(record, dict) or record.get("mvindex") != _MARK:
        raise CorpusError(f'{path}: expected a manifest of `mvindex export`, with "mvindex": "{_MARK}"')
    if record.get("format_version") != FORMAT_VERSION:
        found = record.get("format_version")
        raise CorpusError(f"{path}: expected format version {FORMAT_VERSION}, got {found!r:.40}")
    return _parse(record, path)


def check_whole(directory: Path, manifest: Manifest) -> None:
    """Raise CorpusError when the export is not finished, or a file is missing or of another size."""
    if not manifest.is_complete:
        raise CorpusError(f"{directory}: the export is not finished; run the same `mvindex export` again")
    wrong = find_wrong_file(directory, manifest)
    if wrong is not None:
        raise CorpusError(
            f"{wrong}. Copy the export again; or, if its files were changed on purpose, name them one by one instead "
            "of the directory"
        )


def find_wrong_file(directory: Path, manifest: Manifest) -> str | None:
    """Describe the first file that is missing or of another size; return None where all are complete."""
    for file in manifest.files:
        path = directory / file.name
        found = path.stat().st_size if path.is_file() else None
        if found != file.size_bytes:
            what = "is missing" if found is None else f"has {found:,} bytes"
            return f"{path}: {what}; {MANIFEST} says {file.size_bytes:,} bytes"
    return None


def _parse(record: Mapping[str, Any], path: Path) -> Manifest:
    try:
        files = tuple(_file(file) for file in record["files"])
        settings = dict(record["settings"])
        check_kept(settings, path)
        whole = {name: _count(record[name]) for name in ("documents", "views", "next_ordinal")}
        return Manifest(
            to=str(record["to"]),
            source=list(record["source"]),
            settings=settings,
            is_complete=record["is_complete"] is True,
            files=files,
            **whole,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise CorpusError(f"{path}: is not a whole manifest of an export: {type(err).__name__} {err}") from err
    except DamagedIndex as err:
        raise CorpusError(str(err)) from err


def _file(record: Mapping[str, Any]) -> ExportedFile:
    name = record["name"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"a file named {name!r:.80}, which is not in the directory")
    sizes = {key: _count(record[key]) for key in ("size_bytes", "documents", "views")}
    return ExportedFile(name=name, **sizes)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a count, got {value!r:.40}")
    return value
