"""The ids that a run has written to an empty index: no other id needs to be looked up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.records import Ints
from mvindex_connectors.milvus.layout import id_hash


class SeenIds:
    """Ids by their hashes, 8 bytes each; an id with the hash of another counts as seen too."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []

    def add(self, ids: Sequence[str]) -> None:
        """Add ids."""
        self._parts.append(np.sort(_hashes(ids)))
        # A part is merged with a longer one only when it has grown as long, so each hash is moved a few times.
        while len(self._parts) > 1 and len(self._parts[-2]) <= len(self._parts[-1]):
            self._parts[-2:] = [np.sort(np.concatenate(self._parts[-2:]))]

    def among(self, ids: Sequence[str]) -> list[str]:
        """Return the ids that may have been added."""
        hashes = _hashes(ids)
        is_there = np.zeros(len(ids), dtype=bool)
        for part in self._parts:
            at = np.searchsorted(part, hashes)
            is_there |= part[np.minimum(at, len(part) - 1)] == hashes
        return [doc_id for doc_id, there in zip(ids, is_there.tolist(), strict=True) if there]


def _hashes(ids: Sequence[str]) -> Ints:
    return np.array([id_hash(doc_id) for doc_id in ids], dtype=np.int64)
