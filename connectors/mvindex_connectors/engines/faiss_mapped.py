"""Inverted lists mapped from Faiss' file: a search reads the lists that it looks at, each checked at its first use.

Beside index.faiss lies lists.npy, (nlist + 1, 3) int64: where a list begins in the file, how many codes it has, and the
checksum of its bytes; at last where the lists end, 0, and the checksum of all bytes before the lists. In the file a
list is the number of its rows and the rows, int64, and the number of bytes of its codes and the codes.
"""

from __future__ import annotations

import io
import logging
import mmap
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import DamagedIndex
from mvindex.kernels import has_int8_products
from mvindex.records import Ints
from mvindex.store.files import check_length
from mvindex.store.views import MappedFile, check_mapped, range_checksums
from mvindex_connectors.engines.faiss_files import INDEX_NAME, translated
from mvindex_connectors.engines.faiss_ivf import ivf_of

logger = logging.getLogger(__name__)

LISTS_NAME = "lists.npy"
# Smaller files are read whole, in some .1 s.
LEAST_BYTES = 256 << 20
# Ahead of the first list: a name of four bytes, the number of lists and three sizes. A list has two numbers.
_HEAD_BYTES, _NUMBER_BYTES = 4 + 4 * 8, 8
# Lists with less between them are called for together.
_GAP_BYTES = 64 << 10


