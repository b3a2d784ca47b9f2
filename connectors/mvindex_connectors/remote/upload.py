"""Upload of documents in chunks: a few ahead of the acknowledgements, and again after a broken connection."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import grpc

from mvindex.errors import MvindexError, ServerUnavailable, TimedOut, Unsupported
from mvindex.ingest import Entry, IngestHooks, IngestReport, SeenIds
from mvindex.ingest.pipeline import Chunk, within_length
from mvindex.records import dump_metadata
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Address
from mvindex_connectors.remote.convert import add_counts, document_message, views_message
from mvindex_connectors.remote.requests import new_key
from mvindex_connectors.remote.retry import (
    AsyncRetryingChannel,
    Channel,
    RetryingChannel,
    closed_error,
    error_from_rpc,
)

# Chunks sent and not yet acknowledged: the server encodes one while the next is transferred.
WINDOW = 4
# The size of a chunk's message, far below a server's limit.
CHUNK_BYTES = 4 << 20
_END_TIMEOUT_S = 5.0


def checked_hooks(hooks: IngestHooks) -> IngestHooks:
    """Return the hooks; Unsupported for what only an index in this process does."""
    if hooks.encode_again:
        raise Unsupported(
            "encode_again: expected an index in this process, got one of a server; delete documents first"
        )
    if hooks.note != IngestHooks().note:
        raise Unsupported("note: expected an index in this process, got one of a server, which keeps its settings")
    return hooks


def split_chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries in chunks: as an index splits them, or smaller if their views or texts take many bytes."""
    filling, size = Chunk(), 0
    for entry in entries:
        cost = message_bytes(entry)
        if size and size + cost > CHUNK_BYTES:
            yield filling.take()
            size = 0
        size += cost
        if chunk := filling.add(entry):
            yield chunk
            size = 0
    if chunk := filling.take():
        yield chunk


def message_bytes(entry: Entry) -> int:
    """Return an upper estimate of the bytes of a document's message."""
    document = entry.document
    views = 0 if entry.views is None else entry.views.nbytes + (0 if entry.spans is None else entry.spans.nbytes)
    metadata = len(dump_metadata(document.metadata, document.id)) if document.metadata else 0
    texts = [each.text for each in document.own_view_texts]
    # A character takes at most four bytes; a view text has a span beside it.
    chars = len(document.text) + len(document.title) + len(document.id) + metadata + sum(map(len, texts))
    return views + 4 * chars + 64 * (1 + len(texts))


def chunk_message(number: int, entries: Sequence[Entry]) -> documents.AddRequest:
    """Return the message of a chunk."""
    rows = [entry.views for entry in entries if entry.views is not None]
    return documents.AddRequest(
        chunk=number,
        documents=[document_message(entry.document) for entry in entries],
        views=views_message(rows, [entry.spans for entry in entries]) if rows else None,
    )


def check_acknowledged(address: Address, sent: documents.AddRequest, response: documents.AddResponse) -> None:
    """Raise ServerUnavailable unless the response acknowledges the chunk that was sent."""
    if response.chunk != sent.chunk:
        raise ServerUnavailable(
            f"{address}: expected the acknowledgement of chunk {sent.chunk}, got that of {response.chunk}. "
            "A proxy may mix up streams"
        )


