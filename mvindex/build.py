"""Engines on disk: built under a new name, checksummed, swapped in by one transaction. All derived, never the truth."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from mvindex import engines
from mvindex.engines.base import Kind, RankingEngine
from mvindex.errors import (
    ConfigError,
    DamagedIndex,
    EngineError,
    EngineMissing,
    EngineUnavailable,
    StaleReader,
    StoreError,
)
from mvindex.pruning import checked_eps
from mvindex.store.durable import announced, flush_to_disk, remove_entry
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import check_directory, check_regular
from mvindex.store.segments import file_checksum
from mvindex.store.snapshot import Snapshot

_GONE = "gone-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build made: documents (living), views that the engine holds and that it leaves out, bytes of its files.

    Views and stored_bytes, those of all views in the store, include retired documents that are still on disk. Kind
    exact holds nothing of its own: it ranks the store's views.
    """

    kind: str
    prune_views: float | None
    documents: int
    views: int
    views_left_out: int
    engine_bytes: int
    stored_bytes: int


def build_engine(store: EmbeddedStore, kind: Kind, prune_views: float | None = None) -> BuildReport:
    """What was built: searches of later snapshots use an engine of this kind, over all documents there are now.

    prune_views: the engine leaves out views within that distance of one it holds (see kept_views). Readers go on with
    what they have. Takes the writer lock. ConfigError when prune_views is no distance, or the kind is exact.
    """
    if prune_views is not None:
        prune_views = checked_eps(prune_views)
        _refuse_exact(kind)
    with store.writing():
        record = None if kind is Kind.EXACT else build_files(store.snapshot, kind, prune_views)
        store.change_settings(engine=record)
        _remove_others(store.snapshot.directory, record["directory"] if record else None)
        return _report(store.snapshot, kind, record)


class EngineCache:
    """The engine of the latest snapshot asked for, loaded and checked once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: tuple[Path, RankingEngine] | None = None

    def open(self, snapshot: Snapshot) -> RankingEngine | None:
        """The active engine of the snapshot; None for kind exact.

        DamagedIndex when a file does not match its checksum, StaleReader when the engine was built again since.
        """
        record = snapshot.settings["engine"]
        if record is None:
            return None
        with self._lock:
            directory = snapshot.directory / record["directory"]
            if self._loaded is None or self._loaded[0] != directory:
                self._loaded = (directory, _open(directory, record))
            return self._loaded[1]


def _refuse_exact(kind: Kind) -> None:
    """Nothing; ConfigError for the kind that reads the store itself."""
    if kind is Kind.EXACT:
        raise ConfigError(
            "kind 'exact' reads every view in the store, so prune_views cannot leave any out of it; "
            "build flat or hnsw, or prune at ingest: create(prune_views=...), mvindex ingest --prune-views"
        )


def _report(snapshot: Snapshot, kind: Kind, record: Mapping[str, Any] | None) -> BuildReport:
    stored = snapshot.views.num_views
    settings = record["settings"] if record else {}
    files = (snapshot.directory / record["directory"]).iterdir() if record else ()
    held = settings.get("num_views", stored)
    return BuildReport(
        kind=kind.value,
        prune_views=settings.get("prune_views"),
        documents=snapshot.num_documents,
        views=held,
        views_left_out=stored - held,
        engine_bytes=sum(file.stat().st_size for file in files),
        stored_bytes=stored * snapshot.views.row_bytes,
    )


def build_files(snapshot: Snapshot, kind: Kind, prune_views: float | None) -> dict[str, Any]:
    """The setting that names a newly built engine, whose files are on disk for good."""
    if snapshot.num_documents == 0:
        raise ConfigError(f"{snapshot.directory}: the index is empty; ingest documents before building {kind.value!r}")
    name = f"engine-{kind.value}-{snapshot.settings['version'] + 1:06d}"
    directory = snapshot.directory / name
    try:
        remove_entry(directory)
        directory.mkdir()
        with announced("write", directory):
            settings = engines.find_factory(kind).build(kind, snapshot, directory, prune_views)
        checksums = {file.name: _sealed(file) for file in sorted(directory.iterdir())}
        flush_to_disk(directory)
        flush_to_disk(snapshot.directory)
    except OSError as err:
        shutil.rmtree(directory, ignore_errors=True)
        raise StoreError(f"{directory}: cannot build: {err.strerror or err}") from err
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    covered = {"built_rows": snapshot.num_rows}
    return {
        "kind": kind.value,
        "directory": name,
        "checksums": checksums,
        **covered,
        "settings": {**settings, **covered},
    }


def _open(directory: Path, record: Mapping[str, Any]) -> RankingEngine:
    kind = _known_kind(directory, record["kind"])
    factory = engines.find_factory(kind)
    check_directory(directory)
    try:
        for name, checksum in record["checksums"].items():
            check_regular(directory / name)
            if file_checksum(directory / name) != checksum:
                raise DamagedIndex(f"{directory / name} does not match its checksum; `mvindex build` makes it again")
        return factory.open(kind, directory, record["settings"])
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedIndex(
            f"{directory}: its record in the catalog lacks {err}; `mvindex build` makes it again"
        ) from err
    except (OSError, EngineError) as err:
        if directory.is_dir():
            raise EngineUnavailable(f"{directory}: cannot be read: {err}; `mvindex build` makes it again") from err
        raise StaleReader(f"{directory} is gone: the engine was built again; open the index again") from err


def _known_kind(directory: Path, name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError as err:
        raise EngineMissing(f"{directory}: no engine here knows kind {name!r}; `mvindex build` makes another") from err


def _sealed(file: Path) -> str:
    """The checksum of a file that is on disk for good."""
    flush_to_disk(file)
    return file_checksum(file)


def _remove_others(path: Path, kept: str | None) -> None:
    """Nothing; engine directories that no setting names are gone.

    Renamed first: a reader about to load one finds it whole or not at all.
    """
    for directory in path.glob("engine-*"):
        if directory.name != kept:
            with announced("rename", directory):
                directory.rename(directory.with_name(f"{_GONE}{directory.name}"))
    for directory in path.glob(f"{_GONE}*"):
        with announced("remove", directory):
            remove_entry(directory)
