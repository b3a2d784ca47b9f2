"""Conversion of records to messages and back, one pair of functions per type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from mvindex.errors import DocumentError, EncoderError, QueryError, RemoteError
from mvindex.ingest import GivenViews, IngestReport
from mvindex.kernels.score import Aggregate
from mvindex.records import (
    ALL_FIELDS,
    Citation,
    Combine,
    Component,
    Document,
    Floats,
    Hit,
    IndexInfo,
    Ints,
    SearchResult,
    Span,
    ViewScore,
    ViewText,
    dump_metadata,
)
from mvindex.search.fusion import Method, Mode
from mvindex.search.like import parse_like
from mvindex.search.ranking import ViewHits
from mvindex.search.request import Queries, ScoringName, SearchRequest, ShardSearch, parse_options
from mvindex.search.result_merge import ShardResult
from mvindex.search.terms import TermCounts
from mvindex.store.filters import operand_as_json
from mvindex.store.shard_layout import MAX_SHARDS
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service

NameT = TypeVar("NameT", bound=str)
EnumT = TypeVar("EnumT", bound=Enum)

# The largest integer of a message: no index has so many views, so a larger number means the same.
MAX_INT64 = 2**63 - 1
_MAX_UINT32 = 2**32 - 1
# The most documents that a server explains, and returns by their ids, in one call.
MAX_EXPLAINED = 1000
MAX_IDS = 4096


def _numbers_of(kind: type[EnumT], prefix: str, names: Mapping[str, str] = MappingProxyType({})) -> dict[EnumT, Any]:
    """Return the number of each member of an enum in messages; names: of those that have another name there."""
    return {each: getattr(search, f"{prefix}_{names.get(each.name, each.name)}") for each in kind}


_TO_SCORING = _numbers_of(Aggregate, "SCORING")
_TO_MODE = _numbers_of(Mode, "MODE", {"AUTO": "UNSPECIFIED"})
_TO_FUSION = _numbers_of(Method, "FUSION")
_TO_COMBINE = _numbers_of(Combine, "COMBINE")
SCORING_NAMES: dict[Aggregate, ScoringName] = {Aggregate.MAX: "max", Aggregate.DRPQ: "drpq"}
_FROM_SCORING: dict[int, ScoringName] = {number: SCORING_NAMES[kind] for kind, number in _TO_SCORING.items()}
_FROM_MODE: dict[int, str] = {number: mode.value for mode, number in _TO_MODE.items()}
_FROM_FUSION: dict[int, str] = {number: method.value for method, number in _TO_FUSION.items()}
_FROM_COMBINE: dict[int, str] = {number: combine.value for combine, number in _TO_COMBINE.items()}
# Options of a search that a message has only where they are given.
_GIVEN: tuple[Any, ...] = (
    "temperature",
    "candidates",
    "cursor",
    "citations",
    "max_chars",
    "max_tokens",
    "diversity",
    "min_confidence",
)
_PLACE: Final = ("file", "page", "line", "end_line")
_VIEW_COUNTS = ("views_given", "views_stored", "views_encoded", "views_reused")
_COUNTS = ("added", "replaced", "updated", "unchanged", *_VIEW_COUNTS)


def document_message(document: Document) -> documents.Document:
    """Return the message of a document."""
    dumped = dump_metadata(document.metadata, document.id) if document.metadata else ""
    message = documents.Document(id=document.id, text=document.text, title=document.title, metadata_json=dumped)
    for each in document.own_view_texts:
        begin, end = each.span or (None, None)
        message.view_texts.add(text=each.text, begin=begin, end=end)
    return message


def document_from(message: documents.Document) -> Document:
    """Return the document of a message; DocumentError if its metadata or a view text is malformed."""
    metadata = metadata_from(message.metadata_json, message.id)
    return Document(message.id, message.text, message.title, metadata, tuple(map(_view_text, message.view_texts)))


def _view_text(message: documents.ViewText) -> ViewText:
    has_begin, has_end = message.HasField("begin"), message.HasField("end")
    if has_begin != has_end:
        raise DocumentError(f"view text {message.text!r:.60}: span: expected both begin and end, or neither")
    return ViewText(message.text, (message.begin, message.end) if has_begin else None)


def metadata_from(text: str, doc_id: str) -> Mapping[str, Any]:
    """Return the metadata of a JSON text; DocumentError if it is not an object."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise DocumentError(f"document {doc_id!r}: metadata is not JSON: {err}") from err
    if not isinstance(value, dict):
        raise DocumentError(f"document {doc_id!r}: metadata: expected an object, got {type(value).__name__}")
    return value


