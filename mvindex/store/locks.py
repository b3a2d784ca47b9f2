"""One writer at a time: a lock that ends with its process; the lock file names the process for the error message."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from mvindex.errors import IndexLocked, StoreError
from mvindex.store.files import check_single_name

logger = logging.getLogger(__name__)

FILE_NAME = "writer.lock"
_SERVES = " serves this index at "


# Indexes that this process serves, each locked for as long; a lock each for the process's own writers.
_SERVED: dict[Path, Lock] = {}


@contextmanager
def served_lock(directory: Path, address: str) -> Iterator[None]:
    """Lock the index for this process inside the block; errors of other writers name the address to use."""
    place = directory.resolve()
    with _locked(directory, f"{_holder()}{_SERVES}{address}"):
        _SERVED[place] = Lock()
        try:
            yield
        finally:
            del _SERVED[place]


@contextmanager
def writer_lock(directory: Path) -> Iterator[None]:
    """Make the caller the only writer inside the block; IndexLocked names the process that has the lock.

    flock, not lockf: it belongs to the open file, so that two indexes open in one process exclude each other too.
    """
    turn = _SERVED.get(directory.resolve())
    if turn is None:
        with _locked(directory, _holder()):
            yield
        return
    if not turn.acquire(blocking=False):
        raise _own_writer(directory)
    try:
        yield
    finally:
        turn.release()


@contextmanager
def _locked(directory: Path, holder: str) -> Iterator[None]:
    """Lock the index inside the block, with the owner's name in the lock file."""
    path = directory / FILE_NAME
    check_single_name(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as err:
        is_forbidden = err.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        why = "; the index is read-only here" if is_forbidden else ""
        raise StoreError(f"{path}: cannot write: {err.strerror or err}{why}") from err
    try:
        _acquire(handle, path)
        _sign(handle, holder)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _own_writer(directory: Path) -> IndexLocked:
    return IndexLocked(
        f"{directory}: this process is writing to this index, in another thread or as another open index; let them "
        "write in turns"
    )


def _holder() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(handle: int, holder: str) -> None:
    """Write the owner's name into the lock file, if the disk has room: it is for messages only."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{holder}\n".encode(), 0)
    except OSError as err:
        logger.info("cannot write the holder into the lock file: %s", err)


def _acquire(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        holder = os.pread(handle, 400, 0).decode(errors="replace").strip() or "another process"
        if _SERVES in holder:
            address = holder.rpartition(_SERVES)[2]
            raise IndexLocked(f"{path.parent}: {holder}; write through it: --index {address}") from err
        if holder == _holder():
            raise _own_writer(path.parent) from err
        raise IndexLocked(f"{path.parent}: {holder} is writing to this index; try again when it is done") from err
    except OSError as err:
        raise StoreError(f"{path}: cannot lock: {err.strerror or err}; the file system must support flock") from err
