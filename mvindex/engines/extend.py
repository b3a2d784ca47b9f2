"""Engines that take in new documents: when they do, and when they are built from nothing instead."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from mvindex import engines
from mvindex.engines.build import EngineChoice, build_files, check_files, remove_others
from mvindex.engines.protocol import Base, cache_bytes
from mvindex.errors import IndexLocked, MvindexError
from mvindex.records import Ints, ProgressCallback, no_progress
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.files import size_of
from mvindex.store.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Documents that an engine lacks are scanned beside it. It takes them in once they are so many, and this share of those
# that it covers: all its files are written again. Measured by bench/graph_growth.py.
LEAST_DOCUMENTS, _SHARE = 1000, 32
# Compaction builds from nothing what has grown to more than so many times its first size, or has lost more documents
# than this part of it: means and search parameters are those of the documents that were there at first.
_GROWTH, _LOSS = 2, 1


def extend_if_due(store: EmbeddedStore) -> bool:
    """Let the active engine take in the documents that it lacks, if they are many; return whether it did.

    Takes the writer lock. A failure is only logged: the documents are stored, and are scanned as before.
    """
    try:
        if not _is_due(store.snapshot):
            if has_leftovers(store.snapshot):
                _remove_superseded(store)
            return False
        with store.writing() as writer:
            is_due = _is_due(store.snapshot)
            if is_due:
                logger.info("%s: the engine takes in %d documents", store.directory, num_lacking(store.snapshot))
                rows = np.arange(store.settings["engine"]["built_rows"])
                renew(store, writer, _base(store.snapshot, rows))
            return is_due
    except IndexLocked:
        return False  # who writes now will come by here
    except (MvindexError, OSError) as err:
        logger.warning("%s: new documents are scanned; the engine could not take them in: %s", store.directory, err)
        return False


def renew(
    store: EmbeddedStore, writer: EmbeddedWriter, base: Base | None, on_progress: ProgressCallback = no_progress
) -> None:
    """Build the active engine again over all documents, from a base or from nothing, in the same generation."""
    choice = EngineChoice.of(store.settings["engine"], store.directory.parent)
    record = build_files(store.snapshot, choice, on_progress, base)
    writer.change_settings(engine=record)
    remove_others(store.snapshot.directory, record["directory"], unfinished=record["kind"])


def num_lacking(snapshot: Snapshot) -> int:
    """Return how many live documents the active engine lacks and could take in; 0 for kinds that do not extend."""
    record = snapshot.settings["engine"]
    lacking = 0 if record is None else int(np.count_nonzero(snapshot.alive[record["built_rows"] :]))
    return lacking if lacking and _extends(record) else 0


def is_outgrown(snapshot: Snapshot) -> bool:
    """Return whether the documents are so many more, or others, that the active engine is to be built from nothing."""
    record = snapshot.settings["engine"]
    if record is None or not _extends(record):
        return False
    origin = record["settings"]["origin"]
    gone = origin["gone"] + snapshot.num_rows - snapshot.num_documents
    return bool(snapshot.num_documents > _GROWTH * origin["rows"] or gone > _LOSS * origin["rows"])


def find_base(snapshot: Snapshot, rows: Ints) -> Base | None:
    """Return the active engine as the base of a build; None where one is to be built from nothing.

    rows: see Base.
    """
    record = snapshot.settings["engine"]
    if not _extends(record) or is_outgrown(snapshot):
        return None
    try:
        return _base(snapshot, rows)
    except (MvindexError, OSError) as err:
        logger.warning("%s: the engine is built from nothing: %s", snapshot.directory.parent, err)
        return None


def _base(snapshot: Snapshot, rows: Ints) -> Base:
    """Return the active engine as the base of a build; DamagedIndex where a file does not match its checksum."""
    record = snapshot.settings["engine"]
    directory = snapshot.directory / record["directory"]
    check_files(directory, record)
    return Base(directory=directory, settings=record["settings"], rows=rows, views=snapshot.views)


def _is_due(snapshot: Snapshot) -> bool:
    record = snapshot.settings["engine"]
    if record is None or num_lacking(snapshot) < max(LEAST_DOCUMENTS, record["built_rows"] // _SHARE):
        return False
    # Whoever adds documents takes no more memory for it than for scans; beyond, compaction is to be called.
    return size_of(snapshot.directory / record["directory"]) <= cache_bytes()


def has_leftovers(snapshot: Snapshot) -> bool:
    """Return whether an engine that was superseded is still there, since its successor's process was killed."""
    record = snapshot.settings["engine"]
    if record is None:
        return False
    others = (entry for entry in snapshot.directory.glob("*engine-*") if entry.name != record["directory"])
    return any(others) and _extends(record)


def _remove_superseded(store: EmbeddedStore) -> None:
    """Delete engines that were superseded; builds that were interrupted stay, to be continued."""
    with store.writing():
        remove_others(store.snapshot.directory, store.settings["engine"]["directory"], unfinished="")


def _extends(record: Mapping[str, Any]) -> bool:
    """Return whether an engine can take in documents: of such a kind, and not of an earlier version."""
    return "origin" in record["settings"] and engines.find_kind(record["kind"]).extends
