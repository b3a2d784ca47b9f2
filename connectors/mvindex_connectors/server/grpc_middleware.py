"""Every gRPC call goes through the guard, whatever service it is of: ours, health or reflection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from itertools import accumulate
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from mvindex.errors import MvindexError, QueryError
from mvindex_connectors.remote.status import ERROR_KEY, REQUEST_ID_KEY, code_of, known_class
from mvindex_connectors.server.admission import Call, Guard, request_id_of

CURRENT: ContextVar[Call] = ContextVar("call")
_HEALTH = "/grpc.health.v1.Health/"
_OURS = "/mvindex.v1."
_DETAILS_BYTES = 4000
_FAREWELL_S = 0.5


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
                    if name.startswith(_OURS):
                        await handle(request, context)
                    else:
                        await self._while_serving(_answered(handle, request, context))
            except MvindexError as err:
                await _abort(context, call, err)

        return handled

    async def _while_serving(self, answer: Coroutine[Any, Any, None]) -> None:
        """Nothing; the answer has ended. Those of health and reflection would last for ever, and hold up a drain."""
        task = asyncio.ensure_future(answer)
        draining = asyncio.ensure_future(self._guard.draining.wait())
        try:
            await asyncio.wait({task, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                # What there is to tell is told: that nothing is served any more.
                await asyncio.wait({task}, timeout=_FAREWELL_S)
            if not task.done():
                self._guard.check_running()
            task.result()
        finally:
            task.cancel()
            draining.cancel()


async def _answered(handle: Callable[[Any, Any], Any], request: Any, context: Any) -> None:
    """Nothing; every response was written."""
    answers = handle(request, context)
    if not hasattr(answers, "__aiter__"):
        await answers
        return
    async for response in answers:
        await context.write(response)


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
    await context.abort(code_of(err), _fitting(str(err)), trailing)


def _fitting(text: str) -> str:
    """As much of the text as its header holds. Clients refuse headers above 8 KB; gRPC writes most bytes as %XX."""
    content = text.encode("utf-8", "replace")
    costs = (1 if 32 <= byte < 127 and byte != 37 else 3 for byte in content)
    fits = sum(1 for cost in accumulate(costs) if cost <= _DETAILS_BYTES)
    return content[:fits].decode("utf-8", "ignore")
