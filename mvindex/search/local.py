"""LocalSearch: the engine slot of embedded stores, one or several searched as one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice, repeat
from threading import Lock
from typing import NamedTuple

import numpy as np

from mvindex import engines
from mvindex.engines.build import EngineCache
from mvindex.engines.protocol import Engine, ScanEngine
from mvindex.errors import QueryError, StaleReader
from mvindex.records import ALL_FIELDS, Bools, Cite, Combine, Doubles, Field, Floats, Hit, Ints, SearchResult
from mvindex.search import Part, Ranking, owners, search_parts
from mvindex.search.bm25 import LexicalSearch, LexicalShard, TermCounts
from mvindex.search.citation import cites_of, view_scores_of_hits
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.group import GroupSearch, PartsScorer
from mvindex.search.hybrid import (
    Candidates,
    Hybrid,
    HybridResult,
    JudgedQuestion,
    candidates_of,
    hybrid_rankings,
    lexical_rankings,
)
from mvindex.search.options import SearchOptions
from mvindex.search.queries import QUERY_BATCH, TextQueries
from mvindex.search.request import Engines, Request, Share
from mvindex.search.result_merge import ShardResult
from mvindex.search.results import hits_of
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.protocol import LocalStore, StorePart
from mvindex.store.reader import SnapshotReader, StoredDocument
from mvindex.store.snapshot import Snapshot

logger = logging.getLogger(__name__)


class OpenPart(NamedTuple):
    """A store part opened for one search; the reader's transaction ends with the search."""

    search: Part
    reader: SnapshotReader
    source: StorePart


@dataclass(slots=True)
class _PartEngines:
    """The engines of one store: its active one, loaded when needed, and its exact scan, opened at the first search."""

    active: EngineCache
    scan: ScanEngine | None = None


