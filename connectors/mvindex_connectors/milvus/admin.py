"""Administration of an index in Milvus: build, tune, compact, verify."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from mvindex.encoder import Encoder
from mvindex.engines.build import BuildReport
from mvindex.errors import ConfigError, DamagedIndex, StoreError, Unsupported
from mvindex.index import Index
from mvindex.ingest.reembed import ReembedHooks, ReembedReport
from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
from mvindex.records import CountCallback, Floats, ProgressCallback
from mvindex.search.fusion import Fusion
from mvindex.search.plan import Plan
from mvindex.search.request import Queries
from mvindex.search.tuning import FusionReport, TuneGoal, TuneReport, checked_target, measure_fusion
from mvindex.store.lexical.tokenizer import parse_lexical
from mvindex.store.protocol import Operation
from mvindex_connectors.milvus import maintenance
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.index_build import build_index
from mvindex_connectors.milvus.store import MilvusStore
from mvindex_connectors.milvus.tuning import tune_index

logger = logging.getLogger(__name__)


def _index_of(store: MilvusStore, encoder: Encoder) -> Index:
    engine = MilvusEngine(store)
    return Index(store, engine, MilvusAdmin(store, engine), encoder)


class MilvusAdmin:
    """Administration of one index in Milvus."""

    def __init__(self, store: MilvusStore, engine: MilvusEngine) -> None:
        self._store, self._engine = store, engine

    def build(
        self, kind: str | None, parameters: Mapping[str, int], *, target_recall: float, on_progress: ProgressCallback
    ) -> BuildReport:
        """Build an index of Milvus' own over all views; return once it covers every row. Other clients wait.

        Args:
            kind: mvindex' or Milvus' own name of a kind that this Milvus builds; None chooses by size.
            parameters: For ivf kinds nlist, the number of inverted lists.
            target_recall: Checked; Milvus' kinds are chosen by size alone.
            on_progress: Called with a step, how much of it is done, and how much there is.

        """
        checked_target(target_recall)
        if others := sorted(parameters.keys() - {"nlist"}):
            raise ConfigError(f"{self._store.where}: expected no parameter but nlist, got {others[0]!r}")
        return build_index(self._store, kind, parameters.get("nlist"), on_progress)

    def tune(self, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
        """Measure the search parameters of the active index, and keep the fastest that reach the target."""
        return tune_index(self._store, self._engine, queries, goal, on_progress)

    def extend_if_due(self) -> None:
        """Do nothing: Milvus takes in what is added."""

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Remove views that no record names, left by writers that died."""
        return maintenance.compact(self._store, on_progress)

    def verify(self, on_progress: CountCallback) -> VerifyReport:
        """Check every record and all views against their checksums."""
        return maintenance.verify(self._store, on_progress)

    def reembed(self, encoder: Encoder, hooks: ReembedHooks, *, texts_only: bool) -> ReembedReport:
        """Make the views of all documents again, with another encoder, in collections that the index then moves to."""
        from mvindex_connectors.milvus.reembed import reembed

        return reembed(self._store, encoder, hooks, _index_of, texts_only=texts_only)

    def snapshot(self, path: Path, on_progress: CountCallback) -> SnapshotReport:
        """Raise Unsupported."""
        raise self._unsupported(Operation.SNAPSHOT)

    def tune_fusion(
        self,
        questions: Queries,
        plan: Plan,
        relevant: Sequence[Mapping[str, float]],
        on_progress: ProgressCallback,
    ) -> FusionReport:
        """Measure fusion methods and weights, and keep the best where it is a gain."""
        report = measure_fusion(self._engine.judged, questions, relevant, plan, on_progress)
        if report.chosen is not None:
            self.set_fusion(report.chosen.fusion)
        return report

    def set_fusion(self, fusion: Fusion | None) -> None:
        """Keep the fusion of hybrid search; None resets it."""
        with self._store.writing() as writer:
            writer.change_settings(fusion=None if fusion is None else fusion.as_setting())

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts, or remove the lexical side."""
        kind = parse_lexical(tokenizer)
        with self._store.writing() as writer:
            writer.set_lexical(kind, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Raise Unsupported."""
        raise self._unsupported(Operation.FILTER_FIELDS)

    def rebuild_columns_if_damaged(self) -> bool:
        """Return False: there are no columns."""
        return False

    def rebuild_lexical_if_damaged(self) -> bool:
        """Make the lexical side again where its counts cannot be used; return whether that was so."""
        stored = self._store.snapshot.lexical
        if stored is None:
            return False
        try:
            self._store.lexical_state()
        except (DamagedIndex, StoreError) as err:
            logger.info("%s", err)
            self.set_lexical(stored.kind.value, lambda count: None)
            return True
        return False

    def _unsupported(self, operation: Operation) -> Unsupported:
        return Unsupported(f"{self._store.where}: {self._store.capabilities.unsupported[operation]}")
