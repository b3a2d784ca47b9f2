"""Administration of an index: build, tune, lexical side, compact, snapshot, verify."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mvindex.errors import DamagedIndex
from mvindex.records import CountCallback, Floats, ProgressCallback
from mvindex.search.fusion import Fusion
from mvindex.search.hybrid import JudgedQuestion
from mvindex.search.local import LocalSearch
from mvindex.search.options import SearchOptions
from mvindex.search.queries import TextQueries
from mvindex.store import schema
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.lexical.tokenizer import TERMS_VERSION, StoredLexical, parse_lexical
from mvindex.store.protocol import LocalStore

# The tools themselves are imported by what calls them: a process that only asks needs none.
if TYPE_CHECKING:
    from mvindex.engines.build import BuildReport
    from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
    from mvindex.search.tuning import FusionReport, TuneGoal, TuneReport

logger = logging.getLogger(__name__)


class Admin(Protocol):
    """Administration of one index; called only for operations that its capabilities have. See Index for each."""

    def build(
        self, kind: str | None, parameters: Mapping[str, int], *, target_recall: float, on_progress: ProgressCallback
    ) -> BuildReport:
        """Build an engine and make it the active one."""

    def tune(self, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
        """Measure the active engine's search parameters, and keep the fastest that reach the target."""

    def tune_fusion(
        self,
        questions: TextQueries,
        relevant: Sequence[Mapping[str, float]],
        options: SearchOptions,
        on_progress: ProgressCallback,
    ) -> FusionReport:
        """Measure fusion methods and weights, and keep the best where it is a gain."""

    def set_fusion(self, fusion: Fusion | None) -> None:
        """Keep the fusion of hybrid search; None resets it."""

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts, or remove the lexical side."""

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Keep the values of declared filter fields in columns; {} removes all columns."""

    def rebuild_columns_if_damaged(self) -> bool:
        """Rebuild the columns of filter fields where they are damaged; return whether they were."""

    def rebuild_lexical_if_damaged(self) -> bool:
        """Rebuild the lexical side where it is damaged or of an older mvindex; return whether it was."""

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Give back the bytes of deleted and replaced documents."""

    def snapshot(self, path: Path, on_progress: CountCallback) -> SnapshotReport:
        """Copy the latest committed state."""

    def verify(self, on_progress: CountCallback) -> VerifyReport:
        """Check everything against its checksum."""


class LocalAdmin:
    """Administration of embedded stores, in shards or not."""

    def __init__(self, store: LocalStore, search: LocalSearch) -> None:
        self._store, self._search = store, search

    def build(
        self, kind: str | None, parameters: Mapping[str, int], *, target_recall: float, on_progress: ProgressCallback
    ) -> BuildReport:
        """Build an engine and make it the active one; see Index.build()."""
        from mvindex import engines
        from mvindex.engines.build import EngineChoice, build_engine
        from mvindex.engines.build_shards import build_shards
        from mvindex.search.tuning import checked_target

        target = checked_target(target_recall)
        chosen, why = (engines.parse_kind(kind), "as given") if kind is not None else self._best_kind(target)
        choice = EngineChoice(kind=chosen, parameters=parameters).checked()
        sharding = self._store.sharding
        if sharding is not None:
            report = build_shards(Path(self._store.where), sharding.stores, choice, on_progress)
        else:
            report = build_engine(self._stores()[0], choice, on_progress)
        return replace(report, why=why)

    def _best_kind(self, target_recall: float) -> tuple[str, str]:
        from mvindex.engines.auto import Sizes, chosen_kind, usable_memory

        num_views = sum(store.snapshot.views.num_views for store in self._stores())
        sizes = Sizes(num_views=num_views, dim=self._store.dim or 1, memory_bytes=usable_memory())
        return chosen_kind(sizes, target_recall)

    def tune(self, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
        """Measure the active engine's search parameters; see Index.tune()."""
        from mvindex.engines.build import save_search_params
        from mvindex.search.tuning import tune_search

        stores = self._stores()
        with self._search.opened(SearchOptions(top_k=goal.top_k), self._store.all_parts()) as parts:
            report = tune_search([part.search for part in parts], queries, goal, on_progress)
        if report.chosen is not None:
            for store in stores:
                if store.settings["engine"] is not None:
                    save_search_params(store, report.chosen.search)
        return report

    def tune_fusion(
        self,
        questions: TextQueries,
        relevant: Sequence[Mapping[str, float]],
        options: SearchOptions,
        on_progress: ProgressCallback,
    ) -> FusionReport:
        """Measure fusion methods and weights; see Index.tune_fusion()."""
        from mvindex.search.tuning import checked_judgements, tune_fusion

        checked_judgements(questions.texts, relevant)

        def judged(fusions: Sequence[Fusion]) -> Iterator[list[JudgedQuestion]]:
            for number, each in enumerate(self._search.judged(questions, relevant, options, fusions), start=1):
                yield each
                on_progress("measuring", number, len(questions.texts))

        report = tune_fusion(judged, options.top_k, options.fusion)
        if report.chosen is not None:
            self.set_fusion(report.chosen.fusion)
        return report

    def set_fusion(self, fusion: Fusion | None) -> None:
        """Keep the fusion of hybrid search in every store; None resets it."""
        with self._store.writing():
            for store in self._stores():
                store.change_settings(fusion=None if fusion is None else fusion.as_setting())

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts, or remove the lexical side; all stores are locked before one is changed."""
        kind = parse_lexical(tokenizer)
        with self._store.writing():
            for store in self._stores():
                store.set_lexical(kind, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Build the columns of declared filter fields in every store; {} removes all columns."""
        with self._store.writing():
            for store in self._stores():
                store.set_filter_fields(fields)

    def rebuild_columns_if_damaged(self) -> bool:
        """Rebuild the columns of filter fields in each store where they are damaged; return whether they were."""
        damaged = [store for store in self._stores() if not _are_columns_sound(store)]
        for store in damaged:
            with store.writing():
                store.set_filter_fields(store.settings[schema.FILTER_FIELDS_KEY])
        return bool(damaged)

    def rebuild_lexical_if_damaged(self) -> bool:
        """Rebuild the lexical side of each store where it is damaged or of an older mvindex; return whether one was."""
        damaged = [store for store in self._stores() if not _is_lexical_sound(store)]
        for store in damaged:
            with store.writing():
                store.set_lexical(StoredLexical.parse(store.settings["lexical"]).kind, lambda count: None)
        return bool(damaged)

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Give back the bytes of deleted and replaced documents, store by store."""
        from mvindex.maintenance import CompactReport, compact_store

        self._search.forget_scans()
        reports = [compact_store(store, on_progress) for store in self._stores()]
        return CompactReport(
            generation=max(report.generation for report in reports),
            documents=sum(report.documents for report in reports),
            dropped=sum(report.dropped for report in reports),
            bytes_before=sum(report.bytes_before for report in reports),
            bytes_after=sum(report.bytes_after for report in reports),
            is_old_in_use=any(report.is_old_in_use for report in reports),
        )

    def snapshot(self, path: Path, on_progress: CountCallback) -> SnapshotReport:
        """Copy the latest committed state; of shards one after the other."""
        from mvindex.maintenance import snapshot_store
        from mvindex.maintenance.shards import snapshot_shards

        stores = self._stores()
        if self._store.sharding is not None:
            return snapshot_shards(Path(self._store.where), stores, path, on_progress)
        return snapshot_store(stores[0], path, on_progress)

    def verify(self, on_progress: CountCallback) -> VerifyReport:
        """Check everything against its checksum."""
        from mvindex.maintenance.dispatch import verify

        return verify(self._store.where, on_progress)

    def _stores(self) -> list[EmbeddedStore]:
        """Return all embedded stores; StoreError when a shard is missing."""
        return [part.store for part in self._store.all_parts()]


def _are_columns_sound(store: EmbeddedStore) -> bool:
    """Return whether the columns of the store's filter fields hold what its metadata does."""
    try:
        with store.reading(store.snapshot) as reader:
            reader.check_columns()
    except DamagedIndex as err:
        logger.info("%s: %s", store.directory, err)
        return False
    return True


def _is_lexical_sound(store: EmbeddedStore) -> bool:
    """Return whether the store's lexical side is as it was written, by this version of terms."""
    setting = store.settings.get("lexical")
    if setting is None:
        return True
    if StoredLexical.parse(setting).version != TERMS_VERSION:
        return False
    try:
        with store.reading(store.snapshot) as reader:
            reader.lexical().check()
    except DamagedIndex as err:
        logger.info("%s: %s", store.directory, err)
        return False
    return True
