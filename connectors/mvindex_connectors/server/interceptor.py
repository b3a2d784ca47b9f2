"""Every gRPC call goes through the guard, whatever service it is of: ours, health or reflection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from mvindex.errors import MvindexError, QueryError
from mvindex_connectors.remote.status import ERROR_KEY, REQUEST_ID_KEY, code_of, known_class
from mvindex_connectors.server.guarding import Call, Guard, request_id_of

CURRENT: ContextVar[Call] = ContextVar("call")
_HEALTH = "/grpc.health.v1.Health/"
_OURS = "/mvindex.v1."


class NoMessage:
    """Stands for bytes that are no message, on their way to who tells the client so."""

    def refuse(self) -> NoReturn:
        """Never returns: QueryError."""
        raise QueryError("the request's bytes are no message of this method; see schemas/mvindex/v1")


class GuardedServer:
    """What services are added to, in the server's place: it gets their methods behind the guard.

    Wrapped once, not at each call as an interceptor does, which took a tenth of a vector query's way.
    """

    def __init__(self, server: grpc.aio.Server, guard: Guard) -> None:
        self._server, self._guard = server, guard

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Nothing; the same methods are registered by name."""

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        """Nothing; the methods of the service are the server's, behind the guard."""
        guarded = {name: self._guarded(f"/{service_name}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service_name, guarded)

    def _guarded(self, name: str, handler: Any) -> Any:
        read = handler.request_deserializer
        if name.startswith(_OURS):
            read = _deserializer(read)
        if not handler.response_streaming:
            unary = self._unary(name, handler.stream_unary if handler.request_streaming else handler.unary_unary)
            make = grpc.stream_unary_rpc_method_handler if handler.request_streaming else (
                grpc.unary_unary_rpc_method_handler)  # fmt: skip
            return make(unary, read, handler.response_serializer)
        stream = self._stream(name, handler.stream_stream if handler.request_streaming else handler.unary_stream)
        make = grpc.stream_stream_rpc_method_handler if handler.request_streaming else (
            grpc.unary_stream_rpc_method_handler)  # fmt: skip
        return make(stream, read, handler.response_serializer)

    def _unary(self, name: str, handle: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handled(request: Any, context: Any) -> Any:
            call, header = _call_of(name, context)
            CURRENT.set(call)
            try:
                with self._guard.passing(call, header, is_open=name.startswith(_HEALTH)):
                    if isinstance(request, NoMessage):
                        request.refuse()
                    return await handle(request, context)
            except MvindexError as err:
                await _abort(context, call, err)

        return handled

    def _stream(self, name: str, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[None]]:
        async def handled(request: Any, context: Any) -> None:
            call, header = _call_of(name, context)
            CURRENT.set(call)
            try:
                with self._guard.passing(call, header, is_open=name.startswith(_HEALTH)):
                    if isinstance(request, NoMessage):
                        request.refuse()
                    answered = handle(request, context)
                    if not hasattr(answered, "__aiter__"):
                        await answered
                        return
                    async for response in answered:
                        await context.write(response)
            except MvindexError as err:
                await _abort(context, call, err)

        return handled


def _deserializer(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Reads messages; gRPC itself would end the call with UNKNOWN and a traceback in the log."""

    def readable(content: bytes) -> Any:
        try:
            return read(content)
        except DecodeError:
            return NoMessage()

    return readable


def _call_of(name: str, context: Any) -> tuple[Call, str | None]:
    """The call, and its authorization header."""
    metadata = dict(context.invocation_metadata() or ())
    call = Call(
        method=name.rpartition("/")[2],
        request_id=request_id_of(metadata.get(REQUEST_ID_KEY)),
        peer=context.peer(),
        protocol="grpc",
    )
    context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
    header = metadata.get("authorization")
    return call, header.decode("latin-1") if isinstance(header, bytes) else header


async def _abort(context: Any, call: Call, err: MvindexError) -> None:
    """Never returns: the call ends with the error's code, message and class."""
    trailing = ((ERROR_KEY, known_class(err).__name__), (REQUEST_ID_KEY, call.request_id))
    # Longer details, or a control character in them, break the headers that they travel in.
    await context.abort(code_of(err), str(err)[:4000], trailing)