class LocalSearch:
    """Dense, lexical and hybrid search over embedded stores. Thread-safe."""

    def __init__(self, store: LocalStore, device: str | None = None) -> None:
        """Take the stores to search; device: where engines run that can run elsewhere than on the CPU."""
        self._store, self._device = store, device
        self._lock = Lock()
        self._engines: dict[EmbeddedStore, _PartEngines] = {}
        self._open_scan: Callable[[], ScanEngine] | None = None

    def use_scan(self, open_scan: Callable[[], ScanEngine]) -> None:
        """Scan with engines that open_scan() returns, one for each store, instead of the fastest of this machine."""
        self._open_scan = open_scan
        self.forget_scans()

    def forget_scans(self) -> None:
        """Drop the scans' copies of views, which hold the files of the snapshots they were made of."""
        with self._lock:
            for kept in self._engines.values():
                kept.scan = None

    def close(self) -> None:
        """Drop all engines: each holds the files of a snapshot."""
        with self._lock:
            self._engines.clear()

    def copy_bytes(self) -> int:
        """Return the bytes of copies of views that the scans have in memory."""
        with self._lock:
            return sum(kept.scan.copy_bytes() for kept in self._engines.values() if kept.scan is not None)

    def mapped_bytes(self) -> int:
        """Return the bytes of copies of views that the scans have mapped from files."""
        with self._lock:
            return sum(kept.scan.mapped_bytes() for kept in self._engines.values() if kept.scan is not None)

    def search(self, queries: Floats, options: SearchOptions, texts: Sequence[str] | None = None) -> list[SearchResult]:
        """Return a dense result for each query, (q, d) float32; texts: those that citations are chosen for."""

        def read() -> list[SearchResult]:
            with self.opened(options) as parts:
                batches = (slice(at, at + QUERY_BATCH) for at in range(0, len(queries), QUERY_BATCH))
                return [
                    one
                    for at in batches
                    for one in self._results(parts, queries[at], options, None if texts is None else texts[at])
                ]

        return self._store.attempt(read)

    def search_text(self, queries: TextQueries, options: SearchOptions) -> list[SearchResult]:
        """Return a lexical result for each text, or a hybrid one where vectors are given."""

        def read() -> list[SearchResult]:
            if queries.vectors is None:
                with self._opened_texts(options) as lexical:
                    return [
                        self._text_result(lexical, text, found, options)
                        for batch in queries.batches()
                        for text, found in zip(
                            batch.texts, lexical_rankings(lexical, batch.texts, options.top_k), strict=True
                        )
                    ]
            with self.opened(replace(options, top_k=options.depth)) as parts:
                lexical = lexical_search(parts, options)
                return [one for batch in queries.batches() for one in self._hybrid(parts, lexical, batch, options)]

        return self._store.attempt(read)

    def search_group(
        self, queries: Floats, combine: Combine, options: SearchOptions, texts: Sequence[str] | None
    ) -> SearchResult:
        """Return the dense or hybrid result of one group of query vectors; see SearchEngine."""
        is_hybrid = options.mode is Mode.HYBRID
        top_k = options.depth if is_hybrid else options.top_k

        def read() -> SearchResult:
            with self.opened(replace(options, top_k=top_k)) as parts:
                ranking, components = _group_ranking(parts, queries, combine), None
                if is_hybrid:
                    if texts is None:
                        raise QueryError("hybrid search needs a text")
                    how = _hybrid_of(options, combine)
                    mixed = hybrid_rankings(lexical_search(parts, options), texts[:1], [queries], [ranking], how)
                    ranking, components = mixed[0]
                stored = _documents(parts, [ranking], options.fields)
                cites = None
                if texts is not None and Field.TEXT in options.fields:
                    cites = _group_cites(parts, queries, texts, ranking, stored)
                hits = hits_of(ranking, stored, options.fields, components, cites)
                return self._result(hits, ranking, options, _PartsSource(parts))

        return self._store.attempt(read)

    def term_counts(self, texts: Sequence[str]) -> TermCounts:
        """Return the counts of the stores for the terms of texts; StoreError where there is no lexical side."""

        def read() -> TermCounts:
            with self._opened_texts(SearchOptions()) as lexical:
                return lexical.term_counts(texts)

        return self._store.attempt(read)

    def _result(
        self, hits: tuple[Hit, ...], ranking: Ranking, options: SearchOptions, source: _PartsSource | LexicalSearch
    ) -> SearchResult:
        """Return the result of a ranking; for one shard of several with the ordinals of its hits."""
        missing = self._store.missing_shards
        exact = ranking.exact and not missing
        mode = options.mode if options.mode is not Mode.AUTO else Mode.DENSE
        if options.shard is None:
            return SearchResult(hits, exact, ranking.short_by, ranking.rounds, missing, mode.value)
        return ShardResult(
            hits,
            exact,
            ranking.short_by,
            ranking.rounds,
            missing,
            mode.value,
            ordinals=tuple(source.ordinals(ranking.rows).tolist()),
            num_allowed=source.num_allowed,
            view_hits=ranking.view_hits,
        )

    def _hybrid(
        self, parts: Sequence[OpenPart], lexical: LexicalSearch, queries: TextQueries, options: SearchOptions
    ) -> list[SearchResult]:
        """Return the fused results of one batch."""
        if queries.vectors is None:
            raise QueryError("hybrid search needs the vectors of its queries")
        how = _hybrid_of(options)
        dense = rankings(parts, queries.vectors)
        found = hybrid_rankings(lexical, queries.texts, queries.vectors, dense, how)
        columns = zip(queries.texts, queries.vectors, found, strict=True)
        return [self._text_result(lexical, text, mixed, options, vector) for text, vector, mixed in columns]

    def _text_result(
        self,
        lexical: LexicalSearch,
        text: str,
        found: HybridResult,
        options: SearchOptions,
        vector: Floats | None = None,
    ) -> SearchResult:
        """Return the result of one query; a lexical one shows the view whose span matches the text best."""
        ranking = found.ranking
        is_lexical = options.mode is Mode.LEXICAL
        # The view to show is chosen by the text.
        stored = lexical.documents(ranking.rows, ALL_FIELDS if is_lexical else options.fields)
        if is_lexical:
            slots = lexical.slots(text, [stored[row] for row in ranking.rows.tolist()])
            ranking = ranking._replace(slots=np.array(slots, dtype=np.int64))
            stored = {row: document.only(options.fields) for row, document in stored.items()}
        cites, scores = None, None
        if Field.TEXT in options.fields:
            if vector is not None:
                shards = ((part.snapshot.views, places, own) for part, places, own in lexical.split(ranking.rows))
                scores = view_scores_of_hits(shards, vector[None], np.zeros(len(ranking.rows), dtype=np.int64))
            cites = cites_of(text, ranking.rows.tolist(), stored, scores)
        hits = hits_of(ranking, stored, options.fields, found.components, cites)
        return self._result(hits, ranking, options, lexical)

    def _results(
        self, parts: Sequence[OpenPart], queries: Floats, options: SearchOptions, texts: Sequence[str] | None
    ) -> list[SearchResult]:
        found, fields = rankings(parts, queries), options.fields
        stored = _documents(parts, found, fields)
        cites: Iterable[list[Cite] | None] = repeat(None, len(found))
        if texts is not None and Field.TEXT in fields:
            scores = iter(_view_scores(parts, found, queries))
            cites = (
                cites_of(text, each.rows.tolist(), stored, list(islice(scores, len(each.rows))))
                for text, each in zip(texts, found, strict=True)
            )
        source = _PartsSource(parts)
        return [
            self._result(hits_of(each, stored, fields, cites=own), each, options, source)
            for each, own in zip(found, cites, strict=True)
        ]

    @contextmanager
    def opened(self, options: SearchOptions, sources: Sequence[StorePart] | None = None) -> Iterator[list[OpenPart]]:
        """Open the parts, by default every one that is there, for one search; their transactions end with it."""
        with ExitStack() as stack:
            parts = []
            sources = self._store.parts() if sources is None else sources
            for source in sources:
                with source.errors():
                    parts.append(self._opened(source, options, stack, share=len(sources)))
            yield parts

    def _opened(self, source: StorePart, options: SearchOptions, stack: ExitStack, *, share: int) -> OpenPart:
        kept = self._part_engines(source.store)
        snapshot, ranking = source.store.snapshot, None
        if not options.exact:
            try:
                ranking = kept.active.open(snapshot)
            except StaleReader as err:
                # The engine was built again since; scanning finds the same documents or better ones.
                logger.info("%s; scanning instead", err)
        reader = stack.enter_context(source.store.reading(snapshot))
        allowed = _allowed(reader, snapshot, options)
        request = Request(
            top_k=options.top_k,
            allowed=allowed,
            scoring=options.scoring,
            depth=options.candidates,
            share=_share_of(options),
        )
        return OpenPart(Part(snapshot, self._engines_of(kept, ranking, share), request), reader, source)

    @contextmanager
    def _opened_texts(self, options: SearchOptions) -> Iterator[LexicalSearch]:
        """Open the lexical side of every part that is there; no engine is loaded."""
        with ExitStack() as stack:
            parts = []
            for source in self._store.parts():
                with source.errors():
                    snapshot = source.store.snapshot
                    reader = stack.enter_context(source.store.reading(snapshot))
                    lexical = reader.lexical()
                    allowed = _allowed(reader, snapshot, options)
                    parts.append(LexicalShard(snapshot, reader, lexical, allowed, source.errors))
            yield LexicalSearch(parts, options.fusion.k1, options.fusion.b, _counts_of(options))

    def _part_engines(self, store: EmbeddedStore) -> _PartEngines:
        with self._lock:
            if store not in self._engines:
                self._engines[store] = _PartEngines(EngineCache(self._device))
            return self._engines[store]

    def _engines_of(self, kept: _PartEngines, ranking: Engine | None, share: int) -> Engines:
        """Return the engines of a search; the scan is opened at the first one, since it may import torch."""
        with self._lock:
            if kept.scan is None:
                # Each of so many scans of this process takes its share of the memory.
                kept.scan = engines.open_scan(self._device, share) if self._open_scan is None else self._open_scan()
            return Engines(scan=kept.scan, ranking=ranking)

    def judged(
        self,
        queries: TextQueries,
        relevant: Sequence[Mapping[str, float]],
        options: SearchOptions,
        fusions: Sequence[Fusion],
    ) -> Iterator[list[JudgedQuestion]]:
        """Yield for each question what each fusion would order, and the gains of that.

        relevant: gains by document id. fusions: those that differ in depth, k1 or b; their methods do not matter.
        """
        hows = [Hybrid(options.scoring, fusion, options.top_k) for fusion in fusions]
        gains_of = iter(relevant)
        deepest = replace(options, top_k=max(how.depth for how in hows))
        with self.opened(deepest, self._store.all_parts()) as parts:
            searches = [lexical_search(parts, replace(options, tuned=fusion)) for fusion in fusions]
            for batch in queries.batches():
                if batch.vectors is None:
                    raise QueryError("fusion is measured with the vectors of the questions")
                columns = zip(batch.texts, batch.vectors, rankings(parts, batch.vectors), strict=True)
                for text, vector, ranking in columns:
                    gains = {doc_id: gain for doc_id, gain in next(gains_of).items() if gain > 0}
                    by_row = {row: gains[doc_id] for doc_id, row in searches[0].rows_of(gains).items()}
                    ideal = -np.sort(-np.array(list(gains.values()), dtype=np.float64))
                    yield [
                        _judged(candidates_of(lexical, text, vector, ranking, how), by_row, ideal)
                        for lexical, how in zip(searches, hows, strict=True)
                    ]


