"""Append-only files with a committed length and a checksum per 1 MiB block.

The catalog holds length and checksums; bytes past the committed length are the leftovers of a writer that died.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import DamagedIndex, StoreError
from mvindex.store.durable import announced, flush_to_disk
from mvindex.store.files import check_regular

BLOCK_BYTES = 1 << 20
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CommittedSegment:
    """The catalog on a segment file: its length and (num_blocks,) uint64 checksums (the last block partial)."""

    name: str
    size_bytes: int
    checksums: npt.NDArray[np.uint64]


def append(directory: Path, before: CommittedSegment, parts: Iterable[npt.NDArray[np.generic]]) -> CommittedSegment:
    """What is to be committed after the parts stand on disk behind the committed bytes, fsynced.

    Whatever lay past the committed length is cut off first. OSError (a full disk, say) becomes StoreError;
    DamagedIndex when the last, partial block is not what was committed: its new checksum would hide that.
    """
    path = directory / before.name
    is_new = before.size_bytes == 0
    check_regular(path)
    try:
        with open(path, "w+b" if is_new else "r+b") as file:
            _check_length(path, file.seek(0, os.SEEK_END), before)
            _check_last_block(file, path, before)
            file.truncate(before.size_bytes)
            file.seek(before.size_bytes)
            with announced("write", path):
                for part in (part for part in parts if part.size):
                    file.write(np.ascontiguousarray(part).data.cast("B"))
                file.flush()
            with announced("fsync", path):
                os.fsync(file.fileno())
            size_bytes = file.tell()
        if is_new:
            flush_to_disk(directory)
    except OSError as err:
        if isinstance(err, FileNotFoundError) and not is_new:
            raise DamagedIndex(f"{path} is gone; the catalog committed {before.size_bytes} bytes of it") from err
        raise StoreError(f"{path}: cannot append: {err.strerror or err}; nothing of this batch was stored") from err
    return CommittedSegment(before.name, size_bytes, _extended_checksums(path, before, size_bytes))


def file_checksum(path: Path) -> str:
    """The xxh3-128 of a whole file, as hex."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(_COPY_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def block_checksum(block: npt.NDArray[np.uint8]) -> int:
    """The xxh3-64 of a block's bytes."""
    return int(xxhash.xxh3_64_intdigest(block.data))


class MappedSegment:
    """The committed bytes of a segment file, memory-mapped; each block is checked when first touched."""

    def __init__(self, directory: Path, committed: CommittedSegment, previous: MappedSegment | None = None) -> None:
        self.path = directory / committed.name
        self.committed = committed
        self._memory: mmap.mmap | None = None
        self.bytes: npt.NDArray[np.uint8] = self._map()
        self._is_checked = np.zeros(len(committed.checksums), dtype=bool)
        if previous is not None and previous.committed.name == committed.name:
            sealed = previous.committed.size_bytes // BLOCK_BYTES
            self._is_checked[:sealed] = previous._is_checked[:sealed]

    def read_at_random(self) -> None:
        """Nothing; a page that is missing is read alone: what lies behind it is read where expect() calls for it."""
        if self._memory is not None:
            self._memory.madvise(mmap.MADV_RANDOM)

    def expect(self, begin: int, end: int) -> None:
        """Nothing; these bytes are being read, and as many behind them, where they are not in memory yet."""
        if self._memory is not None and begin < end:
            first = begin - begin % mmap.PAGESIZE
            size = min(end + (end - begin), len(self.bytes)) - first
            self._memory.madvise(mmap.MADV_WILLNEED, first, size)

    def check(self, begin: int, end: int) -> None:
        """Nothing, when every block that holds bytes [begin, end) matches its checksum; else DamagedIndex."""
        first, last = begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        for block in first + np.flatnonzero(~self._is_checked[first:last]):
            self._check_block(int(block))

    def damaged_blocks(self) -> Iterator[int]:
        """The numbers of the blocks that do not match their checksum, all blocks read afresh."""
        for block in range(len(self.committed.checksums)):
            if self._block_checksum(block) != int(self.committed.checksums[block]):
                yield block

    def _check_block(self, block: int) -> None:
        if self._block_checksum(block) != int(self.committed.checksums[block]):
            raise _damaged(self.path, block * BLOCK_BYTES)
        self._is_checked[block] = True

    def _block_checksum(self, block: int) -> int:
        return block_checksum(self.bytes[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])

    def _map(self) -> npt.NDArray[np.uint8]:
        size_bytes = self.committed.size_bytes
        if size_bytes == 0:
            return np.empty(0, dtype=np.uint8)
        check_regular(self.path)
        try:
            _check_length(self.path, self.path.stat().st_size, self.committed)
            with open(self.path, "rb") as file:
                self._memory = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
            return np.frombuffer(self._memory, dtype=np.uint8)
        except FileNotFoundError as err:
            raise DamagedIndex(f"{self.path} is gone, though {size_bytes} bytes of it were committed") from err
        except OSError as err:
            raise StoreError(f"{self.path}: cannot be read: {err.strerror or err}") from err


def _check_last_block(file: BinaryIO, path: Path, committed: CommittedSegment) -> None:
    begin = committed.size_bytes // BLOCK_BYTES * BLOCK_BYTES
    file.seek(begin)
    part = file.read(committed.size_bytes - begin)
    if part and xxhash.xxh3_64_intdigest(part) != int(committed.checksums[-1]):
        raise _damaged(path, begin)


def _damaged(path: Path, begin: int) -> DamagedIndex:
    return DamagedIndex(
        f"{path}: the MiB from byte {begin} on does not match its checksum; no answer is given from damaged data"
    )


def _check_length(path: Path, size_bytes: int, committed: CommittedSegment) -> None:
    if size_bytes < committed.size_bytes:
        raise DamagedIndex(f"{path}: {size_bytes} bytes on disk; the catalog committed {committed.size_bytes}")


def _extended_checksums(path: Path, before: CommittedSegment, size_bytes: int) -> npt.NDArray[np.uint64]:
    """Checksums of all blocks: the sealed ones kept, from the old partial block on read back from the file."""
    sealed = before.size_bytes // BLOCK_BYTES
    fresh = []
    with open(path, "rb") as file:
        file.seek(sealed * BLOCK_BYTES)
        for begin in range(sealed * BLOCK_BYTES, size_bytes, BLOCK_BYTES):
            fresh.append(xxhash.xxh3_64_intdigest(file.read(min(BLOCK_BYTES, size_bytes - begin))))
    return np.concatenate([before.checksums[:sealed], np.array(fresh, dtype=np.uint64)])
