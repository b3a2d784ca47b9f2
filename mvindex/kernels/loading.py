"""Loading of compiled loops in a thread: large searches wait for them to be read from a cache, none for the compiler.

Until loops are loaded, searches are answered without them, with the same results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread

from mvindex.errors import MvindexError
from mvindex.kernels import expecting_work, expects_work

logger = logging.getLogger(__name__)

_changed = Condition()
_num_compiling = 0
_has_announced = False
_is_kept = True


class Loading:
    """A first use of compiled loops, which loads or compiles them, in a thread of its own. Thread-safe.

    The thread is not a daemon: a process that ends waits for it, so that the machine has the loops from then on.
    has_loaded: whether the loops are loaded.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None
        self.has_loaded = False

    def is_done(self, load: Callable[[], object], *, waits: bool = True) -> bool:
        """Return whether the loops are loaded, after beginning with it and waiting unless they have to be compiled.

        A process or thread that expects work waits in any case, for the compiler, too.

        Args:
            load: Uses the loops for the first time. Not called again once it has returned, or failed otherwise than by
                an MvindexError, which the search itself will meet.
            waits: False for work that takes less time without the loops than to wait for them.

        Raises:
            Exception: What load raised, to those that expect work; others go on without the loops.

        """
        if self.has_loaded:
            return True
        with _changed:
            if self._thread is None:
                self._thread = Thread(target=self._run, args=(load,), name="mvindex-loading")
                self._thread.start()
            thread, is_patient = self._thread, expects_work()
            if waits or is_patient:
                _changed.wait_for(lambda: self._thread is not thread or self._has_ended() or _goes_on(is_patient))
            if self._error is not None and is_patient:
                raise self._error
            if not self.has_loaded and _num_compiling:
                _announce()
            return self.has_loaded

    def wait(self) -> None:
        """Wait for the end of a load that has begun."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _has_ended(self) -> bool:
        return self.has_loaded or self._error is not None

    def _run(self, load: Callable[[], object]) -> None:
        error: Exception | None = None
        try:
            with expecting_work():
                load()
        except Exception as err:  # noqa: BLE001 - whatever a compiler raises; searches do without
            error = err
            logger.warning("compiled search loops could not be loaded; searches do without: %s", err)
        with _changed:
            if error is None:
                self.has_loaded = True
            elif isinstance(error, MvindexError):
                self._thread = None
            else:
                self._error = error
            _changed.notify_all()


def _goes_on(is_patient: bool) -> bool:
    return bool(_num_compiling) and not is_patient


def _announce() -> None:
    """Say once that loops are being compiled."""
    global _has_announced
    if not _has_announced:
        _has_announced = True
        often = "once on this machine" if _is_kept else "for this process: no folder keeps them (NUMBA_CACHE_DIR)"
        logger.warning("compiling search loops, %s; until then queries are answered without them", often)


def count_compiling(change: int) -> None:
    """Count functions that are being compiled: 1 where one begins, -1 where it ends."""
    global _num_compiling
    with _changed:
        _num_compiling += change
        _changed.notify_all()


def forget_cache() -> None:
    """Note that there is no folder to keep compiled loops in."""
    global _is_kept
    _is_kept = False
