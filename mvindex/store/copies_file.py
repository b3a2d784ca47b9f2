"""The file of copies: blocks of 8-bit copies of views as the exact scan reads them, made once, mapped by every process.

Derived, and there only where a build has made it: what it does not cover, each process copies in its own memory. The
file ends with a build; each block names the document rows whose views it copies, and holds for as long as these are the
same. Checksums: of header and table at opening, of a block when a process first reads it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.durable import audit_step, flush_to_disk, rename
from mvindex.errors import DamagedIndex, MvindexError, StoreError
from mvindex.kernels.copies import ALIGNMENT
from mvindex.store.files import check_regular
from mvindex.store.views import MappedFile, MappedViews, block_checksum

UNFINISHED = ".new"
_MAGIC = b"mvindex copies"
# The checksum is that of all bytes behind it, up to the first block.
_HEADER = np.dtype(
    [
        ("magic", "S16"),
        ("checksum", "<u8"),
        ("size_bytes", "<i8"),
        ("num_blocks", "<i8"),
        ("version", "<i4"),
        ("dim", "<i4"),
        ("pitch", "<i4"),
        ("unused", "<i4"),
    ]
)
_CHECKED_FROM = 24
# Document rows [first, last), where their block begins and its length, MappedViews.rows_key() of these rows, and the
# xxh3-64 of the block.
BLOCK_DTYPE = np.dtype(
    [("first", "<i8"), ("last", "<i8"), ("at", "<i8"), ("size_bytes", "<i8"), ("key", "<u8"), ("checksum", "<u8")]
)


class CopiesLayout(NamedTuple):
    """The layout of the blocks: a version of their making, dimensions, and the bytes of a copied view."""

    version: int
    dim: int
    pitch: int


class CopiesFile:
    """A file of copies, memory-mapped; blocks: (b,) BLOCK_DTYPE."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            FileNotFoundError: There is none.
            DamagedIndex: Header or table are not as they were written, or the file is cut.
            StoreError: It is no regular file, or cannot be read.

        """
        self.path = path
        check_regular(path)
        try:
            with open(path, "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size < _HEADER.itemsize:
                    raise _damaged(path, f"expected a header, got {found.st_size} bytes")
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise
        except OSError as err:
            raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
        self.identity = _identity(found)
        self.bytes = np.frombuffer(memory, dtype=np.uint8)
        self.mapped = MappedFile(path, memory, found.st_size)
        self.layout, self.blocks = _read_table(path, self.bytes)
        self._places = {int(first): place for place, first in enumerate(self.blocks["first"])}

    @property
    def size_bytes(self) -> int:
        """The length of the file."""
        return len(self.bytes)

    def is_at(self, path: Path) -> bool:
        """Return whether this file is still the one at the path."""
        try:
            return _identity(os.stat(path)) == self.identity
        except OSError:
            return False

    def find(self, first: int, last: int) -> int | None:
        """Return the place in the table of the block of document rows [first, last); None where there is none."""
        place = self._places.get(first)
        return place if place is not None and self.blocks["last"][place] == last else None

    def content(self, place: int) -> npt.NDArray[np.uint8]:
        """Return a block's bytes, not copied and not checked."""
        begin = int(self.blocks["at"][place])
        return self.bytes[begin : begin + int(self.blocks["size_bytes"][place])]

    def is_sound(self, place: int) -> bool:
        """Return whether a block matches its checksum."""
        return block_checksum(self.content(place)) == int(self.blocks["checksum"][place])

    def is_of(self, place: int, views: MappedViews) -> bool:
        """Return whether a block copies the views of these document rows as they are in the store."""
        first, last = int(self.blocks["first"][place]), int(self.blocks["last"][place])
        return last <= views.num_rows and views.rows_key(first, last) == int(self.blocks["key"][place])


def copies_path(directory: Path, generation: int) -> Path:
    """Return the path of the file of copies in the directory of a generation."""
    return directory / f"copies-{generation:06d}.bin"


