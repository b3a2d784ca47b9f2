"""Engines on disk: built under a new name, checksummed, swapped in by one transaction. All are derived."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mvindex import engines, kernels
from mvindex.durable import DIRECTORY_MODE, audit_step, file_checksum, flush_to_disk, map_write_errors, remove_entry
from mvindex.engines.protocol import EXACT, Base, BuildOptions, Engine, Search
from mvindex.errors import (
    ConfigError,
    DamagedIndex,
    EngineError,
    EngineMissing,
    EngineUnavailable,
    StaleReader,
    StoreError,
    Unsupported,
)
from mvindex.records import ProgressCallback, no_progress
from mvindex.store.copies_file import UNFINISHED, copies_faults, copies_path
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import check_directory, check_regular, file_bytes, size_of
from mvindex.store.snapshot import Snapshot

_GONE = "gone-"
# Directories where unfinished builds store their progress, to resume after a crash.
_WORK = "building-"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine to be built.

    Args:
        kind: Its name.
        parameters: Of the kind, where they differ from its defaults.
        search: Search parameters, as tuned before (JSON); None for the kind's defaults.
        trained: The file of what several shards of an index were trained with, see train().

    """

    kind: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    search: Mapping[str, Any] | None = None
    trained: Path | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any], index: Path) -> EngineChoice:
        """Return the choice that an engine's record in the catalog stands for; index: the directory of all shards."""
        settings = record["settings"]
        search = settings.get("search")
        return cls(
            kind=record["kind"],
            # What was tuned holds for the parameters that it was measured with.
            parameters=settings.get("parameters" if search else "requested") or {},
            search=search,
            trained=_still_there(index, settings.get("trained")),
        )

    def checked(self) -> EngineChoice:
        """Return self; raise ConfigError for parameters that the kind does not have."""
        if self.kind != EXACT:
            engines.find_kind(self.kind).check_parameters(self.parameters)
        elif self.parameters:
            raise ConfigError(f"kind {EXACT!r}: has no parameter {next(iter(self.parameters))!r}; it builds nothing")
        return self


def engine_choice(kind: str, nlist: int | None, parameters: Mapping[str, int] | None) -> EngineChoice:
    """Return the checked choice of a kind, with nlist among its parameters where it is given."""
    given = dict(parameters or {}) | ({} if nlist is None else {"nlist": nlist})
    return EngineChoice(kind=kind, parameters=given).checked()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """The result of a build: live documents, views in the engine, bytes of its files.

    Views and stored_bytes, those of all views in the store, include deleted documents that are still on disk. Kind
    exact ranks the store's views; its one file, if any, has the copies that its scan reads. why: why this kind was
    chosen. measured: what the engine has measured of itself, see SelfMeasured; None for kinds without a beam.
    """

    kind: str
    documents: int
    views: int
    engine_bytes: int
    stored_bytes: int
    why: str = ""
    measured: Mapping[str, Any] | None = None


def trained_name(checksum: str) -> str:
    """Return the name of the file, in the directory of a sharded index, that its shards were trained with."""
    return f"trained-{checksum}.faiss"


def train(
    snapshots: Sequence[Snapshot], choice: EngineChoice, file: Path, on_progress: ProgressCallback = no_progress
) -> None:
    """Train on all the snapshots, and write durably to the file what builds of this choice share."""
    learn = engines.find_kind(choice.kind).train
    if learn is None:
        raise Unsupported(f"kind {choice.kind!r}: is not trained; build its shards without")
    options = BuildOptions(work=file.parent, parameters=choice.parameters, on_progress=on_progress)
    with map_write_errors(file):
        file.unlink(missing_ok=True)
        with audit_step("write", file):
            learn(snapshots, file, options)
        flush_to_disk(file)


def build_engine(
    store: EmbeddedStore, choice: EngineChoice, on_progress: ProgressCallback = no_progress
) -> BuildReport:
    """Build an engine of this choice over all documents, make it the active one, and report it.

    Readers go on with what they have. Takes the writer lock. ConfigError for options that do not fit the kind.
    """
    choice = choice.checked()
    with store.writing() as writer:
        record = None if choice.kind == EXACT else build_files(store.snapshot, choice, on_progress)
        _renew_copies(store.snapshot, choice.kind, on_progress)
        writer.change_settings(engine=record)
        remove_others(store.snapshot.directory, record["directory"] if record else None)
        return report_of(store.snapshot, choice.kind, record)


