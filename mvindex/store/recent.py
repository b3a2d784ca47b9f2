"""Documents that hits have shown lately, kept in memory as they were read and verified."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from sys import getsizeof
from weakref import WeakSet

# Of all open generations of this process together.
_MOST_BYTES = 32 << 20
# Of a row number and its entry in a dict.
_ENTRY_BYTES = 128
# The fields of a StoredDocument as a bare tuple. The garbage collector passes over tuples of strings, but each of its
# full collections looks at every NamedTuple, and holds up all threads for longer the more of them are kept.
KeptDocument = tuple[str | bytes | None, ...]


class RecentDocuments:
    """Documents of one generation, by row, as of one version of its catalog: metadata may change with every commit.

    When half of the room is taken, documents that were not asked for since the last time give way. Threads may
    overtake each other: a document is then read once more at worst.
    """

    def __init__(self, version: object = None) -> None:
        self.version = version
        self._recent: dict[int, KeptDocument] = {}
        self._older: dict[int, KeptDocument] = {}
        self._sizes = (0, 0)
        _OPEN.add(self)

    @property
    def size_bytes(self) -> int:
        """The memory that the documents take."""
        return sum(self._sizes)

    def find(self, doc_rows: Collection[int]) -> dict[int, KeptDocument]:
        """Return those of the documents that are here, by row."""
        recent, older = self._recent, self._older
        found = {row: recent[row] for row in doc_rows if row in recent}
        if older and len(found) < len(doc_rows):
            again = {row: older[row] for row in doc_rows if row in older and row not in found}
            self.add(again)
            found |= again
        return found

    def add(self, documents: Mapping[int, KeptDocument]) -> None:
        """Keep the documents, by row, unless they take more than half of the room."""
        size = sum(map(getsizeof, chain.from_iterable(documents.values()))) + _ENTRY_BYTES * len(documents)
        room = _MOST_BYTES // (2 * len(_OPEN))
        taken = self._sizes[0]
        if taken + size <= room:
            self._recent.update(documents)
            self._sizes = (taken + size, self._sizes[1])
        elif size <= room:
            self._older, self._recent, self._sizes = self._recent, dict(documents), (size, taken)


_OPEN: WeakSet[RecentDocuments] = WeakSet()