def write_copies(
    path: Path, layout: CopiesLayout, blocks: npt.NDArray[Any], contents: Iterable[npt.NDArray[np.uint8]]
) -> None:
    """Write the file durably, in the place of the one that is there, or leave that as it was.

    Args:
        path: The file.
        layout: Of the blocks.
        blocks: (b,) BLOCK_DTYPE; `at` and `checksum` are set here.
        contents: The blocks' bytes, whole multiples of ALIGNMENT.

    Raises:
        StoreError: It cannot be written, such as on a full disk.

    """
    fresh = path.with_name(path.name + UNFINISHED)
    check_regular(fresh)
    begin = _table_end(len(blocks))
    blocks["at"] = begin + np.cumsum(blocks["size_bytes"]) - blocks["size_bytes"]
    try:
        with audit_step("write", fresh), open(fresh, "wb") as file:
            file.seek(begin)
            for place, content in enumerate(contents):
                blocks["checksum"][place] = block_checksum(content)
                file.write(content.data)
            size_bytes = file.tell()
            file.seek(0)
            file.write(_table(layout, blocks, size_bytes))
        flush_to_disk(fresh)
        rename(fresh, path)
    except OSError as err:
        fresh.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {err.strerror or err}") from err
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def copies_faults(path: Path, views: MappedViews | None = None) -> Iterator[str]:
    """Yield what is wrong with the file; nothing for a sound one, or where there is none.

    views: of the generation; where given, blocks of other views are named too.
    """
    try:
        file = CopiesFile(path)
    except FileNotFoundError:
        return
    except MvindexError as err:
        yield str(err).removeprefix(f"{path}: ")
        return
    for place, block in enumerate(file.blocks):
        where = f"bytes {block['at']} to {block['at'] + block['size_bytes']}"
        if not file.is_sound(place):
            yield f"{where} do not match their checksum"
        # A reader of an older state, or one whose state was restored, has fewer document rows.
        elif views is not None and block["last"] <= views.num_rows and not file.is_of(place, views):
            yield f"{where} are copies of other views than those of document rows {block['first']} to {block['last']}"


def _table_end(num_blocks: int) -> int:
    """Return where the first block begins."""
    return -(-(_HEADER.itemsize + num_blocks * BLOCK_DTYPE.itemsize) // ALIGNMENT) * ALIGNMENT


def _table(layout: CopiesLayout, blocks: npt.NDArray[Any], size_bytes: int) -> bytes:
    """Return all bytes up to the first block."""
    header = np.zeros(1, dtype=_HEADER)
    header["magic"], header["size_bytes"], header["num_blocks"] = _MAGIC, size_bytes, len(blocks)
    header["version"], header["dim"], header["pitch"] = layout
    table = bytearray(_table_end(len(blocks)))
    table[: _HEADER.itemsize] = header.tobytes()
    table[_HEADER.itemsize : _HEADER.itemsize + blocks.nbytes] = blocks.tobytes()
    header["checksum"] = xxhash.xxh3_64_intdigest(table[_CHECKED_FROM:])
    table[:_CHECKED_FROM] = header.tobytes()[:_CHECKED_FROM]
    return bytes(table)


def _read_table(path: Path, data: npt.NDArray[np.uint8]) -> tuple[CopiesLayout, npt.NDArray[Any]]:
    header = data[: _HEADER.itemsize].view(_HEADER)[0]
    if header["magic"] != _MAGIC:
        raise _damaged(path, "does not begin as one")
    num_blocks, size_bytes = int(header["num_blocks"]), int(header["size_bytes"])
    if size_bytes != len(data) or not 0 <= num_blocks <= len(data) // BLOCK_DTYPE.itemsize:
        raise _damaged(path, f"expected {size_bytes} bytes, got {len(data)} on disk")
    end = _table_end(num_blocks)
    if end > len(data) or xxhash.xxh3_64_intdigest(data[_CHECKED_FROM:end].data) != int(header["checksum"]):
        raise _damaged(path, "its table does not match its checksum")
    begin = _HEADER.itemsize
    blocks = data[begin : begin + num_blocks * BLOCK_DTYPE.itemsize].view(BLOCK_DTYPE).copy()
    at, sizes = blocks["at"], blocks["size_bytes"]
    is_inside = (at >= end) & (at % ALIGNMENT == 0) & (sizes > 0) & (sizes <= len(data)) & (at <= len(data) - sizes)
    if not (is_inside & (blocks["first"] >= 0) & (blocks["last"] > blocks["first"])).all():
        raise _damaged(path, "its table names blocks that are not in it")
    return CopiesLayout(int(header["version"]), int(header["dim"]), int(header["pitch"])), blocks


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _damaged(path: Path, what: str) -> DamagedIndex:
    return DamagedIndex(f"{path}: a file of copies: {what}; `mvindex build --kind exact` makes it again")
