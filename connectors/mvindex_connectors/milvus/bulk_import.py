"""Bulk import of an export's files into Milvus: every file counted, and continued where it stopped.

A server remembers for a day which files it has imported, through its own restarts. So a second run asks it and imports
the others. The settings, which make the collections an index, are written last, once all rows are counted.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError, EngineUnavailable, StoreError
from mvindex.records import ProgressCallback
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.bulk import MANIFEST
from mvindex_connectors.milvus.collections import (
    collection_exists,
    has_settings,
    make_collections,
    write_settings,
)
from mvindex_connectors.milvus.connection import Connection, views_of

logger = logging.getLogger(__name__)

_POLL_S = 0.5
# Files that a server imports at once: each may take a gigabyte of its memory.
_AT_ONCE = 4
_ATTEMPTS = 3
# A server that was killed may never go on with what it was importing: 2.3.5 waits for a segment that is gone.
_STALLED_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportReport:
    """The rows that the server has, counted there.

    Attributes:
        index: Address of the index.
        documents: Number of documents.
        views: Number of views.
        files: Number of imports, each of one set of files.
        imported: Number of imports that this run started; earlier ones made the others.

    """

    index: str
    documents: int
    views: int
    files: int
    imported: int


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of one import, the collection that they belong to, and the number of their rows."""

    collection: str
    paths: tuple[str, ...]
    rows: int


def import_bulk(
    directory: Path | str, address: str, *, remote: str | None = None, on_progress: ProgressCallback
) -> BulkImportReport:
    """Import the files of export_bulk() into a new index, or continue an import that was interrupted.

    Args:
        directory: The complete export.
        address: The new index.
        remote: Where the server reads the files, a prefix in its object storage or a directory; by default the
            directory itself, which only a server on this machine can read.
        on_progress: Called with a step, files done, and all files.

    Raises:
        ConfigError: The export is incomplete, or the collections exist and are not of an import that was interrupted.
        EngineUnavailable: The server refuses files three times, stands still for five minutes, or cannot be reached; a
            second run continues.
        StoreError: The server has another number of rows than the files.

    """
    manifest = _manifest(Path(directory))
    place = parse_address(address)
    connection, prefix = Connection(place), remote or str(Path(directory).absolute())
    settings = manifest["settings"]
    try:
        run = _Run(connection, list(_all_files(manifest, place.collection, prefix)), on_progress)
        dim = int(settings["dim"]) if settings["has_views"] else None
        names = make_collections(connection, dim, may_exist=run.has_begun)
        run.import_all()
        # Rows imported into a loaded collection show some time later; rows loaded afterwards show at once.
        connection.load(*names)
        if has_settings(connection):
            raise ConfigError(f"{place.shown}: there is an index already; open it, or drop it")
        run.check_counts()
        write_settings(connection, settings)
    finally:
        connection.close()
    return BulkImportReport(
        index=place.shown,
        documents=int(settings["documents"]),
        views=int(settings["views"]),
        files=len(run.files),
        imported=run.num_started,
    )


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise ConfigError(f"{path}: expected the manifest of an export, got no such file") from err
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path}: expected the manifest of an export: {err}") from err
    if "settings" not in manifest:
        raise ConfigError(f"{directory}: expected a complete export, got an unfinished one. Run mvindex export again")
    return manifest


def _all_files(manifest: Mapping[str, Any], collection: str, prefix: str) -> Iterator[_Files]:
    for number, shard in enumerate(manifest["shards"]):
        folder = f"{prefix}/views-{number:05d}"
        paths = tuple(f"{folder}/{name}.npy" for name in ("pk", "doc", "vec"))
        yield _Files(views_of(collection), paths, int(shard["views"]))
        yield _Files(collection, (f"{prefix}/records-{number:05d}.json",), int(shard["documents"]))


