"""Upload of documents by coroutines; see upload.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import grpc

from mvindex.errors import MvindexError, ServerUnavailable, TimedOut
from mvindex.ingest import Entry, IngestHooks, IngestReport, SeenIds
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.convert import add_counts
from mvindex_connectors.remote.requests import new_key
from mvindex_connectors.remote.retry import (
    AsyncRetryingChannel,
    RetryBudget,
    error_from_rpc,
)
from mvindex_connectors.remote.upload import WINDOW, check_acknowledged, checked_hooks, chunk_message, split_chunks


class AsyncUpload:
    """The upload of one run of documents into a remote index, over one stream after the other."""

    def __init__(self, channel: AsyncRetryingChannel, hooks: IngestHooks) -> None:
        self._channel, self._hooks = channel, checked_hooks(hooks)
        self._method: Any = MvindexServiceStub(channel.grpc_channel).Add
        self._key = new_key()
        self._waiting: deque[documents.AddRequest] = deque()
        self._call: Any = None
        self._has_failed = False
        self.report = IngestReport()

    async def run(self, entries: Iterable[Entry]) -> IngestReport:
        """Upload the entries and return the report. After an error the chunks before it stay committed."""
        try:
            with self._channel.closed_channel_errors(), SeenIds() as seen:
                await self._send_all(entries, seen)
        finally:
            if self._call is not None:
                self._call.cancel()
        return self.report

    async def _send_all(self, entries: Iterable[Entry], seen: SeenIds) -> None:
        try:
            for number, chunk in enumerate(split_chunks(entries), start=1):
                if self._hooks.should_stop():
                    self.report.stopped = True
                    break
                firsts = seen.drop_repeats(chunk, self._hooks.on_duplicate, self.report)
                if firsts:
                    await self._send(chunk_message(number, firsts))
        except MvindexError:
            # Documents before a bad one are stored, as in a local index.
            if not self._has_failed:
                await self._end()
            raise
        await self._end()

    async def _send(self, message: documents.AddRequest) -> None:
        """Send a chunk, once only a few before it are unacknowledged."""
        self._waiting.append(message)
        await self._await_acknowledgements(WINDOW - 1, message)

    async def _end(self) -> None:
        """Wait until every chunk is acknowledged, and close the stream."""
        await self._await_acknowledgements(0, None)
        if self._call is not None:
            await self._call.done_writing()

    async def _await_acknowledgements(self, left: int, fresh: documents.AddRequest | None) -> None:
        async def step() -> None:
            nonlocal fresh
            try:
                await self._open(fresh)
                fresh = None
                if len(self._waiting) > left:
                    await self._acknowledge()
            except grpc.RpcError:
                self._call = fresh = None
                raise

        try:
            while fresh is not None or len(self._waiting) > left:
                await RetryBudget(self._channel.settings).run_async(step)
        except grpc.RpcError as err:
            self._has_failed = True
            raise error_from_rpc(self._channel.address, err) from None
        except MvindexError:
            self._has_failed = True
            raise

    async def _open(self, fresh: documents.AddRequest | None) -> None:
        """Open the stream if there is none, and send it every unacknowledged chunk."""
        if self._call is not None:
            if fresh is not None:
                await self._write(fresh)
            return
        self._call = self._method(metadata=self._channel.metadata())
        await self._write(documents.AddRequest(index=self._channel.address.name, idempotency_key=self._key))
        for message in self._waiting:
            await self._write(message)

    async def _write(self, message: documents.AddRequest) -> None:
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            # The call has ended; the next read raises its error.
            return

    async def _acknowledge(self) -> None:
        timeout_s, address = self._channel.settings.chunk_timeout_s, self._channel.address
        try:
            response = await asyncio.wait_for(self._call.read(), timeout_s)
        except asyncio.TimeoutError:
            raise TimedOut(f"{address}: expected an acknowledgement within {timeout_s:g} s, got none") from None
        if response is grpc.aio.EOF:
            raise ServerUnavailable(f"{address}: the server ended the stream early")
        message = self._waiting.popleft()
        check_acknowledged(address, message, response)
        add_counts(self.report, response)
        self._hooks.on_progress(len(message.documents))