def vectors_message(vectors: Floats) -> documents.Vectors:
    """Return the message of vectors, (q, d) float32."""
    return documents.Vectors(dim=vectors.shape[1], values=np.ascontiguousarray(vectors, dtype="<f4").tobytes())


def vectors_from(message: documents.Vectors) -> Floats:
    """Return the vectors, (q, d) float32; QueryError if the number of bytes does not fit."""
    row_bytes = 4 * message.dim
    if not row_bytes or len(message.values) % row_bytes:
        raise QueryError(
            f"vectors: expected a multiple of 4 * dim bytes, got {len(message.values)} bytes and dim {message.dim}"
        )
    return np.frombuffer(message.values, dtype="<f4").reshape(-1, message.dim).astype(np.float32, copy=False)


def stored_message(views: Mapping[str, Floats], ids: Sequence[str]) -> search.EncodeResponse:
    """Return the message of documents' views, by id, in the order of the ids; of none where there is no document."""
    found = [views[doc_id] for doc_id in ids if doc_id in views]
    counts = [len(views.get(doc_id, ())) for doc_id in ids]
    return search.EncodeResponse(vectors=vectors_message(np.concatenate(found)) if found else None, counts=counts)


def stored_from(message: search.EncodeResponse, ids: Sequence[str]) -> dict[str, Floats]:
    """Return the views of the documents that exist, by id; RemoteError if their number does not fit."""
    rows = vectors_from(message.vectors) if message.HasField("vectors") else np.empty((0, 1), np.float32)
    if len(message.counts) != len(ids) or sum(message.counts) != len(rows):
        raise RemoteError(
            f"views: expected those of {len(ids)} documents, got {len(message.counts)} counts and {len(rows)} views"
        )
    ends = np.cumsum(message.counts)[:-1]
    pieces = zip(ids, np.split(rows, ends), strict=True)
    return {doc_id: views for doc_id, views in pieces if len(views)}


def views_message(views: Sequence[Floats], spans: Sequence[Ints | None] = ()) -> documents.Views:
    """Return the message of documents' views, (k_i, d) float32 each, all of one d, and of their spans."""
    message = documents.Views(vectors=vectors_message(np.concatenate(views)), counts=[len(each) for each in views])
    if any(own is not None for own in spans):
        pairs = [np.full((len(each), 2), -1) if own is None else own for each, own in zip(views, spans, strict=True)]
        message.spans.extend(np.concatenate(pairs).ravel().tolist())
    return message


def views_from(message: documents.Views, num_documents: int) -> GivenViews:
    """Return the views of each document; EncoderError if their number does not fit the documents."""
    try:
        rows = vectors_from(message.vectors)
    except QueryError as err:
        raise EncoderError(f"views: {err}") from err
    # Before they are numbers of Python, which take ten times as much memory.
    if len(message.counts) != num_documents:
        raise EncoderError(f"views: expected a count for each of {num_documents} documents, got {len(message.counts)}")
    counts = np.array(message.counts, dtype=np.int64)
    if len(counts) != num_documents or not (counts > 0).all() or counts.sum() != len(rows):
        raise EncoderError(
            f"views: expected a count >= 1 for each of {num_documents} documents, and as many views as their sum, got "
            f"{len(counts)} counts with the sum {counts.sum()} and {len(rows)} views"
        )
    ends = np.cumsum(counts)[:-1]
    if not message.spans:
        return GivenViews(np.split(rows, ends))
    if len(message.spans) != 2 * len(rows):
        raise EncoderError(f"spans: expected 2 numbers for each of {len(rows)} views, got {len(message.spans)}")
    return GivenViews(np.split(rows, ends), np.split(np.array(message.spans, dtype=np.int64).reshape(-1, 2), ends))