class _Run:
    """One run of an import."""

    def __init__(self, connection: Connection, files: list[_Files], on_progress: ProgressCallback) -> None:
        self.files, self.num_started = files, 0
        self._short: list[str] = []
        self._connection, self._on_progress = connection, on_progress
        self._known = self._remembered() if collection_exists(connection) else {}

    @property
    def has_begun(self) -> bool:
        """Whether an earlier run began to import these files, and the server remembers it."""
        return any(files.paths in self._known for files in self.files)

    def import_all(self) -> None:
        """Import what the server has not imported yet, a few files at a time.

        What has begun is awaited even when rows are missing: a server whose collection is dropped in the middle of an
        import starts no other for a quarter of an hour (2.3.5).
        """
        waiting: deque[tuple[_Files, int]] = deque()
        done = 0
        for files in self.files:
            task = self._known.get(files.paths)
            waiting.append((files, self._started(files) if task is None else task))
            if len(waiting) == _AT_ONCE:
                self._finish(*waiting.popleft())
                done += 1
                self._on_progress("importing", done, len(self.files))
        while waiting:
            self._finish(*waiting.popleft())
            done += 1
            self._on_progress("importing", done, len(self.files))
        if self._short:
            raise StoreError("\n".join(self._short))

    def check_counts(self) -> None:
        """Raise StoreError unless both collections have as many rows as the files."""
        for name in {files.collection for files in self.files}:
            expected = sum(files.rows for files in self.files if files.collection == name)
            found = self._connection.ask(
                "counting rows", "query", name, filter="pk >= 0", output_fields=["count(*)"], consistency_level="Strong"
            )
            if int(found[0]["count(*)"]) != expected:
                raise StoreError(
                    f"{self._connection.address.shown}: collection {name!r}: expected the {expected} rows of the "
                    f"files, got {found[0]['count(*)']}; drop both collections, and import again"
                )

    def _remembered(self) -> dict[tuple[str, ...], int]:
        """Return the number of the last import of each set of files that the server remembers and that did not fail."""
        tasks = []
        for name in {files.collection for files in self.files}:
            states = self._connection.call(
                "asking for earlier imports",
                lambda client, name=name, **options: client._get_connection().list_bulk_insert_tasks(
                    0, name, **options
                ),  # noqa: SLF001
            )
            tasks += [(state.task_id, state.files) for state in states if "Failed" not in state.state_name]
        return {tuple(files.split(",")): task for task, files in sorted(tasks)}

    def _started(self, files: _Files) -> int:
        self.num_started += 1
        paths = list(files.paths)
        task: int = self._connection.call(
            "starting a bulk import",
            lambda client, **options: client._get_connection().do_bulk_insert(files.collection, "", paths, **options),  # noqa: SLF001
        )
        return task

    def _finish(self, files: _Files, task: int) -> None:
        """Wait until the server has the rows of the files; start the import again where it failed."""
        where = f"{self._connection.address.shown}: importing {files.paths[0]}"
        for attempt in range(1, _ATTEMPTS + 1):
            state = self._awaited(task, where)
            if state.state_name == "Completed":
                if int(state.row_count) != files.rows:
                    self._short.append(f"{where}: expected {files.rows} rows, got {state.row_count}")
                return
            if attempt == _ATTEMPTS:
                raise EngineUnavailable(f"{where}: failed {attempt} times: {state.failed_reason}")
            logger.warning("%s: failed, tried again: %s", where, state.failed_reason)
            task = self._started(files)

    def _awaited(self, task: int, where: str) -> Any:
        """Return the state of an import that has ended; EngineUnavailable when it stands still."""
        last, since = None, time.monotonic()
        while True:
            state = self._connection.call(
                "asking for a bulk import",
                lambda client, **options: client._get_connection().get_bulk_insert_state(task, **options),  # noqa: SLF001
            )
            if state.state_name == "Completed" or "Failed" in state.state_name:
                return state
            progress = (state.state_name, state.row_count, state.infos.get("progress_percent"))
            if progress != last:
                last, since = progress, time.monotonic()
            elif time.monotonic() - since > _STALLED_S:
                raise EngineUnavailable(
                    f"{where}: {state.state_name.lower()}, without progress for {_STALLED_S:g} s. Restart the server "
                    "and run the same command again; if it stands still then too, drop both collections first"
                )
            time.sleep(_POLL_S)
