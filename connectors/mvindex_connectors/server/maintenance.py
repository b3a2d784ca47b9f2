"""Background maintenance: update gauges, refresh what others write to, compact what has many deleted rows, back up.

A server that follows snapshots restores the newest to a local folder, serves it, and takes the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from pathlib import Path

from mvindex.errors import MvindexError, ServerUnavailable, StoreError
from mvindex.maintenance.backups import backup_names, backup_time, restore
from mvindex.records import IndexInfo
from mvindex.store.create import discard_directory, remove_leftovers
from mvindex.store.files import refuse_network
from mvindex_connectors.server.config import ServerConfig, Snapshots
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.telemetry import Metrics

logger = logging.getLogger(__name__)

# Half of the second within which a reading server shows the commits of others.
_INTERVAL_S = 0.5
_GAUGE_INTERVAL_S = 10.0
# Deleted rows below which a compaction does not pay, and the pause after one that failed.
_MIN_DELETED_ROWS = 1000
_RETRY_PAUSE_S = 600


class Maintenance:
    """Maintains the indexes of a server, in its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        services: Collection[IndexService],
        metrics: Metrics,
        check_files: Callable[[], None],
    ) -> None:
        """check_files: reads tokens and certificates again if they have changed."""
        self._config, self._services, self._metrics = config, services, metrics
        self._check_files = check_files
        self._gauges_set_at = 0.0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._snapshot_tasks: dict[IndexService, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start the background tasks."""
        self._tasks[""] = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop the background task; a running compaction is abandoned when its index is closed."""
        for task in [*self._tasks.values(), *self._snapshot_tasks.values()]:
            task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._check_files()
            is_due = loop.time() - self._gauges_set_at >= _GAUGE_INTERVAL_S
            # Indexes are created and dropped meanwhile.
            for service in list(self._services):
                service.enter()
                self._schedule_snapshots(service)
                try:
                    await self._check(service, is_due)
                except MvindexError as err:
                    logger.warning("%s: %s", service.name, err)
                except Exception:
                    # A file that disappears at the wrong moment must not end the maintenance of all indexes.
                    logger.exception("%s: unexpected error", service.name)
                finally:
                    service.leave()
            # Another index may have the name of one that was dropped.
            for task in [task for service, task in self._snapshot_tasks.items() if service.is_closing]:
                task.cancel()
            if is_due:
                self._gauges_set_at = loop.time()
            await asyncio.sleep(_INTERVAL_S)

    async def _check(self, service: IndexService, is_due: bool) -> None:
        self._metrics.queue.labels(service.name).set(service.waiting)
        if self._config.is_read_only or service.is_shared:
            await service.read(service.index.refresh)
        if not is_due:
            return
        info = await service.info()
        self._metrics.documents.labels(service.name).set(info.documents)
        self._metrics.views.labels(service.name).set(info.views)
        self._metrics.size.labels(service.name).set(info.size_bytes)
        may_compact = service.can_compact and not self._config.is_read_only and service.name not in self._tasks
        if may_compact and needs_compaction(info, self._config.compact_at):
            self._tasks[service.name] = asyncio.get_running_loop().create_task(self._compact(service))

    async def _compact(self, service: IndexService) -> None:
        """Compact an index; after a failure, pause before the next attempt."""
        logger.info("%s: compacting", service.name)
        try:
            report = await service.compact()
            logger.info("%s: compacted", service.name, extra={"fields": asdict(report)})
        except Exception as err:
            is_expected = isinstance(err, MvindexError)
            minutes = _RETRY_PAUSE_S // 60
            logger.warning(
                "%s: compaction failed, next attempt in %d minutes: %s",
                service.name,
                minutes,
                err,
                exc_info=not is_expected,
            )
            await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            del self._tasks[service.name]

    def _schedule_snapshots(self, service: IndexService) -> None:
        """Start the snapshots of an index, where there is a schedule and they are not started."""
        snapshots = self._config.snapshots
        if snapshots is not None and service.can_snapshot and service not in self._snapshot_tasks:
            task = asyncio.get_running_loop().create_task(self._back_up(service, snapshots))
            self._snapshot_tasks[service] = task
            task.add_done_callback(lambda _: self._snapshot_tasks.pop(service))

    async def _back_up(self, service: IndexService, snapshots: Snapshots) -> None:
        """Take a snapshot whenever one is due, by a clock that never jumps; after a failure, try again sooner."""
        place = snapshots.place_of(service.name)
        pause_s = await asyncio.to_thread(_seconds_until_due, place, snapshots.every_s)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = snapshots.every_s
            try:
                report = await service.take_backup(place, snapshots.keep)
                self._metrics.snapshot_time.labels(service.name).set_to_current_time()
                logger.info("%s: snapshot taken", service.name, extra={"fields": asdict(report)})
            except Exception as err:
                pause_s = min(snapshots.every_s, _RETRY_PAUSE_S)
                logger.warning(
                    "%s: snapshot failed, next attempt in %d s: %s",
                    service.name,
                    pause_s,
                    err,
                    exc_info=not isinstance(err, MvindexError),
                )


def _seconds_until_due(place: str, every_s: float) -> float:
    """Return how long the newest snapshot of a place serves: none, or one of a clock that was wrong, is due now."""
    try:
        names = backup_names(place)
    except MvindexError:
        names = []  # the attempt will say why
    age_s = time.time() - backup_time(names[-1]).timestamp() if names else every_s
    return every_s - age_s if 0 <= age_s <= every_s else 0.0


def needs_compaction(info: IndexInfo, share: float) -> bool:
    """Return whether the share of deleted rows is so large that a compaction pays."""
    return share < 1 and info.num_deleted >= max(_MIN_DELETED_ROWS, share * (info.documents + info.num_deleted))


class FollowedIndex:
    """The snapshots of one index, and the local folder of those that were restored; served is the name of one."""

    def __init__(self, name: str, source: str, local: Path) -> None:
        """source: the folder of the snapshots, a directory or an address; local: on a disk of this machine."""
        refuse_network(local)
        try:
            local.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise StoreError(f"{local}: cannot be made: {err.strerror or err}") from err
        self.name, self.served = name, ""
        self._source, self._local = source, local
        self._is_closing = False

    @property
    def path(self) -> Path:
        """The index that is to be served now."""
        return self._local / self.served

    def start(self) -> None:
        """Restore the newest snapshot; where it cannot be reached, keep to the newest that was restored before.

        Raises:
            StoreError: There is neither.

        """
        remove_leftovers(self._local, "*")
        self.served = _newest(self._local)
        try:
            self.restore_next()
        except MvindexError as err:
            if not self.served:
                raise
            logger.warning("%s: %s is served, the newest snapshot cannot be restored: %s", self.name, self.path, err)
        if not self.served:
            raise StoreError(f"{self.name}: there is no complete snapshot to follow yet. Take one, and start again")
        for name in backup_names(self._local):
            if name != self.served:
                discard(self._local / name)

    def restore_next(self) -> bool:
        """Restore the newest snapshot where it is newer than the one that is served; return whether it is."""
        newest = _newest(self._source)
        if newest <= self.served:
            return False
        if newest not in backup_names(self._local):
            restore(f"{self._source}/{newest}", self._local / newest, self._check_open)
        self.served = newest
        return True

    def close(self) -> None:
        """Abandon a restore in progress."""
        self._is_closing = True

    def _check_open(self, count: int) -> None:
        if self._is_closing:
            raise ServerUnavailable(f"{self.name}: the server shut down before the snapshot was restored")


class Follower:
    """Looks for newer snapshots of each index at an interval of the monotonic clock, in the server's event loop."""

    def __init__(
        self,
        followed: list[FollowedIndex],
        every_s: float,
        metrics: Metrics,
        swap: Callable[[str, Path], Awaitable[None]],
    ) -> None:
        """swap: serves the index at a path under a name, and returns once nobody reads the one before."""
        self._followed, self._every_s, self._metrics, self._swap = followed, every_s, metrics, swap
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start a background task for each index."""
        loop = asyncio.get_running_loop()
        for each in self._followed:
            self._metrics.snapshot_time.labels(each.name).set(backup_time(each.served).timestamp())
            self._tasks.append(loop.create_task(self._run(each)))

    async def stop(self) -> None:
        """Stop the background tasks; a restore in progress is abandoned and leaves nothing."""
        for task, each in zip(self._tasks, self._followed, strict=True):
            each.close()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, followed: FollowedIndex) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            before, path = followed.served, followed.path
            try:
                if not await asyncio.to_thread(followed.restore_next):
                    continue
                await self._swap(followed.name, followed.path)
            except Exception as err:
                followed.served = before
                self._metrics.follow_failures.labels(followed.name).inc()
                is_expected = isinstance(err, MvindexError)
                logger.warning(
                    "%s: snapshot not followed, to be tried again: %s", followed.name, err, exc_info=not is_expected
                )
                continue
            self._metrics.snapshot_time.labels(followed.name).set(backup_time(followed.served).timestamp())
            logger.info("%s: snapshot %s is served", followed.name, followed.served)
            await asyncio.to_thread(discard, path)


def _newest(place: str | Path) -> str:
    """Return the name of the newest complete snapshot; empty where there is none."""
    return max(backup_names(place), default="")


def discard(path: Path) -> None:
    """Remove a restored index that is not served any more; what cannot be removed is left to the next start."""
    try:
        discard_directory(path)
    except OSError as err:
        logger.warning("%s: cannot be removed: %s", path, err.strerror or err)
