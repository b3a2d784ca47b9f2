"""Append-only files with a committed length and a checksum per 1 MiB block.

The catalog holds length and checksums; bytes past the committed length were left by a writer that was killed.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.durable import audit_step, flush_to_disk, open_unshared
from mvindex.errors import DamagedIndex, StoreError
from mvindex.store.files import MappedFile, check_length, check_regular

BLOCK_BYTES = 1 << 20
# Blocks that are called for at once where they are verified: a disk has something to do meanwhile.
_BLOCKS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class CommittedSegment:
    """Committed state of a segment file: its length and (num_blocks,) uint64 checksums (the last block partial)."""

    name: str
    size_bytes: int
    checksums: npt.NDArray[np.uint64]


def append(directory: Path, before: CommittedSegment, data: npt.NDArray[np.generic]) -> CommittedSegment:
    """Append the data behind the committed bytes, with fsync, and return the state to commit.

    Bytes past the committed length are cut off first. OSError (such as a full disk) becomes StoreError; DamagedIndex
    when the last, partial block is not as committed: its new checksum would hide that.
    """
    path = directory / before.name
    is_new = before.size_bytes == 0
    check_regular(path)
    try:
        with open(path, "w+b" if is_new else "r+b", opener=open_unshared) as file:
            check_length(path, file.seek(0, os.SEEK_END), before.size_bytes)
            _check_last_block(file, path, before)
            file.truncate(before.size_bytes)
            file.seek(before.size_bytes)
            with audit_step("write", path):
                if data.size:
                    file.write(np.ascontiguousarray(data).data.cast("B"))
                file.flush()
            with audit_step("fsync", path):
                os.fsync(file.fileno())
            size_bytes = file.tell()
        if is_new:
            flush_to_disk(directory)
    except OSError as err:
        if isinstance(err, FileNotFoundError) and not is_new:
            raise DamagedIndex(f"{path}: expected {before.size_bytes} committed bytes, got no file") from err
        raise StoreError(f"{path}: cannot append: {err.strerror or err}; nothing of this batch was stored") from err
    return CommittedSegment(before.name, size_bytes, _extended_checksums(path, before, size_bytes))


def block_checksum(block: npt.NDArray[np.uint8]) -> int:
    """Return the xxh3-64 of a block's bytes."""
    return int(xxhash.xxh3_64_intdigest(block.data))


class MappedSegment:
    """The committed bytes of a segment file, memory-mapped; each block is verified when it is first read."""

    def __init__(self, directory: Path, committed: CommittedSegment, previous: MappedSegment | None = None) -> None:
        self.path = directory / committed.name
        self.committed = committed
        self.file: MappedFile | None = None
        self.bytes: npt.NDArray[np.uint8] = self._map()
        self._is_checked = np.zeros(len(committed.checksums), dtype=bool)
        if previous is not None and previous.committed.name == committed.name:
            sealed = previous.committed.size_bytes // BLOCK_BYTES
            self._is_checked[:sealed] = previous._is_checked[:sealed]

    def read_at_random(self) -> None:
        """Turn off read-ahead: pages that are not in memory are read singly, or where expect() asks for them."""
        if self.file is not None:
            self.file.memory.madvise(mmap.MADV_RANDOM)

    def expect(self, begin: int, end: int) -> None:
        """Start reading these bytes, and as many behind them, where they are not in memory yet."""
        self._call_for(begin, end + (end - begin))

    def check(self, begin: int, end: int) -> None:
        """Verify the blocks of bytes [begin, end) that are read for the first time; DamagedIndex on a mismatch."""
        first, last = begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        for block in first + np.flatnonzero(~self._is_checked[first:last]):
            self._check_block(int(block))

    def _call_for(self, begin: int, end: int) -> None:
        """Start reading these bytes, as far as the file goes, where they are not in memory yet."""
        first, last = begin - begin % mmap.PAGESIZE, min(end, len(self.bytes))
        if self.file is not None and first < last:
            self.file.memory.madvise(mmap.MADV_WILLNEED, first, last - first)

    def _check_block(self, block: int) -> None:
        if self._block_checksum(block) != int(self.committed.checksums[block]):
            raise _damaged(self.path, block * BLOCK_BYTES)
        self._is_checked[block] = True

    def _block_checksum(self, block: int) -> int:
        # Else each page that is not in memory is a read by itself where read_at_random() was called.
        self._call_for(block * BLOCK_BYTES, (block + _BLOCKS_AHEAD) * BLOCK_BYTES)
        return block_checksum(self.bytes[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])

    def _map(self) -> npt.NDArray[np.uint8]:
        size_bytes = self.committed.size_bytes
        if size_bytes == 0:
            return np.empty(0, dtype=np.uint8)
        check_regular(self.path)
        try:
            check_length(self.path, self.path.stat().st_size, size_bytes)
            with open(self.path, "rb") as file:
                memory = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
            self.file = MappedFile(self.path, memory, size_bytes)
            return np.frombuffer(memory, dtype=np.uint8)
        except FileNotFoundError as err:
            raise DamagedIndex(f"{self.path}: expected {size_bytes} committed bytes, got no file") from err
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


def _extended_checksums(path: Path, before: CommittedSegment, size_bytes: int) -> npt.NDArray[np.uint64]:
    """Return the checksums of all blocks: from the old partial block on, read back from the file."""
    sealed = before.size_bytes // BLOCK_BYTES
    fresh = []
    with open(path, "rb") as file:
        file.seek(sealed * BLOCK_BYTES)
        for begin in range(sealed * BLOCK_BYTES, size_bytes, BLOCK_BYTES):
            fresh.append(xxhash.xxh3_64_intdigest(file.read(min(BLOCK_BYTES, size_bytes - begin))))
    return np.concatenate([before.checksums[:sealed], np.array(fresh, dtype=np.uint64)])
