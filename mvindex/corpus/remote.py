"""Files behind addresses (https://, s3://, memory:// and others), read through fsspec."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command, require

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_T = TypeVar("_T")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/@]*@")
_PATTERN = re.compile(r"[*\[]")
# Bytes of a request: enough for a stream, and little beside the columns of a Parquet file.
_BLOCK_BYTES = 4 << 20
_DENIED = (401, 403)
_NOT_FOUND = 404


def is_remote(path: str) -> bool:
    """Return whether a path is an address rather than a file of this machine."""
    return _ADDRESS.match(path) is not None


def shown_address(path: str) -> str:
    """Return a path for messages: an address without user, password and query, which may hold secrets."""
    return _USER.sub("", re.split(r"[?#]", path, maxsplit=1)[0], count=1) if is_remote(path) else path


def expand_address(address: str) -> list[str]:
    """Return the addresses of the files that a pattern matches, sorted; one that is no pattern, as it is.

    Raises:
        CorpusError: The pattern matches no file, or its place cannot be reached.
        ExtraMissing: fsspec, or its package for this protocol, is not installed.

    """
    if not _PATTERN.search(address):
        return [address]
    with _remote_errors(address):
        system, path = open_system(address)
        found = sorted(system.glob(path))
    if not found:
        raise CorpusError(f"{shown_address(address)}: no file matches this pattern")
    return [one if is_remote(one) else system.unstrip_protocol(one) for one in found]


def remote_bytes(address: str) -> int | None:
    """Return the bytes of a file, None where the server does not say; CorpusError where there is no such file."""
    with _remote_errors(address):
        system, path = open_system(address)
        info = system.info(path)
    if info.get("type") == "directory":
        shown = shown_address(address)
        raise CorpusError(f"{shown}: is a directory; name the files in it, for example {shown.rstrip('/')}/*.jsonl")
    size: int | None = info.get("size")
    return size


def open_address(address: str) -> BinaryIO:
    """Open a file, by ranges where the server has them; reading it raises OSError without secrets."""
    with _remote_errors(address):
        system, path = open_system(address)
        return cast(BinaryIO, _RemoteFile(system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")))


def open_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    core = require("fsspec.core", "files", f"reading {shown_address(address)}")
    try:
        system, path = core.url_to_fs(address)
    except ImportError as err:  # of the package of this protocol, which fsspec names
        raise ExtraMissing(
            f"reading {shown_address(address)} needs a package for this protocol: {install_command('files')} has "
            f"those of http and s3; fsspec says: {err}"
        ) from err
    return system, path


class _RemoteFile(io.RawIOBase):
    """A file of fsspec whose failures, of whatever library, are OSErrors."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return getattr(self._file, "size", None) is not None and bool(self._file.seekable())

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        block = self._call(lambda: self._file.read(len(view)))
        view[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._call(lambda: int(self._file.seek(offset, whence)))

    def tell(self) -> int:
        return self._call(lambda: int(self._file.tell()))

    def close(self) -> None:
        if not self.closed:
            self._call(self._file.close)
        super().close()

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except Exception as err:  # noqa: BLE001 - aiohttp, botocore and others have their own trees; all become OSError
            raise OSError(failure_reason(err)) from None


@contextmanager
def _remote_errors(address: str) -> Iterator[None]:
    """Turn the errors of fsspec and of the libraries below it into CorpusErrors that name the address."""
    try:
        yield
    except (CorpusError, ExtraMissing):
        raise
    except Exception as err:  # noqa: BLE001 - as above
        # Without the cause, whose message may hold the whole address.
        raise CorpusError(f"{shown_address(address)}: {failure_reason(err)}") from None


def failure_reason(err: BaseException) -> str:
    """Return why a file cannot be read, without what its message may hold of the address."""
    chain = list(_chain(err))
    status = next((code for one in chain if isinstance(code := getattr(one, "status", None), int)), None)
    names = " ".join(type(one).__name__ for one in chain)
    if status in _DENIED or any(isinstance(one, PermissionError) for one in chain):
        return "permission denied; give the credentials of the protocol, for example in the environment"
    if "Credentials" in names:
        return "there are no credentials; give those of the protocol, for example in the environment"
    if status not in (None, _NOT_FOUND):
        return f"the server answered with status {status}"
    if any(word in names for word in ("Connect", "Timeout", "DNSError", "gaierror")):
        return "the server cannot be reached; see the host and port of the address, and the network"
    if status == _NOT_FOUND or any(isinstance(one, FileNotFoundError) for one in chain):
        return "no such file"
    if isinstance(err, ValueError) and "Protocol not known" in str(err):
        return "expected a protocol that fsspec knows, such as https or s3"
    return f"cannot be read: {type(err).__name__}"


def _chain(err: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it comes from."""
    while err is not None:
        yield err
        err = err.__cause__ or err.__context__
