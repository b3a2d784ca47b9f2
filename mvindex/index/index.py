"""Index: the public object, composed of a store, a search engine and an encoder."""

from __future__ import annotations

import sys
import warnings
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
from mvindex.encoder.devices import first_device
from mvindex.encoder.embedding.encoder import EmbeddingEncoder
from mvindex.encoder.registry import encoder_given_again, splitter_of
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, QueryError, Unsupported
from mvindex.index.administration import ADMINISTRATION, IndexAdmin
from mvindex.index.protocol import Searches, delete_documents, replace_metadata
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, parse_scoring
from mvindex.records import (
    Document,
    DocumentViews,
    Floats,
    IndexInfo,
    SearchResult,
    ViewScore,
    ViewSpans,
    check_count,
    check_id,
    check_ids,
)
from mvindex.search.confidence import calibration_of, confident
from mvindex.search.diversity import search_diverse
from mvindex.search.fusion import Fusion, Mode, parse_setting
from mvindex.search.hits import document_of, score_views, views_of
from mvindex.search.like import search_like
from mvindex.search.plan import IndexState, Plan, SearchEngine, make_plan, make_plans
from mvindex.search.request import Queries, SearchRequest, Vector, as_vectors, checked_texts
from mvindex.store import catalog
from mvindex.store.embedded import EmbeddedStore, temperature_of
from mvindex.store.filters import Filter
from mvindex.store.lexical.tokenizer import JUDGED_TEXTS, detect_lexical
from mvindex.store.protocol import Capabilities, Operation, Store

if TYPE_CHECKING:
    from typing_extensions import Self

    from mvindex.index.administration import Admin
    from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport
    from mvindex.ingest.items import Items
    from mvindex.search.request import ScoringName


