"""Backups: dated snapshots in a folder or behind an address of fsspec, and how an index is restored from one."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import xxhash

from mvindex.corpus.paths import failure_reason, is_remote, open_system, shown_address
from mvindex.durable import DIRECTORY_MODE, file_checksum, flush_to_disk
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, StoreError
from mvindex.maintenance.dispatch import verify
from mvindex.maintenance.shards import snapshot_shards
from mvindex.maintenance.snapshot import SnapshotReport, snapshot_store
from mvindex.paths import user_path
from mvindex.records import CountCallback, no_progress
from mvindex.store.create import atomic_directory, remove_leftovers, scratch_directory
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import CURRENT, refuse_network
from mvindex.store.shard_layout import SHARDS, is_sharded
from mvindex.store.sharded import open_sharded_store

# Uploaded last: a snapshot without it is not complete.
MANIFEST, _FORMAT = "snapshot.json", 1
_NAME, _NAMED = "%Y%m%dT%H%M%SZ", re.compile(r"\d{8}T\d{6}Z")
_REMOVED = ".removed"
_LOCAL = ("file", "local")
_OF_THIS_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# They have no directories, and would make a bucket instead.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az"}

Write = Callable[[Path, CountCallback], SnapshotReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport(SnapshotReport):
    """The outcome of a dated snapshot; removed: the names of older ones that were removed."""

    removed: tuple[str, ...] = ()


def write_snapshot(write: Write, target: str | Path, on_progress: CountCallback = no_progress) -> SnapshotReport:
    """Write one snapshot to a new directory, or behind an address, complete or not there as one.

    Args:
        write: Writes the snapshot to a directory, as index.admin.snapshot does.
        target: A new directory, or an address such as s3://bucket/wiki. Before it is uploaded, the snapshot takes
            its size in the temporary directory (TMPDIR). file:///a/b is the directory /a/b.
        on_progress: Called with numbers of bytes copied.

    Raises:
        ConfigError: There is something at the target.
        StoreError: It cannot be written.
        ExtraMissing: fsspec, or its package for the protocol, is not installed.

    """
    target = _place(target)
    if isinstance(target, Path):
        return write(target, on_progress)
    with _fsspec(target, "written") as (system, path):
        if system.exists(path):
            raise ConfigError(f"{shown_address(target)} exists already; a snapshot is written to a new place")
        return _upload(write, system, path, on_progress)


def take_backup(
    write: Write,
    place: str | Path,
    keep: int | None = None,
    on_progress: CountCallback = no_progress,
    *,
    index_id: str | None = None,
) -> BackupReport:
    """Add a snapshot to a place, named by the time in UTC, and then remove the oldest beyond `keep`, and cut uploads.

    A name is always later than those that are there, even if the clock has gone back.

    Args:
        write: Writes the snapshot to a directory, as index.admin.snapshot does.
        place: A folder of snapshots of one index, or an address; made when missing.
        keep: How many snapshots to keep, the new one included; None keeps all.
        on_progress: Called with numbers of bytes copied.
        index_id: The id of the index, as in its IndexInfo; the newest snapshot must have the same. None for any.

    Raises:
        ConfigError: keep is less than 1, or the snapshots are of another index.
        StoreError: It cannot be written; what was there stays.

    """
    if keep is not None and keep < 1:
        raise ConfigError(f"expected to keep 1 snapshot or more, got {keep}")
    place = _place(place)
    entries = _entries(place)
    names = sorted(name for name, is_complete in entries.items() if is_complete)
    if names and index_id not in (None, found := _index_id(place, names[-1])):
        raise ConfigError(
            f"{shown_address(str(place))}: expected snapshots of this index, {index_id}; {names[-1]} is of another, "
            f"{found}. Take one place for each index"
        )
    now = datetime.now(timezone.utc)
    if entries:
        now = max(now, backup_time(max(entries)) + timedelta(seconds=1))
    name = now.strftime(_NAME)
    target = place / name if isinstance(place, Path) else f"{place}/{name}"
    if isinstance(target, Path):
        target.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        remove_leftovers(target.parent, "*Z")
    report = write_snapshot(write, target, on_progress)
    removed = names[: max(0, len(names) + 1 - keep)] if keep is not None else []
    cut = [name for name, is_complete in entries.items() if not is_complete] if keep is not None else []
    for old in (*removed, *cut):
        _remove(place, old)
    return BackupReport(**asdict(report), removed=tuple(removed))


def backup_names(place: str | Path) -> list[str]:
    """Return the names of the complete snapshots of a place, oldest first; none where there is no such place."""
    return sorted(name for name, is_complete in _entries(_place(place)).items() if is_complete)


def _place(place: str | Path) -> str | Path:
    """Return a directory as a path, an address without a slash at its end; ConfigError for files of another host."""
    if not is_remote(str(place)):
        return user_path(place)
    parts = urlsplit(str(place))
    if parts.scheme not in _LOCAL:
        return str(place).rstrip("/")
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(f"{place}: expected {parts.scheme}:///PATH, got host {parts.netloc!r}")
    return Path(unquote(parts.path))


def _entries(place: str | Path) -> dict[str, bool]:
    """Return the names of the snapshots of a place, and whether each is complete; an upload may have been cut."""
    if isinstance(place, Path):
        try:
            found = os.listdir(place)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {name: True for name in found if _NAMED.fullmatch(name) and _is_index(place / name)}
    with _fsspec(place, "listed") as (system, path):
        system.invalidate_cache()
        if not system.exists(path):
            return {}
        names = [PurePosixPath(each).name for each in system.ls(path, detail=False)]
        return {name: system.exists(f"{path}/{name}/{MANIFEST}") for name in names if _NAMED.fullmatch(name)}


def restore(source: str | Path, target: str | Path, on_progress: CountCallback = no_progress) -> SnapshotReport:
    """Make an index from a snapshot, with all of its bytes checked, complete or not there at all.

    Args:
        source: A snapshot, or a place of dated ones, whose newest is taken: a directory, or an address of fsspec.
        target: The new index, a directory.
        on_progress: Called with numbers of bytes copied.

    Raises:
        ConfigError: The target exists.
        DamagedIndex: A file is not as the snapshot was written.
        StoreError: There is no complete snapshot, it cannot be read, or the target lies on a network file system.
        ExtraMissing: fsspec, or its package for the protocol, is not installed.

    """
    new = user_path(target)
    if os.path.lexists(new):
        raise ConfigError(f"{new} exists already; restore to a new directory")
    refuse_network(new)
    folder = _place(source)
    if not isinstance(folder, Path):
        with _fsspec(folder, "read") as (system, path):
            return _download(system, _chosen(system, path, folder), new, on_progress)
    if not _is_index(folder):
        names = backup_names(folder)
        if not names:
            raise StoreError(f"{folder}: expected a snapshot, or a folder of dated ones, got neither")
        folder = folder / names[-1]
    if is_sharded(folder):
        with closing(open_sharded_store(folder)) as store:
            return snapshot_shards(folder.absolute(), list(store.sharding.stores.values()), new, on_progress)
    with closing(EmbeddedStore(folder)) as one:
        return snapshot_store(one, new, on_progress)


def _is_index(folder: Path) -> bool:
    return (folder / CURRENT).is_file() or (folder / SHARDS).is_file()


def _index_id(place: str | Path, name: str) -> str:
    """Return the id of the index that a snapshot is of; of shards, that of the first, as IndexInfo has it."""
    if isinstance(place, Path):
        text = (place / name / (SHARDS if is_sharded(place / name) else CURRENT)).read_bytes()
    else:
        with _fsspec(place, "read") as (system, path):
            is_one = system.exists(f"{path}/{name}/{CURRENT}")
            text = system.cat_file(f"{path}/{name}/{CURRENT if is_one else SHARDS}")
    try:
        record = json.loads(text)
        return str(record.get("shards", [record])[0]["index_id"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as err:
        raise DamagedIndex(f"{shown_address(str(place))}/{name}: expected the id of its index: {err}") from err


def backup_time(name: str) -> datetime:
    """Return the time in UTC that a dated snapshot is named by."""
    return datetime.strptime(name, _NAME).replace(tzinfo=timezone.utc)


def _remove(place: str | Path, name: str) -> None:
    if not isinstance(place, Path):
        with _fsspec(place, "removed") as (system, path):
            # First what makes it complete: one that is removed in part is none.
            if system.exists(f"{path}/{name}/{MANIFEST}"):
                system.rm(f"{path}/{name}/{MANIFEST}")
            system.rm(f"{path}/{name}", recursive=True)
        return
    # Another process may remove the same.
    with suppress(FileNotFoundError):
        os.rename(place / name, place / f".{name}{_REMOVED}")
    for leaving in place.glob(f".*{_REMOVED}"):
        with suppress(FileNotFoundError):
            shutil.rmtree(leaving)


def _upload(write: Write, system: Any, path: str, on_progress: CountCallback) -> SnapshotReport:
    with scratch_directory("mvindex-snapshot") as folder:
        made = folder / "index.mvx"
        report = write(made, no_progress)
        files = sorted(file for file in made.rglob("*") if file.is_file())
        entries = {}
        protocols = system.protocol if isinstance(system.protocol, list | tuple) else [system.protocol]
        has_buckets = not _OBJECT_STORES.isdisjoint(protocols)
        for file in files:
            name = file.relative_to(made).as_posix()
            entries[name] = {"bytes": file.stat().st_size, "xxh3_128": file_checksum(file)}
            if not has_buckets:
                system.makedirs(str(PurePosixPath(path, name).parent), exist_ok=True)
            system.put_file(str(file), f"{path}/{name}")
            on_progress(file.stat().st_size)
        manifest = {"format": _FORMAT, "documents": report.documents, "version": report.version, "files": entries}
        manifest["xxh3_128"] = _checksum(manifest)
        system.pipe_file(f"{path}/{MANIFEST}", json.dumps(manifest).encode())
    return SnapshotReport(
        path=system.unstrip_protocol(path),
        documents=report.documents,
        version=report.version,
        size_bytes=report.size_bytes,
    )


def _chosen(system: Any, path: str, source: str) -> str:
    """Return the path of the snapshot: this one, or the newest of those below."""
    if system.exists(f"{path}/{MANIFEST}"):
        return path
    names = backup_names(source)
    if not names:
        raise StoreError(
            f"{shown_address(source)}: expected a snapshot, which has a {MANIFEST}, or dated ones below; got neither"
        )
    return f"{path}/{names[-1]}"


def _download(system: Any, path: str, new: Path, on_progress: CountCallback) -> SnapshotReport:
    shown = shown_address(system.unstrip_protocol(path))
    documents, version, files = _parsed(system.cat_file(f"{path}/{MANIFEST}"), shown)
    with atomic_directory(new) as building:
        for name, size, checksum in files:
            file = building / name
            file.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            _fetch(system, f"{path}/{name}", file, f"{shown}/{name}")
            if file.stat().st_size != size or file_checksum(file) != checksum:
                raise DamagedIndex(f"{shown}/{name}: expected {size} bytes of checksum {checksum}, got others")
            flush_to_disk(file)
            on_progress(size)
        for folder in {file.parent for file in building.rglob("*")}:
            flush_to_disk(folder)
        report = verify(building)
        if not report.is_sound:
            raise DamagedIndex(f"{shown}: {report.problems[0].what}")
    return SnapshotReport(
        path=str(new), documents=documents, version=version, size_bytes=sum(size for _, size, _ in files)
    )


def _fetch(system: Any, path: str, file: Path, shown: str) -> None:
    try:
        system.get_file(path, str(file))
    except FileNotFoundError as err:
        raise DamagedIndex(f"{shown}: expected a file of the snapshot, got no such file") from err
    except Exception as err:  # noqa: BLE001 - as in _fsspec()
        if isinstance(err, OSError) and err.errno in _OF_THIS_DISK:
            raise
        raise StoreError(f"{shown}: cannot be read: {failure_reason(err).removeprefix('cannot be read: ')}") from None


def _parsed(text: bytes, shown: str) -> tuple[int, int, list[tuple[str, int, str]]]:
    """Return the number of documents, the version, and name, size and checksum of each file of a manifest."""
    try:
        manifest = json.loads(text)
        if manifest.pop("xxh3_128") != _checksum(manifest):
            raise DamagedIndex(f"{shown}/{MANIFEST}: expected another checksum: it has changed since it was written")
        if manifest["format"] != _FORMAT:
            raise StoreError(f"{shown}/{MANIFEST}: expected format {_FORMAT}, got format {manifest['format']!r}")
        files = [(str(name), int(each["bytes"]), str(each["xxh3_128"])) for name, each in manifest["files"].items()]
        found = int(manifest["documents"]), int(manifest["version"]), files
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise DamagedIndex(f"{shown}/{MANIFEST}: expected a manifest of files: {err}") from err
    for name, _, _ in files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name:
            raise DamagedIndex(f"{shown}/{MANIFEST}: expected names of files inside the snapshot, got {name!r:.80}")
    return found


def _checksum(manifest: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(manifest, sort_keys=True).encode())


@contextmanager
def _fsspec(address: str, done: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of an address, and the path in it; its errors become StoreErrors without secrets."""
    try:
        system, path = open_system(address)
        yield system, str(path).rstrip("/")
    except MvindexError:
        raise
    except Exception as err:  # noqa: BLE001 - aiohttp, botocore and others have their own trees
        # Without the cause, whose message may hold the whole address.
        reason = failure_reason(err).removeprefix("cannot be read: ")
        raise StoreError(f"{shown_address(address)}: cannot be {done}: {reason}") from None
