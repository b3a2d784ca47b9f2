"""ShardedStore: documents in several embedded stores, each in the one that its id belongs to, used as one store.

A row of the whole is the row inside the shard, with the shard's number above bit 48.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from mvindex.errors import MvindexError, StaleReader, StoreError
from mvindex.records import Floats, IndexInfo, Ints
from mvindex.retries import Retries
from mvindex.store.catalog import ExistingDocument
from mvindex.store.embedded import EmbeddedStore, LocalStore, StorePart, remove_untouched
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.files import size_of
from mvindex.store.filters import Filter
from mvindex.store.generation import Generation, place
from mvindex.store.protocol import Capabilities
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import Batch
from mvindex.store.shard_layout import ShardPlace, check_place, open_shard, read_shards, shard_error_context, shard_of
from mvindex.store.shard_switch import end_switch, write_switch
from mvindex.store.views import ViewType
from mvindex.store.writer import GenerationWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SHARD_BITS = 48
# Shards that another process is moving to another encoder are opened so often.
_OPENED_AGAIN = 3


def open_sharded_store(path: Path, *, allow_partial: bool = False) -> ShardedStore:
    """Open the shards at path.

    Args:
        path: The directory of the index.
        allow_partial: Leave out shards that are missing or damaged, instead of raising StoreError.

    Raises:
        StoreError: Naming the shard; also when none of them can be opened.

    """
    path = path.absolute()
    for _ in range(_OPENED_AGAIN):
        store = _open_once(path, allow_partial)
        if store.is_of_one_encoder:
            return store
        store.close()
    raise StoreError(
        f"{path}: expected shards of one encoder, got several: a shard was replaced by hand. Restore a snapshot "
        "(mvindex restore)"
    )


def _open_once(path: Path, allow_partial: bool) -> ShardedStore:
    """Open the shards at path as they are now."""
    shards = read_shards(path)
    stores: dict[int, EmbeddedStore] = {}
    missing: dict[int, StoreError] = {}
    try:
        for place, index_id in zip(shards.places(), shards.shard_ids, strict=True):
            try:
                stores[place.number] = open_shard(path, place, index_id)
            except StoreError as err:
                if not allow_partial:
                    raise
                missing[place.number] = err
        if not stores:
            raise StoreError(f"{path}: none of its {shards.count} shards can be opened; {missing[0]}")
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    for error in missing.values():
        logger.warning("%s; it is left out", error)
    return ShardedStore(path, stores, shards.count, missing=missing, allow_partial=allow_partial)


def open_single_shard(path: Path, place: ShardPlace) -> ShardedStore:
    """Open one shard, to be filled on its own from a whole corpus; ConfigError when the index has another count."""
    check_place(path, place)
    return ShardedStore(path.absolute(), {place.number: open_shard(path, place)}, place.count, is_single=True)


@dataclass(frozen=True, slots=True)
class Sharding:
    """The shards of an index that are written here, by number, out of `count`."""

    stores: Mapping[int, EmbeddedStore]
    count: int


class ShardedStore(LocalStore):
    """Documents in several embedded stores. A document is atomic; what concerns several is done shard by shard.

    Where shards were missing when it was opened with allow_partial, the others answer; writes raise StoreError.
    """

    def __init__(  # noqa: PLR0913 - how shards are open; made by the two functions above only
        self,
        path: Path,
        stores: Mapping[int, EmbeddedStore],
        count: int,
        *,
        missing: Mapping[int, StoreError] | None = None,
        allow_partial: bool = False,
        is_single: bool = False,
    ) -> None:
        """Take open shards by number.

        Args:
            path: The directory of the index, in which those of the shards lie.
            stores: The open shards.
            count: Number of shards of the whole index.
            missing: Shards that are not there, with the reason.
            allow_partial: Whether reads go on without shards that fail.
            is_single: Whether one shard is opened to be filled on its own.

        """
        self.directory = path
        self._stores, self._count = dict(stores), count
        self._missing = dict(missing or {})
        self._allows_partial, self._is_single = allow_partial, is_single
        self._refresh_lock = RLock()

    @property
    def where(self) -> str:
        """The directory, for messages."""
        return str(self.directory)

    def reopening(self) -> Mapping[str, Any]:
        """Return the directory, and whether shards may be missing; StoreError for one shard of an index."""
        if self._is_single:
            raise StoreError(f"{self.directory}: one shard, opened to be filled, cannot be copied or pickled")
        for store in self._stores.values():
            store.reopening()
        return {"path": self.where, "allow_partial": self._allows_partial}

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the store has."""
        return Capabilities()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the first shard, with the next ordinal of all and the engine of one that is filled.

        Shards differ in what somebody changed who was killed between two of them; a warning names it.
        """
        if not self.is_of_one_encoder:
            with self._refresh_lock:  # another thread moves the shards on, one after the other
                pass
        first, *others = [store.settings for store in self._stores.values()]
        if any(other.get("fusion") != first.get("fusion") for other in others):
            logger.warning(
                "%s: its shards hold different fusions; set_hybrid_weights() makes them equal", self.directory
            )
        filled = [store.settings for store in self._stores.values() if store.count()]
        engine = filled[0]["engine"] if filled else first["engine"]
        next_ordinal = max(store.settings["next_ordinal"] for store in self._stores.values())
        return {**first, "dim": self.dim, "engine": engine, "next_ordinal": next_ordinal}

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""
        return next((store.dim for store in self._stores.values() if store.dim is not None), None)

    @property
    def view_type(self) -> ViewType:
        """The number type of stored views."""
        return next(iter(self._stores.values())).view_type

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""
        return tuple(sorted(self._missing))

    @property
    def sharding(self) -> Sharding:
        """The shards to be written. StoreError when one is missing."""
        self._refuse_missing()
        return Sharding(self._stores, self._count)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever stored in any shard."""
        return not self._missing and all(store.is_untouched for store in self._stores.values())

    def parts(self) -> Sequence[StorePart]:
        """Return the shards that are there; errors inside errors() name the shard."""
        return [StorePart(store, partial(self._shard_errors, number)) for number, store in self._stores.items()]

    def all_parts(self) -> Sequence[StorePart]:
        """Return all shards; StoreError when one is missing. None is left out of a read that fails."""
        places = {number: ShardPlace(number, self._count) for number in self._whole()}
        return [
            StorePart(store, partial(shard_error_context, store.directory, places[number]))
            for number, store in self._stores.items()
        ]

    def attempt(self, read: Callable[[Sequence[StorePart]], T]) -> T:
        """Return what `read` returns for the shards; where partial answers are allowed, without those that fail."""
        try:
            return Retries(self._leave_out).run(lambda: read(self.parts()))
        except _ShardFailed as failed:
            raise failed.error from failed

    def _leave_out(self, failed: Exception) -> bool:
        """Leave a shard that failed out where partial answers are allowed; return whether it is left out."""
        if not isinstance(failed, _ShardFailed) or not self._allows_partial or len(self._stores) == 1:
            return False
        logger.warning("%s; it is left out", failed.error)
        self._missing[failed.number] = failed.error
        self._stores.pop(failed.number).close()
        return True

    def close(self) -> None:
        """Close all shards."""
        for store in self._stores.values():
            store.close()

    def refresh(self) -> bool:
        """Move each shard on to its latest state, all to that of one encoder; return whether one had a newer one."""
        with self._refresh_lock:
            has_newer = any([store.refresh() for store in self._stores.values()])
            # The switch to another encoder came between two shards: it is made by now.
            return (
                any([store.refresh() for store in self._stores.values()]) if not self.is_of_one_encoder else has_newer
            )

    @property
    def is_of_one_encoder(self) -> bool:
        """Whether the shards have views of one encoder, as they have but for the moment of a switch."""
        specs = [store.settings["encoder"] or {} for store in self._stores.values()]
        return len({spec.get("fingerprint") for spec in specs}) <= 1

    def remove_if_untouched(self) -> None:
        """Close the store, and remove its directory if nothing was ever stored in it, by anyone."""
        directories = [store.directory for store in self._stores.values()]
        remove_untouched(self, directories[0] if self._is_single else self.directory, directories)

    def count(self) -> int:
        """Return the number of documents in the shards that are there."""
        return sum(store.count() for store in self._stores.values())

    def info(self) -> IndexInfo:
        """Describe the index: all shards that are there together."""
        infos = [store.info() for store in self._stores.values()]
        joined = join_infos(infos, shards=self._count, missing_shards=self.missing_shards)
        return replace(joined, path=self.where, size_bytes=size_of(self.directory))

    def get(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of the ids that exist; StoreError when one belongs to a shard that is missing."""
        found: dict[str, StoredDocument] = {}
        for number, own in self.by_shard(ids).items():
            found |= self._owner(number, own).get(own)
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist with its views; StoreError when a shard of theirs is missing."""
        found: dict[str, tuple[StoredDocument, Floats]] = {}
        for number, own in self.by_shard(ids).items():
            found |= self._owner(number, own).views(own)
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

    def vectors(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the views of each of the documents that exist; StoreError when a shard of theirs is missing."""
        found: dict[str, Floats] = {}
        for number, own in self.by_shard(ids).items():
            found |= self._owner(number, own).vectors(own)
        return found

    def stored(self, ids: Sequence[str], encoder: str) -> Iterator[Batch]:
        """Yield the documents of the ids that exist, as stored, shard by shard; see Store.stored()."""
        for number, own in self.by_shard(ids).items():
            yield from self._owner(number, own).stored(own, encoder)

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents of the shards that are there, by rising ordinals; see Store.scan()."""
        return (document for _, document in self.scan_ordinals(condition, after))

    def scan_ordinals(self, condition: Filter | None, after: str | int | None) -> Iterator[tuple[int, StoredDocument]]:
        """Yield (ordinal, document), behind the document of an id or behind an ordinal."""
        if isinstance(after, str):
            after = self._owner(shard_of(after, self._count), [after]).ordinal_of(after)
        shards = [store.scan_ordinals(condition, after) for store in self._stores.values()]
        return heapq.merge(*shards, key=itemgetter(0))

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all documents as they are stored, shard by shard."""
        for store in self._whole().values():
            yield from store.batches(size)

    @contextmanager
    def writing(self) -> Iterator[ShardedWriter]:
        """Take the writer locks of all shards, before the first of them is changed."""
        with writing_shards(self._whole(), self._count) as writers:
            yield ShardedWriter(self, writers)

    def follow(self, writers: Sequence[EmbeddedWriter]) -> None:
        """Let the writers write to the generations that are active now, and name these in each current.json."""
        with self._refresh_lock:
            for writer in writers:
                writer.follow()
        _complete_switch(list(self._stores.values()))

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now."""
        found: dict[str, ExistingDocument] = {}
        for number, own in self.by_shard(ids).items():
            known = self._owner(number, own).known(own)
            found |= {doc_id: replace(old, doc_row=_row(number, old.doc_row)) for doc_id, old in known.items()}
        return found

    def matching(self, condition: Filter) -> Ints:
        """Return the rows of the documents that match, (m,) int64."""
        rows = [_row(number, 0) + store.matching(condition) for number, store in self._whole().items()]
        return np.concatenate(rows)

    def has_mark(self, mark: str) -> bool:
        """Return whether every shard carried out the write of this mark."""
        return all(store.has_mark(mark) for store in self._stores.values())

    def by_shard(self, ids: Collection[str]) -> dict[int, list[str]]:
        """Return the ids of each shard, by its number."""
        by_shard: dict[int, list[str]] = {}
        for doc_id in ids:
            by_shard.setdefault(shard_of(doc_id, self._count), []).append(doc_id)
        return by_shard

    def _owner(self, number: int, ids: Sequence[str]) -> EmbeddedStore:
        """Return a shard; StoreError, which names the first of the ids, when it is missing."""
        if number in self._stores:
            return self._stores[number]
        reason = self._missing.get(number, f"only shards {sorted(self._stores)} are open here")
        raise StoreError(f"document {ids[0]!r} belongs to a shard that is missing: {reason}")

    def _refuse_missing(self) -> None:
        for error in self._missing.values():
            raise StoreError(f"{self.directory}: this needs all {self._count} shards; {error}")

    def _whole(self) -> Mapping[int, EmbeddedStore]:
        """Return all shards; StoreError when one is missing."""
        self._refuse_missing()
        if len(self._stores) < self._count:
            raise StoreError(f"{self.directory}: this needs all {self._count} shards; one is opened to be filled")
        return self._stores

    @contextmanager
    def _shard_errors(self, number: int) -> Iterator[None]:
        """Make errors inside name the shard, and let attempt() leave it out."""
        try:
            with shard_error_context(self._stores[number].directory, ShardPlace(number, self._count)):
                yield
        except StaleReader:
            raise
        except StoreError as err:
            if not self._allows_partial:
                raise
            raise _ShardFailed(number, err) from err


@contextmanager
def writing_shards(stores: Mapping[int, EmbeddedStore], count: int) -> Iterator[dict[int, EmbeddedWriter]]:
    """Take the writer locks of shards of an index of `count`, by number, before the first of them is changed."""
    with ExitStack() as stack:
        writers = {}
        try:
            for number, store in sorted(stores.items()):
                with shard_error_context(store.directory, ShardPlace(number, count)):
                    writers[number] = stack.enter_context(store.writing())
        except StaleReader:
            for store in stores.values():
                store.refresh()
            raise
        if len(stores) == count:
            _complete_switch(list(stores.values()))
        yield writers


def _complete_switch(stores: Sequence[EmbeddedStore]) -> None:
    """Name the active generations in each current.json, and remove the file of a switch that named them."""
    try:
        for store in stores:
            store.adopt_switch()
        end_switch(stores[0].directory.parent)
    except (MvindexError, OSError) as err:
        logger.warning("%s: the switch to another encoder is durable; tidying up failed: %s", stores[0].directory, err)


class ShardedWriter:
    """The only writer of a store of several shards. A document is atomic; what concerns several is done by shard."""

    def __init__(self, store: ShardedStore, writers: Mapping[int, EmbeddedWriter]) -> None:
        self._store, self._writers = store, writers

    @property
    def parts(self) -> Sequence[EmbeddedWriter]:
        """The writers of all shards."""
        return list(self._writers.values())

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings as written last, of the first shard."""
        return next(iter(self._writers.values())).settings

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now."""
        return self._store.known(ids)

    def has_mark(self, mark: str) -> bool:
        """Return whether every shard carried out the write of this mark."""
        return all(writer.has_mark(mark) for writer in self._writers.values())

    def commit(self, batch: Batch, known: Mapping[str, ExistingDocument]) -> None:
        """Store a batch, shard by shard; new documents are numbered through all shards."""
        ids = [document.id for document in batch.documents]
        next_ordinal = max(int(writer.settings["next_ordinal"]) for writer in self._writers.values())
        if batch.ordinals is None:
            is_new = np.array([doc_id not in known for doc_id in ids], dtype=np.int64)
            batch = replace(batch, ordinals=next_ordinal + np.cumsum(is_new) - is_new)
            next_ordinal += int(is_new.sum())
        positions = {doc_id: position for position, doc_id in enumerate(ids)}
        for number, own in self._store.by_shard(ids).items():
            olds = {doc_id: _inside(known[doc_id]) for doc_id in own if doc_id in known}
            self._writers[number].commit(batch.select([positions[doc_id] for doc_id in own]), olds)
        if batch.metadata_updates:
            self.set_metadata(batch.metadata_updates)
        self.change_settings(**batch.settings, next_ordinal=next_ordinal)

    @contextmanager
    def new_generations(
        self, changes: Sequence[Mapping[str, Any]]
    ) -> Iterator[Sequence[tuple[Generation, GenerationWriter]]]:
        """Yield an empty generation for each shard, to be filled; then all become the active ones in one commit.

        changes: the settings that differ, of each shard. On an error nothing has changed.
        """
        directory = self._store.directory
        try:
            with ExitStack() as stack:
                filled = [
                    stack.enter_context(writer.unpublished(own))
                    for writer, own in zip(self.parts, changes, strict=True)
                ]
                yield [(each.generation, each.writer) for each in filled]
            shards = [each.directory.parent for each in filled]
            for shard, each in zip(shards, filled, strict=True):
                place(shard, each.directory, each.number)
            write_switch(directory, {shard.name: each.number for shard, each in zip(shards, filled, strict=True)})
        except OSError as err:
            raise StoreError(f"{directory}: cannot write new generations: {err.strerror or err}") from err
        finally:
            self._store.follow(self.parts)

    def delete(self, doc_rows: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these rows, each shard's in one step; see Writer.delete()."""
        by_shard = _split(doc_rows)
        return sum(writer.delete(by_shard.get(number, ()), mark) for number, writer in self._writers.items())

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set metadata by document row, each shard's in one step."""
        for number, rows in _split(updates).items():
            if not self._writers[number].has_mark(mark):
                self._writers[number].set_metadata({row: updates[_row(number, row)] for row in rows}, mark)

    def change_settings(self, **settings: Any) -> None:
        """Set settings in every shard."""
        for writer in self._writers.values():
            writer.change_settings(**settings)


class _ShardFailed(StoreError):
    """A shard could not be read, and may be left out."""

    def __init__(self, number: int, error: StoreError) -> None:
        super().__init__(str(error))
        self.number, self.error = number, error


def join_infos(infos: Sequence[IndexInfo], *, shards: int, missing_shards: tuple[int, ...]) -> IndexInfo:
    """Return the description of shards together, with the path of the first.

    Args:
        infos: Those of the shards that are there.
        shards: Number of shards of the whole index.
        missing_shards: The numbers of those that are left out.

    """
    filled = [info for info in infos if info.documents] or infos[:1]
    return replace(
        filled[0],
        documents=sum(info.documents for info in infos),
        views=sum(info.views for info in infos),
        num_deleted=sum(info.num_deleted for info in infos),
        fresh_documents=sum(info.fresh_documents for info in infos),
        size_bytes=sum(info.size_bytes for info in infos),
        copy_bytes=sum(info.copy_bytes or 0 for info in infos),
        mapped_bytes=sum(info.mapped_bytes or 0 for info in infos),
        copies_file_bytes=sum(info.copies_file_bytes or 0 for info in infos),
        text_bytes=sum(info.text_bytes or 0 for info in infos),
        term_bytes=sum(info.term_bytes or 0 for info in infos),
        dim=next((info.dim for info in infos if info.dim is not None), None),
        kind=" and ".join(sorted({info.kind for info in filled})),
        shards=shards,
        missing_shards=missing_shards,
        shard=None,
        index_id=infos[0].index_id,
        whole_id=None,
    )


def _inside(known: ExistingDocument) -> ExistingDocument:
    """Return what is known of a document, with its row inside its shard."""
    return replace(known, doc_row=known.doc_row & ((1 << _SHARD_BITS) - 1))


def _row(number: int, row: int) -> int:
    return number << _SHARD_BITS | row


def _split(rows: Iterable[int]) -> dict[int, list[int]]:
    """Return the rows inside each shard, by its number."""
    by_shard: dict[int, list[int]] = {}
    for row in rows:
        by_shard.setdefault(row >> _SHARD_BITS, []).append(row & ((1 << _SHARD_BITS) - 1))
    return by_shard
