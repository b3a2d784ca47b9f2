"""Error classes and gRPC codes: one table for the server and the clients.

The name of the class travels in the trailing metadata. Where it is missing (a proxy or gRPC itself responded), the
code decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grpc import StatusCode

from mvindex import errors

ERROR_KEY = "mvindex-error"
REQUEST_ID_KEY = "x-request-id"

CODES: dict[type[errors.MvindexError], StatusCode] = {
    errors.ConfigError: StatusCode.INVALID_ARGUMENT,
    errors.ExtraMissing: StatusCode.FAILED_PRECONDITION,
    errors.CorpusError: StatusCode.INVALID_ARGUMENT,
    errors.DocumentError: StatusCode.INVALID_ARGUMENT,
    errors.CheckpointError: StatusCode.FAILED_PRECONDITION,
    errors.EncoderError: StatusCode.INVALID_ARGUMENT,
    errors.EncoderUnavailable: StatusCode.FAILED_PRECONDITION,
    errors.StoreError: StatusCode.FAILED_PRECONDITION,
    errors.IndexLocked: StatusCode.ABORTED,
    errors.DamagedIndex: StatusCode.DATA_LOSS,
    errors.StaleReader: StatusCode.ABORTED,
    errors.NoSuchIndex: StatusCode.NOT_FOUND,
    errors.QueryError: StatusCode.INVALID_ARGUMENT,
    errors.CursorExpired: StatusCode.INVALID_ARGUMENT,
    errors.NotCalibrated: StatusCode.INVALID_ARGUMENT,
    errors.EngineError: StatusCode.FAILED_PRECONDITION,
    errors.EngineMissing: StatusCode.FAILED_PRECONDITION,
    errors.EngineUnavailable: StatusCode.FAILED_PRECONDITION,
    errors.Unsupported: StatusCode.UNIMPLEMENTED,
    errors.RemoteError: StatusCode.UNKNOWN,
    errors.ServerUnavailable: StatusCode.UNAVAILABLE,
    errors.ServerFailed: StatusCode.INTERNAL,
    errors.TimedOut: StatusCode.DEADLINE_EXCEEDED,
    errors.AccessDenied: StatusCode.UNAUTHENTICATED,
    errors.NotPermitted: StatusCode.PERMISSION_DENIED,
    errors.LimitExceeded: StatusCode.RESOURCE_EXHAUSTED,
    errors.MvindexError: StatusCode.UNKNOWN,
}

HTTP_STATUS: dict[StatusCode, int] = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ABORTED: 409,
    StatusCode.FAILED_PRECONDITION: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}

_BY_NAME = {kind.__name__: kind for kind in CODES}
# The class of a code without a class name, as sent by gRPC, a proxy or an older server.
_BY_CODE: dict[StatusCode, type[errors.MvindexError]] = {
    StatusCode.INVALID_ARGUMENT: errors.QueryError,
    StatusCode.NOT_FOUND: errors.NoSuchIndex,
    StatusCode.UNIMPLEMENTED: errors.Unsupported,
    StatusCode.UNAVAILABLE: errors.ServerUnavailable,
    StatusCode.INTERNAL: errors.ServerFailed,
    StatusCode.DEADLINE_EXCEEDED: errors.TimedOut,
    StatusCode.UNAUTHENTICATED: errors.AccessDenied,
    StatusCode.PERMISSION_DENIED: errors.NotPermitted,
    StatusCode.RESOURCE_EXHAUSTED: errors.LimitExceeded,
    StatusCode.DATA_LOSS: errors.DamagedIndex,
}


def nearest_known_class(error: errors.MvindexError) -> type[errors.MvindexError]:
    """Return the error's class, or its nearest base class in the table."""
    return next(kind for kind in type(error).__mro__ if kind in CODES)


def grpc_code(error: errors.MvindexError) -> StatusCode:
    """Return the gRPC code of an error."""
    return CODES[nearest_known_class(error)]


def http_status(error: errors.MvindexError) -> int:
    """Return the HTTP status of an error."""
    return HTTP_STATUS.get(grpc_code(error), 500)


def error_from_code(code: StatusCode, message: str, trailing: Iterable[Any] | None) -> errors.MvindexError:
    """Return the error that a server sent, of the class that was raised there."""
    name = dict(trailing or ()).get(ERROR_KEY)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    return (kind or _BY_CODE.get(code, errors.RemoteError))(message)
