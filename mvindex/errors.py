"""The whole exception tree.

MvindexError
    ConfigError                 a setting, flag or argument is wrong
        ExtraMissing            an optional package is needed; the message holds the command
    CorpusError                 an input file or row is wrong; names path and line
        DocumentError           a document's own value is wrong (no file known)
    CheckpointError             an encoder directory is wrong
    EncoderError                an encoder or reranker returned something unexpected
        EncoderUnavailable      the endpoint of an encoder refuses, or cannot be reached
    StoreError                  the index on disk cannot be read or written
        IndexLocked             another writer has the lock of the index
        DamagedIndex            stored bytes do not match their checksum
        StaleReader             the files of this snapshot are gone; open again
        NoSuchIndex             the server holds no index of that name
    QueryError                  a query, filter or search argument is wrong
        CursorExpired           a cursor is of another index or query, or remembers too much
    EngineError                 a search engine failed
        EngineMissing           no such engine is installed
        EngineUnavailable       the engine cannot be reached or loaded
        Unsupported             the engine or index does not have the operation
    RemoteError                 a server did not answer
        ServerUnavailable       it cannot be reached, or shuts down
        ServerFailed            an unexpected error in it; its log has the details
        TimedOut                it did not answer in time
        AccessDenied            the token is missing or wrong
            NotPermitted        the token does not permit this operation
        LimitExceeded           a request exceeds what it allows, at once or in total
"""

from __future__ import annotations


class MvindexError(Exception):
    """Base of every error that mvindex raises on purpose."""


class ConfigError(MvindexError):
    """A setting, flag or argument is wrong."""


class ExtraMissing(ConfigError):
    """An optional package is not installed; the message names the command that installs it."""


class CorpusError(MvindexError):
    """An input file or one of its rows is wrong; the message names path and line."""


class DocumentError(CorpusError):
    """A document's own value is wrong."""


class CheckpointError(MvindexError):
    """An encoder directory is missing, incomplete or not what it says."""


class EncoderError(MvindexError):
    """An encoder returned vectors, or a reranker scores, of an unexpected shape, number or type."""


class EncoderUnavailable(EncoderError):
    """The endpoint of an encoder refuses, or cannot be reached; the message names its URL and status."""


class StoreError(MvindexError):
    """The index on disk cannot be read or written."""


class IndexLocked(StoreError):
    """Another writer has the lock of the index."""


class DamagedIndex(StoreError):
    """Stored bytes do not match their checksum."""


class StaleReader(StoreError):
    """The files of this snapshot are gone; open the index again."""


class QueryError(MvindexError):
    """A query, filter or search argument is wrong."""


class CursorExpired(QueryError):
    """The cursor of a page cannot go on: it is of another index or query, or has shown more than it remembers."""


class NotCalibrated(QueryError):
    """A least confidence was asked for where no calibration says what scores mean."""


class EngineError(MvindexError):
    """A search engine failed."""


class EngineMissing(EngineError):
    """No engine of that name is installed."""


class EngineUnavailable(EngineError):
    """The engine is installed but cannot be loaded or reached."""


class Unsupported(EngineError):
    """The engine or index does not have the operation."""


class NoSuchIndex(StoreError):
    """The server holds no index of that name."""


class RemoteError(MvindexError):
    """A server did not answer."""


class ServerUnavailable(RemoteError):
    """The server cannot be reached, or is shutting down."""


class ServerFailed(RemoteError):
    """An unexpected error in the server; its log has the details under the request id of the message."""


class TimedOut(RemoteError):
    """The server did not answer in time."""


class AccessDenied(RemoteError):
    """The token is missing or wrong."""


class NotPermitted(AccessDenied):
    """The token does not permit this operation: it only reads."""


class LimitExceeded(RemoteError):
    """A request exceeds what the server allows, at once or in total; the message names the limit."""
