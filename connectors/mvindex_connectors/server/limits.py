"""The limits of what a server takes and gives at once: queries, large requests, the bytes of responses, lists.

A parser in C holds the interpreter until it is done, in whatever thread, so that the number of values is bounded first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor

from mvindex.errors import LimitExceeded, QueryError
from mvindex.index import IndexProtocol
from mvindex.records import Document, dump_metadata
from mvindex.search.fusion import Mode
from mvindex.search.request import Queries, SearchRequest, as_vectors, check_query_text
from mvindex.store.byte_limit import byte_limit
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.fairness import LONG_WORK_S, SmallFirst, switch_interval

T = TypeVar("T")
ErrorT = TypeVar("ErrorT", bound=Exception)

# So many responses of the largest size may be in flight. Small ones need no room: --max-calls bounds their number.
_LARGEST_AT_ONCE = 4
_SMALL_BYTES = 1 << 20

# Up to so many bytes, a request is parsed in the event loop: in about a millisecond.
INLINE_BYTES = 64 << 10
# About 60 ms each: objects and lists, and numbers or texts.
_MAX_CONTAINERS, _MAX_VALUES = 500_000, 2_000_000
_MAX_FIELDS = 1_000_000
_PIECE, _FEW_BYTES = 256 << 10, 1 << 10
_BACKSLASH = ord("\\")
# Wire types of protobuf's encoding, and the bytes of those of a fixed size.
_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
# Of the last seven bits of a number but one: without an end, each step would take as long as all before it.
_MAX_SHIFT = 56

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="parse")
_LIST_DOCUMENTS = 200
_LIST_CHARS = 500_000


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


async def parse_large(function: Callable[[], T], num_bytes: int, turns: SmallFirst) -> T:
    """Run the function, which parses so many bytes, here if it is quick: in a thread, if others would wait."""
    if num_bytes <= INLINE_BYTES:
        return function()

    def parse() -> T:
        turns.pause()
        with switch_interval.at_most(LONG_WORK_S):
            return function()

    return await asyncio.get_running_loop().run_in_executor(_THREADS, parse)


def check_json_values(content: bytes | bytearray) -> None:
    """Check that a JSON text has no more values than are parsed at once; raise TooLarge otherwise."""
    if len(content) <= INLINE_BYTES or not _is_beyond(content, [(0, len(content))]):
        return
    # Signs inside strings are no values; to tell them apart takes long, so only where all together are too many.
    if _is_beyond(content, _outside_strings(content)):
        raise TooLarge(
            f"body: expected at most {_MAX_CONTAINERS:,} objects and lists, and {_MAX_VALUES:,} values, got more. Send "
            "less at a time"
        )


def _is_beyond(content: bytes | bytearray, spans: Iterable[tuple[int, int]]) -> bool:
    """Return whether the spans have more objects, lists or values than are parsed at once."""
    containers = values = 0
    for begin, end in spans:
        for at in range(begin, end, _PIECE):
            to = min(at + _PIECE, end)
            opened = _count(content, b"{", at, to) + _count(content, b"[", at, to)
            containers += opened
            values += opened + _count(content, b",", at, to)
            if containers > _MAX_CONTAINERS or values > _MAX_VALUES:
                return True
    return False


def _count(content: bytes | bytearray, sign: bytes, begin: int, end: int) -> int:
    """Return how often a sign occurs between two places."""
    if end - begin < _FEW_BYTES:
        return content.count(sign, begin, end)
    # Thirty times as fast as count() where there are many, and threads that wait for the interpreter get it.
    return int(np.count_nonzero(np.frombuffer(content, np.uint8, end - begin, begin) == ord(sign)))


def _outside_strings(content: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield where each part of a JSON text between its strings begins and ends."""
    at = 0
    while (begin := content.find(b'"', at)) >= 0:
        yield at, begin
        at = _end_of_string(content, begin + 1)
    yield at, len(content)


def _end_of_string(content: bytes | bytearray, at: int) -> int:
    """Return the place behind the string whose first character is at a place; the end of all, if it has no end."""
    while (end := content.find(b'"', at)) >= 0:
        first = end
        while first > at and content[first - 1] == _BACKSLASH:
            first -= 1
        at = end + 1
        if (end - first) % 2 == 0:
            return at
    return len(content)


