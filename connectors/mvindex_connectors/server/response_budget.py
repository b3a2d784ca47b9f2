"""The bytes of responses: a limit for each, and one for all large ones in flight together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from mvindex.errors import LimitExceeded
from mvindex.store.byte_limit import byte_limit
from mvindex_connectors.server.fairness import SmallFirst

ErrorT = TypeVar("ErrorT", bound=Exception)

# So many responses of the largest size may be in flight. Small ones need no room: --max-calls bounds their number.
_LARGEST_AT_ONCE = 4
_SMALL_BYTES = 1 << 20


class TooLarge(LimitExceeded):
    """A request or a response that is too large however often it is sent: HTTP status 413, not 429."""


class ResponseBudget:
    """The room for responses; one object for all calls of a server. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of one response."""
        self.max_bytes = max_bytes
        self._taken = 0
        self._lock = Lock()

    def take(self, num_bytes: int) -> None:
        """Take room; LimitExceeded when there is not so much."""
        with self._lock:
            if self._taken + num_bytes > _LARGEST_AT_ONCE * self.max_bytes:
                raise LimitExceeded(
                    f"responses of {self._taken >> 20} MiB are being sent, near the limit of this server "
                    f"({_LARGEST_AT_ONCE} times --max-response-mb). Try again in a second"
                )
            self._taken += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Return room that was taken."""
        with self._lock:
            self._taken -= num_bytes


class ResponseMeter:
    """Counts the bytes of one response while it is gathered, in whatever thread that is.

    Attributes:
        caller: Whose response it is, for turns between callers.
        turns: Lets large responses give way to small ones.
        is_in_thread: Whether the response is made outside the event loop.

    """

    def __init__(self, budget: ResponseBudget, turns: SmallFirst | None = None) -> None:
        """Count against a budget; turns: those of the server."""
        self._budget, self.turns, self.caller = budget, turns or SmallFirst(), ""
        self._lock = Lock()
        self._gathered = self._taken = 0
        self.is_in_thread = False
        self._is_closed = False

    @property
    def max_bytes(self) -> int:
        """The most that the response may have."""
        return self._budget.max_bytes

    @property
    def is_large(self) -> bool:
        """Whether what was gathered is more than a small response."""
        return self._gathered > _SMALL_BYTES

    def gather(self, num_bytes: int) -> None:
        """Count bytes of what the response is made of; TooLarge beyond the limit, LimitExceeded without room."""
        with self._lock:
            self._gathered += num_bytes
            self.check(self._gathered)
            if not self._is_closed and self._gathered > _SMALL_BYTES:
                needed = self._gathered - self._taken
                self._budget.take(needed)
                self._taken += needed

    def check(self, num_bytes: int) -> None:
        """Raise TooLarge if the response, or a part of it, of so many bytes exceeds the limit."""
        if num_bytes > self.max_bytes:
            raise self.too_large()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Raise TooLarge inside the block once more than the limit is read from the index by this thread."""
        with too_large_beyond(self.max_bytes):
            yield

    def too_large(self) -> TooLarge:
        """Return the error of a response beyond the limit."""
        return _too_large(self.max_bytes)

    def give_way(self) -> None:
        """Pause for small requests, if this response is made in a thread; call it between pieces."""
        if self.is_in_thread:
            self.turns.pause()

    def close(self) -> None:
        """Return the room: the response was sent, or will not be."""
        with self._lock:
            self._is_closed = True
            taken, self._taken = self._taken, 0
        self._budget.give_back(taken)


@contextmanager
def too_large_beyond(max_bytes: int) -> Iterator[None]:
    """Raise TooLarge inside the block once more than max_bytes of documents are read by this thread."""
    try:
        with byte_limit(max_bytes):
            yield
    except TooLarge:
        raise
    except LimitExceeded as err:
        raise _too_large(max_bytes) from err


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"response: expected at most {max_bytes:,} bytes (--max-response-mb), got more. Lower top_k, send fewer "
        'queries or ids at a time, or leave out texts with fields, such as ["title"]'
    )


def without_frames(err: ErrorT) -> ErrorT:
    """Return an error that is kept, without the frames that it and its causes came through: they hold what is large."""
    each: BaseException | None = err
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return err
