"""The scan of a process that has just begun: NumPy's, until a faster one is worth loading and is loaded."""

from __future__ import annotations

from collections.abc import Callable

from mvindex.engines.protocol import Candidates, ScanEngine
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.kernels import pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Scoring
from mvindex.records import Bools, Floats
from mvindex.store.snapshot import Snapshot


class PlainFirstScan:
    """Scans by NumPy, and by a faster engine once there is work enough to load it. Thread-safe."""

    def __init__(self, open_fast: Callable[[Snapshot], ScanEngine]) -> None:
        """Take what opens the faster engine for such a snapshot; it may import torch, or compile."""
        self._open_fast = open_fast
        self._fast: ScanEngine | None = None
        self._plain, self._loading = NumpyScan(), Loading()

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine."""
        views = snapshot.views
        elements = len(queries) * int(views.starts[-1]) * views.dim
        if self._fast is None and pays_to_load(elements):
            self._loading.is_done(lambda: self._load(snapshot), waits=pays_to_wait(elements))
        engine = self._fast or self._plain
        return engine.candidates(snapshot, queries, top_k, allowed, scoring)

    def copy_bytes(self) -> int:
        """See ScanEngine."""
        return 0 if self._fast is None else self._fast.copy_bytes()

    def mapped_bytes(self) -> int:
        """See ScanEngine."""
        return 0 if self._fast is None else self._fast.mapped_bytes()

    def _load(self, snapshot: Snapshot) -> None:
        self._fast = self._open_fast(snapshot)
