"""IndexProtocol: what a user may call on any index, in this process or behind a server, and what all share.

All have one search and one explain, and check deletions and metadata that they write alike.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from mvindex.errors import QueryError
from mvindex.records import (
    Document,
    DocumentViews,
    Explanation,
    Floats,
    Hit,
    IndexInfo,
    QueryGroup,
    SearchResult,
    ViewScore,
    ViewSpans,
    check_id,
    check_ids,
    dump_metadata,
    shown,
    to_explain,
)
from mvindex.search.request import QueryLike, SearchRequest, parse_request
from mvindex.store.filters import Filter, check_deletion
from mvindex.store.protocol import Store

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from mvindex.ingest import Entry, IngestHooks, IngestReport
    from mvindex.ingest.items import Items
    from mvindex.search.request import ScoringName, SearchKeywords, Vector
    from mvindex.store.protocol import Capabilities


class Searches(Protocol):
    """The search of an index; a request goes through its one door."""

    # Where a cross-encoder that search(rerank=...) names is loaded; None for the best device there is.
    rerank_device: str | None = None

    @property
    @abstractmethod
    def where(self) -> str:
        """The directory, or the address without secrets."""

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        query: str | QueryGroup,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> SearchResult: ...
    @overload
    def search(
        self,
        query: Sequence[str] | Sequence[QueryGroup],
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[SearchResult]: ...
    @overload
    def search(
        self, query: None = None, top_k: int = 10, filter: Filter | None = None, **options: Unpack[SearchKeywords]
    ) -> SearchResult: ...
    @overload
    def search(
        self, query: QueryLike, top_k: int = 10, filter: Filter | None = None, **options: Unpack[SearchKeywords]
    ) -> Any: ...
    def search(
        self,
        query: QueryLike | None = None,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Any:
        """Return the best documents of a query: min(top_k, documents that pass the filter) distinct ones.

        Args:
            query: A text or a (d,) vector for one result; texts or a (q, d) array for a list of results. A QueryGroup
                for one result by several queries together, several groups for a list of results; text= is then one
                text for each group, and rerank= is refused. None where documents stand for it: like= or positives=.
            top_k: Number of documents.
            filter: A metadata filter.
            **options: The options below.
            scoring: "max", the best view's score, or "drpq", the mean of the view scores s weighted by
                softmax(s / T) (DRPQ eq. 4-6).
            exact: Demand a certified answer, whatever engine is active.
            temperature: T of "drpq"; the index's own by default.
            candidates: For "drpq": look at no more than so many view hits, at least top_k documents (the paper's
                fixed depth, 1,000 k of them); the result is exact only where that is proven all the same.
            mode: "dense", by views; "lexical", by terms (BM25), only documents that have one of them; "hybrid", both,
                fused, for indexes with a lexical side; "auto", hybrid for a query with a text where the index has a
                lexical side, else dense. With fusion, weights or operators auto is hybrid. The result says which it
                was.
            fusion: For "hybrid": "zscore", "minmax" or "rrf"; the index's own by default.
            weights: For "hybrid": weights of the dense and the lexical score; the index's own by default.
            text: The text of each query, for lexical search and citations; the query itself by default. With vectors,
                "lexical" and "hybrid" need it, "auto" is dense and "dense" cites nothing without it.
            operators: For "hybrid" and "lexical": "quoted phrases" and +required words of the text must occur in a
                document's title or text, -excluded ones must not. By default these signs mean nothing.
            offset: Number of documents at the head of the ranking that are left out. Beyond its end a result is empty.
            cursor: "" for the first page of a query, the result's next for the page after it: no document comes twice,
                also where documents are added and deleted in between.
            like: The id of a document that stands for the query: what is near to it is searched for by views.
            positives: Ids of several such documents. A document's score is the highest of a view of its own for a view
                of any of them; with "drpq" its views are aggregated first. The documents themselves are left out.
            negatives: Ids of documents: what is as near to one of them as to all positives, or nearer, is left out.
            citations: Number of citations of each hit, in its attribute citations: distinct, best first.
            context: Number of sentences before and after each of these.
            max_chars: Most characters of the citations of a hit with what stands around them; whole sentences are left
                out where there is no room. context and a limit without citations ask for one.
            max_tokens: The same in tokens of a language model, counted rather too high than too low: four letters,
                three digits, a mark or a gap are one.
            diversity: 0 to 1: order the best 100 documents by maximal marginal relevance, 0 by relevance alone;
                top_k and offset are then 100 at most together. Near-duplicates come behind all others, and the
                result names them in duplicates_of.
            min_confidence: 0 to 1: leave out hits of a lower confidence; the result counts them in below_confidence. A
                result without hits then is "no answer". Of single queries by the best view, where the index has a
                calibration, be it that of its encoder or its own.
            fields: "text", "title", "metadata": those of them that hits carry; all of them by default. Without the text
                a hit has no span, snippet or citation, and what is left out need not be read: () gives ids and scores.
            rerank: A function of the query and the hits that returns a score for each, higher is better, or a
                checkpoint of a cross-encoder.
            rerank_on: For a checkpoint: "snippet" (the default) or "text".
            rerank_depth: Number of documents that are reranked; max(50, top_k) by default.

        Raises:
            QueryError: For an invalid value, or options that do not go together.
            NotCalibrated: For min_confidence where hits have no confidence.
            CursorExpired: For the cursor of another index or query, or of too many documents.
            Unsupported: For lexical search in an index without a lexical side.

        """
        request = parse_request(query, top_k, filter, device=self.rerank_device, **options)
        return request.answer(self.run(request))

    @abstractmethod
    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, as the index orders documents: before reranking."""

    def explain(
        self,
        query: str | Vector | Hit,
        id: str | Hit | None = None,
        scoring: ScoringName | None = None,
        *,
        temperature: float | None = None,
    ) -> Explanation:
        """Return every view of a document, or of a hit, with its score for one query, best first.

        Args:
            query: A text or a (d,) vector; or a hit alone, for the query, scoring and temperature that found it.
            id: The document's id, or a hit.
            scoring: As for search(); "max" by default.
            temperature: As for search().

        Raises:
            QueryError: There is no such document, or a hit alone that one query did not find.

        """
        asked = to_explain(query, id, scoring, temperature)
        found = self.explain_all(
            asked.query, [asked.id], cast("ScoringName", asked.scoring), temperature=asked.temperature
        )
        if asked.id not in found:
            raise QueryError(f"{self.where}: there is no document {asked.id!r}")
        return Explanation(found[asked.id], asked.document)

    @abstractmethod
    def explain_all(
        self,
        query: str | Vector,
        ids: str | Iterable[str],
        scoring: ScoringName = "max",
        *,
        temperature: float | None = None,
    ) -> dict[str, list[ViewScore]]:
        """Return what explain() does for each of the documents that exist, by id, in the order of the ids."""