def filter_json(condition: Mapping[str, Any] | None) -> str | None:
    """Return a filter as JSON; QueryError if it cannot be represented."""
    if condition is None:
        return None
    try:
        return json.dumps(condition, allow_nan=False, ensure_ascii=True, default=operand_as_json)
    except (TypeError, ValueError, RecursionError) as err:
        raise QueryError(f"filter: expected a value that JSON can represent: {err}") from err


def filter_from(text: str) -> Any:
    """Return the filter of a JSON text; QueryError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise QueryError(f"filter: expected JSON: {err}") from err


def scoring_message(aggregate: Aggregate) -> Any:
    """Return the number of a scoring."""
    return _TO_SCORING[aggregate]


def scoring_from(number: int) -> ScoringName:
    """Return the name of a scoring, max by default; QueryError for an unknown number."""
    return _name_of("scoring", number, _FROM_SCORING) or SCORING_NAMES[Aggregate.MAX]


def search_message(index: str, request: SearchRequest, queries: Queries | None) -> search.SearchRequest:
    """Return the message of a request for some of its queries, None for documents; what was not given stays unset."""
    weights, like = request.weights, request.like
    names = None if request.fields == ALL_FIELDS else sorted(field.value for field in request.fields)
    message = search.SearchRequest(
        index=index,
        positives=() if like is None else like.positives,
        negatives=() if like is None else like.negatives,
        top_k=min(request.top_k, MAX_INT64),
        filter_json=filter_json(request.filter),
        scoring=_TO_SCORING[request.aggregate],
        temperature=request.temperature,
        exact=request.exact,
        candidates=None if request.candidates is None else min(request.candidates, MAX_INT64),
        mode=_TO_MODE[request.mode],
        fusion=None if request.method is None else _TO_FUSION[request.method],
        weights=None if weights is None else search.Weights(dense=weights[0], lexical=weights[1]),
        fields=None if names is None else search.Fields(names=names),
        operators=request.operators,
        shard=None if request.shard is None else _shard_message(request.shard),
        offset=min(request.offset, MAX_INT64),
        cursor=None if request.cursor is None else request.cursor.text,
        diversity=request.diversity,
        min_confidence=request.min_confidence,
    )
    if (quoting := request.quoting) is not None:
        message.citations, message.context = quoting.count, quoting.context
        if quoting.max_chars is not None:
            message.max_chars = min(quoting.max_chars, _MAX_UINT32)
        if quoting.max_tokens is not None:
            message.max_tokens = min(quoting.max_tokens, _MAX_UINT32)
    if queries is not None:
        _fill_queries(message, queries)
    return message


def _fill_queries(message: search.SearchRequest, queries: Queries) -> None:
    own_texts = queries.own_texts
    if queries.are_encoded:
        message.vectors.CopyFrom(vectors_message(queries.vectors))
    else:
        message.texts.values.extend(queries.unencoded)
    if own_texts is not None:
        # The members of a group have one text.
        message.terms.values.extend(own_texts if queries.combine is None else own_texts[:1])
    if queries.combine is not None:
        message.combine = _TO_COMBINE[queries.combine]


def queries_from(message: search.SearchRequest) -> Queries:
    """Return the queries of a search, which the index has to check."""
    is_texts = message.WhichOneof("queries") == "texts"
    rows = list(message.texts.values) if is_texts else vectors_from(message.vectors)
    texts = list(message.terms.values) if message.HasField("terms") else None
    combine = _name_of("combine", message.combine, _FROM_COMBINE)
    return Queries(rows, texts, None if combine is None else Combine(combine))


def request_from(message: search.SearchRequest) -> SearchRequest:
    """Return the request of a message; QueryError for a value that is none, or options that do not go together."""
    weights = (message.weights.dense, message.weights.lexical) if message.HasField("weights") else None
    request = parse_options(
        message.top_k or 10,
        filter_from(message.filter_json) if message.HasField("filter_json") else None,
        scoring=scoring_from(message.scoring),
        exact=message.exact,
        mode=_name_of("mode", message.mode, _FROM_MODE) or Mode.AUTO.value,
        fusion=_name_of("fusion", message.fusion, _FROM_FUSION),
        weights=weights,
        fields=message.fields.names if message.HasField("fields") else None,
        operators=message.operators,
        offset=message.offset,
        context=message.context,
        **{name: getattr(message, name) for name in _GIVEN if message.HasField(name)},
    )
    if message.positives or message.negatives:
        for name in ("terms", "combine", "shard"):
            if name in {field.name for field, _ in message.ListFields()}:
                raise QueryError(f"{name}: belongs to queries, got documents")
        return request.of_documents(parse_like(None, message.positives, message.negatives))
    shard = _shard_from(message.shard) if message.HasField("shard") else None
    return replace(request, queries=(queries_from(message),), shard=shard)


def _shard_message(shard: ShardSearch) -> search.ShardSearch:
    counts = None if shard.counts is None else counts_message(shard.counts)
    return search.ShardSearch(counts=counts, all_candidates=shard.all_candidates, num_shards=shard.num_shards)


def _shard_from(message: search.ShardSearch) -> ShardSearch:
    counts = counts_from(message.counts) if message.HasField("counts") else None
    if message.num_shards > MAX_SHARDS:
        raise QueryError(f"num_shards: expected a number up to {MAX_SHARDS}, got {message.num_shards}")
    return ShardSearch(counts, message.all_candidates, message.num_shards or 1)


def counts_message(counts: TermCounts) -> search.TermCounts:
    """Return the message of counts of terms."""
    return search.TermCounts(
        documents=counts.num_documents,
        terms=counts.num_terms,
        hashes=[hashed for hashed, _ in counts.documents_with],
        documents_with=[count for _, count in counts.documents_with],
    )


def counts_from(message: search.TermCounts) -> TermCounts:
    """Return the counts of terms; QueryError for counts that no index has."""
    is_paired = len(message.hashes) == len(message.documents_with)
    if not is_paired or any(count > message.documents for count in message.documents_with):
        raise QueryError(
            f"counts: expected for each hash a number of documents up to {message.documents}, got "
            f"{len(message.hashes)} hashes and {list(message.documents_with)!r:.60}"
        )
    pairs = zip(message.hashes, message.documents_with, strict=True)
    return TermCounts(message.documents, message.terms, tuple(sorted(pairs)))


def _name_of(field: str, number: int, names: Mapping[int, NameT]) -> NameT | None:
    """Return the name of an enum's number, None for 0 (unspecified); QueryError for an unknown number."""
    if number and number not in names:
        *first, last = (f"{known} ({name})" for known, name in names.items() if known)
        raise QueryError(f"{field}: expected {', '.join(first)} or {last}, got {number}")
    return names.get(number)