class Upload:
    """The upload of one run of documents into a remote index, over one stream after the other.

    Over a blocking channel its coroutines never wait, so that run_to_end() can run them.
    """

    def __init__(self, channel: RetryingChannel | AsyncRetryingChannel, hooks: IngestHooks) -> None:
        self._channel, self._hooks = channel, checked_hooks(hooks)
        self._key = hooks.mark or new_key()
        self._waiting: deque[documents.AddRequest] = deque()
        self._stream: _Stream | _AwaitedStream | None = None
        self._has_failed = False
        self.report = IngestReport()

    async def run(self, entries: Iterable[Entry]) -> IngestReport:
        """Upload the entries and return the report. After an error the chunks before it stay committed."""
        try:
            with SeenIds() as seen:
                await self._send_all(entries, seen)
        finally:
            if self._stream is not None:
                self._stream.cancel()
        return self.report

    async def _send_all(self, entries: Iterable[Entry], seen: SeenIds) -> None:
        try:
            entries = within_length(entries, self._hooks.max_document_chars)
            for number, chunk in enumerate(split_chunks(entries), start=1):
                if self._hooks.should_stop():
                    self.report.stopped = True
                    break
                firsts = seen.drop_repeats(chunk, self._hooks.on_duplicate, self.report)
                if firsts:
                    message = chunk_message(number, firsts)
                    self._waiting.append(message)
                    await self._await_acknowledgements(WINDOW - 1, message)
        except MvindexError:
            # Documents before a bad one are stored, as in a local index.
            if not self._has_failed:
                await self._end()
            raise
        await self._end()

    async def _end(self) -> None:
        """Wait until every chunk is acknowledged, and close the stream."""
        await self._await_acknowledgements(0, None)
        if self._stream is not None:
            await self._stream.end()

    async def _await_acknowledgements(self, left: int, fresh: documents.AddRequest | None) -> None:
        """Send a fresh chunk, and wait until at most `left` are unacknowledged; a broken stream is opened again."""

        async def step() -> None:
            nonlocal fresh
            try:
                await self._open(fresh)
                fresh = None
                if len(self._waiting) > left and self._stream is not None:
                    self._acknowledge(await self._stream.next_response())
            except grpc.RpcError:
                self._stream = fresh = None
                raise

        try:
            while fresh is not None or len(self._waiting) > left:
                await self._channel.again(step)
        except grpc.RpcError as err:
            self._has_failed = True
            raise error_from_rpc(self._channel.address, err) from None
        except MvindexError:
            self._has_failed = True
            raise

    async def _open(self, fresh: documents.AddRequest | None) -> None:
        """Send a fresh chunk; open the stream if there is none, and send it every unacknowledged chunk."""
        if self._stream is not None:
            if fresh is not None:
                await self._stream.send(fresh)
            return
        channel = self._channel
        self._stream = _AwaitedStream(channel) if isinstance(channel, AsyncRetryingChannel) else _Stream(channel)
        await self._stream.send(documents.AddRequest(index=channel.address.name, idempotency_key=self._key))
        for message in self._waiting:
            await self._stream.send(message)

    def _acknowledge(self, response: documents.AddResponse) -> None:
        message = self._waiting.popleft()
        check_acknowledged(self._channel.address, message, response)
        add_counts(self.report, response)
        self._hooks.on_progress(len(message.documents))


class _AwaitedStream:
    """A call of Add in an event loop."""

    def __init__(self, channel: AsyncRetryingChannel) -> None:
        self._channel = channel
        method: Any = MvindexServiceStub(channel.grpc_channel).Add
        self._call = method(metadata=channel.metadata())

    async def send(self, message: documents.AddRequest) -> None:
        """Write a message."""
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            # The call has ended; the next read raises its error.
            return

    async def next_response(self) -> documents.AddResponse:
        """Return the next acknowledgement; TimedOut if none comes in time."""
        try:
            response = await asyncio.wait_for(self._call.read(), self._channel.settings.chunk_timeout_s)
        except asyncio.TimeoutError:
            raise _unacknowledged(self._channel) from None
        if response is grpc.aio.EOF:
            raise ServerUnavailable(f"{self._channel.address}: the server ended the stream early")
        return cast(documents.AddResponse, response)

    async def end(self) -> None:
        """Tell the server that no more messages follow."""
        await self._call.done_writing()

    def cancel(self) -> None:
        """Cancel the call."""
        self._call.cancel()


class _Stream:
    """A call of Add: messages are queued, and gRPC empties the queue as fast as the server reads."""

    def __init__(self, channel: RetryingChannel) -> None:
        self._channel = channel
        method: Any = MvindexServiceStub(channel.grpc_channel).Add
        self._messages: queue.SimpleQueue[documents.AddRequest | None] = queue.SimpleQueue()
        self._has_timed_out = False
        try:
            self._call = method(iter(self._messages.get, None), metadata=channel.metadata())
        except ValueError as err:
            self._messages.put(None)
            raise closed_error(channel.address) from err
        self._call.add_done_callback(lambda call: self._messages.put(None))

    async def send(self, message: documents.AddRequest) -> None:
        """Queue a message."""
        self._messages.put(message)

    async def next_response(self) -> documents.AddResponse:
        """Return the next acknowledgement; TimedOut if none comes in time."""
        timer = threading.Timer(self._channel.settings.chunk_timeout_s, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            response: documents.AddResponse = next(self._call)
        except StopIteration:
            raise ServerUnavailable(f"{self._channel.address}: the server ended the stream early") from None
        except grpc.RpcError:
            if self._has_timed_out:
                raise _unacknowledged(self._channel) from None
            raise
        finally:
            timer.cancel()
        return response

    def _time_out(self) -> None:
        self._has_timed_out = True
        self._call.cancel()

    async def end(self) -> None:
        """Tell the server that no more messages follow. Every chunk is acknowledged, so its response is ignored."""
        self._messages.put(None)
        timer = threading.Timer(_END_TIMEOUT_S, self._call.cancel)
        timer.start()
        with suppress(grpc.RpcError):
            for _ in self._call:
                pass
        timer.cancel()

    def cancel(self) -> None:
        """Cancel the call."""
        self._messages.put(None)
        self._call.cancel()


def _unacknowledged(channel: Channel) -> TimedOut:
    timeout_s = channel.settings.chunk_timeout_s
    return TimedOut(f"{channel.address}: expected an acknowledgement within {timeout_s:g} s, got none")
