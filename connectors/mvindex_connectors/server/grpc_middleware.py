"""gRPC middleware: every call of every service (ours, health, reflection) goes through admission."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
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
from mvindex_connectors.server.large_requests import INLINE_BYTES, check_fields, parse_large
from mvindex_connectors.server.response_budget import without_frames

CURRENT_CALL: ContextVar[CallContext] = ContextVar("call")
_HEALTH = "/grpc.health.v1.Health/"
_OWN_SERVICES = "/mvindex.v1."
_METHODS = service_pb2.DESCRIPTOR.services_by_name["MvindexService"].methods_by_name
_DETAILS_BYTES = 4000
_FAREWELL_TIMEOUT_S = 0.5


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