def _judged(found: Candidates, gains: Mapping[int, float], ideal: Doubles) -> JudgedQuestion:
    """Return candidates with their gains, which are given by row."""
    values = [gains.get(row, 0.0) for row in found.rows.tolist()]
    return JudgedQuestion(found, np.array(values, dtype=np.float64), ideal)


def rankings(parts: Sequence[OpenPart], queries: Floats) -> list[Ranking]:
    """Return the dense rankings of a batch of queries over all parts together."""
    return search_parts([part.search for part in parts], queries, [part.source.errors for part in parts])


def _group_ranking(parts: Sequence[OpenPart], queries: Floats, combine: Combine) -> Ranking:
    """Return the dense ranking of one group, (m, d), over all parts together."""

    def search(top_k: int) -> list[Ranking]:
        deeper = [
            part._replace(search=part.search._replace(request=replace(part.search.request, top_k=top_k, share=None)))
            for part in parts
        ]
        begins = range(0, len(queries), QUERY_BATCH)
        return [one for at in begins for one in rankings(deeper, queries[at : at + QUERY_BATCH])]

    errors = [part.source.errors for part in parts]
    scorer = PartsScorer([part.search for part in parts], errors, queries, combine, search)
    return GroupSearch(scorer, queries, combine, parts[0].search.request.top_k).run()