def has_copies(snapshot: Snapshot) -> bool:
    """Return whether there is a file of copies in the snapshot's directory."""
    return os.path.lexists(copies_path(snapshot.directory, snapshot.generation))


def make_copies(snapshot: Snapshot, on_progress: ProgressCallback = no_progress) -> bool:
    """Write the file of copies of all views of the snapshot; return whether it pays, on this machine.

    Below that size processes scan without copies, and only scans by AVX-512 VNNI read them. Call as the one writer.
    """
    elements = snapshot.views.num_views * snapshot.views.dim
    if elements <= kernels.WORTH_LOADING or not kernels.has_int8_products():
        return False
    from mvindex.engines.copy_cache import write_blocks

    write_blocks(snapshot, on_progress)
    return True


def remove_leftovers(store: EmbeddedStore) -> None:
    """Delete engine files other than the active engine's, which an interrupted build has left."""
    with store.writing():
        record = store.snapshot.settings["engine"]
        remove_others(store.snapshot.directory, record["directory"] if record else None)


def save_search_params(store: EmbeddedStore, search: Search, kind: str | None = None) -> None:
    """Save the search parameters of the active engine. Takes the writer lock.

    Args:
        store: The index.
        search: The parameters.
        kind: What they were measured on; by default the active engine.

    Raises:
        ConfigError: There is no engine.
        StaleReader: It is of another kind, which was built meanwhile.

    """
    # Who tunes decides that the engine answers.
    _change_record(store, kind, search=dict(search), measured=None)


def save_measured(store: EmbeddedStore, search: Search, measured: Mapping[str, Any]) -> None:
    """Save what the active engine has measured of itself, and the search parameters that follow. Takes the writer lock.

    ConfigError when there is none.
    """
    _change_record(store, None, search=dict(search), measured=dict(measured))


def _change_record(store: EmbeddedStore, kind: str | None, **changed: Any) -> None:
    with store.writing() as writer:
        record = store.snapshot.settings["engine"]
        if record is None:
            raise ConfigError(f"{store.directory}: there is no engine any more that could be tuned")
        if kind not in (None, record["kind"]):
            raise StaleReader(
                f"{store.directory}: tune: expected the engine that was measured, {kind}, got {record['kind']}, which "
                "was built meanwhile. Nothing was changed; tune again"
            )
        settings = {**record["settings"], **changed}
        kept = {name: value for name, value in settings.items() if value is not None}
        writer.change_settings(engine={**record, "settings": kept})


def report_of(snapshot: Snapshot, kind: str, record: Mapping[str, Any] | None) -> BuildReport:
    """Return the report of an engine's record in the catalog."""
    stored = snapshot.views.num_views
    copies = copies_path(snapshot.directory, snapshot.generation)
    return BuildReport(
        kind=kind,
        documents=snapshot.num_documents,
        views=stored if record is None else record["settings"]["num_views"],
        engine_bytes=size_of(snapshot.directory / record["directory"]) if record else file_bytes(copies),
        stored_bytes=stored * snapshot.views.row_bytes,
    )


def build_files(
    snapshot: Snapshot, choice: EngineChoice, on_progress: ProgressCallback = no_progress, base: Base | None = None
) -> dict[str, Any]:
    """Build an engine durably, from nothing or from a base of its kind, and return its record for the catalog."""
    kind = choice.kind
    if snapshot.num_documents == 0:
        raise ConfigError(f"{snapshot.directory}: the index is empty; ingest documents before building {kind!r}")
    name = f"engine-{kind}-{snapshot.settings['version'] + 1:06d}"
    directory, work = snapshot.directory / name, snapshot.directory / f"{_WORK}{kind}"
    options = BuildOptions(
        work=work,
        parameters=choice.parameters,
        trained=choice.trained,
        base=base,
        on_progress=on_progress,
    )
    try:
        remove_entry(directory)
        directory.mkdir(DIRECTORY_MODE)
        with audit_step("write", directory):
            settings = engines.find_kind(choice.kind).build(snapshot, directory, options)
        checksums = {file.name: _sealed(file) for file in sorted(directory.iterdir())}
        flush_to_disk(directory)
        flush_to_disk(snapshot.directory)
    except OSError as err:
        shutil.rmtree(directory, ignore_errors=True)
        left = f"; {work} has the progress: build again to resume, or remove it" if work.exists() else ""
        raise StoreError(f"{directory}: cannot build: {err.strerror or err}{left}") from err
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    requested = {"requested": dict(choice.parameters)} if choice.parameters else {}
    tuned = {} if choice.search is None else {"search": dict(choice.search)}
    learnt = {} if choice.trained is None else {"trained": file_checksum(choice.trained)}
    history = _history(snapshot, choice.kind, base)
    return {
        "kind": kind,
        "directory": name,
        "checksums": checksums,
        "built_rows": snapshot.num_rows,
        "settings": {**settings, "built_rows": snapshot.num_rows, **requested, **tuned, **learnt, **history},
    }