def check_fields(content: bytes, descriptor: Descriptor) -> None:
    """Check that a message has no more fields, at all levels, than are parsed at once; raise TooLarge otherwise.

    What is no message is left to the parser to refuse.
    """
    if len(content) <= INLINE_BYTES:
        return
    count, parts = 0, [(0, len(content), descriptor)]
    while parts:
        at, end, kind = parts.pop()
        while at < end:
            count += 1
            if count > _MAX_FIELDS:
                raise TooLarge(f"message: expected at most {_MAX_FIELDS:,} fields, got more. Send less at a time")
            try:
                key, at = _varint(content, at)
                if key & 7 == _LENGTH:
                    size, at = _varint(content, at)
                    field = kind.fields_by_number.get(key >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((at, min(at + size, end), field.message_type))
                    at += size
                elif key & 7 == _VARINT:
                    _, at = _varint(content, at)
                else:
                    at += _FIXED_BYTES.get(key & 7, 0)
            except IndexError:
                break  # the parts before it are parsed nevertheless


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it; IndexError where it has no end in 64 bits."""
    value = shift = 0
    while (byte := content[at]) & 0x80:
        if shift > _MAX_SHIFT:
            raise IndexError("expected a number of 64 bits, got more")
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | byte << shift, at + 1


class QueryChecks:
    """The checks of an index's queries before they are encoded or searched."""

    def __init__(self, limits: Limits, index: IndexProtocol) -> None:
        self._limits, self._index = limits, index

    def hits(self, num_queries: int, request: SearchRequest) -> None:
        """Raise LimitExceeded for more documents than are searched for or returned at once."""
        top_k, depth = request.top_k, request.depth
        if request.diversity is not None and depth > self._limits.top_k >= top_k:
            raise LimitExceeded(
                f"diversity: expected a server that searches for {depth} documents, which it chooses from, got one for "
                f"{self._limits.top_k} (--max-top-k)"
            )
        if depth > self._limits.top_k >= top_k:
            raise LimitExceeded(
                f"top_k: expected a page within the first {self._limits.top_k} documents on this server (--max-top-k), "
                f"got top_k {top_k} behind {depth - top_k} others"
            )
        if top_k > self._limits.top_k:
            raise LimitExceeded(
                f"top_k: expected at most {self._limits.top_k} on this server (--max-top-k), got {top_k}"
            )
        if (hits := num_queries * depth) > self._limits.hits:
            raise LimitExceeded(
                f"{num_queries} queries with top_k {depth} request {hits} documents at once; this server returns at "
                f"most {self._limits.hits} (--max-hits). Send fewer queries at a time"
            )

    def number(self, count: int) -> None:
        """Raise LimitExceeded for more queries than are searched at once."""
        if count > self._limits.queries:
            raise LimitExceeded(
                f"{count} queries in one request; this server takes {self._limits.queries} (--max-queries). "
                "Send several requests"
            )

    def text(self, text: str, number: int = 1, count: int = 1) -> None:
        """Check the number-th of count texts; raise QueryError for an empty one, TooLarge for one of too many terms."""
        if len(text) > self._limits.query_chars:
            # Each term has a character, so that this bounds their number.
            raise TooLarge(
                f"{'the query' if count == 1 else f'query {number}'}: expected at most {self._limits.query_chars:,} "
                f"characters (--max-query-chars), got {len(text):,}. Search with a part of the text"
            )
        check_query_text(text, number, count)

    def texts(self, texts: Sequence[str]) -> None:
        """Check texts; see number() and text()."""
        self.number(len(texts))
        for number, text in enumerate(texts, start=1):
            self.text(text, number, len(texts))

    def queries(self, queries: Queries, request: SearchRequest) -> Queries:
        """Return the queries of a message, checked, with a text for each row where there are any."""
        mode = request.mode
        self.number(len(queries.rows))
        rows = as_vectors(queries.vectors, self._index.dim) if queries.are_encoded else queries.rows
        self.texts(queries.unencoded)
        texts = queries.texts
        if texts is not None:
            self.texts(texts)
        if queries.combine is not None:
            request.check_group()
            if texts is not None and len(texts) != 1:
                raise QueryError(f"text: expected one text for a query group, got {len(texts)}")
            texts = None if texts is None else list(texts) * len(rows)
        elif mode is Mode.LEXICAL and texts is not None:
            rows = texts
        if texts is None and not queries.are_encoded:
            texts = queries.unencoded
        if texts is None and mode in (Mode.LEXICAL, Mode.HYBRID):
            raise QueryError(f"mode={mode.value!r} searches texts, got vectors; give the text, or both: text=...")
        if texts is not None and len(texts) != len(rows):
            raise QueryError(f"text: expected a text for each of {len(rows)} query vectors, got {len(texts)}")
        return replace(queries, rows=rows, texts=texts)


class Page(NamedTuple):
    """Some documents in the order in which they were first added, and the id to go on after; None at the end."""

    documents: list[Document]
    next: str | None


def next_documents(rows: Iterator[tuple[int, Document]]) -> list[tuple[int, Document]]:
    """Return the next documents, fewer if they are long: they are converted and sent together."""
    some: list[tuple[int, Document]] = []
    num_chars = 0
    for ordinal, document in rows:
        some.append((ordinal, document))
        num_chars += num_chars_of(document)
        if len(some) == _LIST_DOCUMENTS or num_chars >= _LIST_CHARS:
            break
    return some


def num_chars_of(document: Document) -> int:
    """Return the characters of a document, its metadata as JSON."""
    return len(document.text) + len(document.title) + len(dump_metadata(document.metadata, document.id))


def close_rows(rows: Iterator[tuple[int, Document]]) -> None:
    """End a reading of documents before its end."""
    close = getattr(rows, "close", None)
    if close is not None:
        close()
