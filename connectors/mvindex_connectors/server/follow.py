"""A server that follows snapshots: it restores the newest to a local folder, serves it, and takes the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from mvindex.errors import MvindexError, ServerUnavailable, StoreError
from mvindex.maintenance.backups import backup_names, backup_time, restore
from mvindex.store.create import discard_directory, remove_leftovers
from mvindex.store.files import refuse_network
from mvindex_connectors.server.telemetry import Metrics

logger = logging.getLogger(__name__)


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