def results_message(results: Sequence[SearchResult]) -> search.SearchResponse:
    """Return the message of results. It is filled in place: copying messages would take four times as long."""
    response = search.SearchResponse()
    for result in results:
        message = response.results.add(exact=result.exact, short_by=result.short_by, rounds=result.rounds)
        message.missing_shards.extend(result.missing_shards)
        message.mode = _TO_MODE[Mode(result.mode)]
        if result.next is not None:
            message.next = result.next
        message.below_confidence = result.below_confidence
        if result.duplicates_of:
            message.duplicates_of.update(result.duplicates_of)
        if isinstance(result, ShardResult):
            message.ordinals.extend(result.ordinals)
            message.allowed = result.num_allowed
            if result.view_hits is not None:
                _fill_view_hits(message.view_hits, result.view_hits)
        add = message.hits.add
        for hit in result.hits:
            _fill_hit(add(score=hit.score, slot=hit.slot, snippet=hit.snippet, confidence=hit.confidence), hit)
    return response


def _fill_view_hits(message: search.ViewHits, view_hits: ViewHits) -> None:
    message.scores.extend(view_hits.scores.tolist())
    message.limit = view_hits.limit
    if view_hits.lowest > -np.inf:
        message.lowest = view_hits.lowest


def _view_hits_from(message: search.ViewHits) -> ViewHits:
    lowest = message.lowest if message.HasField("lowest") else -np.inf
    return ViewHits(np.array(message.scores, dtype=np.float32), lowest, message.limit)


