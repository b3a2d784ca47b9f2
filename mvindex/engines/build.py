"""Engines on disk: built under a new name, checksummed, swapped in by one transaction. All derived, never the truth."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from mvindex import engines
from mvindex.engines.protocol import MAX_LISTS, BuildOptions, Kind, RankingEngine, Search
from mvindex.errors import (
    ConfigError,
    DamagedIndex,
    EngineError,
    EngineMissing,
    EngineUnavailable,
    StaleReader,
    StoreError,
)
from mvindex.ingest.prune import checked_eps
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import check_directory, check_regular
from mvindex.store.fsync import announced, flush_to_disk, remove_entry
from mvindex.store.segments import file_checksum
from mvindex.store.snapshot import Snapshot

_GONE = "gone-"
# What an unfinished build keeps, to go on after a crash.
_WORK = "building-"

Told = Callable[[str, int, int], None]


def _ignore(what: str, done: int, total: int) -> None:
    """Nothing: nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What is to be built.

    prune_views: the engine leaves out views within that distance of one it holds (see kept_views). lists: of ivf kinds,
    None for the usual number. search: how it is searched, as tuned before (JSON); None for the usual of its kind.
    trained: what several shards of an index have learnt together, see train().
    """

    kind: Kind
    prune_views: float | None = None
    lists: int | None = None
    search: Mapping[str, Any] | None = None
    trained: Path | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any], index: Path) -> EngineChoice:
        """The choice that an engine's record in the catalog stands for; index: where what was learnt is kept."""
        settings = record["settings"]
        search = settings.get("search")
        return cls(
            kind=Kind(record["kind"]),
            prune_views=settings.get("prune_views"),
            # What was tuned holds for as many lists as it was measured with.
            lists=settings.get("lists") if search else None,
            search=search,
            trained=_still_there(index, settings.get("trained")),
        )

    def checked(self) -> EngineChoice:
        """The same; ConfigError for a distance that is none, and for options that the kind has not."""
        if self.kind is Kind.EXACT and self.prune_views is not None:
            raise ConfigError(
                "kind 'exact' reads every view in the store, so prune_views cannot leave any out of it; "
                "build flat or hnsw, or prune at ingest: create(prune_views=...), mvindex ingest --prune-views"
            )
        if self.lists is not None and not self.kind.value.startswith("ivf-"):
            raise ConfigError(f"kind {self.kind.value!r} has no lists; leave lists out, or build an ivf kind")
        if self.lists is not None and (isinstance(self.lists, bool) or not 1 <= self.lists <= MAX_LISTS):
            raise ConfigError(f"lists is {self.lists!r}; wanted 1 to {MAX_LISTS}")
        return self if self.prune_views is None else replace(self, prune_views=checked_eps(self.prune_views))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build made: documents (living), views that the engine holds and that it leaves out, bytes of its files.

    Views and stored_bytes, those of all views in the store, include retired documents that are still on disk. Kind
    exact holds nothing of its own: it ranks the store's views. why: why this kind was chosen.
    """

    kind: str
    prune_views: float | None
    documents: int
    views: int
    views_left_out: int
    engine_bytes: int
    stored_bytes: int
    why: str = ""


def trained_name(checksum: str) -> str:
    """The file, in the directory of an index in shards, of what its shards have learnt together."""
    return f"trained-{checksum}.faiss"


def train(snapshots: Sequence[Snapshot], choice: EngineChoice, file: Path, on_progress: Told = _ignore) -> None:
    """Nothing; what builds of this choice share stands in the file, learnt from all the snapshots, durably."""
    options = BuildOptions(work=file.parent, lists=choice.lists, on_progress=on_progress)
    try:
        file.unlink(missing_ok=True)
        with announced("write", file):
            engines.find_factory(choice.kind).train(choice.kind, snapshots, file, options)
        flush_to_disk(file)
    except OSError as err:
        raise StoreError(f"{file}: cannot be written: {err.strerror or err}") from err


def build_engine(store: EmbeddedStore, choice: EngineChoice, on_progress: Told = _ignore) -> BuildReport:
    """What was built: searches of later snapshots use an engine of this choice, over all documents there are now.

    Readers go on with what they have. Takes the writer lock. ConfigError for options that do not fit the kind.
    """
    choice = choice.checked()
    with store.writing():
        record = None if choice.kind is Kind.EXACT else build_files(store.snapshot, choice, on_progress)
        store.change_settings(engine=record)
        _remove_others(store.snapshot.directory, record["directory"] if record else None)
        return report_of(store.snapshot, choice.kind, record)


def remove_leftovers(store: EmbeddedStore) -> None:
    """Nothing; there are no files but the active engine's: a build that was killed at its end has left others."""
    with store.writing():
        record = store.snapshot.settings["engine"]
        _remove_others(store.snapshot.directory, record["directory"] if record else None)


