"""Administration of an index: build, tune, lexical side, compact, snapshot, verify; of stores in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mvindex.encoder import Encoder, EncoderLike
from mvindex.encoder.registry import as_encoder
from mvindex.errors import ConfigError, DamagedIndex
from mvindex.paths import expand_home
from mvindex.records import CountCallback, Floats, ProgressCallback, check_count, no_progress
from mvindex.search.confidence import Calibration, parse_calibration
from mvindex.search.fusion import Fusion, Mode, make_fusion, parse_fusion
from mvindex.search.local import LocalSearch
from mvindex.search.plan import Plan, SearchEngine
from mvindex.search.request import Queries, SearchRequest, Vector, as_vectors
from mvindex.store import catalog, schema
from mvindex.store.embedded import EmbeddedStore, LocalStore
from mvindex.store.fields import parse_filter_fields
from mvindex.store.filter_reader import FilterReader
from mvindex.store.lexical.reader import LexicalReader
from mvindex.store.lexical.tokenizer import AUTO, TERMS_VERSION, StoredLexical, detect_lexical, parse_lexical
from mvindex.store.protocol import Operation, Store
from mvindex.store.reader import SnapshotReader
from mvindex.store.sharded import ShardedStore

if TYPE_CHECKING:
    from mvindex.engines.build import BuildReport
    from mvindex.index.index import Index
    from mvindex.ingest.reembed import ReembedHooks, ReembedReport
    from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
    from mvindex.search.hybrid import JudgedQuestion
    from mvindex.search.tuning import FusionReport, TuneGoal, TuneReport
    from mvindex.search.tuning.fusion import ConfidenceReport

logger = logging.getLogger(__name__)

# The tools themselves are imported by what calls them: a process that only asks needs none.


class Admin(Protocol):
    """Administration of one index; called only for operations that its capabilities have. See Index for each."""

    def build(
        self, kind: str | None, parameters: Mapping[str, int], *, target_recall: float, on_progress: ProgressCallback
    ) -> BuildReport:
        """Build an engine and make it the active one."""

    def tune(self, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
        """Measure the active engine's search parameters, and keep the fastest that reach the target."""

    @property
    def judged(self) -> Callable[..., Iterable[Sequence[JudgedQuestion]]]:
        """The function that yields, for each question, what each fusion would order; see LocalSearch.judged()."""

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
        self._store, self._search, self.judged = store, search, search.judged

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
        return replace(report, why=why, measured=self._measure(target, on_progress))

    def _measure(self, target_recall: float, on_progress: ProgressCallback) -> Mapping[str, Any] | None:
        """Let the active engine measure itself, and keep what follows; None for kinds without a beam."""
        from mvindex.engines.build import save_measured
        from mvindex.search.tuning.search_params import measure_itself

        with self._search.opened(Plan(), self._store.all_parts()) as parts:
            found = measure_itself(parts, target_recall, on_progress)
        if found is None:
            return None
        search, measured = found[0], found[1].as_json()
        for store in self._stores():
            if store.settings["engine"] is not None:
                save_measured(store, search, measured)
        return measured

    def _measured_by_engines(self) -> list[Mapping[str, Any] | None]:
        """Return what each engine has measured of itself; None for those that do not."""
        records = [record for store in self._stores() if (record := store.settings["engine"]) is not None]
        return [record["settings"].get("measured") for record in records]

    def _measure_again(self, before: Sequence[Mapping[str, Any] | None], on_progress: ProgressCallback) -> None:
        """Let engines measure themselves that did before, unless all have, with about as many documents as now."""
        documents, known = self._store.count(), [each for each in before if each is not None]
        now = self._measured_by_engines()
        is_measured = all(each is not None and documents / 2 < each["documents"] < 2 * documents for each in now)
        if known and not is_measured:
            self._measure(float(known[0]["target_recall"]), on_progress)

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
                    save_search_params(store, report.chosen.search, report.kind)
        return report

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
        before = self._measured_by_engines()
        reports = [compact_store(store, on_progress) for store in self._stores()]
        self._measure_again(before, no_progress)
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
        before = self._measured_by_engines()
        report = reembed_store(self._store, encoder, hooks, texts_only=texts_only)
        if not report.stopped:
            self._measure_again(before, hooks.on_progress)
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
    return _is_sound(store, lambda reader: FilterReader(reader).check_columns())


def _is_lexical_sound(store: EmbeddedStore) -> bool:
    """Return whether the store's lexical side is as it was written, by this version of terms."""
    setting = store.settings.get("lexical")
    if setting is None:
        return True
    if StoredLexical.parse(setting).version != TERMS_VERSION:
        return False
    return _is_sound(store, lambda reader: LexicalReader(reader).check())


