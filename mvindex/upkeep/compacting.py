"""Compaction: a new generation of an index, without its deleted documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.build import EngineChoice, build_files
from mvindex.errors import DamagedIndex
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.generation import Generation
from mvindex.store.reader import SnapshotReader
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.writer import GenerationWriter, Rows, Transaction

_COPIED_DOCUMENTS = 1024
_SORTED_ROWS = 1 << 16

Progress = Callable[[int], None]


def _ignore(count: int) -> None:
    """Nothing: nobody watches the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What a compaction did: documents kept, rows of retired documents dropped, bytes of the index before and after.

    is_old_held: a reader still uses the old generation; its files go when a writer next finds it released.
    """

    generation: int
    documents: int
    dropped: int
    bytes_before: int
    bytes_after: int
    is_old_held: bool


def compact_store(store: EmbeddedStore, on_progress: Progress = _ignore) -> CompactReport:
    """What was done: the store's rows are those of its living documents alone, in the order of their ordinals.

    Ordinals, views and settings stay as they are; the active engine is built again. Readers go on with the files they
    have; writers wait. Takes the writer lock. With nothing retired nothing is written.
    """
    bytes_before = stored_bytes(store.directory)
    with store.writing():
        # No name for the snapshot itself: it would hold the old files.
        dropped = store.snapshot.num_rows - store.snapshot.num_documents
        if dropped:
            _rewrite(store, on_progress)
    kept = [entry for entry in store.directory.glob("generation-*") if entry != store.snapshot.directory]
    return CompactReport(
        generation=store.snapshot.generation,
        documents=store.snapshot.num_documents,
        dropped=dropped,
        bytes_before=bytes_before,
        bytes_after=stored_bytes(store.directory) - sum(map(stored_bytes, kept)),
        is_old_held=bool(kept),
    )


def copy_documents(snapshot: Snapshot, reader: SnapshotReader, writer: GenerationWriter, on_progress: Progress) -> None:
    """Nothing; the living documents of the snapshot are committed by the writer, in the order of their ordinals.

    DamagedIndex when one does not match its checksums.
    """
    living = _by_ordinal(snapshot)
    for begin in range(0, len(living), _COPIED_DOCUMENTS):
        doc_rows = living[begin : begin + _COPIED_DOCUMENTS]
        stored = reader.stored(doc_rows.tolist())
        packed, starts = snapshot.views.fetch(doc_rows)
        documents = [stored[row] for row in doc_rows.tolist()]
        rows = Rows(documents=documents, ordinals=snapshot.views.ordinals(doc_rows), packed=packed, starts=starts)
        writer.commit(Transaction(rows=rows))
        on_progress(len(doc_rows))


def _by_ordinal(snapshot: Snapshot) -> npt.NDArray[Any]:
    """The living document rows in the order of their ordinals; 12 bytes a document while they are sorted, then 4.

    Sorted as one number each, ordinal and row together: an argsort would hold three arrays.
    """
    alive, num_bits = snapshot.alive, snapshot.num_rows.bit_length()
    keys, end = np.empty(snapshot.num_documents, dtype=np.int64), 0
    for begin in range(0, len(alive), _SORTED_ROWS):
        doc_rows = begin + np.flatnonzero(alive[begin : begin + _SORTED_ROWS])
        ordinals = snapshot.views.ordinals(doc_rows)
        if (ordinals >> (62 - num_bits)).any():
            raise DamagedIndex(f"{snapshot.directory}: ordinal {int(ordinals.max())}; no index has so many documents")
        keys[end : end + len(doc_rows)] = (ordinals << num_bits) | doc_rows
        end += len(doc_rows)
    keys.sort()
    keys &= (1 << num_bits) - 1
    return keys.astype(np.int32 if num_bits < 32 else np.int64, copy=False)


def stored_bytes(directory: Path) -> int:
    """What the files in the directory take."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _rewrite(store: EmbeddedStore, on_progress: Progress) -> None:
    """Nothing; the store's documents and engine stand in a new generation, which counts from now on."""
    before = store.snapshot
    engine = before.settings["engine"]
    choice = None if engine is None or before.num_documents == 0 else EngineChoice.of(engine, store.directory.parent)
    with store.new_generation() as (fresh, writer), store.reading(before) as reader:
        # A snapshot of its own, gone before the engine is built: its 8 bytes a document are then free for the new ones.
        copy_documents(read_snapshot(before.source, before), reader, writer, on_progress)
        if choice is not None:
            _build(fresh, writer, choice)


def _build(fresh: Generation, writer: GenerationWriter, choice: EngineChoice) -> None:
    """Nothing; the generation has an engine of this choice."""
    record = build_files(read_snapshot(fresh), choice)
    writer.commit(Transaction(settings={"engine": record}))