def _fill_hit(message: search.Hit, hit: Hit) -> None:
    document = message.document
    document.id, document.text, document.title = hit.id, hit.text, hit.title
    if hit.metadata:
        document.metadata_json = json.dumps(hit.metadata, ensure_ascii=False, separators=(",", ":"))
    if hit.span is not None:
        message.span.begin, message.span.end = hit.span
    for each in hit.components:
        message.components.add(name=each.name, rank=each.rank, score=each.score, contribution=each.contribution)
    if (cited := hit.citation) is not None:
        _fill_citation(message.citation, cited)
        for quoted in hit.citations:
            _fill_citation(message.citations.add(before=quoted.before, after=quoted.after), quoted)


def _fill_citation(citation: search.Citation, cited: Citation) -> None:
    citation.text, citation.start, citation.end = cited.text, cited.start, cited.end
    # Not by update(), which takes longer to ask what kind of mapping it was given.
    why = citation.why
    for part, share in cited.why.items():
        why[part] = share
    for name in _PLACE:
        if (value := getattr(cited, name)) is not None:
            setattr(citation, name, value)


def result_from(message: search.SearchResult) -> SearchResult:
    """Return the result of a message."""
    hits = tuple(map(_hit_from, message.hits))
    # All hits have components or none has: a dense search is not slowed down by looking for them.
    if hits and message.hits[0].components:
        components = (tuple(map(_component_from, each.components)) for each in message.hits)
        hits = tuple(replace(hit, components=found) for hit, found in zip(hits, components, strict=True))
    missing = tuple(message.missing_shards)
    mode = _name_of("mode", message.mode or search.MODE_DENSE, _FROM_MODE) or Mode.DENSE.value
    following = message.next if message.HasField("next") else None
    return SearchResult(
        hits,
        message.exact,
        message.short_by,
        message.rounds,
        missing,
        mode,
        following,
        dict(message.duplicates_of),
        message.below_confidence,
    )


def shard_result_from(message: search.SearchResult) -> ShardResult:
    """Return the result of one shard; RemoteError where the server does not know of shards."""
    result = result_from(message)
    if len(message.ordinals) != len(result.hits):
        raise RemoteError(
            f"expected an ordinal for each of {len(result.hits)} hits of a shard, got {len(message.ordinals)}: "
            "the server needs a version of mvindex that knows of served shards"
        )
    return ShardResult(
        **{each.name: getattr(result, each.name) for each in fields(result)},
        ordinals=tuple(message.ordinals),
        num_allowed=message.allowed,
        view_hits=_view_hits_from(message.view_hits) if message.HasField("view_hits") else None,
    )


