"""LocalSearch: the engine slot of embedded stores, one or several searched as one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from mvindex import engines
from mvindex.engines.build import open_engine
from mvindex.engines.protocol import Engine, ScanEngine
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.errors import ConfigError, StaleReader
from mvindex.records import SearchResult, shown
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.hits import make_results
from mvindex.search.hybrid import JudgedQuestion, Ranked, candidates_of, fuse_rankings, judge, of_views, rank_terms
from mvindex.search.parts import Part, Parts
from mvindex.search.plan import Plan
from mvindex.search.ranking import Engines, Request, Share
from mvindex.search.request import QUERY_BATCH, Queries
from mvindex.search.terms import LexicalSearch, SnapshotTerms, TermCounts
from mvindex.search.views import rank_group, rank_views
from mvindex.store.embedded import EmbeddedStore, LocalStore, StorePart
from mvindex.store.filter_reader import FilterReader
from mvindex.store.snapshot import Snapshot

logger = logging.getLogger(__name__)
# Of a lexical search, which ranks no views: no engine is opened for it.
_NO_ENGINES = Engines(scan=NumpyScan())


class EngineCache:
    """The engines of one store: its exact scan, opened at the first search, and the active one. Thread-safe."""

    def __init__(self, device: str | None = None) -> None:
        """Create an empty cache. device: where engines search that can use another than the CPU."""
        self.device = device
        self.scan: ScanEngine | None = None
        self._lock = Lock()
        self._loaded: tuple[tuple[int, str, Any], Engine] | None = None

    def open(self, snapshot: Snapshot) -> Engine | None:
        """Return the active engine of the snapshot, loaded and checked once; None for kind exact.

        DamagedIndex and StaleReader as of open_engine().
        """
        record = snapshot.settings["engine"]
        if record is None:
            return None
        settings = record["settings"]
        key = (snapshot.generation, record["directory"], (settings.get("search"), settings.get("measured")))
        with self._lock:
            if self._loaded is None or self._loaded[0] != key:
                self._loaded = (key, open_engine(snapshot, record, self.device))
            return self._loaded[1]


def _names_of(device: str | None) -> list[str | None]:
    """Return the names of one or several devices; ConfigError for several of which one is none, and for no text."""
    if device is not None and not isinstance(device, str):
        raise ConfigError(f"device: expected a name such as 'cuda:0', got {shown(device)}")
    if device is None or "," not in device:
        return [device]
    from mvindex.encoder.devices import parse_devices

    return [*parse_devices(device)]


class LocalSearch:
    """Dense, lexical and hybrid search over embedded stores. Thread-safe."""

    def __init__(self, store: LocalStore, device: str | None = None) -> None:
        """Take the stores to search; device: where engines run that can run elsewhere than on the CPU.

        Several, such as "cuda:0,cuda:1", take the shards in turn.
        """
        self._store, self._devices = store, _names_of(device)
        self._lock = Lock()
        self._engines: dict[EmbeddedStore, EngineCache] = {}
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

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a result for each query; they have vectors where the plan reads views."""
        counts = None if plan.shard is None else plan.shard.counts

        def read(sources: Sequence[StorePart]) -> list[SearchResult]:
            with self.opened(plan, sources) as parts:
                terms = None if plan.mode is Mode.DENSE else LexicalSearch(parts, plan.fusion, counts)
                return [
                    result
                    for batch in queries.batches(max([QUERY_BATCH, *(part.engines.scan.at_once for part in parts.all)]))
                    for result in make_results(_ranked(batch, parts, terms, plan), parts, terms, batch, plan)
                ]

        found = self._store.attempt(read)
        missing = self._store.missing_shards
        return [replace(result, exact=False, missing_shards=missing) for result in found] if missing else found

    def term_counts(self, texts: Sequence[str]) -> TermCounts:
        """Return the counts of the stores for the terms of texts; StoreError where there is no lexical side."""

        def read(sources: Sequence[StorePart]) -> TermCounts:
            with self.opened(Plan(mode=Mode.LEXICAL), sources) as parts:
                return LexicalSearch(parts, Fusion()).term_counts(texts)

        return self._store.attempt(read)

    @contextmanager
    def opened(self, plan: Plan, sources: Sequence[StorePart] | None = None) -> Iterator[Parts]:
        """Open the parts, by default every one that is there, for one search; their transactions end with it."""
        with ExitStack() as stack:
            parts = []
            sources = self._store.parts() if sources is None else sources
            for source in sources:
                with source.errors():
                    parts.append(self._opened(source, plan, stack, share=len(sources)))
            yield Parts(parts)

    def _opened(self, source: StorePart, plan: Plan, stack: ExitStack, *, share: int) -> Part:
        """Open one store. share: how many scans of this process share the memory."""
        snapshot = source.store.snapshot
        opened = _NO_ENGINES if plan.mode is Mode.LEXICAL else self._engines_of(source.store, snapshot, plan, share)
        reader = stack.enter_context(source.store.reading(snapshot))
        allowed, num_allowed = snapshot.alive, snapshot.num_documents
        if plan.filter is not None or plan.operators is not None:
            allowed = allowed if plan.filter is None else FilterReader(reader).allowed(plan.filter)
            if plan.operators is not None:
                allowed = allowed & plan.operators.matching(SnapshotTerms(reader))
            num_allowed = int(np.count_nonzero(allowed))
        depth, share_of = plan.depth, None
        if plan.shard is not None and plan.shard.num_shards > 1:
            share_of = Share(num_shards=plan.shard.num_shards, top_k=depth)
        request = Request(
            top_k=depth,
            allowed=allowed,
            num_allowed=num_allowed,
            scoring=plan.scoring,
            depth=plan.candidates,
            share=share_of,
        )
        return Part(snapshot, opened, request, reader, source.errors)

    def _engines_of(self, store: EmbeddedStore, snapshot: Snapshot, plan: Plan, share: int) -> Engines:
        """Return the engines of a search; the scan is opened at the first one, since it may import torch."""
        with self._lock:
            kept = self._engines.get(store)
            if kept is None:
                device = self._devices[len(self._engines) % len(self._devices)]
                kept = self._engines[store] = EngineCache(device)
            if kept.scan is None:
                # Each of so many scans of a device takes its share of the memory.
                each = -(-share // len(self._devices))
                kept.scan = engines.open_scan(kept.device, each) if self._open_scan is None else self._open_scan()
            scan, ranking = kept.scan, None
        if not plan.exact:
            try:
                ranking = kept.open(snapshot)
            except StaleReader as err:
                # The engine was built again since; scanning finds the same documents or better ones.
                logger.info("%s; scanning instead", err)
        return Engines(scan=scan, ranking=ranking)

    def judged(
        self, queries: Queries, relevant: Sequence[Mapping[str, float]], plan: Plan, fusions: Sequence[Fusion]
    ) -> Iterator[list[JudgedQuestion]]:
        """Yield for each question what each fusion would order, and the gains of that.

        Args:
            queries: The questions, texts and vectors.
            relevant: Gains by document id, of each question.
            plan: Of hybrid search.
            fusions: Those that differ in depth, k1 or b; their methods do not matter.

        """
        plans = [plan._replace(fusion=fusion) for fusion in fusions]
        gains_of = iter(relevant)
        deepest = max(plans, key=lambda each: each.depth)
        with self.opened(deepest, self._store.all_parts()) as parts:
            searches = [LexicalSearch(parts, each.fusion) for each in plans]
            for batch in queries.batches(QUERY_BATCH):
                vectors = batch.vectors
                for number, (text, ranking) in enumerate(
                    zip(batch.texts or (), rank_views(parts, vectors), strict=True)
                ):
                    gains = {doc_id: gain for doc_id, gain in next(gains_of).items() if gain > 0}
                    by_row = {row: gains[doc_id] for doc_id, row in parts.rows_of(gains).items()}
                    own = vectors[number : number + 1]
                    yield [
                        judge(candidates_of(terms, text, own, ranking, each), by_row, list(gains.values()))
                        for terms, each in zip(searches, plans, strict=True)
                    ]


def _ranked(queries: Queries, parts: Parts, terms: LexicalSearch | None, plan: Plan) -> list[Ranked]:
    """Return the ranking of each query, by views, by terms, or by both, from the plan's offset on."""
    if plan.mode is Mode.LEXICAL and terms is not None:
        ranked = rank_terms(terms, queries.texts or (), plan.top_k)
    else:
        vectors, combine = queries.vectors, queries.combine
        dense = rank_views(parts, vectors) if combine is None else [rank_group(parts, vectors, combine)]
        ranked = (
            [of_views(ranking) for ranking in dense] if terms is None else fuse_rankings(terms, queries, dense, plan)
        )
    return [each.page(plan.offset) for each in ranked] if plan.offset else ranked