def _history(snapshot: Snapshot, kind: str, base: Base | None) -> dict[str, Any]:
    """Return what a later build goes by that goes on from this one; see engines.extend."""
    if not engines.find_kind(kind).extends:
        return {}
    if base is None:
        return {"origin": {"rows": snapshot.num_rows, "gone": 0}}
    origin, measured = base.settings["origin"], base.settings.get("measured")
    gone = origin["gone"] + int(np.count_nonzero(base.rows < 0))
    return {"origin": {**origin, "gone": gone}} | ({} if measured is None else {"measured": measured})


def _renew_copies(snapshot: Snapshot, kind: str, on_progress: ProgressCallback) -> None:
    """Make the file of copies for kind exact; otherwise leave one that is there, unless it is damaged."""
    path = copies_path(snapshot.directory, snapshot.generation)
    remove_entry(path.with_name(path.name + UNFINISHED))
    if kind == EXACT and make_copies(snapshot, on_progress):
        return
    if any(copies_faults(path, snapshot.views)):
        with audit_step("remove", path):
            remove_entry(path)


def _still_there(index: Path, checksum: str | None) -> Path | None:
    """Return the file that shards were trained with; None if it is missing or changed, so that each trains itself."""
    file = index / trained_name(checksum or "")
    if checksum is None or file.is_symlink() or not file.is_file():
        return None
    return file if file_checksum(file) == checksum else None


def open_engine(snapshot: Snapshot, record: Mapping[str, Any], device: str | None) -> Engine:
    """Return an engine of the snapshot by its record in the catalog, loaded and checked.

    DamagedIndex when a file does not match its checksum, StaleReader when the engine was built again since.
    """
    directory = snapshot.directory / record["directory"]
    try:
        kind = engines.find_kind(record["kind"])
    except EngineMissing as err:
        raise EngineMissing(f"{directory}: {err}") from err
    check_directory(directory)
    try:
        settings = {**record["settings"], "files": sorted(record["checksums"])}
        if settings["built_rows"] > snapshot.num_rows:
            raise EngineError(f"it is of {settings['built_rows']} documents, the index has {snapshot.num_rows}")
        check_files(directory, record, kind.checks(settings, device) if kind.checks is not None else ())
        return kind.open(directory, settings, device)
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedIndex(
            f"{directory}: its record in the catalog lacks {err}; `mvindex build` makes it again"
        ) from err
    except (OSError, EngineError) as err:
        if directory.is_dir():
            raise EngineUnavailable(f"{directory}: cannot be read: {err}; `mvindex build` makes it again") from err
        raise StaleReader(f"{directory} is gone: the engine was built again; open the index again") from err


def check_files(directory: Path, record: Mapping[str, Any], but: Collection[str] = ()) -> None:
    """Check the files of an engine, but some, against its record; DamagedIndex names one that does not match."""
    for name, checksum in record["checksums"].items():
        check_regular(directory / name)
        if name not in but and file_checksum(directory / name) != checksum:
            raise DamagedIndex(f"{directory / name} does not match its checksum; `mvindex build` makes it again")


def _sealed(file: Path) -> str:
    """Flush a file to disk, and return its checksum."""
    flush_to_disk(file)
    return file_checksum(file)


def remove_others(path: Path, active: str | None, unfinished: str = "*") -> None:
    """Delete engine directories that no setting names, and unfinished builds.

    Renamed first: a reader about to load one finds it whole or not at all.

    Args:
        path: The directory of the generation.
        active: The directory of the active engine.
        unfinished: The kind whose unfinished builds are deleted: "*" for all kinds, "" for none.

    """
    for directory in path.glob("engine-*"):
        if directory.name != active:
            with audit_step("rename", directory):
                directory.rename(directory.with_name(f"{_GONE}{directory.name}"))
    for directory in [*path.glob(f"{_GONE}*"), *path.glob(f"{_WORK}{unfinished}")]:
        with audit_step("remove", directory):
            remove_entry(directory)