class IndexProtocol(Searches, Protocol):
    """Documents with their views, searched by text or vector. Implemented by Index and IndexClient."""

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the index has; what is missing names its reason and the way out."""

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""

    @property
    def temperature(self) -> float:
        """The T of DRPQ scoring that is used when a search gives none."""

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""

    def __enter__(self) -> Self:
        """Return the index, to be closed at the end of the with block."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the index."""

    def __len__(self) -> int:
        """Return the number of documents."""

    def __iter__(self) -> Iterator[Document]:
        """Yield every document, in the order in which they were first added."""

    def __contains__(self, doc_id: object) -> bool:
        """Return whether there is a document of this id."""

    def close(self) -> None:
        """Close files and connections."""

    def refresh(self) -> bool:
        """Move on to the latest committed state; return whether there was a newer one."""

    def info(self) -> IndexInfo:
        """Describe the index: encoder, dimensions, engine, sizes."""

    def add(
        self,
        documents: Items,
        *,
        text_field: str | None = None,
        hooks: IngestHooks | None = None,
        progress: bool = False,
    ) -> IngestReport:
        """Encode and store documents; an older document of the same id is replaced.

        The same content again changes nothing. Batches of up to 1,024 documents are committed as they are done; an
        error leaves those before it.

        Args:
            documents: Documents with distinct ids and a text or a title; or texts, dicts, or a table of pandas, Polars
                or pyarrow. The id, text and title of dicts and rows are guessed by the names of their fields, as for
                CSV files; further fields are metadata. What has no id gets one from its content; the same content
                again is left out.
            text_field: The field of the text in dicts and rows, or several to join, with commas between.
            hooks: Callbacks for progress, duplicates and stopping.
            progress: Whether to show on stderr how many documents there were.

        Returns:
            Counts of added, replaced, updated and unchanged documents, and of repeated ones without an id.

        Raises:
            DocumentError: When an id comes twice, or there is no text.
            QueryError: When the index was made of given vectors.

        """

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """Encode and store documents that know their source location; otherwise as add()."""

    def add_views(
        self,
        documents: Iterable[Document],
        views: Vector | Sequence[Vector],
        *,
        spans: ViewSpans | None = None,
        hooks: IngestHooks | None = None,
    ) -> IngestReport:
        """Store documents whose views are given; otherwise as add().

        Args:
            documents: Documents with distinct ids.
            views: (n, k, d), (n, d) for one view each, or n arrays (k_i, d), k_i >= 1, of any float type and norm.
            spans: The characters [begin, end) of the document's text that each view stands for, and hits cite: for each
                document k_i pairs, None for a view without, or None for all; or an array (r, 2) or (n, k, 2) of
                integers for all views in order, -1 for none. By default no view has one.
            hooks: Callbacks for progress, duplicates and stopping.

        Raises:
            EncoderError: For another number, shape or dim, and a span that is empty or beyond the text; nothing of
                that batch is stored then.

        """

    @overload
    def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]  # a str is iterable, too
    @overload
    def get(self, ids: Iterable[str]) -> list[Document]: ...
    def get(self, ids: str | Iterable[str]) -> Document | None | list[Document]:
        """Return documents by id, all of one state.

        Args:
            ids: One id, or several.

        Returns:
            For one id the document, or None; for several those that exist, in the order of the ids.

        """

    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[Document]:
        """Yield documents in the order in which they were first added.

        A document that is replaced keeps its place, so that pages neither skip nor repeat one.

        Args:
            filter: A metadata filter; None for all documents.
            limit: Number of documents; None for no limit.
            after: The id of the last document of the page before.

        Raises:
            QueryError: For a filter that cannot be read, or when there is no document `after`.

        """

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document. QueryError when there is no such id."""

    def delete(self, ids: str | Iterable[str] | None = None, *, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all of them.

        Args:
            ids: An id or several; unknown ones are ignored.
            filter: A metadata filter. One without a condition, such as {}, is refused.
            all: Delete every document.

        Returns:
            The number of documents deleted.

        Raises:
            QueryError: Unless exactly one of ids, filter and all is given, or for a filter that matches everything.

        """

    def warm_up(self) -> bool:
        """Load what searches need, so that no later one waits: encoder, engine, compiled loops, copies of views.

        For processes that answer many queries. Loops that this machine has not compiled yet are compiled in the
        background, which takes some ten seconds; until then searches are answered without them, with the same results
        or, with an approximate engine of kind graph, the exact ones.

        Returns:
            Whether all is loaded; False while loops are being compiled.

        """

    @overload
    def views(self, ids: str) -> DocumentViews: ...  # type: ignore[overload-overlap]  # a str is iterable, too
    @overload
    def views(self, ids: Iterable[str]) -> dict[str, DocumentViews]: ...
    def views(self, ids: str | Iterable[str]) -> DocumentViews | dict[str, DocumentViews]:
        """Return the stored views of documents: vectors, and what each stands for.

        Args:
            ids: One id, or several.

        Returns:
            For one id its views; for several those of the documents that exist, by id, in the order of the ids.

        Raises:
            QueryError: When there is no document of the one id.
            Unsupported: For an index behind a server; explain() gives spans and scores there.

        """

    def to_arrow(self, filter: Filter | None = None, *, views: bool = False) -> Any:
        """Return the documents as a pyarrow.RecordBatchReader, which reads them batch by batch.

        The columns are id, title, text and metadata (JSON), in the order in which documents were first added. add()
        takes such a stream, without views.

        Args:
            filter: A metadata filter; None for all documents.
            views: Whether to add the columns vectors, a list of float32 vectors, and spans, of each of them a struct of
                begin and end, null for a view that stands for no part of the text.

        Raises:
            ExtraMissing: Without pyarrow.
            Unsupported: For views of an index behind a server.

        """

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the index's encoder; QueryError for an empty text."""


