"""IndexSet: the open indexes of a server, those of its command line and those that were created while it ran."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse

from mvindex.durable import make_directories, remove_entry, rename
from mvindex.errors import ConfigError, IndexLocked, Unsupported
from mvindex.index.factory import create, open_index
from mvindex.store.create import remove_leftovers
from mvindex.store.files import served_lock, writer_lock
from mvindex_connectors.server.config import ServerConfig, check_name
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.maintenance import FollowedIndex
from mvindex_connectors.server.telemetry import Metrics

_SUFFIX = ".mvx"
# Folders that begin so are being made or removed; the next start removes what a kill has left.
_NEW, _DROPPED = ".new-", ".dropped-"


class IndexSet:
    """Opens, locks, creates, drops and closes indexes.

    Attributes:
        services: The indexes by name; callers read it, it changes as indexes are created, dropped and swapped.
        followed: The indexes that follow snapshots.

    """

    def __init__(self, config: ServerConfig, metrics: Metrics, health: HealthServicer) -> None:
        """Take the settings; no index is opened yet."""
        self.services: dict[str, IndexService] = {}
        self.followed: list[FollowedIndex] = []
        # Those that are served no more, while calls still use them.
        self._retired: list[IndexService] = []
        self._config, self._metrics, self._health = config, metrics, health
        self._locks: dict[str, ExitStack] = {}
        self._address = ""

    def open(self) -> None:
        """Open the indexes of the command line, then those that were created before."""
        for name, target in self._config.indexes:
            path = target if self._config.follow is None else self._follow(self._config.follow, name, Path(target))
            self.services[name] = self._opened(name, str(path))
        for path in self._created_before():
            name = path.name.removesuffix(_SUFFIX)
            if name in self.services:
                raise ConfigError(f"--index {name}: expected another name, as {path} is served under this one")
            self.services[name] = self._opened(name, str(path))

    def lock(self, address: str) -> None:
        """Hold the writer locks of all indexes until they are closed; they name the address through which to write."""
        self._address = address
        for name, service in self.services.items():
            self._lock(name, service)

    async def close(self) -> None:
        """Close the indexes. Their locks are released only after the last write has ended."""
        async with AsyncExitStack() as stack:
            for held in self._locks.values():
                stack.callback(held.close)
            for service in (*self._retired, *self.services.values()):
                stack.push_async_callback(asyncio.to_thread, service.close)

    async def swap(self, name: str, path: Path) -> None:
        """Serve the index at the path under the name, and close the one before once no call uses it."""
        fresh = await asyncio.to_thread(self._opened, name, str(path))
        before, self.services[name] = self.services[name], fresh
        await self._retire(before)

    def check_creatable(self, name: str) -> None:
        """Check that an index of this name can be created; raise ConfigError or Unsupported if not."""
        if self._config.is_read_only:
            raise Unsupported(f"{name}: this server was started with --read-only; it creates no index")
        self._folder("create an index")
        check_name("index", name)
        if name in self.services:
            raise ConfigError(f"{name}: expected the name of a new index, but there is one of this name")

    async def create(self, name: str, settings: dict[str, Any]) -> None:
        """Create and serve an empty index, which is complete or not there."""
        self.services[name] = await asyncio.to_thread(self._created, name, settings)
        await self._health.set(name, HealthCheckResponse.SERVING)

    def _created(self, name: str, settings: dict[str, Any]) -> IndexService:
        path = self._path(name)
        unfinished = path.with_name(_NEW + path.name)
        make_directories(path.parent)
        shutil.rmtree(unfinished, ignore_errors=True)
        create(unfinished, **settings).close()
        rename(unfinished, path)
        service = self._opened(name, str(path))
        self._lock(name, service)
        return service

    def check_droppable(self, name: str) -> None:
        """Check that the index was created while a server ran; raise Unsupported if not."""
        self.services[name].check_may_write()
        if name in dict(self._config.indexes):
            raise Unsupported(
                f"{name}: this index is one of the server's command line (--index); only those that were created by a "
                "job can be dropped"
            )

    async def drop(self, name: str) -> None:
        """Stop serving an index, wait for its calls, and remove it."""
        path = self._path(name)
        service = self.services.pop(name)
        await self._health.set(name, HealthCheckResponse.SERVICE_UNKNOWN)
        await self._retire(service)
        self._locks.pop(name).close()
        self._metrics.forget(name)
        dropped = path.with_name(_DROPPED + path.name)
        rename(path, dropped)
        await asyncio.to_thread(shutil.rmtree, dropped)

    def snapshot_path(self, name: str) -> Path:
        """Return where a new snapshot of this name goes; ConfigError if there is one, or the name is none."""
        check_name("snapshot", name)
        path = self._folder("keep a snapshot") / "snapshots" / name
        if os.path.lexists(path):
            raise ConfigError(f"snapshot: expected a new name, but there is {name} already")
        return path

    def _created_before(self) -> Iterator[Path]:
        """Yield the indexes in the folder, after removing what is unfinished, of snapshots too."""
        if self._config.admin_folder is None:
            return
        if not self._config.is_read_only:
            remove_leftovers(self._config.admin_folder / "snapshots", "*")
        for path in sorted((self._config.admin_folder / "indexes").glob(f"*{_SUFFIX}")):
            if not path.name.startswith("."):
                yield path
            elif path.name.startswith((_NEW, _DROPPED)) and not self._config.is_read_only:
                remove_entry(path)

    def _follow(self, source: str, name: str, local: Path) -> Path:
        """Return the newest snapshot of an index, restored to a local folder, which stays locked."""
        followed = FollowedIndex(name, f"{source.rstrip('/')}/{name}", local)
        self._locks.setdefault(name, ExitStack()).enter_context(writer_lock(local))
        followed.start()
        self.followed.append(followed)
        return followed.path

    def _opened(self, name: str, target: str) -> IndexService:
        index = open_index(target, device=self._config.device)
        # The first query should not wait for what it needs, and a missing model should stop the start.
        try:
            index.warm_up()
        except BaseException:
            index.close()
            raise
        return IndexService(name, index, self._config, self._metrics.batch_metrics(name))

    def _lock(self, name: str, service: IndexService) -> None:
        locks = self._locks.setdefault(name, ExitStack())
        if self._config.is_read_only:
            return
        for path in service.store_paths:
            try:
                locks.enter_context(served_lock(path, f"{self._address}/{name}"))
            except IndexLocked as err:
                raise IndexLocked(f"{err}; or serve it with --read-only") from err
        # Others may have written while it was opened, which takes seconds.
        service.index.refresh()

    async def _retire(self, service: IndexService) -> None:
        """Close an index that is not among the services any more, once no call uses it."""
        self._retired.append(service)
        await service.wait_unused()
        await asyncio.to_thread(service.close)
        self._retired.remove(service)

    def _path(self, name: str) -> Path:
        return self._folder("create or drop an index") / "indexes" / f"{name}{_SUFFIX}"

    def _folder(self, purpose: str) -> Path:
        if self._config.admin_folder is None:
            raise Unsupported(f"this server was started without --admin-folder, which it needs to {purpose}")
        return self._config.admin_folder