def _hit_from(message: search.Hit) -> Hit:
    document = message.document
    metadata = document.metadata_json
    return Hit(
        document.id,
        message.score,
        message.slot,
        _span_from(message),
        message.snippet if message.HasField("snippet") else None,
        document.text,
        document.title,
        json.loads(metadata) if metadata else {},
        citation=_citation_from(message.citation) if message.HasField("citation") else None,
        citations=tuple(map(_citation_from, message.citations)) if message.citations else (),
        confidence=message.confidence if message.HasField("confidence") else None,
    )


def _citation_from(message: search.Citation) -> Citation:
    known = {name: getattr(message, name) for name in _PLACE if message.HasField(name)}
    return Citation(
        message.text,
        message.start,
        message.end,
        dict(message.why),
        before=message.before,
        after=message.after,
        **known,
    )


def _component_from(message: search.Component) -> Component:
    rank = message.rank if message.HasField("rank") else None
    return Component(message.name, rank, message.score, message.contribution)


def view_message(view: ViewScore) -> search.ViewScore:
    """Return the message of a view's share in a score."""
    span = None if view.span is None else search.Span(begin=view.span[0], end=view.span[1])
    return search.ViewScore(slot=view.slot, score=view.score, span=span, snippet=view.snippet, weight=view.weight)


def view_from(message: search.ViewScore) -> ViewScore:
    """Return a view's share in a score."""
    snippet = message.snippet if message.HasField("snippet") else None
    return ViewScore(message.slot, message.score, _span_from(message), snippet, message.weight)


def explanations_message(found: Mapping[str, Sequence[ViewScore]]) -> search.ExplainResponse:
    """Return the message of the views of several documents, by id."""
    documents = (
        search.Explanation(id=doc_id, views=[view_message(view) for view in views]) for doc_id, views in found.items()
    )
    return search.ExplainResponse(documents=documents)


def explanations_from(message: search.ExplainResponse) -> dict[str, list[ViewScore]]:
    """Return the views of several documents, by id."""
    return {each.id: [view_from(view) for view in each.views] for each in message.documents}


def _span_from(message: search.Hit | search.ViewScore) -> Span | None:
    if not message.HasField("span"):
        return None
    span = message.span
    return span.begin, span.end


def report_message(chunk: int, report: IngestReport) -> documents.AddResponse:
    """Return the acknowledgement of a chunk."""
    return documents.AddResponse(chunk=chunk, **{name: getattr(report, name) for name in _COUNTS})


def add_counts(report: IngestReport, message: documents.AddResponse) -> None:
    """Add the counts of an acknowledgement to the report."""
    for name in _COUNTS:
        setattr(report, name, getattr(report, name) + getattr(message, name))


def info_message(name: str, info: IndexInfo, is_read_only: bool) -> service.InfoResponse:
    """Return the description of an index, without its path on the server's disk or in Milvus."""
    values = asdict(info)
    del values["path"], values["server"]
    for json_name in ("encoder", "search", "fusion", "confidence"):
        value = values.pop(json_name)
        values[f"{json_name}_json"] = None if value is None else json.dumps(value)
    return service.InfoResponse(index=name, is_read_only=is_read_only, **values)


def info_from(message: service.InfoResponse, path: str) -> IndexInfo:
    """Return the description of an index; path: the caller's name for it."""
    values: dict[str, Any] = {"path": path, "filter_fields": dict(message.filter_fields)}
    for each in fields(IndexInfo):
        known = message.DESCRIPTOR.fields_by_name.get(each.name)
        if f"{each.name}_json" in message.DESCRIPTOR.fields_by_name:
            dumped = f"{each.name}_json"
            values[each.name] = json.loads(getattr(message, dumped)) if message.HasField(dumped) else None
        elif known is not None and each.name not in values:
            is_left_out = known.has_presence and not message.HasField(each.name)
            values[each.name] = None if is_left_out else getattr(message, each.name)
    return IndexInfo(**{**values, "missing_shards": tuple(message.missing_shards)})