class Index(Searches):
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
        self._planned: tuple[Mapping[str, Any], IndexState] | None = None
        self.rerank_device = first_device(device)

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
    def admin(self) -> IndexAdmin:
        """The administration: build, tune, lexical side, compact, snapshot, verify."""
        return IndexAdmin(self._store, self._admin, self._plan_questions, self.use_encoder, self._engine)

    @property
    def temperature(self) -> float:
        """The T of DRPQ scoring that is used when a search gives none."""
        return temperature_of(self._store.settings)

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses when a search does not say: as tuned, else zscore with weights (1, 1)."""
        return self._state(self._store.settings).fusion

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""
        return self._store.missing_shards

    @property
    def encoder(self) -> Encoder:
        """The encoder that the index was made with, loaded on first use; QueryError for an index of given vectors.

        Loaded anew after a refresh that shows that the index was re-embedded.
        """
        return self._encoder_of(self._store.settings["encoder"])

    def _encoder_of(self, spec: Mapping[str, Any] | None) -> Encoder:
        """Return the encoder of a record in the settings; see encoder."""
        with self._lock:
            if self._encoder is None or (spec and spec.get("fingerprint") != self._encoder.fingerprint):
                if spec is None:
                    raise QueryError(f"{self.where}: this index was made of given vectors; give vectors, not texts")
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
        from mvindex.ingest import IngestHooks, reusing

        encoder = self.encoder
        suited = replace(hooks or IngestHooks(), chunks_at_once=getattr(encoder, "chunks_at_once", 1))
        return self.add_encoded(entries, reusing(self._store, encoder), suited)

    def add_encoded(
        self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None = None
    ) -> IngestReport:
        """Store documents whose views the function makes, or the entries have (None); otherwise as add_entries()."""
        from mvindex.ingest import ingest

        report = ingest(self._store, self._with_terms(entries), encode, hooks)
        self._admin.extend_if_due()
        return report

    def add_views(
        self,
        documents: Iterable[Document],
        views: Vector | Sequence[Vector],
        *,
        spans: ViewSpans | None = None,
        hooks: IngestHooks | None = None,
    ) -> IngestReport:
        """Store documents whose views are given; see IndexProtocol.add_views()."""
        from mvindex.ingest import view_entries

        return self.add_encoded(view_entries(documents, views, self.dim, spans), None, hooks)

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
            self.admin.set_lexical(tokenizer.value)
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

    def update_all(self, metadata: Mapping[str, Mapping[str, Any]], *, keeps_others: bool = False) -> int:
        """Replace the metadata of several documents, by id, in one step; return how many of the ids exist.

        keeps_others: keep the keys of the metadata that is stored which the new one lacks.
        """
        return replace_metadata(self._store, metadata, keeps_others=keeps_others)

    def delete(self, ids: str | Iterable[str] | None = None, *, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all, in one step; return how many there were."""
        return delete_documents(self._store, ids, filter, all)

    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, before reranking."""
        results = self._ordered(request)
        return results if request.min_confidence is None else confident(results, request.min_confidence)

    def _ordered(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, with hits of any confidence."""
        settings, results = self._store.settings, list[SearchResult]()
        try:
            if request.like is not None:
                return search_like(request.like, request, self._store.vectors, self.run, self.where)
            if request.diversity is not None:
                return search_diverse(request, request.diversity, self._store.vectors, self._ordered)
            for queries, plan in make_plans(request, self._state(settings)):
                results += self._engine.search(self._encoded(queries, plan, settings), plan)
        except MvindexError:
            if self._store.settings["encoder"] == settings["encoder"]:
                raise
            return self._ordered(request)  # another thread moved on to views of another encoder, as below
        if self._store.settings["encoder"] != settings["encoder"]:
            return self._ordered(request)
        if request.cursor is not None:
            return request.cursor.pages(results, request, str(self._store.settings.get("index_id") or self.where))
        return results

    def _state(self, settings: Mapping[str, Any]) -> IndexState:
        """Return what the plan of a search depends on; the same for the same settings."""
        kept = self._planned
        if kept is None or kept[0] is not settings:
            has_lexical = self.capabilities.supports(Operation.LEXICAL) and settings.get("lexical") is not None
            kept = self._planned = (
                settings,
                IndexState(
                    where=self.where,
                    capabilities=self.capabilities,
                    has_lexical=has_lexical,
                    temperature=temperature_of(settings),
                    fusion=_fusion_of(settings, self.where),
                    encoder=settings["encoder"],
                    calibration=calibration_of(settings.get(catalog.CONFIDENCE_KEY), settings["encoder"], self.where),
                ),
            )
        return kept[1]

    def _plan_questions(self, request: SearchRequest) -> tuple[Queries, Plan]:
        """Return the encoded queries of a request with texts, and its plan."""
        settings = self._store.settings
        plan = make_plan(request, self._state(settings), has_text=True)
        return self._encoded(request.queries[0], plan, settings), plan

    def _encoded(self, queries: Queries, plan: Plan, settings: Mapping[str, Any]) -> Queries:
        """Return the queries with vectors of the index's dimensions, where the search reads views."""
        if plan.mode is Mode.LEXICAL:
            return queries
        rows, dim = queries.rows, settings["dim"]
        if not isinstance(rows, np.ndarray):
            if not rows:
                return queries.encoded(np.empty((0, dim or 1), dtype=np.float32))
            return queries.encoded(as_vectors(self._encoder_of(settings["encoder"]).encode_queries(rows), dim))
        if dim is not None and rows.shape[1] != dim:
            as_vectors(rows, dim)
        return queries

    def warm_up(self) -> bool:
        """Load what searches need, so that no later one waits for it; see IndexProtocol.warm_up()."""
        if self._store.settings["encoder"] is not None:
            self.encode_queries(["warm up"])
        return self._warming.is_done(self._search_once)

    def _search_once(self) -> None:
        """Search in every way that loads something of its own: engine, compiled loops, copies of views, terms."""
        if self.dim is None:
            return
        query = Queries(np.ones((1, self.dim), dtype=np.float32), ["warm up"])
        for aggregate in Aggregate:
            self.run(SearchRequest(queries=(query,), top_k=1, aggregate=aggregate, mode=Mode.DENSE))
        if self._state(self._store.settings).has_lexical:
            self.run(SearchRequest(queries=(query,), top_k=1, mode=Mode.HYBRID))

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
        request = SearchRequest(mode=Mode.DENSE).of(query)
        if not request.is_single or request.queries[0].combine is not None:
            raise QueryError("explain: expected one query, a text or a (d,) vector, got several")
        checked, settings = check_ids(ids), self._store.settings
        vectors = self._encoded(request.queries[0], Plan(), settings).vectors
        views = self._store.views(checked)
        if self._store.settings["encoder"] != settings["encoder"]:
            return self.explain_all(query, checked, scoring, temperature=temperature)
        return score_views(views, vectors[0], chosen)

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
        return self._encoded(Queries(checked_texts(texts)), Plan(), self._store.settings).vectors

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an operation of admin by its old name, which goes with the next version."""
            if name not in ADMINISTRATION:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(f"Index.{name}() is index.admin.{name}()", DeprecationWarning, stacklevel=2)
            return getattr(self.admin, name)


def store_of(index: Index) -> Store:
    """Return the store of an index, for tools that read or copy documents as they are stored."""
    return index._store


def embedded_store_of(index: Index) -> EmbeddedStore:
    """Return the one embedded store of an index, for tools that read its files; Unsupported for shards and Milvus."""
    if not isinstance(index._store, EmbeddedStore):
        raise Unsupported(f"{index.where}: expected an index in a directory, without shards; mvindex migrate makes one")
    return index._store


def search_engine_of(index: Index) -> SearchEngine:
    """Return the engine slot of an index, for tools that measure it."""
    return index._engine


def _fusion_of(settings: Mapping[str, Any], where: str) -> Fusion:
    """Return the fusion of hybrid search that an index keeps; DamagedIndex for a setting that is none."""
    kept = settings.get("fusion")
    if kept is None:
        return Fusion()
    fusion = parse_setting(kept)
    if fusion is None:
        raise DamagedIndex(f"{where}: setting 'fusion': expected a method and two weights, got {kept!r:.80}")
    return fusion


def _failing(failure: Exception) -> Iterator[Entry]:
    """Raise the failure when the first entry is asked for."""
    raise failure
    yield
