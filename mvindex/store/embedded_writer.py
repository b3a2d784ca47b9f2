"""EmbeddedWriter: the writes to one embedded store, made while it has the writer lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from mvindex.errors import StoreError
from mvindex.records import CountCallback, Ints, dump_metadata
from mvindex.store.catalog import ExistingDocument
from mvindex.store.create import start_generation
from mvindex.store.files import Current
from mvindex.store.generation import Generation, generations_in, lock_generation, publish, unfinished
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.rows import FORMAT_VERSION, Batch, Rows, StoredRow, pack_spans, result_of, with_mark
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.writer import GenerationWriter, Transaction


class WrittenStore(Protocol):
    """The part of a store that its writer needs."""

    directory: Path

    @property
    def snapshot(self) -> Snapshot:
        """The committed state that the store shows."""

    def refresh(self) -> bool:
        """Show the latest committed state."""

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return the live documents among the ids, as committed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedGeneration:
    """A generation that is being filled in a directory of its own. settings: of its index, with what it changes."""

    directory: Path
    number: int
    index_id: str
    settings: Mapping[str, Any]
    generation: Generation
    writer: GenerationWriter


class EmbeddedWriter:
    """The only writer of an embedded store; EmbeddedStore.writing() yields it. On StoreError the store is as it was."""

    def __init__(self, store: WrittenStore) -> None:
        self._store = store
        self._writer = GenerationWriter(store.snapshot.source, store.snapshot)

    @property
    def parts(self) -> Sequence[EmbeddedWriter]:
        """The writer itself, of the only part."""
        return [self]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings as written last."""
        return self._writer.settings

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return the live documents among the ids, as committed now."""
        return self._store.known(ids)

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out."""
        return result_of(self._writer.settings, mark) is not None

    def commit(self, batch: Batch, known: Mapping[str, ExistingDocument]) -> None:
        """Commit the whole batch, durably: new documents are added, known ones replaced; see Writer.commit()."""
        writer, ids = self._writer, [document.id for document in batch.documents]
        views = batch.views.packed_as(self._store.snapshot.view_type, ids)
        dim, own_dim = int(views.rows.shape[1]), writer.settings["dim"]
        if own_dim is not None and dim != own_dim:
            raise StoreError(f"{self._store.directory}: expected views of {own_dim} dims, got {dim}")
        olds = {doc_id: known[doc_id] for doc_id in ids if doc_id in known}
        first = writer.settings["next_ordinal"]
        rows = Rows(
            documents=_stored_rows(batch),
            ordinals=_ordinals(first, batch, olds),
            packed=views.rows,
            starts=views.starts,
        )
        settings = {**batch.settings, **with_mark(writer.settings, batch.mark, len(ids)), "dim": dim}
        if batch.ordinals is None:
            settings["next_ordinal"] = first + len(ids) - len(olds)
        deleted = [old.doc_row for old in olds.values()]
        writer.commit(Transaction(rows=rows, deleted=deleted, metadata=batch.metadata_updates, settings=settings))

    def delete(self, doc_rows: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these live rows in one commit; see Writer.delete()."""
        writer, rows = self._writer, list(doc_rows)
        if (deleted := result_of(writer.settings, mark)) is not None:
            return deleted
        # A mark is stored also where nothing is deleted: sent again, the write must not find what came since.
        if rows or mark:
            writer.commit(Transaction(deleted=rows, settings=with_mark(writer.settings, mark, len(rows))))
        return len(rows)

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set the metadata (canonical JSON) of these rows in one commit."""
        settings = with_mark(self._writer.settings, mark, len(updates))
        self._writer.commit(Transaction(metadata=updates, settings=settings))

    def change_settings(self, **settings: Any) -> None:
        """Set the settings, durably."""
        self._writer.commit(Transaction(settings=settings))

    def set_lexical(self, lexical: Lexical | None, on_progress: CountCallback) -> None:
        """Build the lexical index of all texts, or remove it (None).

        On an error nothing has changed. on_progress: called with the number of document rows done since the last call,
        deleted ones included.
        """
        self._writer.set_lexical(self._store.snapshot, lexical, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Build the columns of declared filter fields, name to type, or remove them ({})."""
        self._writer.set_filter_fields(fields)

    @contextmanager
    def new_generation(
        self, changes: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterator[tuple[Generation, GenerationWriter]]:
        """Yield an empty generation with this index's settings to fill; it then becomes the active one.

        Readers stay on theirs until they refresh. On an error nothing has changed. changes: settings that differ.
        """
        directory = self._store.directory
        try:
            with self.unpublished(changes) as filled:
                yield filled.generation, filled.writer
            current = Current(format_version=FORMAT_VERSION, generation=filled.number, index_id=filled.index_id)
            publish(directory, filled.directory, current, filled.settings)
        except OSError as err:
            raise StoreError(f"{directory}: cannot write a new generation: {err.strerror or err}") from err
        finally:
            self.follow()

    @contextmanager
    def new_generations(
        self, changes: Sequence[Mapping[str, Any]]
    ) -> Iterator[Sequence[tuple[Generation, GenerationWriter]]]:
        """Yield new_generation() in a list; changes: a list of one."""
        with self.new_generation(*changes) as fresh:
            yield [fresh]

    @contextmanager
    def unpublished(self, changes: Mapping[str, Any]) -> Iterator[UnpublishedGeneration]:
        """Yield an empty generation with this index's settings to fill, which the caller makes the active one."""
        directory, source = self._store.directory, self._store.snapshot.source
        settings = {**self._store.snapshot.settings, **changes}
        # Beyond one that a compaction published before it was killed, should a reader have it locked.
        number = 1 + max([source.number, *(number for number, _ in generations_in(directory))])
        index_id = str(settings["index_id"])
        building = unfinished(directory, number)
        fresh_settings = {**settings, "version": settings["version"] + 1}
        start_generation(building, fresh_settings, number=number, index_id=index_id)
        with closing(lock_generation(number, building)) as fresh:
            yield UnpublishedGeneration(
                directory=building,
                number=number,
                index_id=index_id,
                settings=settings,
                generation=fresh,
                writer=GenerationWriter(fresh, read_snapshot(fresh)),
            )
            fresh.catalog.checkpoint()

    def snapshot(self, previous: Snapshot) -> Snapshot:
        """Return the state that this writer has left; previous: one since the writer was made."""
        return self._writer.snapshot(previous)

    def follow(self) -> None:
        """Write to the generation that is the active one now."""
        self._store.refresh()
        self._writer = GenerationWriter(self._store.snapshot.source, self._store.snapshot)


def _ordinals(first: int, batch: Batch, known: Mapping[str, ExistingDocument]) -> Ints:
    """Return the ordinals: a replaced document keeps its own, a new one gets the next, or the one in the batch."""
    ordinals = np.empty(len(batch.documents), dtype=np.int64)
    is_new = np.array([document.id not in known for document in batch.documents], dtype=bool)
    ordinals[is_new] = first + np.arange(is_new.sum()) if batch.ordinals is None else batch.ordinals[is_new]
    ordinals[~is_new] = [known[document.id].ordinal for document in batch.documents if document.id in known]
    return ordinals


def _stored_rows(batch: Batch) -> list[StoredRow]:
    bounds = pairwise(batch.views.starts.tolist())
    columns = zip(batch.documents, bounds, batch.content_hashes, strict=True)
    # Of given vectors no view stands for a span: looked at once, not for every document.
    has_spans = bool((batch.views.spans >= 0).any())
    return [
        StoredRow(
            id=document.id,
            title=document.title,
            text=document.text,
            metadata=dump_metadata(document.metadata, document.id),
            spans=pack_spans(batch.views.spans[begin:end]) if has_spans else None,
            content_hash=digest,
        )
        for document, (begin, end), digest in columns
    ]