def replace_metadata(
    store: Store, metadata: Mapping[str, Mapping[str, Any]], mark: str = "", *, keeps_others: bool = False
) -> int:
    """Replace the metadata of several documents, by id; return how many of the ids exist.

    mark: names the write; one that was carried out already changes nothing. keeps_others: see Index.update_all().
    """
    if not isinstance(metadata, Mapping):
        raise QueryError(f"metadata: expected objects by id, got {shown(metadata)}")
    dumped = {check_id(doc_id): dump_metadata(value, doc_id) for doc_id, value in metadata.items()}
    with store.writing() as writer:
        if writer.has_mark(mark):
            return len(dumped)
        known = writer.known(list(dumped))
        if keeps_others:
            stored = {doc_id: json.loads(old.metadata) for doc_id, old in known.items()}
            dumped |= {doc_id: dump_metadata({**own, **metadata[doc_id]}, doc_id) for doc_id, own in stored.items()}
        if known:
            writer.set_metadata({old.doc_row: dumped[doc_id] for doc_id, old in known.items()}, mark)
    return len(known)


def delete_documents(
    store: Store, ids: str | Iterable[str] | None, condition: Filter | None, everything: bool, mark: str = ""
) -> int:
    """Delete documents by id, by a filter, or all; return how many there were.

    mark: names the write; one that was carried out already deletes nothing more.
    """
    check_deletion(ids, condition, everything)
    checked = [] if ids is None else check_ids(ids)
    with store.writing() as writer:
        if ids is None:
            rows = store.matching(condition or {}).tolist()
        else:
            rows = sorted(known.doc_row for known in writer.known(checked).values())
        return writer.delete(rows, mark)
