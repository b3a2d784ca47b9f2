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
    """Base of every error that mvindex raises on purpose.

    Way out: That of the class that was raised.
    """


class ConfigError(MvindexError):
    """A setting, flag or argument is wrong.

    Way out: Correct the argument, option or setting that the message begins with.
    """


class ExtraMissing(ConfigError):
    """An optional package is not installed; the message names the command that installs it.

    Way out: Run the `pip install` that the message ends with.
    """


class CorpusError(MvindexError):
    """An input file or one of its rows is wrong; the message names path and line.

    Way out: Correct the row or file that the message names, or leave bad rows out by `--on-error skip`.
    """


class DocumentError(CorpusError):
    """A document's own value is wrong.

    Way out: Correct the document that the message names.
    """


class CheckpointError(MvindexError):
    """An encoder directory is missing, incomplete or not what it says.

    Way out: Name an encoder of those in the message, or export or train the checkpoint again.
    """


class EncoderError(MvindexError):
    """An encoder returned vectors, or a reranker scores, of an unexpected shape, number or type.

    Way out: Return one finite vector for each text, each of the same dimensions, or one score for each document.
    """


class EncoderUnavailable(EncoderError):
    """The endpoint of an encoder refuses, or cannot be reached; the message names its URL and status.

    Way out: Check URL, key and network, and run the same command again: it continues.
    """


class StoreError(MvindexError):
    """The index on disk cannot be read or written.

    Way out: Check path, permissions and free space; `mvindex verify` checks the index.
    """


class IndexLocked(StoreError):
    """Another writer has the lock of the index.

    Way out: Wait for the other writer, or write through the server that the message names.
    """


class DamagedIndex(StoreError):
    """Stored bytes do not match their checksum.

    Way out: `mvindex build` makes derived files again; `mvindex verify --salvage NEW` saves the documents.
    """


class StaleReader(StoreError):
    """The files of this snapshot are gone; open the index again.

    Way out: Open the index again.
    """


class QueryError(MvindexError):
    """A query, filter or search argument is wrong.

    Way out: Correct the argument that the message begins with.
    """


class CursorExpired(QueryError):
    """The cursor of a page cannot go on: it is of another index or query, or has shown more than it remembers.

    Way out: Search again without a cursor.
    """


class NotCalibrated(QueryError):
    """A least confidence was asked for where no calibration says what scores mean.

    Way out: Fit one to your questions by `mvindex tune --confidence`, or search without `min_confidence`.
    """


class EngineError(MvindexError):
    """A search engine failed.

    Way out: Make the engine again by `mvindex build`.
    """


class EngineMissing(EngineError):
    """No engine of that name is installed.

    Way out: Install the package that offers it, or build another kind.
    """


class EngineUnavailable(EngineError):
    """The engine is installed but cannot be loaded or reached.

    Way out: Do what the message says of package, memory or address.
    """


class Unsupported(EngineError):
    """The engine or index does not have the operation.

    Way out: Take the way that the message names; `index.capabilities` says before a call what works.
    """


class NoSuchIndex(StoreError):
    """The server holds no index of that name.

    Way out: Take a name that `GET /v1/indexes` lists.
    """


class RemoteError(MvindexError):
    """A server did not answer.

    Way out: That of the class that was raised.
    """


class ServerUnavailable(RemoteError):
    """The server cannot be reached, or is shutting down.

    Way out: Check the address by `curl http://HOST:PORT/livez`.
    """


class ServerFailed(RemoteError):
    """An unexpected error in the server; its log has the details under the request id of the message.

    Way out: Look in its log for the request id of the message.
    """


class TimedOut(RemoteError):
    """The server did not answer in time.

    Way out: Ask for less at once, or raise `timeout_s` of `CallSettings`.
    """


class AccessDenied(RemoteError):
    """The token is missing or wrong.

    Way out: Set `MVINDEX_TOKEN` to a token of the server's file.
    """


class NotPermitted(AccessDenied):
    """The token does not permit this operation: it only reads.

    Way out: Use a token whose role and indexes permit it.
    """


class LimitExceeded(RemoteError):
    """A request exceeds what the server allows, at once or in total; the message names the limit.

    Way out: Ask for less at once, or raise the server's option.
    """