def _is_sound(store: EmbeddedStore, check: Callable[[SnapshotReader], None]) -> bool:
    try:
        with store.reading(store.snapshot) as reader:
            check(reader)
    except DamagedIndex as err:
        logger.info("%s: %s", store.directory, err)
        return False
    return True


# The operations that were methods of Index.
ADMINISTRATION = frozenset(
    {
        "build",
        "tune",
        "tune_fusion",
        "set_hybrid_weights",
        "enable_lexical",
        "disable_lexical",
        "set_filter_fields",
        "rebuild_lexical_if_damaged",
        "rebuild_columns_if_damaged",
        "compact",
        "snapshot",
        "verify",
    }
)


class IndexAdmin:
    """The administration of an index that this process works on itself."""

    def __init__(
        self,
        store: Store,
        admin: Admin,
        plan: Callable[[SearchRequest], tuple[Queries, Plan]],
        use_encoder: Callable[[Encoder], None],
        engine: SearchEngine,
    ) -> None:
        """Take the store, what carries operations out there, plans questions, takes a new encoder, and searches."""
        self._store, self._admin, self._plan, self._use_encoder = store, admin, plan, use_encoder
        self._engine = engine

    def build(
        self,
        kind: str | None = None,
        *,
        nlist: int | None = None,
        parameters: Mapping[str, int] | None = None,
        target_recall: float = 0.98,
        on_progress: ProgressCallback = no_progress,
    ) -> BuildReport:
        """Build a search engine over all documents and make it the active one.

        Documents added later are scanned beside it until the next build, or until a graph or inverted lists take them
        in. Readers are never blocked. A build of a graph or an ivf kind that was killed continues when it is run again.

        Args:
            kind: The name of an engine kind, such as "exact", "graph", "flat" or "ivf-pq"; None chooses by size, memory
                and target_recall, and the report says why.
            nlist: For ivf kinds: number of inverted lists; by the number of views unless given.
            parameters: Other parameters of the kind, by name.
            target_recall: The share of the exact top-k that should be found: without a kind by the choice of one, with
                kind "graph" by its beam.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            ConfigError: For an invalid value, or an option that the kind does not have.

        """
        self._check(Operation.BUILD)
        given = dict(parameters or {}) | ({} if nlist is None else {"nlist": nlist})
        return self._admin.build(kind, given, target_recall=target_recall, on_progress=on_progress)

    def tune(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        target_recall: float = 0.98,
        time_limit_s: float = 1800.0,
        on_progress: ProgressCallback = no_progress,
    ) -> TuneReport:
        """Measure the active engine's search parameters, and keep the fastest that reach the target.

        Args:
            queries: (q, d), best real ones, a hundred or more, of which 256 are sampled; None samples views of the
                index, which are easier to find than what people ask.
            top_k: Number of documents of the exact answer.
            target_recall: Share of these that must be found. Where no setting reaches it nothing is changed.
            time_limit_s: Seconds after which no further setting is measured, and the best so far is kept.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            ConfigError: For kinds that have nothing to tune, and for a target or limit that is none.

        """
        from mvindex.search.tuning import TuneGoal, check_time_limit, checked_target

        self._check(Operation.TUNE)
        check_count("top_k", top_k)
        check_time_limit(time_limit_s)
        deadline = time.monotonic() + time_limit_s
        goal = TuneGoal(top_k=top_k, recall=checked_target(target_recall), deadline=deadline)
        vectors = None if queries is None else as_vectors(queries, self._store.dim)
        return self._admin.tune(vectors, goal, on_progress)

    def tune_fusion(
        self,
        questions: Sequence[str],
        relevant: Sequence[Mapping[str, float]],
        *,
        vectors: Vector | None = None,
        top_k: int = 10,
        on_progress: ProgressCallback = no_progress,
    ) -> FusionReport:
        """Measure fusion methods and weights on judged questions, and keep the best where it is a gain.

        Methods and weights are measured by nDCG at top_k; whether the best is a gain is judged by choices made
        without the question that they are measured on.

        Args:
            questions: Texts, 20 or more.
            relevant: For each question the documents that are relevant: id to gain (1.0, or a graded judgement).
            vectors: The vectors of the questions, (q, d), for an index without an encoder.
            top_k: Depth of nDCG.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            ConfigError: For fewer than 20 questions, or one without a relevant document.
            Unsupported: For an index without a lexical side, or that is only read.

        """
        from mvindex.search.tuning import measure_fusion

        self._check(Operation.LEXICAL, Operation.TUNE)
        check_count("top_k", top_k)
        request = SearchRequest(top_k=top_k, mode=Mode.HYBRID)
        queries, plan = self._plan(request.of(questions) if vectors is None else request.of(vectors, questions))
        report = measure_fusion(self._admin.judged, queries, relevant, plan, on_progress)
        if report.chosen is not None:
            self._set_fusion(report.chosen.fusion)
        return report

    def _set_fusion(self, fusion: Fusion | None) -> None:
        """Keep the fusion of hybrid search; None resets it."""
        with self._store.writing() as writer:
            writer.change_settings(fusion=None if fusion is None else fusion.as_setting())

    def _check(self, *operations: Operation) -> None:
        """Raise Unsupported unless the index has these operations."""
        for operation in operations:
            self._store.capabilities.check(operation, self._store.where)

    def tune_confidence(
        self,
        questions: Sequence[str],
        relevant: Sequence[Mapping[str, float]],
        *,
        vectors: Vector | None = None,
        on_progress: ProgressCallback = no_progress,
    ) -> ConfidenceReport:
        """Fit the models of hit.confidence on judged questions, one for each mode, and keep them in the index.

        Each question is searched as it is, and without its relevant documents, where no hit is right. The models are
        used as long as the index has the same encoder. A mode in which no question finds its document has none.

        Args:
            questions: Texts, 20 or more with a relevant document, some hundred are better.
            relevant: For each question the documents that answer it: id to gain; {} for one that none answers.
            vectors: The vectors of the questions, (q, d), for an index without an encoder.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            ConfigError: For fewer than 20 questions that have a relevant document, none of these among the hits, or
                scores that are too small to be weighed.

        """
        from mvindex.search.tuning.fusion import DEPTH, ConfidenceReport, check_judged, fit_model, measure, sample_hits

        self._check(Operation.TUNE)
        check_judged(questions, relevant)
        request = SearchRequest(mode=Mode.DENSE)
        queries, plan = self._plan(request.of(questions) if vectors is None else request.of(vectors, questions))
        modes = [Mode.DENSE]
        if self._store.capabilities.supports(Operation.LEXICAL) and self._store.settings.get("lexical") is not None:
            modes += [Mode.LEXICAL, Mode.HYBRID]
        models, points, done = {}, [], 0

        def count(number: int) -> None:
            nonlocal done
            done += number
            on_progress("searching", done, len(modes) * len(questions))

        for mode in modes:
            sample = sample_hits(self._engine.search, queries, relevant, plan._replace(mode=mode), count)
            if not sample.answers.any():
                continue
            models[mode] = fit_model(sample.features, sample.answers, sample.weights)
            points.append(measure(sample, mode.value))
        if not models:
            raise ConfigError(
                f"confidence: expected questions whose document is among the first {DEPTH} hits, got none; nothing was "
                "changed"
            )
        encoder = self._store.settings["encoder"]
        fitted = Calibration(None if encoder is None else encoder.get("fingerprint"), models)
        if parse_calibration(setting := fitted.as_setting()) is None:
            raise ConfigError(f"confidence: expected scores that weights of up to 1e9 can tell apart, got {setting}")
        with self._store.writing() as writer:
            writer.change_settings(**{catalog.CONFIDENCE_KEY: setting})
        answerable = int(sample.is_answerable.sum())
        return ConfidenceReport(
            answerable=answerable, unanswerable=len(sample.is_answerable) - answerable, points=tuple(points)
        )

    def set_hybrid_weights(
        self, fusion: str | None = None, weights: tuple[float, float] | None = None, **numbers: float
    ) -> None:
        """Set how the index fuses hybrid search, and its BM25; what is not given is as in a new index.

        Args:
            fusion: "zscore", "minmax" or "rrf"; a search may name another.
            weights: Of the views' and of the terms' scores; a search may name others.
            numbers: depth, constant, k1 and b; see Fusion.

        Raises:
            QueryError: For an unknown method or name, or a number out of range.

        """
        self._check(Operation.LEXICAL, Operation.TUNE)
        chosen = parse_fusion(fusion, weights, make_fusion(numbers))
        self._set_fusion(None if chosen == Fusion() else chosen)

    def enable_lexical(self, tokenizer: str, on_progress: CountCallback = no_progress) -> None:
        """Index the terms of all texts, all at once; later documents as they are added.

        Args:
            tokenizer: "unicode", "english" (stems), "bigrams", or "auto", which of them suits the first documents.
            on_progress: Called with numbers of document rows.

        Raises:
            ConfigError: For another tokenizer.
            Unsupported: For an index that cannot have a lexical side.

        """
        self._check(Operation.LEXICAL, Operation.BUILD)
        if tokenizer == AUTO:
            tokenizer = detect_lexical(each.text or each.title for each in self._store.scan(None, None)).value
        self.set_lexical(tokenizer, on_progress)

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback = no_progress) -> None:
        """Index the terms of all texts by this tokenizer, or none: None; see enable_lexical()."""
        self._check(Operation.LEXICAL, Operation.BUILD)
        self._admin.set_lexical(tokenizer, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Declare metadata fields that filters compare often: their values are kept in columns of their own.

        A filter on them reads the columns instead of all metadata; what it matches stays the same
        (docs/how-to/filters.md).

        Args:
            fields: Name to type, "int", "float", "text" or "date", of all declared fields; {} for none.

        Raises:
            ConfigError: For an invalid name or type.
            Unsupported: For an index in Milvus.

        """
        self._check(Operation.FILTER_FIELDS)
        self._admin.set_filter_fields(parse_filter_fields(fields))

    def disable_lexical(self) -> None:
        """Remove the lexical side."""
        self.set_lexical(None)

    def rebuild_lexical_if_damaged(self) -> bool:
        """Rebuild the lexical side from the texts where it is damaged or of an older mvindex; return whether it was."""
        supports = self._store.capabilities.supports
        return all(map(supports, (Operation.LEXICAL, Operation.BUILD))) and self._admin.rebuild_lexical_if_damaged()

    def rebuild_columns_if_damaged(self) -> bool:
        """Rebuild the columns of filter fields from the metadata where they are damaged; return whether they were."""
        return self._store.capabilities.supports(Operation.FILTER_FIELDS) and self._admin.rebuild_columns_if_damaged()

    def compact(self, on_progress: CountCallback = no_progress) -> CompactReport:
        """Drop the rows of deleted and replaced documents, and give their bytes back.

        Ids, ordinals, views and texts stay; the active engine is built again, or takes in the documents that it lacks,
        also where none is deleted (kinds graph and ivf-*). Readers go on with the files they have, which are removed
        once nobody uses them; writers are refused meanwhile. Takes room for a second copy.

        Args:
            on_progress: Called with numbers of documents copied.

        Raises:
            DamagedIndex: Or StoreError (a full disk); everything is left as it was.

        """
        self._check(Operation.COMPACT)
        return self._admin.compact(on_progress)

    def reembed(  # noqa: PLR0913 - each argument is a choice of the caller's
        self,
        encoder: EncoderLike,
        *,
        family: str | None = None,
        max_views: int | Literal["auto"] | None = None,
        texts_only: bool = False,
        before_switch: Callable[[Index], object] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: ProgressCallback = no_progress,
    ) -> ReembedReport:
        """Make the views of all documents again, with another encoder, and switch to them in one commit.

        Ids, ordinals, texts, metadata, terms and other settings stay; an engine is built again, untuned. Readers go on
        with the old views until they refresh; writers are refused meanwhile. After an interruption, the same call
        encodes only the rest. Takes room for two more copies.

        Args:
            encoder: The new encoder, as create() takes it.
            family: How views are made, as create() takes it.
            max_views: The most views a document gets, as create() takes it.
            texts_only: Take title and text of documents that had view_texts or given vectors, too.
            before_switch: Called with an index of the encoded documents, without an engine, to be measured.
            should_stop: Asked before each chunk; where true, the run ends, to be resumed by the same call.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            DocumentError: For a document without a text, or, without texts_only, with view_texts or given vectors.

        """
        from mvindex.index.factory import local_index
        from mvindex.ingest.reembed import ReembedHooks

        self._check(Operation.REEMBED)
        loaded = as_encoder(encoder, family, max_views)

        def measure(made: LocalStore | Index) -> None:
            if before_switch is not None:
                before_switch(local_index(made, loaded) if isinstance(made, LocalStore) else made)

        hooks = ReembedHooks(on_progress=on_progress, should_stop=should_stop, before_switch=measure)
        report = self._admin.reembed(loaded, hooks, texts_only=texts_only)
        if not report.stopped:
            self._use_encoder(loaded)
        return report

    def snapshot(self, path: str | Path, on_progress: CountCallback = no_progress) -> SnapshotReport:
        """Copy the latest committed state to a new index at path, complete or not at all; nobody waits.

        Args:
            path: A new directory, or an address of fsspec such as s3://bucket/corpus; `mvindex.restore` reads both.
            on_progress: Called with numbers of bytes copied.

        Raises:
            ConfigError: When path exists.
            DamagedIndex: When something does not match its checksum: a copy never hides damage.

        """
        from mvindex.maintenance.backups import write_snapshot

        self._check(Operation.SNAPSHOT)
        return write_snapshot(self._admin.snapshot, expand_home(path), on_progress)

    def verify(self, on_progress: CountCallback = no_progress) -> VerifyReport:
        """Read everything, and report what does not match its checksum; on_progress is called with bytes read."""
        self._check(Operation.VERIFY)
        self._store.info()  # it reads by the path: a closed index, or one that was moved, refuses it, too
        return self._admin.verify(on_progress)
