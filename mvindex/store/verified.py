"""The rows of texts and metadata that this process has verified, and trusts from then on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

import numpy as np

# Rows that room is made for at once.
_LEAST_ROWS = 1 << 16


class VerifiedRows:
    """Which document rows of one generation were found sound: 9 bytes a row, in memory once a row is read.

    Texts never change. Metadata may: it is trusted while its row has the checksum that it was verified with. A thread
    that overtakes another one verifies a row twice at worst.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._texts = bytearray()
        # Zero, too, where nothing was verified: metadata with this checksum is verified each time.
        self._metadata = np.zeros(0, dtype=np.int64).data

    def without_texts(self, doc_rows: Iterable[int]) -> set[int]:
        """Return the rows whose id and texts were not verified yet."""
        texts = self._texts
        size = len(texts)
        return {row for row in doc_rows if row >= size or not texts[row]}

    def without_metadata(self, rows: Sequence[tuple[Any, ...]]) -> set[int]:
        """Return the rows whose metadata was not verified yet.

        Args:
            rows: Document row, checksum of its metadata, and anything else. Their texts were verified.

        """
        metadata = self._metadata
        return {row[0] for row in rows if row[1] != metadata[row[0]]}

    def add(self, doc_row: int, metadata_checksum: int) -> None:
        """Note that a row was found sound."""
        with self._lock:
            if doc_row >= len(self._texts):
                self._grow(max(_LEAST_ROWS, 2 * len(self._texts), doc_row + 1))
            self._metadata[doc_row] = metadata_checksum
            self._texts[doc_row] = True

    def _grow(self, size: int) -> None:
        metadata = np.zeros(size, dtype=np.int64)
        metadata[: len(self._metadata)] = self._metadata
        self._metadata = metadata.data
        self._texts = self._texts + bytes(size - len(self._texts))
