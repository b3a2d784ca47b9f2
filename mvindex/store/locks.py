"""One writer at a time: an fcntl lock that dies with its process, with the holder's name in it for the message."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mvindex.errors import IndexLocked, StoreError
from mvindex.store.files import check_regular

logger = logging.getLogger(__name__)

FILE_NAME = "writer.lock"


@contextmanager
def writer_lock(directory: Path) -> Iterator[None]:
    """Inside it, this is the only writer of the index; IndexLocked names the holder when there is another.

    flock, not lockf: it belongs to the open file, so that two indexes open in one process exclude each other too.
    """
    path = directory / FILE_NAME
    check_regular(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as err:
        is_forbidden = err.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        why = "; the index is read-only here" if is_forbidden else ""
        raise StoreError(f"{path}: cannot write: {err.strerror or err}{why}") from err
    try:
        _acquire(handle, path)
        _sign(handle)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _sign(handle: int) -> None:
    """Nothing; the file names the holder, if the disk has room for it: the name is for messages only."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as err:
        logger.info("cannot write the holder into the lock file: %s", err)


def _acquire(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
        raise IndexLocked(f"{path.parent}: {holder} is writing to this index; try again when it is done") from err
    except OSError as err:
        raise StoreError(f"{path}: cannot lock: {err.strerror or err}; the file system must support flock") from err
