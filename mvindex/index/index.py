"""Index: the public object, composed of a store, a search engine and an encoder."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mvindex.encoder import Encoder, EncoderLike, encoder_from_spec
from mvindex.encoder.embedding.encoder import EmbeddingEncoder
from mvindex.encoder.registry import encoder_given_again, splitter_of
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, QueryError, Unsupported
from mvindex.index.writes import delete_documents, replace_metadata
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, parse_scoring
from mvindex.paths import expand_home
from mvindex.records import (
    Combine,
    CountCallback,
    Document,
    DocumentViews,
    Floats,
    IndexInfo,
    ProgressCallback,
    QueryGroup,
    SearchResult,
    ViewScore,
    check_count,
    check_id,
    check_ids,
    no_progress,
)
from mvindex.search.fusion import Fusion, Mode, make_fusion, parse_fusion, parse_setting
from mvindex.search.operators import parse_operators
from mvindex.search.options import SearchOptions, check_reranked_fields
from mvindex.search.protocol import SearchEngine
from mvindex.search.queries import (
    TextQueries,
    Vector,
    as_groups,
    as_vectors,
    check_query_text,
    group_texts,
    is_texts,
    query_texts,
)
from mvindex.search.results import document_of, score_views, views_of
from mvindex.store import catalog
from mvindex.store.embedded import EmbeddedStore, temperature_of
from mvindex.store.fields import parse_filter_fields
from mvindex.store.filters import Filter
from mvindex.store.lexical.language import AUTO, JUDGED_TEXTS, detect_lexical
from mvindex.store.protocol import Capabilities, Operation, Store

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self, Unpack

    from mvindex.engines.build import BuildReport
    from mvindex.index.admin import Admin
    from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport
    from mvindex.ingest.items import Items
    from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
    from mvindex.search.options import FieldName, FusionName, ModeName, ScoringName, SearchKeywords
    from mvindex.search.rerank import Reranker
    from mvindex.search.tuning import FusionReport, TuneReport


class Index:
    """Documents with their views, searched by text or vector. Make one with create() or open().

    Reads are thread-safe and see one snapshot, moved on by refresh() and by this object's own writes. Writes take the
    index's one writer lock (IndexLocked names the holder) and are durable when they return.
    """

    def __init__(
        self,
        store: Store,
        engine: SearchEngine,
        admin: Admin,
        encoder: Encoder | None = None,
        device: str | None = None,
    ) -> None:
        """Compose an index; use create() or open() instead.

        Args:
            store: The store of documents and views.
            engine: The engine that answers queries over the store.
            admin: Builds, tunes and maintains the index.
            encoder: Encodes texts; None loads the encoder that the index was made with when it is needed.
            device: The device of an encoder that is loaded later.

        """
        self._store, self._engine, self._admin = store, engine, admin
        self._encoder, self._device = encoder, device
        self._lock, self._warming = Lock(), Loading()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return what the index is: where, how many documents and views of how many dimensions, and its engine."""
        try:
            info = self.info()
        except MvindexError:
            return f"<Index {self.where}, closed>"
        dims = "no dimensions yet" if info.dim is None else f"{info.dim} dimensions"
        return f"<Index {self.where}: {info.documents:,} documents, {info.views:,} views, {dims}, engine {info.kind}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what opens the index again, in this process or another: its address and how it was opened.

        StoreError where it is closed or being written to. An encoder is loaded anew; a function goes along.
        """
        from mvindex.index.factory import open_index

        spec = self._store.settings["encoder"] or {}
        encoder = self._encoder if spec.get("kind") in ("callable", "function") else None
        chosen: dict[str, Any] = {"encoder": encoder, "device": self._device}
        return partial(open_index, **self._store.reopening(), **chosen), ()

    def __len__(self) -> int:
        return self._store.count()

    def __iter__(self) -> Iterator[Document]:
        return self.scan()

    def __contains__(self, doc_id: object) -> bool:
        try:
            return isinstance(doc_id, str) and bool(self._store.get([check_id(doc_id)]))
        except QueryError:
            # No document may have such an id.
            return False

    @property
    def where(self) -> str:
        """The directory, or the address without secrets."""
        return self._store.where

    @property
    def path(self) -> Path:
        """The directory of the index; Unsupported for an index that is in none."""
        self.capabilities.check(Operation.FILES, self.where)
        return Path(self.where)

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the index has; what is missing names its reason and the way out."""
        return self._store.capabilities

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that were chosen when the index was made, and those stored with its documents."""
        return self._store.settings

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        return self._store.dim

    @property
    def temperature(self) -> float:
        """The T of DRPQ scoring that is used when a search gives none."""
        return temperature_of(self._store.settings)

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses when a search does not say: as tuned, else zscore with weights (1, 1)."""
        kept = self._store.settings.get("fusion")
        if kept is None:
            return Fusion()
        fusion = parse_setting(kept)
        if fusion is None:
            raise DamagedIndex(f"{self.where}: setting 'fusion': expected a method and two weights, got {kept!r:.80}")
        return fusion

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""
        return self._store.missing_shards

    @property
    def encoder(self) -> Encoder:
        """The encoder that the index was made with, loaded on first use; QueryError for an index of given vectors."""
        spec = self._store.settings["encoder"]
        if spec is None:
            raise QueryError(f"{self.where}: this index was made of given vectors; give vectors, not texts")
        with self._lock:
            if self._encoder is None:
                self._encoder = encoder_from_spec(spec, self._device)
            return self._encoder

    @property
    def loaded_encoder(self) -> Encoder | None:
        """The encoder that this object has loaded, None where no text has needed one."""
        return self._encoder

    def use_encoder(self, given: EncoderLike) -> None:
        """Encode texts with this encoder; ConfigError unless it is the one that made the index."""
        spec = self._store.settings["encoder"]
        if spec is None:
            raise ConfigError(f"{self.where}: this index was made of given vectors; it takes no encoder")
        encoder = encoder_given_again(given, spec)
        if encoder.fingerprint != spec["fingerprint"]:
            raise ConfigError(
                f"{self.where}: expected the encoder {spec['fingerprint']!r}, got {encoder.fingerprint!r}; vectors of "
                f"two encoders cannot be compared. Of a checkpoint, load_encoder(..., splitter={splitter_of(spec)!r}) "
                "splits texts as this index does"
            )
        if isinstance(encoder, EmbeddingEncoder):
            encoder.check_same(spec, self.where)
        self._encoder = encoder

    def close(self) -> None:
        """Close files and connections."""
        self._warming.wait()
        self._store.close()
        self._engine.close()

    def refresh(self) -> bool:
        """Move on to the latest committed state; return whether there was a newer one."""
        return self._store.refresh()

    def info(self) -> IndexInfo:
        """Describe the index: encoder, dimensions, engine, sizes."""
        engine = self._engine
        return replace(self._store.info(), copy_bytes=engine.copy_bytes(), mapped_bytes=engine.mapped_bytes())

    def add(
        self,
        documents: Items,
        *,
        text_field: str | None = None,
        hooks: IngestHooks | None = None,
        progress: bool = False,
    ) -> IngestReport:
        """Encode and store documents; see IndexProtocol.add()."""
        from mvindex.ingest.items import item_entries

        return self.add_entries(item_entries(documents, text_field=text_field, progress=progress), hooks)

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """Encode and store documents that know their source location; otherwise as add()."""
        from mvindex.ingest import ingest

        encoder = self.encoder
        encode: Encode = lambda documents, on_progress: encoder.encode_documents(documents, on_progress)  # noqa: E731 - the encoder has more parameters
        return ingest(self._store, self._with_terms(entries), encode, hooks)

    def add_views(
        self, documents: Iterable[Document], views: Vector | Sequence[Vector], *, hooks: IngestHooks | None = None
    ) -> IngestReport:
        """Store documents whose views are given; see IndexProtocol.add_views()."""
        from mvindex.ingest import ingest, view_entries

        return ingest(self._store, self._with_terms(view_entries(documents, views, self.dim)), None, hooks)

    def _with_terms(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        """Return the entries, after the first ones have decided how texts are split, where they are to."""
        if not self._store.settings.get(catalog.CHOOSE_LEXICAL_KEY):
            return entries
        rest = iter(entries)
        first: list[Entry] = []
        failure: Exception | None = None
        try:
            first.extend(islice(rest, JUDGED_TEXTS))
        except Exception as err:  # noqa: BLE001 - raised again below, after what was read before it
            failure = err
        if first:
            tokenizer = detect_lexical(entry.document.text or entry.document.title for entry in first)
            self._admin.set_lexical(tokenizer.value, no_progress)
        return chain(first, rest if failure is None else _failing(failure))

    @overload
    def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]  # a str is iterable, too
    @overload
    def get(self, ids: Iterable[str]) -> list[Document]: ...
    def get(self, ids: str | Iterable[str]) -> Document | None | list[Document]:
        """Return the document of an id, or those of several; see IndexProtocol.get()."""
        checked = check_ids(ids)
        found = {doc_id: document_of(stored) for doc_id, stored in self._store.get(checked).items()} if checked else {}
        if isinstance(ids, str):
            return found.get(ids)
        return [found[doc_id] for doc_id in checked if doc_id in found]

    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan()."""
        if limit is not None:
            check_count("limit", limit)
        stored = self._store.scan(filter, None if after is None else check_id(after))
        return (document_of(one) for one in islice(stored, None if limit is None else min(limit, sys.maxsize)))

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document. QueryError when there is no such id."""
        if not self.update_all({check_id(id): metadata}):
            raise QueryError(f"{self.where}: there is no document {id!r}")

    def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """Replace the metadata of several documents, by id, in one step; return how many of the ids exist."""
        return replace_metadata(self._store, metadata)

    def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all, in one step; return how many there were."""
        return delete_documents(self._store, ids, filter, all)

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        query: str,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> SearchResult: ...
    @overload
    def search(
        self,
        query: Sequence[str],
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> list[SearchResult]: ...
    @overload
    def search(
        self,
        query: QueryGroup,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> SearchResult: ...
    @overload
    def search(
        self,
        query: Sequence[QueryGroup],
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> list[SearchResult]: ...
    @overload
    def search(
        self,
        query: Vector,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> Any: ...
    def search(  # noqa: PLR0913 - the one public call; each argument is a choice of the caller's
        self,
        query: str | Sequence[str] | Vector | QueryGroup | Sequence[QueryGroup],
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: ScoringName = "max",
        exact: bool = False,
        *,
        temperature: float | None = None,
        candidates: int | None = None,
        mode: ModeName = "auto",
        fusion: FusionName | None = None,
        weights: tuple[float, float] | None = None,
        text: str | Sequence[str] | None = None,
        operators: bool = False,
        fields: Sequence[FieldName] | None = None,
        rerank: Reranker | str | PathLike[str] | None = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
    ) -> SearchResult | list[SearchResult]:
        """Return the best documents of a query, or of each of several; see IndexProtocol.search()."""
        plan = None
        if (rerank, rerank_on, rerank_depth) != (None, None, None):
            from mvindex.search.rerank import parse_rerank

            if as_groups(query) is not None:
                raise QueryError("rerank= reads one text, a query group has several; rerank its hits, or search a text")
            plan = parse_rerank(rerank, rerank_on, rerank_depth, top_k, self._device)
        options = SearchOptions.parse(
            top_k,
            filter,
            scoring,
            exact,
            temperature=temperature,
            candidates=candidates,
            mode=mode,
            fusion=fusion,
            weights=weights,
            fields=fields,
            operators=operators,
        )
        if plan is None:
            results: SearchResult | list[SearchResult] = self.search_with_options(query, options, text=text)
            return results
        check_reranked_fields(fields)
        questions = plan.questions(query, text)
        found = self.search_with_options(query, replace(options, top_k=plan.depth), text=text)
        return plan.reranked(questions, found)

    def search_with_options(
        self,
        query: str | Sequence[str] | Vector | QueryGroup | Sequence[QueryGroup],
        options: SearchOptions,
        *,
        text: str | Sequence[str] | None = None,
    ) -> Any:
        """Return what search() does, for options that are checked already."""
        if options.operators:
            return self._search_with_operators(query, options, text)
        groups = as_groups(query)
        if groups is not None:
            own: Sequence[Any] = [text] * len(groups) if text is None or isinstance(query, QueryGroup) else text
            if isinstance(own, str) or len(own) != len(groups):
                raise QueryError(f"text: expected a text for each of {len(groups)} query groups")
            found = [self._search_group(group, options, one) for group, one in zip(groups, own, strict=True)]
            return found[0] if isinstance(query, QueryGroup) else found
        options = options.with_mode(has_text=text is not None or is_texts(query), has_lexical=self._has_lexical)
        options = options.with_defaults(self.temperature, None if options.mode is Mode.DENSE else self.fusion)
        if options.mode is Mode.DENSE:
            texts, is_single = None, False
            if text is None and not is_texts(query):
                queries, is_single = self._query_vectors(query)
            else:
                texts, is_single = query_texts(query, text, options.mode)
                queries = self._vectors_for(query, len(texts), is_single)
            results = self._engine.search(queries, options, texts)
        else:
            self.capabilities.check(Operation.LEXICAL, self.where)
            texts, is_single = query_texts(query, text, options.mode)
            vectors = None if options.mode is Mode.LEXICAL else self._vectors_for(query, len(texts), is_single)
            results = self._engine.search_text(TextQueries(texts, vectors), options)
        return results[0] if is_single else results

    def _search_with_operators(
        self,
        query: str | Sequence[str] | Vector | QueryGroup | Sequence[QueryGroup],
        options: SearchOptions,
        text: str | Sequence[str] | None,
    ) -> Any:
        """Return the result of each text, its operators obeyed; vectors are searched as they are."""
        if as_groups(query) is not None:
            raise QueryError("operators= reads the text of one query; a query group has several")
        self.capabilities.check(Operation.LEXICAL, self.where)
        if not self._has_lexical:
            raise QueryError(
                f"{self.where}: operators= looks at terms, and this index has none; `mvindex build --lexical` adds them"
            )
        mode = Mode.LEXICAL if options.mode is Mode.LEXICAL else Mode.HYBRID
        texts, is_single = query_texts(query, text, mode)
        vectors: Sequence[Any] | None = None
        if mode is Mode.HYBRID and not is_texts(query):
            vectors = list(self._vectors_for(query, len(texts), is_single))
        found = []
        for number, own in enumerate(texts):
            words = parse_operators(own)
            how = replace(options, mode=mode, operators=False, words=words)
            vector = words.text if vectors is None else vectors[number]
            found.append(self.search_with_options(vector, how, text=words.text))
        return found[0] if is_single else found

    def _search_group(self, group: QueryGroup, options: SearchOptions, text: str | None) -> SearchResult:
        """Return the result of one query group."""
        texts = group_texts(group, text)
        options = options.with_mode(has_text=texts is not None, has_lexical=self._has_lexical)
        if options.mode is Mode.LEXICAL:
            raise QueryError("mode='lexical' reads no vectors of a query group; expected mode='dense' or 'hybrid'")
        is_hybrid = options.mode is Mode.HYBRID
        options = options.with_defaults(self.temperature, self.fusion if is_hybrid else None)
        if is_hybrid:
            self.capabilities.check(Operation.LEXICAL, self.where)
            if texts is None:
                raise QueryError("mode='hybrid' searches texts; give one beside the vectors of the group: text=...")
        vectors, is_single = self._query_vectors(group.queries)
        if is_single:
            raise QueryError(f"query group: expected an (m, d) array, got shape {vectors.shape[1:]}")
        return self._engine.search_group(vectors, Combine(group.combine), options, texts)

    @property
    def _has_lexical(self) -> bool:
        """Whether the index has a lexical side."""
        return self.capabilities.supports(Operation.LEXICAL) and self._store.settings.get("lexical") is not None

    def warm_up(self) -> bool:
        """Load what searches need, so that no later one waits for it; see IndexProtocol.warm_up()."""
        if self._store.settings["encoder"] is not None:
            self.encode_queries(["warm up"])
        return self._warming.is_done(self._search_once)

    def _search_once(self) -> None:
        """Search in every way that loads something of its own: engine, compiled loops, copies of views, terms."""
        if self.dim is None:
            return
        query = np.ones((1, self.dim), dtype=np.float32)
        for aggregate in Aggregate:
            self.search_with_options(query, SearchOptions(top_k=1, aggregate=aggregate))
        if self._has_lexical:
            self.search_with_options(query, SearchOptions(top_k=1, mode=Mode.HYBRID), text=["warm up"])

    def explain(
        self, query: str | Vector, id: str, scoring: ScoringName = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Return every view of a document with its score for one query, best first. QueryError without such an id."""
        found = self.explain_all(query, [id], scoring, temperature=temperature)
        if id not in found:
            raise QueryError(f"{self.where}: there is no document {id!r}")
        return found[id]

    def explain_all(
        self,
        query: str | Vector,
        ids: str | Iterable[str],
        scoring: ScoringName = "max",
        *,
        temperature: float | None = None,
    ) -> dict[str, list[ViewScore]]:
        """Return what explain() does for each of the documents that exist, by id, in the order of the ids."""
        chosen = parse_scoring(scoring, temperature, self.temperature)
        queries, is_single = self._query_vectors(query)
        if not is_single:
            raise QueryError("explain: expected one query, a text or a (d,) vector, got several")
        return score_views(self._store.views(check_ids(ids)), queries[0], chosen)

    @overload
    def views(self, ids: str) -> DocumentViews: ...  # type: ignore[overload-overlap]  # a str is iterable, too
    @overload
    def views(self, ids: Iterable[str]) -> dict[str, DocumentViews]: ...
    def views(self, ids: str | Iterable[str]) -> DocumentViews | dict[str, DocumentViews]:
        """Return the stored views of a document, or of several by id; see IndexProtocol.views()."""
        found = {
            doc_id: views_of(stored, vectors) for doc_id, (stored, vectors) in self._store.views(check_ids(ids)).items()
        }
        if not isinstance(ids, str):
            return found
        if ids not in found:
            raise QueryError(f"{self.where}: there is no document {ids!r}")
        return found[ids]

    def to_arrow(self, filter: Filter | None = None, *, views: bool = False) -> Any:
        """Return the documents as a stream of Arrow; see IndexProtocol.to_arrow()."""
        from mvindex.index.arrow import arrow_reader

        return arrow_reader(self, filter, views=views)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the index's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        for number, text in enumerate(texts, start=1):
            check_query_text(text, number, len(texts))
        return as_vectors(self.encoder.encode_queries(texts), self.dim)

    def _vectors_for(self, query: Any, count: int, is_single: bool) -> Floats:
        """Return the vectors of a query, one for each of `count` texts."""
        vectors, is_one = self._query_vectors(query)
        if (len(vectors), is_one) != (count, is_single):
            given = "one vector" if is_one else f"{len(vectors)} vectors"
            texts = "one text" if is_single else f"a list of {count} texts"
            raise QueryError(f"text: expected a text for each query vector, got {given} and {texts}")
        return vectors

    def _query_vectors(self, query: Any) -> tuple[Floats, bool]:
        """Return the queries as (q, d) float32, and whether a single one was given."""
        if isinstance(query, str):
            return self.encode_queries([query]), True
        if is_texts(query):
            return self.encode_queries(list(query)), False
        vectors = as_vectors(query, self.dim)
        return (vectors[None], True) if vectors.ndim == 1 else (vectors, False)

    def build(
        self,
        kind: str | None = None,
        *,
        nlist: int | None = None,
        parameters: Mapping[str, int] | None = None,
        target_recall: float = 0.97,
        on_progress: ProgressCallback = no_progress,
    ) -> BuildReport:
        """Build a search engine over all documents and make it the active one.

        Documents added later are scanned beside it until the next build. Readers are never blocked; an ivf build that
        was killed goes on where it was when it is run again.

        Args:
            kind: The name of an engine kind, such as "exact", "flat", "hnsw" or "ivf-pq"; None chooses by size, memory
                and target_recall, and the report says why.
            nlist: For ivf kinds: number of inverted lists; by the number of views unless given.
            parameters: Other parameters of the kind, by name.
            target_recall: Without a kind: the share of the exact answer that should be found.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            ConfigError: For an invalid value, or an option that the kind does not have.

        """
        self.capabilities.check(Operation.BUILD, self.where)
        given = dict(parameters or {}) | ({} if nlist is None else {"nlist": nlist})
        return self._admin.build(kind, given, target_recall=target_recall, on_progress=on_progress)

    def tune(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        target_recall: float = 0.97,
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

        self.capabilities.check(Operation.TUNE, self.where)
        check_count("top_k", top_k)
        check_time_limit(time_limit_s)
        deadline = time.monotonic() + time_limit_s
        goal = TuneGoal(top_k=top_k, recall=checked_target(target_recall), deadline=deadline)
        vectors = None if queries is None else as_vectors(queries, self.dim)
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
            Unsupported: For an index without a lexical side.

        """
        self.capabilities.check(Operation.LEXICAL, self.where)
        check_count("top_k", top_k)
        texts, _ = query_texts(questions, None, Mode.HYBRID)
        found = self.encode_queries(texts) if vectors is None else as_vectors(vectors, self.dim)
        if len(found) != len(texts):
            raise QueryError(f"expected a text for each query vector, got {len(found)} vectors and {len(texts)} texts")
        options = SearchOptions(top_k=top_k, mode=Mode.HYBRID).with_defaults(self.temperature, self.fusion)
        return self._admin.tune_fusion(TextQueries(texts, found), relevant, options, on_progress)

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
        self.capabilities.check(Operation.LEXICAL, self.where)
        chosen = parse_fusion(fusion, weights, make_fusion(numbers))
        self._admin.set_fusion(None if chosen == Fusion() else chosen)

    def enable_lexical(self, tokenizer: str, on_progress: CountCallback = no_progress) -> None:
        """Index the terms of all texts, all at once; later documents as they are added.

        Args:
            tokenizer: "unicode", "english" (stems), "bigrams", or "auto", which of them suits the first documents.
            on_progress: Called with numbers of document rows.

        Raises:
            ConfigError: For another tokenizer.
            Unsupported: For an index that cannot have a lexical side.

        """
        self.capabilities.check(Operation.LEXICAL, self.where)
        if tokenizer == AUTO:
            tokenizer = detect_lexical(document.text or document.title for document in self.scan()).value
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
        self.capabilities.check(Operation.FILTER_FIELDS, self.where)
        self._admin.set_filter_fields(parse_filter_fields(fields))

    def disable_lexical(self) -> None:
        """Remove the lexical side."""
        self.capabilities.check(Operation.LEXICAL, self.where)
        self._admin.set_lexical(None, lambda count: None)

    def rebuild_lexical_if_damaged(self) -> bool:
        """Rebuild the lexical side from the texts where it is damaged or of an older mvindex; return whether it was."""
        return self.capabilities.supports(Operation.LEXICAL) and self._admin.rebuild_lexical_if_damaged()

    def rebuild_columns_if_damaged(self) -> bool:
        """Rebuild the columns of filter fields from the metadata where they are damaged; return whether they were."""
        return self.capabilities.supports(Operation.FILTER_FIELDS) and self._admin.rebuild_columns_if_damaged()

    def compact(self, on_progress: CountCallback = no_progress) -> CompactReport:
        """Drop the rows of deleted and replaced documents, and give their bytes back.

        Ids, ordinals, views and texts stay; the active engine is built again. Readers go on with the files they have,
        which are removed once nobody uses them; writers are refused meanwhile. Takes room for a second copy.

        Args:
            on_progress: Called with numbers of documents copied.

        Raises:
            DamagedIndex: Or StoreError (a full disk); everything is left as it was.

        """
        self.capabilities.check(Operation.COMPACT, self.where)
        return self._admin.compact(on_progress)

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

        self.capabilities.check(Operation.SNAPSHOT, self.where)
        return write_snapshot(self._admin.snapshot, expand_home(path), on_progress)

    def verify(self, on_progress: CountCallback = no_progress) -> VerifyReport:
        """Read everything, and report what does not match its checksum; on_progress is called with bytes read."""
        self.capabilities.check(Operation.VERIFY, self.where)
        self._store.info()  # it reads by the path: a closed index, or one that was moved, refuses it, too
        return self._admin.verify(on_progress)


def store_of(index: Index) -> Store:
    """Return the store of an index, for tools that read or copy documents as they are stored."""
    return index._store


def embedded_store_of(index: Index) -> EmbeddedStore:
    """Return the one embedded store of an index, for tools that read its files; Unsupported for shards and Milvus."""
    parts = index._store.parts()
    if len(parts) != 1 or index._store.sharding is not None:
        raise Unsupported(f"{index.where}: expected an index in a directory, without shards; mvindex migrate makes one")
    return parts[0].store


def search_engine_of(index: Index) -> SearchEngine:
    """Return the engine slot of an index, for tools that measure it."""
    return index._engine


def _failing(failure: Exception) -> Iterator[Entry]:
    """Raise the failure when the first entry is asked for."""
    raise failure
    yield