def write_lists(faiss: ModuleType, index: Any, directory: Path) -> None:
    """Write lists.npy beside the file of an index of kind ivf-pq that is large, and that compiled loops can read."""
    path = directory / INDEX_NAME
    size_bytes, ivf = path.stat().st_size, faiss.downcast_index(ivf_of(faiss, index))
    if size_bytes < LEAST_BYTES or ivf.d % 8 or not ivf.by_residual:
        return
    held = faiss.downcast_InvertedLists(ivf.invlists)
    sizes = np.array([held.list_size(number) for number in range(ivf.nlist)], dtype=np.int64)
    blocks = -(-sizes // int(held.n_per_block)) * int(held.block_size)
    table = np.zeros((ivf.nlist + 1, 3), dtype=np.int64)
    table[1:, 0] = (2 * _NUMBER_BYTES + 8 * sizes + blocks).cumsum()
    table[:, 0] += size_bytes - table[-1, 0]
    table[:-1, 1] = sizes
    data = _mapped(path, size_bytes)
    begins = table[:, 0]
    numbers = [int.from_bytes(data.memory[begin : begin + _NUMBER_BYTES], "little") for begin in begins[:-1].tolist()]
    head = data.memory[int(begins[0]) - _HEAD_BYTES : int(begins[0]) - _HEAD_BYTES + 4]
    if head != b"ilbl" or numbers != sizes.tolist():
        # The engine is sound; it is read whole.
        logger.warning("%s: expected lists at the end as Faiss 1.15 writes them, got %r; read whole", path, head)
        return
    with memoryview(data.memory) as view:
        table[:-1, 2] = range_checksums(view, begins[:-1], begins[1:]).view(np.int64)
        table[-1, 2] = np.uint64(xxhash.xxh3_64_intdigest(view[: int(begins[0])])).astype(np.int64)
    with open(directory / LISTS_NAME, "xb") as file:
        np.save(file, table, allow_pickle=False)


def is_mapped(settings: Mapping[str, Any], device: str | None) -> bool:
    """Return whether an engine is read by its lists: the catalog has their note, and this machine scans them."""
    return device is None and has_int8_products() and LISTS_NAME in settings.get("files", ())


class MappedLists:
    """The inverted lists in an index' file. Thread-safe.

    index: What Faiss reads of the file, without codes. table: (nlist, 3) int64: the address of each list's codes, their
    number, the address of their rows.
    """

    def __init__(self, faiss: ModuleType, directory: Path) -> None:
        self._faiss, self._lock, self._whole = faiss, Lock(), None
        noted = _read_note(directory / LISTS_NAME)
        self._begins, self._checksums = noted[:, 0].copy(), noted[:-1, 2].view(np.uint64)
        self._file = _mapped(directory / INDEX_NAME, int(noted[-1, 0]))
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._file.memory, dtype=np.uint8)
        self._is_checked = np.zeros(len(noted) - 1, dtype=bool)
        before = self._file.memory[: int(noted[0, 0])]
        if xxhash.xxh3_64_intdigest(before) != int(noted[-1:, 2].view(np.uint64)[0]):
            raise _damaged(self._file.path, 0)
        # Faiss reads its own part, followed by lists of no codes.
        empty = io.BytesIO(before + bytes(2 * _NUMBER_BYTES * (len(noted) - 1)))
        self.index = translated(faiss.read_index, faiss.PyCallbackIOReader(empty.read))
        sizes, rows_at = noted[:-1, 1], self._bytes.ctypes.data + noted[:-1, 0] + _NUMBER_BYTES
        codes_at = rows_at + 8 * sizes + _NUMBER_BYTES
        ends, lists = codes_at + self._code_bytes(sizes) - self._bytes.ctypes.data, ivf_of(faiss, self.index)
        if lists.nlist != len(sizes) or (sizes < 0).any() or (ends != self._begins[1:]).any():
            raise _damaged(self._file.path, int(self._begins[0]))
        self.table = np.column_stack([codes_at, sizes, rows_at])

    def _code_bytes(self, sizes: Ints) -> Ints:
        """Return the bytes of the codes of lists of these sizes."""
        held = self._faiss.downcast_InvertedLists(ivf_of(self._faiss, self.index).invlists)
        return -(-sizes // int(held.n_per_block)) * int(held.block_size)

    def check(self, lists: Ints) -> None:
        """Check lists that are looked at for the first time; DamagedIndex when one does not match its checksum."""
        check_mapped([self._file])
        fresh = np.sort(lists[~self._is_checked[lists]])
        if not len(fresh):
            return
        begins, ends = self._begins[fresh], self._begins[fresh + 1]
        self._call_for(begins, ends)
        wrong = np.flatnonzero(range_checksums(self._bytes.data, begins, ends) != self._checksums[fresh])
        if len(wrong):
            raise _damaged(self._file.path, int(begins[wrong[0]]))
        self._is_checked[fresh] = True

    def whole(self) -> Any:
        """Return the index with all lists in memory, for Faiss to search them."""
        with self._lock:
            if self._whole is None:
                self.check(np.arange(len(self._is_checked)))
                # Not from the path, where a newer engine may lie, or none.
                self._file.memory.seek(0)
                reader = self._faiss.PyCallbackIOReader(self._file.memory.read)
                self._whole = translated(self._faiss.read_index, reader)
            return self._whole

    def drop_whole(self) -> None:
        """Give back the memory of whole(), once Faiss searches no more."""
        self._whole = None

    def _call_for(self, begins: Ints, ends: Ints) -> None:
        """Start reading these ranges of bytes, which rise, where they are not in memory."""
        is_first = np.append(True, begins[1:] - ends[:-1] > _GAP_BYTES)
        firsts, lasts = begins[is_first], ends[np.append(np.flatnonzero(is_first)[1:] - 1, len(ends) - 1)]
        for begin, end in zip((firsts - firsts % mmap.PAGESIZE).tolist(), lasts.tolist(), strict=True):
            self._file.memory.madvise(mmap.MADV_WILLNEED, begin, end - begin)


def _read_note(path: Path) -> Ints:
    """Return lists.npy; DamagedIndex where it is no note of lists."""
    try:
        with open(path, "rb") as file:
            noted: Ints = np.lib.format.read_array(file, allow_pickle=False)
        begins = noted[:, 0]
        if noted.dtype == np.int64 and noted.shape[1:] == (3,) and begins[0] > 0 and (begins[1:] > begins[:-1]).all():
            return noted
        found = f"{noted.dtype} of shape {noted.shape}"
    except (EOFError, IndexError, ValueError) as err:
        found = str(err)
    raise DamagedIndex(
        f"{path}: expected rising begins of lists, (nlist + 1, 3) int64, got {found}; `mvindex build` makes it again"
    )


def _mapped(path: Path, size_bytes: int) -> MappedFile:
    check_length(path, path.stat().st_size, size_bytes)
    with open(path, "rb") as file:
        return MappedFile(path, mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ), size_bytes)


def _damaged(path: Path, begin: int) -> DamagedIndex:
    return DamagedIndex(f"{path} does not match its checksum from byte {begin} on; `mvindex build` makes it again")
