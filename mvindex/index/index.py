"""Index: the public object. One directory of documents and views, an engine over them, and the encoder they need."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mvindex import engines
from mvindex.encoder import Encoder
from mvindex.engines.auto import Sizes, chosen_kind, usable_memory
from mvindex.engines.build import BuildReport, EngineCache, EngineChoice, Told, build_engine, keep_search
from mvindex.engines.protocol import Kind, RankingEngine, ScanEngine, Search
from mvindex.errors import DamagedIndex, EncoderError, IndexLocked, QueryError, StaleReader, Unsupported
from mvindex.index.hybrid import Dense, Questions, judged_candidates, mixed_results
from mvindex.index.options import (
    Asked,
    Vector,
    checked_document,
    checked_id,
    each_view_array,
    entry_with_views,
)
from mvindex.index.results import IndexInfo, ViewScore, document_of, scored_views, search_results
from mvindex.index.tunable import Tunable
from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport, ingest
from mvindex.lexical.bm25 import LexicalSearch, LexicalShard
from mvindex.lexical.tokenizer import parse_lexical
from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport, compact_store, snapshot_store, verify
from mvindex.records import Document, Floats, SearchResult, dump_metadata, require_text
from mvindex.scoring.aggregate import Scoring
from mvindex.search import Engines, Part, Ranking, Request, search_documents
from mvindex.search.hybrid import depth_of
from mvindex.store.embedded import Batch, EmbeddedStore
from mvindex.store.filters import Filter
from mvindex.store.locks import writer_lock
from mvindex.store.reader import SnapshotReader
from mvindex.store.snapshot import Snapshot
from mvindex.store.transfer import stored_batches, take_batches
from mvindex.tuning import Judged, checked_target

logger = logging.getLogger(__name__)

# Queries searched at once: bounds the memory of their candidates.
QUERY_BATCH = 256


class Index(Tunable):
    """Documents with their views, searched by text or vector. Make one with create() or open_index().

    Reads are thread-safe and see one snapshot, moved on by refresh() and by this object's own writes. Writes take the
    index's one writer lock (IndexLocked names the holder) and are durable when they return.
    """

    def __init__(self, store: EmbeddedStore, encoder: Encoder | None = None, device: str | None = None) -> None:
        super().__init__(encoder, device)
        self._store = store
        self._scan: ScanEngine | None = None
        # Of so many scans of this process, each takes its share of the memory.
        self._scan_share = 1
        self._engines = EngineCache(device)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return self._store.snapshot.num_documents

    def __iter__(self) -> Iterator[Document]:
        with self._store.reading(self._store.snapshot) as reader:
            for stored in reader.all_documents():
                yield document_of(stored)

    def __contains__(self, doc_id: object) -> bool:
        with self._store.reading(self._store.snapshot) as reader:
            return isinstance(doc_id, str) and reader.find(doc_id) is not None

    @property
    def _settings(self) -> Mapping[str, Any]:
        """What was chosen when the index was made."""
        return self._store.snapshot.settings

    @property
    def is_untouched(self) -> bool:
        """True when nothing was ever stored here."""
        return int(self._store.snapshot.settings["version"]) == 0

    @property
    def path(self) -> Path:
        """The index's directory."""
        return self._store.directory

    @property
    def where(self) -> str:
        """Where the index is, for messages: a directory, or an address without secrets."""
        return str(self.path)

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out here; none in an index without shards."""
        return ()

    @property
    def store_paths(self) -> list[Path]:
        """The directories that writers lock."""
        return [self.path]

    @property
    def store(self) -> EmbeddedStore:
        """Where documents and views are kept, for what reads them all."""
        return self._store

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        return self._store.snapshot.dim

    def close(self) -> None:
        """Nothing; files and connections are closed afterwards."""
        self._store.close()

    def refresh(self) -> bool:
        """True when another process had written: reads then see the latest state."""
        return self._store.refresh()

    def add(self, documents: Iterable[Document], *, hooks: IngestHooks | None = None) -> IngestReport:
        """What was done with the documents: each is encoded and stored, and an older one of its id replaced.

        The same content again changes nothing. Batches of up to 1,024 documents are committed as they are done; an
        error leaves those before it. DocumentError when an id comes twice or there is no text.
        """
        numbered = enumerate(documents, start=1)
        named = ((f"document {number}", checked_document(item, number)) for number, item in numbered)
        entries = (Entry(place, require_text(document)) for place, document in named)
        return self.add_entries(entries, hooks)

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """What was done with documents that know where they came from (see add)."""
        encoder = self.encoder
        return self._ingest(entries, lambda documents, tick: encoder.encode_documents(documents, tick), hooks)

    def add_views(
        self, documents: Iterable[Document], views: Vector | Sequence[Vector], *, hooks: IngestHooks | None = None
    ) -> IngestReport:
        """What was done with documents whose views are given; otherwise as add().

        views: (n, k, d), (n, d) for one view each, or n arrays (k_i, d), any float type, any norm, k_i >= 1; kept as
        the index's dtype holds them. EncoderError for another number, shape or dim; nothing is stored then.
        """
        dim = self.dim
        if isinstance(documents, Sequence) and len(documents) != len(views):
            raise EncoderError(f"{len(documents)} documents and {len(views)} views; wanted one for one")
        pairs = itertools.zip_longest(documents, each_view_array(views))
        numbered = enumerate(pairs, start=1)
        entries = (entry_with_views(number, document, rows, dim) for number, (document, rows) in numbered)
        return self._ingest(entries, None, hooks)

    def _ingest(self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None) -> IngestReport:
        return ingest(self._store, entries, encode, hooks)

    def get(self, id: str) -> Document | None:
        """The document of this id, or None."""
        snapshot = self._store.snapshot
        with self._store.reading(snapshot) as reader:
            row = reader.find(checked_id(id))
            return None if row is None else document_of(reader.documents([row])[row])

    def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """How many documents were deleted, in one step: those of the ids that exist, or those the filter matches."""
        if (ids is None) == (filter is None):
            raise QueryError("delete() takes either ids= or filter=")
        with self._store.writing():
            rows = self.rows_to_delete(ids, filter)
            if rows:
                self._store.delete(rows)
        return len(rows)

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Nothing; the document has this metadata instead of its old. QueryError when there is no such id."""
        dumped = dump_metadata(metadata, id)
        with self._store.writing():
            known = self._store.known([checked_id(id)])
            if id not in known:
                raise QueryError(f"{self.where}: there is no document {id!r}")
            self._store.set_metadata({known[id].doc_row: dumped})

    def build(
        self,
        kind: str | None = None,
        *,
        prune_views: float | None = None,
        lists: int | None = None,
        target_recall: float = 0.97,
        on_progress: Told = lambda what, done, total: None,
    ) -> BuildReport:
        """What was built; searches then use an engine of this kind, over all documents there are.

        kind: exact, flat, hnsw, ivf-flat, ivf-sq8, ivf-pq or ivf-rabitq; None chooses by size, memory and the share of
        the exact answer that should be found, and the report says why. Documents added later are scanned beside it
        until the next build. Readers are never blocked; an ivf build that was killed goes on where it was when it is
        run again. prune_views: the engine leaves out views within this distance of one of their document that it
        holds. The store keeps them, so that scores stay the same, and what is called exact is; a build without it
        undoes it. lists: of ivf kinds. on_progress is told what is done, how much, of how much. ConfigError for options
        that are none, or that the kind has not.
        """
        target = checked_target(target_recall)
        chosen, why = (engines.parse_kind(kind), "as asked for") if kind is not None else self._best_kind(target)
        choice = EngineChoice(kind=chosen, prune_views=prune_views, lists=lists)
        return replace(self._built(choice, on_progress), why=why)

    def _built(self, choice: EngineChoice, on_progress: Told) -> BuildReport:
        return build_engine(self._store, choice, on_progress)

    def _best_kind(self, target_recall: float) -> tuple[Kind, str]:
        sizes = Sizes(num_views=self._num_views(), dim=self.dim or 1, memory_bytes=usable_memory())
        return chosen_kind(sizes, target_recall)

    def _num_views(self) -> int:
        """Views in the store, those of retired documents included."""
        return self._store.snapshot.views.num_views

    def set_lexical(self, lexical: str | None, on_progress: Callable[[int], None] = lambda count: None) -> None:
        """Nothing; texts can be searched by their words from now on: "unicode", "english" (by stems), or None, not.

        What is added later is as well. All at once, of all documents; readers go on with what they have. on_progress
        is told of document rows. ConfigError for another kind; Unsupported for an index in no directory.
        """
        kind = parse_lexical(lexical)
        with self._writing() as stores:
            for store in stores:
                store.set_lexical(kind, on_progress)

    def rebuild_lexical_if_damaged(self) -> bool:
        """True when the lexical index was damaged: it was made again from the texts."""
        damaged = [store for store in self._stores() if not _is_lexical_sound(store)]
        for store in damaged:
            with store.writing():
                store.set_lexical(parse_lexical(store.snapshot.settings["lexical"]), lambda count: None)
        return bool(damaged)

    def _stores(self) -> Collection[EmbeddedStore]:
        """All that documents are kept in here; none where something else keeps them."""
        return [self._store]

    @contextmanager
    def _writing(self) -> Iterator[Collection[EmbeddedStore]]:
        """All stores, locked before the first is changed: where one is being written to, none is."""
        stores = self._stores()
        if not stores:
            raise Unsupported(f"{self.where}: only an index in a directory has a lexical side")
        with ExitStack() as stack:
            for store in stores:
                stack.enter_context(store.writing())
            yield stores

    def _judged(self, questions: Questions, relevant: Sequence[Mapping[str, float]], wanted: Asked) -> Iterator[Judged]:
        """Of each question what fusion would order, and what that is worth."""
        with ExitStack() as stack:
            yield from judged_candidates(*self._both(wanted, stack), questions, relevant, wanted)

    def _tuned_parts(self, wanted: Asked) -> list[Part]:
        """What tune() measures."""
        with ExitStack() as stack:
            return [self.part(wanted, stack)[0]]

    def _keep_search(self, search: Search) -> None:
        keep_search(self._store, search)

    def compact(self, on_progress: Callable[[int], None] = lambda count: None) -> CompactReport:
        """What was done: the rows of retired documents (deleted or replaced) are dropped, and their bytes given back.

        Ids, ordinals, views and texts stay; the active engine is built again. Other readers go on undisturbed with the
        files they have, which are removed once nobody holds them; writers are refused meanwhile. on_progress is told
        of documents copied. Takes room for a second copy while it runs; DamagedIndex or StoreError (a full disk) leaves
        everything as it was.
        """
        self._scan = None  # its copies are of the old rows, and would hold their files
        return compact_store(self._store, on_progress)

    def snapshot(self, path: str | Path, on_progress: Callable[[int], None] = lambda count: None) -> SnapshotReport:
        """What was copied: the index at path is the latest committed state, complete or not there at all.

        Neither readers nor a writer wait. on_progress is told of bytes copied. ConfigError when path exists;
        DamagedIndex when something does not match its checksum: a copy never hides damage.
        """
        return snapshot_store(self._store, Path(path), on_progress)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What was chosen when the index was made, and what it keeps of itself."""
        return self._settings

    @property
    def next_ordinal(self) -> int:
        """What the next new document would have."""
        return int(self._settings["next_ordinal"])

    def batches(self, size: int = 1024) -> Iterator[Batch]:
        """All documents as they are stored, in the order of their ordinals, for what copies them."""
        return stored_batches(self._store, size)

    def take(self, batches: Iterable[Batch], next_ordinal: int | None) -> Iterator[tuple[int, int]]:
        """Of each batch, how many documents it has, and how many were not here as they are: these are stored.

        next_ordinal: of the first document that is new after that; None where the batches give no ordinals.
        """
        return take_batches(self._store, batches, next_ordinal)

    def verify(self, on_progress: Callable[[int], None] = lambda size_bytes: None) -> VerifyReport:
        """What is not as it was written: everything is read and checked. on_progress is told of bytes read."""
        return verify(self.path, on_progress)

    def remove_untouched(self) -> None:
        """Nothing; the index is closed, and its directory gone if nothing was ever stored in it, by anyone."""
        try:
            with ExitStack() as stack:
                for path in self.store_paths:
                    stack.enter_context(writer_lock(path))
                self.refresh()
                if self.is_untouched:
                    shutil.rmtree(self.path)
        except IndexLocked:
            logger.info("%s is being written to by another process; it stays", self.path)
        finally:
            self.close()

    def probe(self) -> Mapping[str, str]:
        """What the server that keeps the index can do, tried on it; Unsupported for an index in a directory."""
        raise Unsupported(f"{self.where}: no server keeps this index; there is nothing to probe")

    def info(self) -> IndexInfo:
        """What the index is: encoder, dims, engine, sizes."""
        snapshot = self._store.snapshot
        settings, engine = snapshot.settings, snapshot.settings["engine"]
        built_rows = engine["built_rows"] if engine else snapshot.num_rows
        return IndexInfo(
            path=str(self.path),
            format_version=settings["format_version"],
            documents=len(self),
            views=snapshot.num_live_views,
            num_deleted=snapshot.num_rows - len(self),
            dim=snapshot.dim,
            dtype=settings["dtype"],
            encoder=settings["encoder"],
            kind=engine["kind"] if engine else Kind.EXACT.value,
            temperature=self.temperature,
            prune_views=settings.get("prune_views"),
            lexical=settings.get("lexical"),
            fusion=settings.get("fusion"),
            engine_prune_views=engine["settings"].get("prune_views") if engine else None,
            search=engine["settings"].get("search") if engine else None,
            fresh_documents=int(np.count_nonzero(snapshot.alive[built_rows:])),
            size_bytes=sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
        )

    def _results(self, queries: Floats, wanted: Asked) -> list[SearchResult]:
        """One for each of the queries, (q, d)."""
        with ExitStack() as stack:
            part, reader = self.part(wanted, stack)
            results = []
            for begin in range(0, len(queries), QUERY_BATCH):
                batch = queries[begin : begin + QUERY_BATCH]
                results += search_results(reader, search_documents(part.snapshot, part.engines, batch, part.request))
            return results

    def _mixed(self, questions: Questions, wanted: Asked) -> list[SearchResult]:
        """One for each of the questions, by words, or by words and views."""
        if not self._stores():
            return super()._mixed(questions, wanted)
        with ExitStack() as stack:
            if questions.vectors is None:
                return mixed_results(LexicalSearch([self.lexical_part(wanted, stack)]), None, questions, wanted)
            return mixed_results(*self._both(wanted, stack), questions, wanted)

    def _both(self, wanted: Asked, stack: ExitStack) -> tuple[LexicalSearch, Dense]:
        """What is searched by words, and by views as deep as fusion asks; the stack closes it."""
        part, reader = self.part(replace(wanted, top_k=depth_of(wanted.top_k)), stack)
        words = LexicalShard(part.snapshot, reader, reader.lexical(), part.request.allowed)

        def dense(queries: Floats) -> list[Ranking]:
            return search_documents(part.snapshot, part.engines, queries, part.request)

        return LexicalSearch([words]), dense

    def lexical_part(self, wanted: Asked, stack: ExitStack) -> LexicalShard:
        """What is searched here by words alone; the stack closes it."""
        snapshot = self._store.snapshot
        reader = stack.enter_context(self._store.reading(snapshot))
        words = reader.lexical()
        allowed = snapshot.alive if wanted.filter is None else reader.matching(wanted.filter)
        return LexicalShard(snapshot, reader, words, allowed)

    def part(self, wanted: Asked, stack: ExitStack) -> tuple[Part, SnapshotReader]:
        """What is searched here, and what its documents are read by, which the stack closes."""
        snapshot, ranking = self.current(wanted.exact)
        reader = stack.enter_context(self._store.reading(snapshot))
        allowed = snapshot.alive if wanted.filter is None else reader.matching(wanted.filter)
        request = Request(top_k=wanted.top_k, allowed=allowed, scoring=wanted.scoring, depth=wanted.depth)
        return Part(snapshot, Engines(scan=self.exact_scan(), ranking=ranking), request), reader

    def _explained(self, query: Floats, ids: Sequence[str], chosen: Scoring) -> dict[str, list[ViewScore]]:
        snapshot = self._store.snapshot
        with self._store.reading(snapshot) as reader:
            rows = {doc_id: row for doc_id in ids if (row := reader.find(doc_id)) is not None}
            stored = reader.documents(list(rows.values()))
        if not rows:
            return {}
        views, starts = snapshot.views.fetch(np.array(list(rows.values()), dtype=np.int64))
        bounds = zip(starts.tolist(), starts[1:].tolist(), strict=False)
        return {
            doc_id: scored_views(stored[row], views[begin:end], query, chosen)
            for (doc_id, row), (begin, end) in zip(rows.items(), bounds, strict=True)
        }

    def current(self, exact: bool) -> tuple[Snapshot, RankingEngine | None]:
        """The snapshot to search and its engine (None: the scan).

        An engine that another process has replaced is gone from disk; this snapshot is then scanned, which gives the
        same documents or better ones, until refresh() moves on.
        """
        snapshot = self._store.snapshot
        try:
            return snapshot, None if exact else self._engines.open(snapshot)
        except StaleReader as err:
            logger.info("%s; scanning instead", err)
            return snapshot, None

    def exact_scan(self) -> ScanEngine:
        """The exact scan, opened at the first search: it may import torch, which `get` need not wait for."""
        with self._lock:
            if self._scan is None:
                self._scan = engines.open_scan(self._device, self._scan_share)
            return self._scan

    def rows_to_delete(self, ids: str | Iterable[str] | None, condition: Filter | None) -> list[int]:
        """The rows of the documents that delete() means."""
        snapshot = self._store.snapshot
        if condition is not None:
            with self._store.reading(snapshot) as reader:
                return np.flatnonzero(reader.matching(condition)).tolist()
        wanted = [ids] if isinstance(ids, str) else list(ids or [])
        known = self._store.known([checked_id(doc_id) for doc_id in wanted])
        return sorted(entry.doc_row for entry in known.values())


def _is_lexical_sound(store: EmbeddedStore) -> bool:
    """False when the store's lexical index is not as it was written."""
    if store.snapshot.settings.get("lexical") is None:
        return True
    try:
        with store.reading(store.snapshot) as reader:
            reader.lexical().check()
    except DamagedIndex as err:
        logger.info("%s: %s", store.directory, err)
        return False
    return True
