"""MilvusIndex: an Index whose documents and views are in Milvus. It answers as an index in a directory would."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from mvindex.encoder import Encoder
from mvindex.engines.build import BuildReport
from mvindex.errors import StaleReader, Unsupported
from mvindex.index import QUERY_BATCH, Index
from mvindex.index.options import Asked as AskedOfIndex
from mvindex.index.options import Vector, as_vectors, asked, checked_id
from mvindex.index.results import IndexInfo, ViewScore, document_of, hits_of, scored_views
from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
from mvindex.records import Document, Floats, Ints, SearchResult
from mvindex.scoring.aggregate import Scoring
from mvindex.search import Ranking
from mvindex.store.embedded import Batch, EmbeddedStore
from mvindex.store.filters import Filter
from mvindex.store.reader import StoredDocument
from mvindex.tuning import TuneReport, checked_target
from mvindex_connectors.milvus import maintenance as upkeep
from mvindex_connectors.milvus.capability_checks import probe
from mvindex_connectors.milvus.export import stored_batches
from mvindex_connectors.milvus.index_build import build_index
from mvindex_connectors.milvus.kinds import FLAT
from mvindex_connectors.milvus.records import light, stored_document
from mvindex_connectors.milvus.rescore import Best
from mvindex_connectors.milvus.search import Answer, Asked, MilvusSearch, SettingsChanged
from mvindex_connectors.milvus.store import MilvusStore, drop_store
from mvindex_connectors.milvus.tuning import tune_index

# An answer whose documents are replaced while it is made is made again.
_ANSWERS = 5
# Queries searched at once: their candidates are in memory together.
_PAIRS_AT_ONCE = 4_096

Told = Callable[[str, int, int], None]


def _ignore(what: str, done: int, total: int) -> None:
    """Nothing: nobody wants to know."""


class MilvusIndex(Index):
    """Documents in Milvus. Make one with mvindex.create() or open(), of an address; see docs/milvus.md.

    Each document is atomic, also in delete(), which goes document by document. There is no snapshot: reads see what is
    there, that of other clients from opening and from refresh() on at least. Writes hold the index's one lease.
    """

    def __init__(self, store: MilvusStore, encoder: Encoder | None = None, device: str | None = None) -> None:
        # What Index itself asks of its store, settings and dim, this one has; the rest is overridden here.
        super().__init__(cast(EmbeddedStore, store), encoder, device)
        self.milvus = store

    def __len__(self) -> int:
        return self.milvus.reader.count()

    def __iter__(self) -> Iterator[Document]:
        for rows in self.milvus.reader.strongly().each(self._next_document()):
            yield from (document_of(stored_document(row, self.where)) for row in rows)

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._record(doc_id) is not None

    @property
    def where(self) -> str:
        """The address, without secrets."""
        return self.milvus.where

    @property
    def path(self) -> NoReturn:
        """Unsupported: it is in no directory."""
        raise Unsupported(f"{self.where}: an index in Milvus has no directory")

    @property
    def store_paths(self) -> list[Path]:
        """None: writers lock no directory."""
        return []

    @property
    def store(self) -> NoReturn:
        """Unsupported: what works on files does not work here."""
        raise Unsupported(f"{self.where}: this works on an index in a directory only; mvindex migrate makes one")

    def close(self) -> None:
        """Nothing; the connection is closed."""
        self.milvus.close()

    def refresh(self) -> bool:
        """True when another client had written: reads see at least that then."""
        return self.milvus.refresh()

    def remove_untouched(self) -> None:
        """Nothing; the index is closed, and its collections are gone if nothing was ever stored in it, by anyone."""
        try:
            self.refresh()
            if self.is_untouched and len(self) == 0:
                drop_store(self.milvus.connection)
        finally:
            self.close()

    def get(self, id: str) -> Document | None:
        """The document of this id, or None."""
        row = self._record(checked_id(id))
        return None if row is None else document_of(stored_document(row, self.where))

    def _record(self, doc_id: str) -> Mapping[str, Any] | None:
        return self.milvus.reader.find([doc_id]).get(doc_id)

    def rows_to_delete(self, ids: str | Iterable[str] | None, condition: Filter | None) -> list[int]:
        """The numbers of the documents that delete() means."""
        return super().rows_to_delete(ids, None) if condition is None else self._matching(condition).tolist()

    def _next_document(self) -> int:
        return int(self._settings["next_document"])

    def _matching(self, condition: Filter) -> Ints:
        return self.milvus.filters.matching(condition, self.milvus.reader, self._next_document())

    def _stores(self) -> Collection[EmbeddedStore]:
        return ()

    def _results(self, queries: Floats, wanted: AskedOfIndex) -> list[SearchResult]:
        if not self.milvus.has_views:
            return [SearchResult((), True, 0, 0) for _ in queries]
        chosen = Asked(wanted.top_k, wanted.scoring, wanted.depth, wanted.exact)
        if wanted.filter is not None:
            chosen = chosen._replace(allowed=self._matching(wanted.filter))
        size = max(1, min(QUERY_BATCH, _PAIRS_AT_ONCE // wanted.top_k))
        begins = range(0, len(queries), size)
        return [one for at in begins for one in self._batch(queries[at : at + size], chosen)]

    def _batch(self, queries: Floats, wanted: Asked) -> list[SearchResult]:
        """The results of a few queries; one whose documents change meanwhile is asked again."""
        results: dict[int, SearchResult] = {}
        for _ in range(_ANSWERS):
            left = [number for number in range(len(queries)) if number not in results]
            if not left:
                break
            answers, records = self._searched(queries[left], wanted, self._settings)
            stored = self._documents([answer.best for answer in answers], records)
            for number, answer in zip(left, answers, strict=True):
                if all((pair in stored) for pair in _pairs(answer.best)):
                    results[number] = self._result(answer, wanted, stored)
        if len(results) < len(queries):
            raise StaleReader(f"{self.where}: the documents of an answer were replaced again and again; ask later")
        return [results[number] for number in range(len(queries))]

    def answers(self, queries: Floats, wanted: Asked, search: Mapping[str, int] | None = None) -> list[Answer]:
        """The best documents of each query, by number. search: how the engine is searched, instead of as tuned."""
        settings = self._settings
        if search is not None:
            settings = {**settings, "engine": {**settings["engine"], "search": dict(search)}}
        return self._searched(queries, wanted, settings)[0]

    def _searched(
        self, queries: Floats, wanted: Asked, settings: Mapping[str, Any]
    ) -> tuple[list[Answer], dict[int, dict[str, Any]]]:
        """The answers, and records that were met on the way."""
        for _ in range(_ANSWERS):
            search = MilvusSearch(self.milvus.connection, self.milvus.reader, settings, wanted)
            try:
                return search.run(queries), search.records
            except SettingsChanged:
                self.milvus.refresh()
                settings = self._settings
        raise StaleReader(f"{self.where}: the index was built again and again while it was asked; ask later")

    def _documents(
        self, found: Sequence[Best], records: Mapping[int, Mapping[str, Any]]
    ) -> dict[tuple[int, int], StoredDocument]:
        """The documents, by number and version of their views; records: those that need not be read."""
        pairs = {pair for best in found for pair in _pairs(best)}
        kept = {number: row for number, row in records.items() if (number, int(row["version"])) in pairs}
        numbers = sorted({number for number, _ in pairs} - kept.keys())
        rows = {**kept, **self.milvus.reader.records(numbers)}
        return {(number, int(row["version"])): stored_document(row, self.where) for number, row in rows.items()}

    def _result(self, answer: Answer, wanted: Asked, stored: Mapping[tuple[int, int], StoredDocument]) -> SearchResult:
        best = answer.best
        by_number = {number: stored[number, version] for number, version in _pairs(best)}
        short_by = 0
        if not best.is_full and not answer.exact:
            short_by = min(best.wanted, len(self)) - len(best.documents)
        ranking = Ranking(
            best.documents, best.scores, best.slots, answer.exact, max(short_by, 0), answer.rounds, best.num_scored
        )
        return SearchResult(hits_of(ranking, by_number), ranking.exact, ranking.short_by, ranking.rounds)

    def _explained(self, query: Floats, ids: Sequence[str], chosen: Scoring) -> dict[str, list[ViewScore]]:
        found: dict[str, list[ViewScore]] = {}
        reader, left = self.milvus.reader, list(ids)
        for _ in range(_ANSWERS):
            records = reader.find(left)
            views = reader.views([light(row) for row in records.values()], int(self.dim or 1))
            left = []
            for doc_id, row in records.items():
                # None: it was deleted just now.
                record, rows = views.get(int(row["pk"]), (None, None))
                if record is not None and record.version != row["version"]:
                    left.append(doc_id)
                elif rows is not None:
                    found[doc_id] = scored_views(stored_document(row, self.where), rows, query, chosen)
            if not left:
                return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}
            reader = reader.strongly()
        raise StaleReader(f"{self.where}: document {left[0]!r} was replaced again and again; ask later")

    def batches(self, size: int = 1024) -> Iterator[Batch]:
        """All documents as they are stored, by rising numbers."""
        return stored_batches(self.milvus, size)

    def build(
        self,
        kind: str | None = None,
        *,
        prune_views: float | None = None,
        lists: int | None = None,
        target_recall: float = 0.97,
        on_progress: Told = _ignore,
    ) -> BuildReport:
        """What was built by Milvus: an index of this kind over all views, flushed, and known to cover every row.

        kind: mvindex' or Milvus' own name, of those that this Milvus builds (see info()); None chooses by size. Other
        clients wait meanwhile. Unsupported for prune_views.
        """
        checked_target(target_recall)
        if prune_views is not None:
            raise Unsupported(
                f"{self.where}: an index in Milvus takes prune_views when it is made, not when it is built"
            )
        return build_index(self.milvus, kind, lists, on_progress)

    def tune(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        target_recall: float = 0.97,
        on_progress: Told = _ignore,
    ) -> TuneReport:
        """What was measured; the index is searched as the fastest setting says that reaches the target."""
        target = checked_target(target_recall)
        wanted = asked(top_k, None, Scoring(), exact=False, candidates=None)
        given = None if queries is None else as_vectors(queries, self.dim)
        return tune_index(self, given, (wanted.top_k, target), on_progress)

    def tune_pruning(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        budget: float = 0.01,
        on_progress: Told = _ignore,
    ) -> NoReturn:
        """Unsupported: an index in Milvus takes prune_views when it is made."""
        raise Unsupported(f"{self.where}: views of an index in Milvus are pruned when they are added, not afterwards")

    def compact(self, on_progress: Callable[[int], None] = lambda count: None) -> CompactReport:
        """What was done: views that no record names, left by writers that died, are removed."""
        return upkeep.compact(self.milvus, on_progress)

    def verify(self, on_progress: Callable[[int], None] = lambda size_bytes: None) -> VerifyReport:
        """What is not as it was written: every record and all views are read and checked against their checksums."""
        return upkeep.verify(self.milvus, on_progress)

    def snapshot(self, path: str | Path, on_progress: Callable[[int], None] = lambda count: None) -> SnapshotReport:
        """Unsupported: mvindex migrate copies an index in Milvus into a directory."""
        raise Unsupported(f"{self.where}: no snapshot of an index in Milvus; mvindex migrate copies it to a directory")

    def probe(self) -> Mapping[str, str]:
        """By name of each ability "yes", or what this Milvus says or does instead; on collections made for it."""
        return probe(self.milvus.connection)

    def info(self) -> IndexInfo:
        """What the index is, and what the server can do."""
        settings, engine = self._settings, self._settings["engine"]
        documents = len(self)
        views = int(settings["views"])
        return IndexInfo(
            path=self.where,
            format_version=settings["format_version"],
            documents=documents,
            views=views,
            num_deleted=0,
            dim=self.dim,
            dtype=settings["dtype"],
            encoder=settings["encoder"],
            kind=engine["kind"] if engine else FLAT,
            temperature=self.temperature,
            prune_views=settings.get("prune_views"),
            engine_prune_views=None,
            search=(engine or {}).get("search") or None,
            fresh_documents=0,
            size_bytes=views * 4 * (self.dim or 0),
            server=self.milvus.connection.described(),
        )


def _pairs(best: Best) -> Iterator[tuple[int, int]]:
    return zip(best.documents.tolist(), best.versions.tolist(), strict=True)
