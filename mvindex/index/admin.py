"""Administration of an index: build, tune, lexical side, compact, snapshot, verify."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from mvindex.errors import DamagedIndex
from mvindex.records import CountCallback, Floats, ProgressCallback, no_progress
from mvindex.search.fusion import Fusion
from mvindex.search.local import LocalSearch
from mvindex.search.plan import Plan
from mvindex.search.request import Queries
from mvindex.store import schema
from mvindex.store.embedded import EmbeddedStore, LocalStore
from mvindex.store.lexical.tokenizer import TERMS_VERSION, StoredLexical, parse_lexical
from mvindex.store.sharded import ShardedStore

# The tools themselves are imported by what calls them: a process that only asks needs none.
if TYPE_CHECKING:
    from mvindex.encoder import Encoder
    from mvindex.engines.build import BuildReport
    from mvindex.ingest.reembed import ReembedHooks, ReembedReport
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
        questions: Queries,
        plan: Plan,
        relevant: Sequence[Mapping[str, float]],
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

    def extend_if_due(self) -> None:
        """Let an engine that extends take in documents that were added, where it lacks many."""

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Give back the bytes of deleted and replaced documents."""

    def reembed(self, encoder: Encoder, hooks: ReembedHooks, *, texts_only: bool) -> ReembedReport:
        """Make the views of all documents again, with another encoder."""

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
        if isinstance(self._store, ShardedStore):
            report = build_shards(self._store.directory, self._store.sharding.stores, choice, on_progress)
        else:
            report = build_engine(self._stores()[0], choice, on_progress)
        return self._measured(replace(report, why=why), target, on_progress)

    def _measured(self, report: BuildReport, target_recall: float, on_progress: ProgressCallback) -> BuildReport:
        """Let the engine that was built measure itself, and keep what follows; return the report with that."""
        return replace(report, measured=self._measure(target_recall, on_progress))

    def _measure(self, target_recall: float, on_progress: ProgressCallback) -> Mapping[str, Any] | None:
        """Let the active engine measure itself, and keep what follows; None for kinds without a beam."""
        from mvindex.engines.build import save_measured
        from mvindex.search.tuning.self_measure import measure_itself

        with self._search.opened(Plan(), self._store.all_parts()) as parts:
            found = measure_itself(parts, target_recall, on_progress)
        if found is None:
            return None
        search, measured = found[0], found[1].as_json()
        for store in self._stores():
            if store.settings["engine"] is not None:
                save_measured(store, search, measured)
        return measured

    def _is_measured(self) -> bool:
        """Return whether every engine has measured itself, with not half or twice as many documents as now."""
        documents = self._store.count()
        records = [record for store in self._stores() if (record := store.settings["engine"]) is not None]
        measured = [record["settings"].get("measured") for record in records]
        return all(each is not None and documents / 2 < each["documents"] < 2 * documents for each in measured)

    def _self_measured(self) -> Mapping[str, Any] | None:
        """Return what the engine has measured of itself; None for those that do not."""
        for store in self._stores():
            record = store.settings["engine"]
            if record is not None and record["settings"].get("measured") is not None:
                return cast(Mapping[str, Any], record["settings"]["measured"])
        return None

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
        with self._search.opened(Plan(top_k=goal.top_k), self._store.all_parts()) as parts:
            report = tune_search(parts, queries, goal, on_progress)
        if report.chosen is not None:
            for store in stores:
                if store.settings["engine"] is not None:
                    save_search_params(store, report.chosen.search)
        return report

    def tune_fusion(
        self,
        questions: Queries,
        plan: Plan,
        relevant: Sequence[Mapping[str, float]],
        on_progress: ProgressCallback,
    ) -> FusionReport:
        """Measure fusion methods and weights; see Index.tune_fusion()."""
        from mvindex.search.tuning import measure_fusion

        report = measure_fusion(self._search.judged, questions, relevant, plan, on_progress)
        if report.chosen is not None:
            self.set_fusion(report.chosen.fusion)
        return report

    def set_fusion(self, fusion: Fusion | None) -> None:
        """Keep the fusion of hybrid search in every store; None resets it."""
        with self._store.writing() as writer:
            writer.change_settings(fusion=None if fusion is None else fusion.as_setting())

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts, or remove the lexical side; all stores are locked before one is changed."""
        kind = parse_lexical(tokenizer)
        with self._store.writing() as writer:
            for part in writer.parts:
                part.set_lexical(kind, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Build the columns of declared filter fields in every store; {} removes all columns."""
        with self._store.writing() as writer:
            for part in writer.parts:
                part.set_filter_fields(fields)

    def rebuild_columns_if_damaged(self) -> bool:
        """Rebuild the columns of filter fields in each store where they are damaged; return whether they were."""
        damaged = [store for store in self._stores() if not _are_columns_sound(store)]
        for store in damaged:
            with store.writing() as writer:
                writer.set_filter_fields(store.settings[schema.FILTER_FIELDS_KEY])
        return bool(damaged)

    def rebuild_lexical_if_damaged(self) -> bool:
        """Rebuild the lexical side of each store where it is damaged or of an older mvindex; return whether one was."""
        damaged = [store for store in self._stores() if not _is_lexical_sound(store)]
        for store in damaged:
            with store.writing() as writer:
                writer.set_lexical(StoredLexical.parse(store.settings["lexical"]).kind, lambda count: None)
        return bool(damaged)

    def extend_if_due(self) -> None:
        """Let the engine of each store take in documents that were added, where it lacks many."""
        for part in self._store.parts():
            if part.store.settings["engine"] is not None:
                from mvindex.engines.extend import extend_if_due

                extend_if_due(part.store)

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Give back the bytes of deleted and replaced documents, store by store."""
        from mvindex.maintenance import CompactReport, compact_store

        self._search.forget_scans()
        before = self._self_measured()
        reports = [compact_store(store, on_progress) for store in self._stores()]
        if before is not None and not self._is_measured():
            self._measure(float(before["target_recall"]), no_progress)
        return CompactReport(
            generation=max(report.generation for report in reports),
            documents=sum(report.documents for report in reports),
            dropped=sum(report.dropped for report in reports),
            bytes_before=sum(report.bytes_before for report in reports),
            bytes_after=sum(report.bytes_after for report in reports),
            is_old_in_use=any(report.is_old_in_use for report in reports),
        )

    def reembed(self, encoder: Encoder, hooks: ReembedHooks, *, texts_only: bool) -> ReembedReport:
        """Make the views of all documents again, with another encoder."""
        from mvindex.ingest.reembed import reembed_store

        self._search.forget_scans()
        before = self._self_measured()
        report = reembed_store(self._store, encoder, hooks, texts_only=texts_only)
        if before is not None and not report.stopped and not self._is_measured():
            self._measure(float(before["target_recall"]), hooks.on_progress)
        return report

    def snapshot(self, path: Path, on_progress: CountCallback) -> SnapshotReport:
        """Copy the latest committed state; of shards one after the other."""
        from mvindex.maintenance import snapshot_store
        from mvindex.maintenance.shards import snapshot_shards

        stores = self._stores()
        if isinstance(self._store, ShardedStore):
            return snapshot_shards(self._store.directory, stores, path, on_progress)
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
