"""gRPC middleware: every call of every service (ours, health, reflection) goes through admission.

Its connections are bounded, so that neither port nor the files of indexes run out of descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from mvindex.errors import MvindexError, NoSuchIndex, QueryError
from mvindex.v1 import service_pb2
from mvindex_connectors.remote.status import ERROR_KEY, REQUEST_ID_KEY, grpc_code, nearest_known_class
from mvindex_connectors.server.admission import Admission, CallContext, request_id_from
from mvindex_connectors.server.fairness import SmallFirst
from mvindex_connectors.server.limits import INLINE_BYTES, check_fields, parse_large, without_frames

logger = logging.getLogger(__name__)

CURRENT_CALL: ContextVar[CallContext] = ContextVar("call")
_HEALTH = "/grpc.health.v1.Health/"
_OWN_SERVICES = "/mvindex.v1."
_METHODS = service_pb2.DESCRIPTOR.services_by_name["MvindexService"].methods_by_name
_DETAILS_BYTES = 4000
_FAREWELL_TIMEOUT_S = 0.5
# Descriptors kept for the files of indexes, for logs and for event loops.
_KEPT_FOR_FILES = 192
_MOST_CONNECTIONS = 10_000
_INTERVAL_S = 0.25


class InvalidMessage:
    """Stands for request bytes that could not be parsed, so that the call is refused inside admission."""

    async def parsed(self, turns: SmallFirst) -> NoReturn:
        """Raise QueryError."""
        raise QueryError("request: expected a message of this method, got other bytes. See schemas/mvindex/v1")


class LargeMessage:
    """Stands for request bytes that are parsed in a thread, inside admission."""

    def __init__(self, content: bytes, read: Callable[[bytes], Any], descriptor: Descriptor) -> None:
        self._content, self._read, self._descriptor = content, read, descriptor

    async def parsed(self, turns: SmallFirst) -> Any:
        """Return the message; QueryError for other bytes, TooLarge for too many fields."""

        def parse() -> Any:
            check_fields(self._content, self._descriptor)
            turns.pause()
            return self._read(self._content)

        message = await parse_large(parse, len(self._content), turns)
        return await message.parsed(turns) if isinstance(message, InvalidMessage) else message


async def parsed(request: Any, turns: SmallFirst) -> Any:
    """Return the message of a request; raise the error of one that is none."""
    return await request.parsed(turns) if isinstance(request, InvalidMessage | LargeMessage) else request


class GrpcMiddleware:
    """Registers the methods of services with a server, each behind admission.

    Methods are wrapped once, not at each call as by an interceptor, which took a tenth of a vector query's time.
    """

    def __init__(self, server: grpc.aio.Server, admission: Admission) -> None:
        self._server, self._admission = server, admission

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore generic handlers; the same methods come by name."""

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        """Register the methods of a service with the server."""
        wrapped = {name: self._wrap(f"/{service_name}/{name}", handler) for name, handler in handlers.items()}
        # As registered methods each would have a future of its own, for all of which gRPC waits at every call.
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, wrapped),))

    def _wrap(self, name: str, handler: Any) -> Any:
        read = handler.request_deserializer
        if name.startswith(_OWN_SERVICES):
            read = _deserializer(read, name)
        if not handler.response_streaming:
            unary = self._unary(name, handler.stream_unary if handler.request_streaming else handler.unary_unary)
            make = grpc.stream_unary_rpc_method_handler if handler.request_streaming else (
                grpc.unary_unary_rpc_method_handler)  # fmt: skip
            return make(unary, read, _serializer(handler.response_serializer))
        stream = self._stream(name, handler.stream_stream if handler.request_streaming else handler.unary_stream)
        make = grpc.stream_stream_rpc_method_handler if handler.request_streaming else (
            grpc.unary_stream_rpc_method_handler)  # fmt: skip
        return make(stream, read, handler.response_serializer)

    def _unary(self, name: str, handle: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handled(request: Any, context: Any) -> Any:
            call, header = self._call_of(name, context)
            CURRENT_CALL.set(call)
            # When the response was sent, not when it was made.
            context.add_done_callback(lambda _: call.meter.close())
            try:
                with self._admission.admit(call, header, is_open=self._is_open(name, request)):
                    self._check_health(name, request, call)
                    return await handle(await parsed(request, self._admission.turns), context)
            except MvindexError as err:
                failed = without_frames(err)
            # Here, since gRPC keeps what ends a call in a circle with its frames, and these would keep the request.
            request = None
            await _abort(context, call, failed)

        return handled

    def _stream(self, name: str, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[None]]:
        async def handled(request: Any, context: Any) -> None:
            call, header = self._call_of(name, context)
            CURRENT_CALL.set(call)
            try:
                with self._admission.admit(call, header, is_open=self._is_open(name, request)):
                    self._check_health(name, request, call)
                    request = await parsed(request, self._admission.turns)
                    if name.startswith(_OWN_SERVICES):
                        await handle(request, context)
                    else:
                        await self._while_serving(_answered(handle, request, context))
                return
            except MvindexError as err:
                failed = without_frames(err)
            request = None
            await _abort(context, call, failed)

        return handled

    def _is_open(self, name: str, request: Any) -> bool:
        """Return whether a call needs no token: one for health, of an index only while no token is bound."""
        is_of_index = bool(getattr(request, "service", ""))
        return name.startswith(_HEALTH) and not (is_of_index and self._admission.tokens.are_bound)

    def _check_health(self, name: str, request: Any, call: CallContext) -> None:
        """Check that the index whose health is asked for exists for the caller; raise NoSuchIndex otherwise."""
        service = str(getattr(request, "service", "")) if name.startswith(_HEALTH) else ""
        if service and not call.caller.may_see(service):
            raise NoSuchIndex(f"service: expected the name of an index, got {service!r:.120}")

    def _call_of(self, name: str, context: Any) -> tuple[CallContext, str | None]:
        """Return the context of a call, and its authorization header."""
        metadata = dict(context.invocation_metadata() or ())
        call = CallContext(
            method=name.rpartition("/")[2],
            request_id=request_id_from(metadata.get(REQUEST_ID_KEY)),
            peer=context.peer(),
            protocol="grpc",
            meter=self._admission.new_meter(),
        )
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        header = metadata.get("authorization")
        return call, header.decode("latin-1") if isinstance(header, bytes) else header

    async def _while_serving(self, answer: Coroutine[Any, Any, None]) -> None:
        """Run the answer until it ends or the server shuts down: health watches would never end by themselves."""
        task = asyncio.ensure_future(answer)
        draining = asyncio.ensure_future(self._admission.draining.wait())
        try:
            await asyncio.wait({task, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                # Time to send the last message: that the server is not serving any more.
                await asyncio.wait({task}, timeout=_FAREWELL_TIMEOUT_S)
            if not task.done():
                self._admission.check_running()
            task.result()
        finally:
            task.cancel()
            draining.cancel()


async def _answered(handle: Callable[[Any, Any], Any], request: Any, context: Any) -> None:
    """Write every response."""
    answers = handle(request, context)
    if not hasattr(answers, "__aiter__"):
        await answers
        return
    async for response in answers:
        await context.write(response)


def _deserializer(read: Callable[[bytes], Any], method: str) -> Callable[[bytes], Any]:
    """Return a deserializer that does not raise: gRPC would answer UNKNOWN and log a traceback.

    It leaves large messages to be parsed later: it runs in the event loop.
    """
    descriptor = _METHODS[method.rpartition("/")[2]].input_type

    def readable(content: bytes) -> Any:
        try:
            return read(content)
        except DecodeError:
            return InvalidMessage()

    return lambda content: (
        readable(content) if len(content) <= INLINE_BYTES else LargeMessage(content, readable, descriptor)
    )


def _serializer(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a serializer that leaves alone what a thread has serialized."""
    return lambda response: response if isinstance(response, bytes) else write(response)


async def _abort(context: Any, call: CallContext, err: MvindexError) -> None:
    """End the call with the error's code, message and class."""
    trailing = ((ERROR_KEY, nearest_known_class(err).__name__), (REQUEST_ID_KEY, call.request_id))
    await context.abort(grpc_code(err), _truncate(str(err)), trailing)


def _truncate(text: str) -> str:
    """Return as much of the text as fits its header: clients refuse those above 8 KB; most bytes are sent as %XX."""
    content = text.encode("utf-8", "replace")
    costs = (1 if 32 <= byte < 127 and byte != 37 else 3 for byte in content)
    fits = sum(1 for cost in accumulate(costs) if cost <= _DETAILS_BYTES)
    return content[:fits].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class ConnectionCaps:
    """The most connections of each port, and of each address there."""

    of_port: int
    of_address: int


def raise_open_files() -> None:
    """Raise the limit of open files of this process as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_caps() -> ConnectionCaps:
    """Return the caps for the limit of open files; half of the descriptors are for each port."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_CONNECTIONS * 4 if soft == resource.RLIM_INFINITY else soft
    of_port = max(8, min(_MOST_CONNECTIONS, (files - _KEPT_FOR_FILES) // 2))
    return ConnectionCaps(of_port, max(4, of_port // 2))


class GrpcConnections:
    """Closes the gRPC connections that were idle longest when there are many.

    gRPC accepts connections by itself, up to a cap of its own, beyond which it would refuse everyone until some end. A
    socket is closed for it by shutdown(), as a peer would.
    """

    def __init__(self, port: int, caps: ConnectionCaps, admission: Admission) -> None:
        self._port, self._admission = port, admission
        # There is room for new ones at each turn.
        self._soft, self._of_address = caps.of_port * 3 // 4, caps.of_address
        self._since: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start looking."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            try:
                if len(os.listdir("/dev/fd")) > self._of_address:
                    self._close_idle()
            except OSError as err:
                # Without a descriptor left none can be looked at; the next turn may find one.
                logger.warning("idle connections cannot be closed now: %s", err)

    def _close_idle(self) -> None:
        with contextlib.ExitStack() as stack:
            connections = {}
            for sock in _connected(self._port):
                stack.enter_context(sock)
                connections[_peer_of(sock)] = sock
            now = time.monotonic()
            self._since = {peer: self._since.get(peer, now) for peer in connections}
            used = self._admission.peers
            for peer in [peer for peer in used if peer not in connections]:
                del used[peer]
            # First those that never called, then by their last call.
            idle = sorted(
                (peer for peer in connections if peer not in used or not used[peer].calls),
                key=lambda peer: max(self._since[peer], used[peer].last if peer in used else 0.0),
            )
            left, of_address = len(connections), Counter(_address_of(peer) for peer in connections)
            for peer in idle:
                if left > self._soft or of_address[_address_of(peer)] > self._of_address:
                    with contextlib.suppress(OSError):  # it has ended by itself
                        connections[peer].shutdown(socket.SHUT_RDWR)
                    left, of_address[_address_of(peer)] = left - 1, of_address[_address_of(peer)] - 1


def _connected(port: int) -> Iterator[socket.socket]:
    """Yield the connected sockets of this process whose local port this is, as descriptors of their own."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            try:
                is_ours = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == port
                if is_ours and copy.getpeername():
                    yield copy
                    continue
            except OSError:
                copy.close()
                raise
            copy.close()


def _peer_of(sock: socket.socket) -> str:
    """Return the peer of a socket as gRPC names it."""
    host, port = sock.getpeername()[:2]
    if host.startswith("::ffff:"):
        host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _address_of(peer: str) -> str:
    return peer.rpartition(":")[0]