def _group_cites(
    parts: Sequence[OpenPart],
    queries: Floats,
    texts: Sequence[str],
    ranking: Ranking,
    stored: Mapping[int, StoredDocument],
) -> list[Cite]:
    """Return what chooses the citation of each hit: by the vector that has the best view score, and its text."""
    rows = ranking.rows.tolist()
    if not rows:
        return []
    scores = _view_scores(parts, [ranking] * len(queries), queries)
    best = np.array([own.max() for own in scores]).reshape(len(queries), len(rows)).argmax(axis=0).tolist()
    chosen = [
        (row, scores[winner * len(rows) + place], winner)
        for place, (row, winner) in enumerate(zip(rows, best, strict=True))
    ]
    return [cites_of(texts[winner if len(texts) > 1 else 0], [row], stored, [own])[0] for row, own, winner in chosen]


@dataclass(frozen=True, slots=True)
class _PartsSource:
    """Ordinals and the number of allowed documents, of rankings over all parts."""

    parts: Sequence[OpenPart]

    @property
    def num_allowed(self) -> int:
        """The number of allowed documents."""
        return sum(part.search.snapshot.count(part.search.request.allowed) for part in self.parts)

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each row."""
        which, local = owners([part.search for part in self.parts], rows)
        ordinals = np.empty(len(rows), dtype=np.int64)
        for number, part in enumerate(self.parts):
            places = np.flatnonzero(which == number)
            ordinals[places] = part.search.snapshot.views.ordinals(local[places])
        return ordinals


def _hybrid_of(options: SearchOptions, combine: Combine = Combine.MAX) -> Hybrid:
    every = options.shard is not None and options.shard.all_candidates
    return Hybrid(options.scoring, options.fusion, options.top_k, combine, every)


def _share_of(options: SearchOptions) -> Share | None:
    """Return the share of one served shard of several."""
    if options.shard is None or options.shard.num_shards == 1:
        return None
    return Share(num_shards=options.shard.num_shards, top_k=options.top_k)


def _counts_of(options: SearchOptions) -> TermCounts | None:
    return None if options.shard is None else options.shard.counts


def lexical_search(parts: Sequence[OpenPart], options: SearchOptions) -> LexicalSearch:
    """Return lexical search over the parts of one search, with k1 and b of the options' fusion."""
    shards = []
    for part in parts:
        with part.source.errors():
            lexical = part.reader.lexical()
        allowed = part.search.request.allowed
        shards.append(LexicalShard(part.search.snapshot, part.reader, lexical, allowed, part.source.errors))
    return LexicalSearch(shards, options.fusion.k1, options.fusion.b, _counts_of(options))


