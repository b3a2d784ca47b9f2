"""Documents on their way to a server: in chunks, a few of them ahead of the acknowledgements, again where need be."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc

from mvindex.errors import MvindexError, ServerUnavailable, TimedOut
from mvindex.ingest import Chunk, Entry, IngestHooks, IngestReport, SeenIds
from mvindex.records import dump_metadata
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.convert import add_counts, document_message, views_message
from mvindex_connectors.remote.retry import Caller, Patience, as_error, call_metadata, closed_error, is_worth_a_retry

# Chunks sent and not yet acknowledged: the server encodes one while the next is on its way.
WINDOW = 4
# Of a chunk's message: far below what a server takes.
CHUNK_BYTES = 4 << 20
_GOODBYE_S = 5.0


def chunks_of(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in chunks: as an index cuts them, or smaller where their views or texts take many bytes."""
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
    """About the bytes of a document's message, rather more than fewer."""
    document = entry.document
    views = 0 if entry.views is None else entry.views.nbytes
    metadata = len(dump_metadata(document.metadata, document.id)) if document.metadata else 0
    # Four bytes are the most that a character takes.
    return views + 4 * (len(document.text) + len(document.title) + len(document.id) + metadata) + 64


def chunk_message(number: int, entries: Sequence[Entry]) -> documents.AddRequest:
    """The message of a chunk."""
    views = [entry.views for entry in entries if entry.views is not None]
    return documents.AddRequest(
        chunk=number,
        documents=[document_message(entry.document) for entry in entries],
        views=views_message(views) if views else None,
    )


class Ingest:
    """One run of documents into a remote index."""

    def __init__(self, caller: Caller, hooks: IngestHooks) -> None:
        self._caller, self._hooks = caller, hooks
        self._method = MvindexServiceStub(caller.channel).Add
        self._key = secrets.token_hex(16)
        self._waiting: deque[documents.AddRequest] = deque()
        self._stream: _Stream | None = None
        self._has_failed = False
        self.report = IngestReport()

    def run(self, entries: Iterable[Entry]) -> IngestReport:
        """What was done with the entries. An error leaves the chunks before it committed."""
        try:
            with SeenIds() as seen:
                self._send_all(entries, seen)
            if self._stream is not None:
                self._stream.end()
        finally:
            if self._stream is not None:
                self._stream.cancel()
        return self.report

    def _send_all(self, entries: Iterable[Entry], seen: SeenIds) -> None:
        try:
            for number, chunk in enumerate(chunks_of(entries), start=1):
                if self._hooks.should_stop():
                    self.report.stopped = True
                    break
                firsts = seen.first_of(chunk, self._hooks.on_duplicate)
                if firsts:
                    self._send(chunk_message(number, firsts))
        except MvindexError:
            # What was sent before a bad document is stored, as it is in an index that is not remote.
            if not self._has_failed:
                self._await_acknowledgements(0)
            raise
        self._await_acknowledgements(0)

    def _send(self, message: documents.AddRequest) -> None:
        self._waiting.append(message)
        if self._stream is not None:
            self._stream.send(message)
        self._await_acknowledgements(WINDOW - 1)

    def _await_acknowledgements(self, left: int) -> None:
        """Nothing; no more than so many chunks wait to be acknowledged. A broken stream is begun again."""
        patience = Patience(self._caller.settings)
        while len(self._waiting) > left:
            try:
                self._take(self._opened().next_response())
                patience = Patience(self._caller.settings)
            except grpc.RpcError as err:
                self._stream = None
                pause = patience.next_pause() if is_worth_a_retry(err) else None
                if pause is None:
                    self._has_failed = True
                    raise as_error(self._caller.address, err) from None
                time.sleep(pause)
            except MvindexError:
                self._has_failed = True
                raise

    def _opened(self) -> _Stream:
        """The stream; where there is none, a new one, with every chunk that waits for its acknowledgement."""
        if self._stream is None:
            self._stream = _Stream(self._method, self._caller)
            self._stream.send(documents.AddRequest(index=self._caller.address.name, idempotency_key=self._key))
            for message in self._waiting:
                self._stream.send(message)
        return self._stream

    def _take(self, response: documents.AddResponse) -> None:
        message = self._waiting.popleft()
        if response.chunk != message.chunk:
            raise ServerUnavailable(
                f"{self._caller.address}: acknowledged chunk {response.chunk}, wanted {message.chunk}; "
                "something between here and the server mixes up streams"
            )
        add_counts(self.report, response)
        self._hooks.on_progress(len(message.documents))


class _Stream:
    """A call of Add: messages go in by a queue, which gRPC empties as fast as the server reads."""

    def __init__(self, method: Any, caller: Caller) -> None:
        self._caller = caller
        self._messages: queue.SimpleQueue[documents.AddRequest | None] = queue.SimpleQueue()
        self._is_late = False
        try:
            self._call = method(iter(self._messages.get, None), metadata=call_metadata(caller.access))
        except ValueError as err:
            self._messages.put(None)
            raise closed_error(caller.address) from err
        self._call.add_done_callback(lambda call: self._messages.put(None))

    def send(self, message: documents.AddRequest) -> None:
        """Nothing; the message is sent when it can be."""
        self._messages.put(message)

    def next_response(self) -> documents.AddResponse:
        """The next acknowledgement; TimedOut when none comes."""
        timeout_s = self._caller.settings.chunk_timeout_s
        timer = threading.Timer(timeout_s, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            response: documents.AddResponse = next(self._call)
        except StopIteration:
            raise ServerUnavailable(f"{self._caller.address}: the server ended the stream early") from None
        except grpc.RpcError:
            if self._is_late:
                raise TimedOut(f"{self._caller.address}: no acknowledgement within {timeout_s:g} s") from None
            raise
        finally:
            timer.cancel()
        return response

    def _give_up(self) -> None:
        self._is_late = True
        self._call.cancel()

    def end(self) -> None:
        """Nothing; the server knows that no more comes. Everything is acknowledged, so how it answers is all one."""
        self._messages.put(None)
        timer = threading.Timer(_GOODBYE_S, self._call.cancel)
        timer.start()
        with suppress(grpc.RpcError):
            for _ in self._call:
                pass
        timer.cancel()

    def cancel(self) -> None:
        """Nothing; the call has ended."""
        self._messages.put(None)
        self._call.cancel()
