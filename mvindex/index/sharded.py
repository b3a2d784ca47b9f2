"""ShardedIndex: an Index whose documents are in several stores. It answers as one store of the same corpora would."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from mvindex.encoder import Encoder
from mvindex.engines import parse_kind
from mvindex.engines.build import BuildReport, EngineChoice, Told
from mvindex.engines.build_shards import build_shard, build_shards, learnt, train_shards
from mvindex.engines.params import IVF_KINDS
from mvindex.engines.protocol import Search
from mvindex.errors import ConfigError, QueryError, StaleReader, StoreError, Unsupported
from mvindex.index import QUERY_BATCH, Index
from mvindex.index.hybrid import Dense, Questions, mixed_results
from mvindex.index.options import Asked, checked_id
from mvindex.index.results import IndexInfo, ViewScore, hits_of
from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport
from mvindex.ingest.shards import Target, ingest_shards
from mvindex.lexical.bm25 import LexicalSearch, LexicalShard
from mvindex.maintenance import CompactReport, SnapshotReport
from mvindex.maintenance.shards import snapshot_shards
from mvindex.records import Document, Floats, SearchResult
from mvindex.scoring.aggregate import Scoring
from mvindex.scoring.fusion import Fusion
from mvindex.search import Part, Ranking, merge_rankings, owners, search_documents
from mvindex.search.hybrid import depth_of
from mvindex.store.embedded import Batch, EmbeddedStore
from mvindex.store.filters import Filter
from mvindex.store.reader import StoredDocument
from mvindex.store.shard_layout import (
    ShardPlace,
    checked_count,
    create_shards,
    open_shard,
    read_shards,
    shard_error_context,
    shard_of,
)
from mvindex.tuning import Judged

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _ignore(what: str, done: int, total: int) -> None:
    """Nothing: nobody wants to know."""


def create_sharded(path: Path, count: int, settings: Mapping[str, Any], encoder: Encoder | None) -> ShardedIndex:
    """A new empty index of so many shards; see mvindex.create()."""
    create_shards(path, checked_count(count), settings)
    index = open_sharded(path, None)
    index._encoder = encoder
    return index


def open_sharded(path: Path, device: str | None, *, allow_partial: bool = False) -> ShardedIndex:
    """The index whose shards lie at path; see mvindex.open(). Errors name the shard."""
    path = path.absolute()
    shards = read_shards(path)
    opened: dict[int, Index] = {}
    missing: dict[int, StoreError] = {}
    try:
        for place, index_id in zip(shards.places(), shards.shard_ids, strict=True):
            try:
                opened[place.number] = Index(open_shard(path, place, index_id), None, device)
            except StoreError as err:
                if not allow_partial:
                    raise
                missing[place.number] = err
        if not opened:
            raise StoreError(f"{path}: none of its {shards.count} shards can be opened; {missing[0]}")
    except BaseException:
        for index in opened.values():
            index.close()
        raise
    for error in missing.values():
        logger.warning("%s; it is left out", error)
    return ShardedIndex(path, opened, missing, allow_partial=allow_partial)


class ShardedIndex(Index):
    """Documents in several stores, each in that of its id, searched as one. Make one with create(shards=) or open().

    Each document is atomic, as in an index without shards; what concerns several is done shard by shard. Where shards
    were missing or damaged when it was opened with allow_partial, the others answer and every result says so; writes
    are refused then.
    """

    def __init__(
        self, path: Path, opened: Mapping[int, Index], missing: Mapping[int, StoreError], *, allow_partial: bool
    ) -> None:
        """opened: the shards that are there, by number; missing: why others are not, when that is allowed."""
        self._path, self._count = path, len(opened) + len(missing)
        self._shards, self._missing = dict(opened), dict(missing)
        self._allows_partial = allow_partial
        first = next(iter(opened.values()))
        # The first shard lends its parts to what Index does for all: settings, encoder, scan.
        super().__init__(first.store, None, first._device)
        for index in opened.values():
            index._scan_share = self._count

    def __len__(self) -> int:
        return sum(len(index) for index in self._shards.values())

    def __iter__(self) -> Iterator[Document]:
        """Every document of the shards that are there, shard by shard, in each as it lies."""
        for number in self._shards:
            yield from self._shards[number]

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and doc_id in self._owner(checked_id(doc_id))

    @property
    def is_untouched(self) -> bool:
        """True when nothing was ever stored in any shard."""
        return not self._missing and all(index.is_untouched for index in self._shards.values())

    @property
    def path(self) -> Path:
        """The index's directory, in which the shards' lie."""
        return self._path

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out here."""
        return tuple(sorted(self._missing))

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses, unless a search says otherwise: as the first shard keeps it, the same as all others.

        They differ only where somebody was killed while it was set; that is told.
        """
        first, *others = [index.fusion for index in self._shards.values()]
        if any(other != first for other in others):
            logger.warning("%s: its shards keep different fusions; set_fusion() makes them alike", self.path)
        return first

    @property
    def store_paths(self) -> list[Path]:
        """The directories that writers lock."""
        return [index.path for index in self._shards.values()]

    @property
    def store(self) -> NoReturn:
        """Unsupported: there is one for each shard."""
        raise Unsupported(f"{self.path}: an index in shards has no single store; this works on one without shards only")

    @property
    def shards(self) -> Mapping[int, Index]:
        """The shards that are there, by number, each an index of its own; documents are added to the whole only."""
        return self._shards

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        return next((index.dim for index in self._shards.values() if index.dim is not None), None)

    def close(self) -> None:
        """Nothing; files and connections of all shards are closed afterwards."""
        for index in self._shards.values():
            index.close()

    def refresh(self) -> bool:
        """True when another process had written into a shard: reads then see the latest state of each."""
        return any([index.refresh() for index in self._shards.values()])

    def _ingest(self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None) -> IngestReport:
        return ingest_shards(Target(stores=self._whole(), count=self._count, encode=encode), entries, hooks)

    @property
    def next_ordinal(self) -> int:
        """What the next new document would have."""
        return max(index.next_ordinal for index in self._shards.values())

    def batches(self, size: int = 1024) -> Iterator[Batch]:
        """All documents as they are stored, shard by shard."""
        self._whole()
        for index in self._shards.values():
            yield from index.batches(size)

    def take(self, batches: Iterable[Batch], next_ordinal: int | None) -> NoReturn:
        """Unsupported: whole documents are copied into an index without shards."""
        raise Unsupported(f"{self.path}: documents as stored are copied into an index without shards only")

    def get(self, id: str) -> Document | None:
        """The document of this id, or None; StoreError when the shard that it belongs to is missing."""
        return self._owner(checked_id(id)).get(id)

    def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """How many documents were deleted, each shard's in one step."""
        if (ids is None) == (filter is None):
            raise QueryError("delete() takes either ids= or filter=")
        by_shard: dict[int, list[str]] = {}
        for doc_id in [ids] if isinstance(ids, str) else list(ids or []):
            by_shard.setdefault(shard_of(checked_id(doc_id), self._count), []).append(doc_id)
        stores, count = self._whole(), 0
        with ExitStack() as stack:
            chosen = sorted(by_shard) if filter is None else list(stores)
            for number in chosen:
                stack.enter_context(stores[number].writing())
            found = {number: self._shards[number].rows_to_delete(by_shard.get(number), filter) for number in chosen}
            for number, rows in found.items():
                if rows:
                    stores[number].delete(rows)
                count += len(rows)
        return count

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Nothing; the document has this metadata instead of its old. QueryError when there is no such id."""
        self._owner(checked_id(id)).update(id, metadata=metadata)

    def _results(self, queries: Floats, wanted: Asked) -> list[SearchResult]:
        """Those of all shards, in the one order; exact where each shard's answer is proven and no shard is missing."""

        def ask() -> list[SearchResult]:
            with ExitStack() as stack:
                parts = []
                for number, index in self._shards.items():
                    with self._naming(number):
                        parts.append(index.part(wanted, stack)[0])
                begins = range(0, len(queries), QUERY_BATCH)
                return [one for at in begins for one in self._found(parts, queries[at : at + QUERY_BATCH])]

        return self._answered(ask)

    def _mixed(self, questions: Questions, wanted: Asked) -> list[SearchResult]:
        """As one index of all documents would: words are counted in all shards together."""

        def ask() -> list[SearchResult]:
            with ExitStack() as stack:
                if questions.vectors is None:
                    results = mixed_results(self._words(wanted, stack), None, questions, wanted)
                else:
                    results = mixed_results(*self._both(wanted, stack), questions, wanted)
                missing = self.missing_shards
                return [replace(one, exact=one.exact and not missing, missing_shards=missing) for one in results]

        return self._answered(ask)

    def _judged(self, questions: Questions, relevant: Sequence[Mapping[str, float]], wanted: Asked) -> Iterator[Judged]:
        """Of each question what fusion would order; no shard may fail, whatever searches are allowed."""
        try:
            yield from super()._judged(questions, relevant, wanted)
        except _Failed as failed:
            raise failed.error from failed

    def _words(self, wanted: Asked, stack: ExitStack) -> LexicalSearch:
        words = []
        for number, index in self._shards.items():
            with self._naming(number):
                found = index.lexical_part(wanted, stack)
            words.append(found._replace(naming=partial(self._naming, number)))
        return LexicalSearch(words)

    def _both(self, wanted: Asked, stack: ExitStack) -> tuple[LexicalSearch, Dense]:
        """What is searched by words, and by views as deep as fusion asks; the stack closes it."""
        words, parts = [], []
        for number, index in self._shards.items():
            with self._naming(number):
                part, reader = index.part(replace(wanted, top_k=depth_of(wanted.top_k)), stack)
                found = LexicalShard(part.snapshot, reader, reader.lexical(), part.request.allowed)
            parts.append(part)
            words.append(found._replace(naming=partial(self._naming, number)))
        return LexicalSearch(words), partial(self._rankings, parts)

    def _found(self, parts: list[Part], queries: Floats) -> list[SearchResult]:
        """The results of a batch of queries."""
        merged = self._rankings(parts, queries)
        stored = self._documents(parts, merged)
        missing = self.missing_shards
        return [
            SearchResult(hits_of(each, stored), each.exact and not missing, each.short_by, each.rounds, missing)
            for each in merged
        ]

    def _rankings(self, parts: list[Part], queries: Floats) -> list[Ranking]:
        """The rankings of a batch of queries, of all shards together."""
        found: list[list[Ranking]] = []
        for number, part in zip(self._shards, parts, strict=True):
            with self._naming(number):
                found.append(search_documents(part.snapshot, part.engines, queries, part.request))
        return merge_rankings(parts, found)

    def _documents(self, parts: list[Part], merged: list[Ranking]) -> dict[int, StoredDocument]:
        """The documents of the merged rankings, by row, each from its shard."""
        rows = np.unique(np.concatenate([ranking.rows for ranking in merged])) if merged else np.empty(0, np.int64)
        which, local = owners(parts, rows)
        stored: dict[int, StoredDocument] = {}
        for at, (number, index) in enumerate(self._shards.items()):
            wanted = np.flatnonzero(which == at)
            if not len(wanted):
                continue
            with self._naming(number), index.store.reading(parts[at].snapshot) as reader:
                documents = reader.documents(local[wanted].tolist())
            stored |= {int(rows[place]): documents[int(local[place])] for place in wanted}
        return stored

    def _explained(self, query: Floats, ids: Sequence[str], chosen: Scoring) -> dict[str, list[ViewScore]]:
        by_shard: dict[int, list[str]] = {}
        for doc_id in ids:
            by_shard.setdefault(shard_of(doc_id, self._count), []).append(doc_id)
        found: dict[str, list[ViewScore]] = {}
        for own in by_shard.values():
            found |= self._owner(own[0])._explained(query, own, chosen)
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

    def _built(self, choice: EngineChoice, on_progress: Told) -> BuildReport:
        return build_shards(self.path, self._whole(), choice, on_progress)

    def train(self, kind: str, *, lists: int | None = None, on_progress: Told = _ignore) -> Path:
        """The file of what ivf engines of all shards share; each can then be built alone by build_shard()."""
        choice = EngineChoice(kind=parse_kind(kind), lists=lists).checked()
        return train_shards(self.path, self._whole(), choice, on_progress)

    def build_shard(
        self,
        number: int,
        kind: str,
        *,
        prune_views: float | None = None,
        lists: int | None = None,
        on_progress: Told = _ignore,
    ) -> BuildReport:
        """What was built in one shard, of all that build() would build; other processes may build others meanwhile.

        ConfigError for ivf kinds without train() before, with the same kind and lists, and for numbers of no shard.
        """
        choice = EngineChoice(kind=parse_kind(kind), prune_views=prune_views, lists=lists).checked()
        stores = self._whole()
        if number not in stores:
            raise ConfigError(f"{self.path}: has shards 0 to {self._count - 1}; there is no shard {number}")
        if choice.kind in IVF_KINDS:
            trained = learnt(self.path, stores, choice)
            if trained is None:
                raise ConfigError(
                    f"{self.path}: nothing was learnt for {kind!r} over all shards as they are now: mvindex build "
                    f"--kind {kind} --train-only comes first, with the same --lists"
                )
            choice = replace(choice, trained=trained)
        return build_shard(number, stores[number], choice, on_progress)

    def _stores(self) -> Collection[EmbeddedStore]:
        return self._whole().values()

    def _num_views(self) -> int:
        return sum(store.snapshot.views.num_views for store in self._whole().values())

    def compact(self, on_progress: Callable[[int], None] = lambda count: None) -> CompactReport:
        """What was done, shard by shard; see Index.compact()."""
        self._whole()
        reports = [index.compact(on_progress) for index in self._shards.values()]
        return CompactReport(
            generation=max(report.generation for report in reports),
            documents=sum(report.documents for report in reports),
            dropped=sum(report.dropped for report in reports),
            bytes_before=sum(report.bytes_before for report in reports),
            bytes_after=sum(report.bytes_after for report in reports),
            is_old_in_use=any(report.is_old_in_use for report in reports),
        )

    def snapshot(self, path: str | Path, on_progress: Callable[[int], None] = lambda count: None) -> SnapshotReport:
        """What was copied: of each shard its latest committed state, complete or not there at all.

        Shards are copied one after the other: what is written meanwhile may be in some of them only.
        """
        return snapshot_shards(self.path, list(self._whole().values()), Path(path), on_progress)

    def _tuned_parts(self, wanted: Asked) -> list[Part]:
        self._whole()
        return [part for index in self._shards.values() for part in index._tuned_parts(wanted)]

    def _keep_search(self, search: Search) -> None:
        for index in self._shards.values():
            if index.store.snapshot.settings["engine"] is not None:
                index._keep_search(search)

    def info(self) -> IndexInfo:
        """What the index is: encoder, dims, engine, sizes, of all shards that are there together."""
        infos = [index.info() for index in self._shards.values()]
        filled = [info for info in infos if info.documents] or infos[:1]
        return replace(
            filled[0],
            path=str(self.path),
            documents=sum(info.documents for info in infos),
            views=sum(info.views for info in infos),
            num_deleted=sum(info.num_deleted for info in infos),
            dim=self.dim,
            kind=" and ".join(sorted({info.kind for info in filled})),
            fresh_documents=sum(info.fresh_documents for info in infos),
            size_bytes=sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
            shards=self._count,
            missing_shards=self.missing_shards,
        )

    def _owner(self, doc_id: str) -> Index:
        """The shard that the document belongs to; StoreError when it is missing."""
        number = shard_of(doc_id, self._count)
        if number in self._missing:
            raise StoreError(f"document {doc_id!r} belongs to a shard that is missing: {self._missing[number]}")
        return self._shards[number]

    def _whole(self) -> dict[int, EmbeddedStore]:
        """The stores of all shards; StoreError when one is missing."""
        for error in self._missing.values():
            raise StoreError(f"{self.path}: this needs all {self._count} shards; {error}")
        return {number: index.store for number, index in self._shards.items()}

    @contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Inside it, the shard is asked: what fails names it, and may leave it out (see _answered)."""
        try:
            with shard_error_context(self._shards[number].path, ShardPlace(number, self._count)):
                yield
        except StaleReader:
            raise
        except StoreError as err:
            raise _Failed(number, err) from err

    def _answered(self, ask: Callable[[], T]) -> T:
        """What the function gives; where partial answers are allowed, without the shards that fail it."""
        while True:
            try:
                return ask()
            except _Failed as failed:
                if not self._allows_partial or len(self._shards) == 1:
                    raise failed.error from failed
                logger.warning("%s; it is left out", failed.error)
                self._missing[failed.number] = failed.error
                self._shards.pop(failed.number).close()


class _Failed(Exception):
    """A shard could not be asked."""

    def __init__(self, number: int, error: StoreError) -> None:
        super().__init__(str(error))
        self.number, self.error = number, error
