"""Compaction: a new generation of an index, without its deleted documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.engines.build import EngineChoice, build_files, has_copies, make_copies, remove_others
from mvindex.engines.extend import find_base, has_leftovers, is_outgrown, num_lacking, renew
from mvindex.errors import DamagedIndex
from mvindex.records import CountCallback, no_progress
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.files import size_of
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.writer import GenerationWriter, Transaction

_SORTED_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The outcome of a compaction.

    Attributes:
        generation: The number of the generation that is active now.
        documents: How many documents were kept.
        dropped: How many rows of deleted and replaced documents were dropped.
        bytes_before: Size of the index before.
        bytes_after: Size of the index after, without old files that a reader still uses.
        is_old_in_use: Whether a reader still uses the old generation; a later writer removes its files.
    """

    generation: int
    documents: int
    dropped: int
    bytes_before: int
    bytes_after: int
    is_old_in_use: bool


def compact_store(store: EmbeddedStore, on_progress: CountCallback = no_progress) -> CompactReport:
    """Write a new generation with the live documents only, in the order of their ordinals.

    Ordinals, views and settings stay as they are; the file of copies is made again, and so is the active engine, or it
    is extended. Readers go on with the files they have; writers wait. Takes the writer lock. Without deleted documents
    only an engine that can take in documents that it lacks is written.

    Args:
        store: The store to compact.
        on_progress: Called with the number of documents copied since the last call.
    """
    bytes_before = size_of(store.directory)
    with store.writing() as writer:
        # No variable for the snapshot itself: it would keep the old files open.
        dropped = store.snapshot.num_rows - store.snapshot.num_documents
        if dropped:
            _rewrite(store, writer, on_progress)
        elif num_lacking(store.snapshot) or is_outgrown(store.snapshot):
            rows = np.arange(store.settings["engine"]["built_rows"])
            renew(store, writer, find_base(store.snapshot, rows))
        elif has_leftovers(store.snapshot):
            remove_others(store.snapshot.directory, store.settings["engine"]["directory"], unfinished="")
    kept = [entry for entry in store.directory.glob("generation-*") if entry != store.snapshot.directory]
    return CompactReport(
        generation=store.snapshot.generation,
        documents=store.snapshot.num_documents,
        dropped=dropped,
        bytes_before=bytes_before,
        bytes_after=size_of(store.directory) - sum(map(size_of, kept)),
        is_old_in_use=bool(kept),
    )


def copy_documents(
    store: EmbeddedStore, snapshot: Snapshot, writer: GenerationWriter, on_progress: CountCallback
) -> npt.NDArray[Any]:
    """Commit the live documents of the snapshot to the writer, in the order of their ordinals; return their rows.

    DamagedIndex when one does not match its checksums.
    """
    live = _by_ordinal(snapshot)
    with store.reading(snapshot) as reader:
        writer.copy(reader.rows, live, on_progress)
    return live


def _by_ordinal(snapshot: Snapshot) -> npt.NDArray[Any]:
    """Return the live document rows in the order of their ordinals; 12 bytes a document while sorting, then 4.

    Sorted as one number each, ordinal and row together: an argsort would hold three arrays.
    """
    alive, num_bits = snapshot.alive, snapshot.num_rows.bit_length()
    keys, end = np.empty(snapshot.num_documents, dtype=np.int64), 0
    for begin in range(0, len(alive), _SORTED_ROWS):
        doc_rows = begin + np.flatnonzero(alive[begin : begin + _SORTED_ROWS])
        ordinals = snapshot.views.ordinals(doc_rows)
        if (ordinals >> (62 - num_bits)).any():
            raise DamagedIndex(f"{snapshot.directory}: ordinal {int(ordinals.max())} is beyond that of any index")
        keys[end : end + len(doc_rows)] = (ordinals << num_bits) | doc_rows
        end += len(doc_rows)
    keys.sort()
    keys &= (1 << num_bits) - 1
    return keys.astype(np.int32 if num_bits < 32 else np.int64, copy=False)


def _rewrite(store: EmbeddedStore, rewriting: EmbeddedWriter, on_progress: CountCallback) -> None:
    """Write the store's documents and engine to a new generation, and make it the active one."""
    before = store.snapshot
    engine = before.settings["engine"]
    choice = None if engine is None or before.num_documents == 0 else EngineChoice.of(engine, store.directory.parent)
    with rewriting.new_generation() as (fresh, writer):
        # A snapshot of its own, freed before the engine is built: it takes 8 bytes a document.
        live = copy_documents(store, read_snapshot(before.source, before), writer, on_progress)
        if has_copies(before):
            make_copies(read_snapshot(fresh))
        if choice is not None:
            rows = np.full(before.num_rows, -1, dtype=live.dtype)
            rows[live] = np.arange(len(live))
            record = build_files(read_snapshot(fresh), choice, base=find_base(before, rows[: engine["built_rows"]]))
            writer.commit(Transaction(settings={"engine": record}))
            remove_others(fresh.directory, record["directory"])
