"""Indexes with a history: several generations and commits, replaced and deleted documents, changed metadata.

Each kit makes the index that is damaged, and beside it what a careless restore could put in place of its files:
copies of itself some commits and a generation earlier, another index, and an emptied one with more commits.
"""

import os
import shutil
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

import mvindex
from mvindex.index import embedded_store_of
from tests.durability.documents import DIM, SentenceViews, doc_id, document, given_views

SOUND, OLDER, GENERATION, OTHER, EMPTIED = "sound", "older", "generation", "other", "emptied"


@dataclass(frozen=True, kw_only=True)
class Kit:
    """How the indexes of a case are made. kind: of the engine, exact for none; dim: of given views, None for texts.

    has_log: the last writer was killed, and its commits are only in SQLite's log. is_fresh: the last change was a
    compaction. count: documents added first.
    """

    name: str
    kind: str
    dim: int | None = DIM
    dtype: str = "fp16"
    has_log: bool = False
    is_fresh: bool = False
    count: int = 14

    def create(self, path: Path) -> mvindex.Index:
        """Create an empty index."""
        if self.dim is None:
            return mvindex.create(path, encoder=SentenceViews(), dtype=self.dtype, temperature=0.05, lexical="none")
        return mvindex.create(path, dim=self.dim, dtype=self.dtype, temperature=0.5)

    def open(self, path: Path) -> mvindex.Index:
        """Open the index at the path for queries of either kind."""
        return mvindex.open(path, encoder=SentenceViews() if self.dim is None else None)

    def add(self, index: mvindex.Index, numbers: Iterable[int], version: int = 1) -> None:
        """Add the documents of these numbers."""
        documents = [document(number, version) for number in numbers]
        if self.dim is None:
            index.add(documents)
        else:
            index.add_views(documents, [views_of(each, self.dim) for each in documents])

    def build(self, index: mvindex.Index) -> None:
        """Build the engine of the kit."""
        index.admin.build(kind=self.kind)

    def make(self, folder: Path) -> None:
        """Make all the indexes in the folder."""
        first, path = self.count, folder / SOUND
        self._start(path, range(first), [3, 5], [4, first - 1])
        shutil.copytree(path, folder / GENERATION)
        if not self.has_log:
            with self.open(path) as index:
                index.admin.compact()
        self._start(folder / OTHER, range(100, 100 + first), [103], [101], is_compacted=not self.has_log)
        self._empty(folder / EMPTIED)
        with self.open(path) as index:
            self.add(index, range(first, first + 10))
            index.update(doc_id(8), metadata={"group": 3, "note": "changed"})
            self.build(index)
        shutil.copytree(path, folder / OLDER)
        (self._end_killed if self.has_log else self._end)(path)

    def _start(self, path, numbers, replaced, deleted, is_compacted=False):
        with self.create(path) as index:
            self.add(index, numbers)
            self.add(index, replaced, version=2)
            index.delete(ids=[doc_id(number) for number in deleted])
            self.build(index)
            if is_compacted:
                index.admin.compact()

    def _empty(self, path: Path) -> None:
        """Make an index without documents, of the same generation, with many commits."""
        with self.create(path) as index:
            if not self.has_log:
                self.add(index, [0])
                index.delete(ids=[doc_id(0)])
                index.admin.compact()
            for _ in range(20):
                index.admin.build(kind="exact")

    def _end(self, path: Path) -> None:
        with self.open(path) as index:
            self.add(index, [2, 5], version=3)
            self.add(index, range(self.count + 10, self.count + 14))
            index.delete(ids=[doc_id(9), doc_id(self.count + 1)])
            index.update(doc_id(11), metadata={"group": 0, "lang": "日本"})
            if self.is_fresh:
                index.admin.compact()

    def _end_killed(self, path: Path) -> None:
        """Do the same in a process whose log a reader keeps from being checkpointed, and kill it at the end."""
        pid = os.fork()
        if pid == 0:
            with self.open(path) as index, embedded_store_of(index).reading(embedded_store_of(index).snapshot):
                self._end(path)
                os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        log = next(path.rglob("*-wal"))
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL or log.stat().st_size < 10_000:
            raise RuntimeError(
                f"{log}: expected at least 10000 bytes and SIGKILL, got {log.stat().st_size} and {status}"
            )


def views_of(given: mvindex.Document, dim: int) -> np.ndarray:
    """Return the ragged views of a document for an index of given vectors."""
    if dim == DIM:
        return given_views(given)
    seed = int.from_bytes(blake2b(f"{given.id} {given.text}".encode(), digest_size=8).digest(), "little")
    generator = np.random.default_rng(seed)
    return generator.standard_normal((int(generator.integers(8, 21)), dim)).astype(np.float32)


KITS = {
    kit.name: kit
    for kit in (
        Kit(name="texts", kind="hnsw", dim=None),
        Kit(name="vectors", kind="flat"),
        Kit(name="log", kind="exact", dtype="fp32", has_log=True),
        Kit(name="compacted", kind="flat", dim=None, is_fresh=True),
        Kit(name="blocks", kind="exact", dim=256, count=420),
    )
}