def _allowed(reader: SnapshotReader, snapshot: Snapshot, options: SearchOptions) -> Bools:
    """Return which document rows filter and operators allow, (num_rows,)."""
    allowed = snapshot.alive if options.filter is None else reader.allowed(options.filter)
    return allowed if options.words is None else allowed & options.words.matching(reader)


def _view_scores(parts: Sequence[OpenPart], found: Sequence[Ranking], queries: Floats) -> list[Floats]:
    """Return the scores of all views of each hit, of one ranking after the other."""
    rows = np.concatenate([ranking.rows for ranking in found])
    which = np.repeat(np.arange(len(found)), [len(ranking.rows) for ranking in found])
    owner, local = owners([part.search for part in parts], rows)
    places = [np.flatnonzero(owner == number) for number in range(len(parts))]
    shards = ((part.search.snapshot.views, at, local[at]) for part, at in zip(parts, places, strict=True))
    return view_scores_of_hits(shards, queries, which)


def _documents(
    parts: Sequence[OpenPart], found: Sequence[Ranking], fields: Collection[Field]
) -> dict[int, StoredDocument]:
    """Return the documents that rankings over all parts name, by row, each read once."""
    rows = {row for ranking in found for row in ranking.rows.tolist()}
    if len(parts) == 1:
        with parts[0].source.errors():
            return parts[0].reader.hit_documents(rows, fields)
    numbered = np.array(sorted(rows), dtype=np.int64)
    which, local = owners([part.search for part in parts], numbered)
    stored: dict[int, StoredDocument] = {}
    for number, part in enumerate(parts):
        places = np.flatnonzero(which == number)
        if len(places):
            with part.source.errors():
                documents = part.reader.hit_documents(local[places].tolist(), fields)
            stored |= {int(numbered[place]): documents[int(local[place])] for place in places}
    return stored