def keep_search(store: EmbeddedStore, search: Search) -> None:
    """Nothing; the active engine is searched with these settings from now on. Takes the writer lock.

    ConfigError when there is none.
    """
    with store.writing():
        record = store.snapshot.settings["engine"]
        if record is None:
            raise ConfigError(f"{store.directory}: there is no engine any more that could be tuned")
        store.change_settings(engine={**record, "settings": {**record["settings"], "search": dict(search)}})


class EngineCache:
    """The engine of the latest snapshot asked for, loaded and checked once. Thread-safe."""

    def __init__(self, device: str | None = None) -> None:
        """device: where engines search that can do so elsewhere than on the CPU."""
        self._lock, self._device = Lock(), device
        self._loaded: tuple[tuple[Path, Any], RankingEngine] | None = None

    def open(self, snapshot: Snapshot) -> RankingEngine | None:
        """The active engine of the snapshot; None for kind exact.

        DamagedIndex when a file does not match its checksum, StaleReader when the engine was built again since.
        """
        record = snapshot.settings["engine"]
        if record is None:
            return None
        with self._lock:
            directory = snapshot.directory / record["directory"]
            wanted = (directory, record["settings"].get("search"))
            if self._loaded is None or self._loaded[0] != wanted:
                self._loaded = (wanted, _open(directory, record, self._device))
            return self._loaded[1]


def report_of(snapshot: Snapshot, kind: Kind, record: Mapping[str, Any] | None) -> BuildReport:
    """What an engine's record in the catalog stands for."""
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


def build_files(snapshot: Snapshot, choice: EngineChoice, on_progress: Told = _ignore) -> dict[str, Any]:
    """The setting that names a newly built engine, whose files are on disk for good."""
    kind = choice.kind.value
    if snapshot.num_documents == 0:
        raise ConfigError(f"{snapshot.directory}: the index is empty; ingest documents before building {kind!r}")
    name = f"engine-{kind}-{snapshot.settings['version'] + 1:06d}"
    directory, work = snapshot.directory / name, snapshot.directory / f"{_WORK}{kind}"
    options = BuildOptions(
        work=work,
        prune_views=choice.prune_views,
        lists=choice.lists,
        trained=choice.trained,
        on_progress=on_progress,
    )
    try:
        remove_entry(directory)
        directory.mkdir()
        with announced("write", directory):
            settings = engines.find_factory(choice.kind).build(choice.kind, snapshot, directory, options)
        checksums = {file.name: _sealed(file) for file in sorted(directory.iterdir())}
        flush_to_disk(directory)
        flush_to_disk(snapshot.directory)
    except OSError as err:
        shutil.rmtree(directory, ignore_errors=True)
        kept = f"; what was done is kept in {work}: run it again to go on, or remove it" if work.exists() else ""
        raise StoreError(f"{directory}: cannot build: {err.strerror or err}{kept}") from err
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    covered: dict[str, Any] = {"built_rows": snapshot.num_rows}
    tuned = {} if choice.search is None else {"search": dict(choice.search)}
    learnt = {} if choice.trained is None else {"trained": file_checksum(choice.trained)}
    return {
        "kind": kind,
        "directory": name,
        "checksums": checksums,
        **covered,
        "settings": {**settings, **covered, **tuned, **learnt},
    }


def _still_there(index: Path, checksum: str | None) -> Path | None:
    """The file of what was learnt; None where there is none, or it is not what it was: then each learns for itself."""
    file = index / trained_name(checksum or "")
    if checksum is None or file.is_symlink() or not file.is_file():
        return None
    return file if file_checksum(file) == checksum else None


def _open(directory: Path, record: Mapping[str, Any], device: str | None) -> RankingEngine:
    kind = _known_kind(directory, record["kind"])
    factory = engines.find_factory(kind)
    check_directory(directory)
    try:
        for name, checksum in record["checksums"].items():
            check_regular(directory / name)
            if file_checksum(directory / name) != checksum:
                raise DamagedIndex(f"{directory / name} does not match its checksum; `mvindex build` makes it again")
        return factory.open(kind, directory, record["settings"], device)
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
    for directory in [*path.glob(f"{_GONE}*"), *path.glob(f"{_WORK}*")]:
        with announced("remove", directory):
            remove_entry(directory)
