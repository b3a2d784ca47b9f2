"""What a server does unasked: gauges follow the indexes, others' writes show, worn indexes are compacted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import asdict

from mvindex.errors import MvindexError
from mvindex.index.results import IndexInfo
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.index_service import ServedIndex
from mvindex_connectors.server.telemetry import Metrics

logger = logging.getLogger(__name__)

_REFRESH_S = 1.0
_GAUGES_S = 10.0
# Retired rows below which a compaction is not worth its while, and how long after a failed one the next is tried.
_FEW_ROWS = 1000
_RETRY_S = 600


class Upkeep:
    """Looks after the indexes of a server, in its event loop."""

    def __init__(self, config: ServerConfig, served: Collection[ServedIndex], metrics: Metrics) -> None:
        self._config, self._served, self._metrics = config, served, metrics
        self._measured = 0.0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Nothing; from now on."""
        self._tasks[""] = asyncio.get_running_loop().create_task(self._look_after())

    def stop(self) -> None:
        """Nothing; a compaction under way is given up when its index is closed."""
        for task in self._tasks.values():
            task.cancel()

    async def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            is_due = loop.time() - self._measured >= _GAUGES_S
            for served in self._served:
                try:
                    await self._look_at(served, is_due)
                except MvindexError as err:
                    logger.warning("%s: %s", served.name, err)
                except Exception:
                    # A file that was gone just then must not end the upkeep of all indexes.
                    logger.exception("%s: unforeseen", served.name)
            if is_due:
                self._measured = loop.time()
            await asyncio.sleep(_REFRESH_S)

    async def _look_at(self, served: ServedIndex, is_due: bool) -> None:
        self._metrics.queue.labels(served.name).set(served.waiting)
        if self._config.is_read_only:
            await served.read(served.index.refresh)
        if not is_due:
            return
        info = await served.info()
        self._metrics.documents.labels(served.name).set(info.documents)
        self._metrics.views.labels(served.name).set(info.views)
        self._metrics.size.labels(served.name).set(info.size_bytes)
        is_compacting = served.name in self._tasks
        if not self._config.is_read_only and not is_compacting and is_worn(info, self._config.compact_at):
            self._tasks[served.name] = asyncio.get_running_loop().create_task(self._compact(served))

    async def _compact(self, served: ServedIndex) -> None:
        """Nothing; the index is compacted, or it could not be and is left alone for a while."""
        logger.info("%s: compacting", served.name)
        try:
            report = await served.compact()
            logger.info("%s: compacted", served.name, extra={"fields": asdict(report)})
        except Exception as err:
            is_foreseen = isinstance(err, MvindexError)
            minutes = _RETRY_S // 60
            logger.warning(
                "%s: not compacted, tried again in %d minutes: %s", served.name, minutes, err, exc_info=not is_foreseen
            )
            await asyncio.sleep(_RETRY_S)
        finally:
            del self._tasks[served.name]


def is_worn(info: IndexInfo, share: float) -> bool:
    """True when so large a share of the rows is retired that a compaction pays."""
    return share < 1 and info.num_deleted >= max(_FEW_ROWS, share * (info.documents + info.num_deleted))
