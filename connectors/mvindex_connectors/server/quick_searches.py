"""Searches that are so quick that the event loop runs them itself: to hand one to a thread and back takes .2 ms."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence

from mvindex_connectors.server.lanes import Job

# The longest search that other calls are kept waiting for.
_QUICK_S = 0.001
# After so many in the event loop one has a thread, during which others may come.
_MOST_AT_ONCE = 32
# A batch of so many queries costs less than each by itself; after one, more are expected for so long.
_CROWD, _CROWDED_S = 3, 1.0


class QuickSearches:
    """Expects of a search the time of the last one of its kind: of equal options, in the same state of the index.

    So the first search after a commit, which may read new files, has a thread, unless one was made meanwhile; and so
    have those after a slow one.
    While many clients search, all have: queries that come meanwhile make a batch.
    """

    def __init__(self, state: Callable[[], Hashable]) -> None:
        """state: returns what every commit changes; None for an index that is not in this process."""
        self._state = state
        self._kind: Hashable = None
        self._seconds, self._crowded_at, self._left = 0.0, -math.inf, _MOST_AT_ONCE

    def kind(self, jobs: Sequence[Job]) -> Hashable:
        """Return the kind of a search that begins now; None for one that is not of a single vector."""
        job = jobs[0]
        is_vector = len(jobs) == 1 and job.size == 1 and job.queries.are_encoded and job.queries.texts is None
        if not is_vector or job.request.filter is not None:
            return None
        state = self._state()
        return None if state is None else (state, job.request.key)

    def expects(self, kind: Hashable) -> bool:
        """Return whether a search of this kind will probably be quick, and gains nothing by waiting for others."""
        is_quick = kind is not None and kind == self._kind and self._seconds <= _QUICK_S
        return is_quick and self._left > 0 and time.monotonic() - self._crowded_at > _CROWDED_S

    def ended(self, kind: Hashable, seconds: float, num_queries: int, *, has_thread: bool) -> None:
        """Note how long a batch took, with its kind when it began. A slow one is forgotten by halves."""
        self._seconds = max(seconds, self._seconds / 2) if kind == self._kind else seconds
        self._kind = kind
        self._left = _MOST_AT_ONCE if has_thread else self._left - 1
        if num_queries >= _CROWD:
            self._crowded_at = time.monotonic()

    def moved(self, before: Hashable, now: Hashable) -> None:
        """Expect of searches in one state what was expected in the one before: a search has read its new files."""
        if isinstance(self._kind, tuple) and self._kind[0] == before:
            self._kind = (now, *self._kind[1:])
