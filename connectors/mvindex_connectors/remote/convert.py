"""Conversion of records to messages and back, one pair of functions per type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from mvindex.index.results import IndexInfo, ViewScore

from mvindex.errors import DocumentError, EncoderError, QueryError
from mvindex.ingest import IngestReport
from mvindex.records import Component, Document, Floats, Hit, SearchResult, Span, dump_metadata
from mvindex.scoring.aggregate import Aggregate
from mvindex.scoring.fusion import Method, Mode, parse_fusion
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service

# The largest integer of a message: no index has so many views, so a larger number means the same.
MAX_INT64 = 2**63 - 1
# The most documents that a server explains in one call.
MAX_EXPLAINED = 1000
_TO_SCORING = {Aggregate.MAX: search.SCORING_MAX, Aggregate.DRPQ: search.SCORING_DRPQ}
_FROM_SCORING: dict[int, str] = {
    search.SCORING_UNSPECIFIED: Aggregate.MAX.value,
    search.SCORING_MAX: Aggregate.MAX.value,
    search.SCORING_DRPQ: Aggregate.DRPQ.value,
}
_TO_MODE = {Mode.DENSE: search.MODE_DENSE, Mode.LEXICAL: search.MODE_LEXICAL, Mode.HYBRID: search.MODE_HYBRID}
_FROM_MODE: dict[int, str] = {number: mode.value for mode, number in _TO_MODE.items()}
_FROM_MODE[search.MODE_UNSPECIFIED] = Mode.DENSE.value
_TO_FUSION = {
    Method.ZSCORE: search.FUSION_ZSCORE,
    Method.MINMAX: search.FUSION_MINMAX,
    Method.RRF: search.FUSION_RRF,
}
_FROM_FUSION: dict[int, str] = {number: method.value for method, number in _TO_FUSION.items()}
_COUNTS = ("added", "replaced", "updated", "unchanged", "views_given", "views_stored")


def document_message(document: Document) -> documents.Document:
    """Return the message of a document."""
    dumped = dump_metadata(document.metadata, document.id) if document.metadata else ""
    return documents.Document(id=document.id, text=document.text, title=document.title, metadata_json=dumped)


def document_from(message: documents.Document) -> Document:
    """Return the document of a message; DocumentError if its metadata is malformed."""
    return Document(message.id, message.text, message.title, metadata_from(message.metadata_json, message.id))


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


def views_message(views: Sequence[Floats]) -> documents.Views:
    """Return the message of documents' views, (k_i, d) float32 each, all of one d."""
    return documents.Views(vectors=vectors_message(np.concatenate(views)), counts=[len(each) for each in views])


def views_from(message: documents.Views, num_documents: int) -> list[Floats]:
    """Return the views of each document; EncoderError if their number does not fit the documents."""
    try:
        rows = vectors_from(message.vectors)
    except QueryError as err:
        raise EncoderError(f"views: {err}") from err
    counts = np.array(message.counts, dtype=np.int64)
    if len(counts) != num_documents or not (counts > 0).all() or counts.sum() != len(rows):
        raise EncoderError(
            f"views: expected a count >= 1 for each of {num_documents} documents, and as many views as their sum, got "
            f"{len(counts)} counts with the sum {counts.sum()} and {len(rows)} views"
        )
    return np.split(rows, np.cumsum(counts)[:-1])


def filter_json(condition: Mapping[str, Any] | None) -> str | None:
    """Return a filter as JSON; QueryError if it cannot be represented."""
    if condition is None:
        return None
    try:
        return json.dumps(condition, allow_nan=False, ensure_ascii=True)
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


def scoring_from(number: int) -> str:
    """Return the name of a scoring; QueryError for an unknown number."""
    if number not in _FROM_SCORING:
        raise QueryError(f"scoring: expected 1 (max) or 2 (drpq), got {number}")
    return _FROM_SCORING[number]


def lexical_fields(mode: Mode, texts: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of a lexical or hybrid request. texts: None if they are the queries."""
    return {"mode": _TO_MODE[mode], "terms": None if texts is None else search.Texts(values=texts)}


def fusion_fields(fusion: str | None, weights: Any) -> dict[str, Any]:
    """Return the fusion fields of a request, None where the index's own apply; QueryError for invalid values."""
    checked = parse_fusion(fusion, weights)
    dense, lexical = checked.weights
    return {
        "fusion": None if fusion is None else _TO_FUSION[checked.method],
        "weights": None if weights is None else search.Weights(dense=dense, lexical=lexical),
    }


def lexical_options_from(message: search.SearchRequest) -> dict[str, Any]:
    """Return the arguments of a lexical or hybrid search(), none for a dense one; QueryError for unknown numbers."""
    has_weights, has_terms = message.HasField("weights"), message.HasField("terms")
    if not (message.mode or message.fusion or has_weights or has_terms):
        return {}
    if message.mode not in _FROM_MODE:
        raise QueryError(f"mode: expected 1 (dense), 2 (lexical) or 3 (hybrid), got {message.mode}")
    if message.fusion and message.fusion not in _FROM_FUSION:
        raise QueryError(f"fusion: expected 1 (zscore), 2 (minmax) or 3 (rrf), got {message.fusion}")
    return {
        "mode": _FROM_MODE[message.mode],
        "fusion": _FROM_FUSION.get(message.fusion),
        "weights": (message.weights.dense, message.weights.lexical) if has_weights else None,
        "text": list(message.terms.values) if has_terms else None,
    }


def results_message(results: Sequence[SearchResult]) -> search.SearchResponse:
    """Return the message of results. It is filled in place: copying messages would take four times as long."""
    response = search.SearchResponse()
    for result in results:
        message = response.results.add(exact=result.exact, short_by=result.short_by, rounds=result.rounds)
        message.missing_shards.extend(result.missing_shards)
        add = message.hits.add
        for hit in result.hits:
            _fill_hit(add(score=hit.score, slot=hit.slot, snippet=hit.snippet), hit)
    return response


def _fill_hit(message: search.Hit, hit: Hit) -> None:
    document = message.document
    document.id, document.text, document.title = hit.id, hit.text, hit.title
    if hit.metadata:
        document.metadata_json = json.dumps(hit.metadata, ensure_ascii=False, separators=(",", ":"))
    if hit.span is not None:
        message.span.begin, message.span.end = hit.span
    for each in hit.components:
        message.components.add(name=each.name, rank=each.rank, score=each.score, contribution=each.part)


def result_from(message: search.SearchResult) -> SearchResult:
    """Return the result of a message."""
    hits = tuple(map(_hit_from, message.hits))
    # All hits have components or none has: a dense search is not slowed down by looking for them.
    if hits and message.hits[0].components:
        components = (tuple(map(_component_from, each.components)) for each in message.hits)
        hits = tuple(replace(hit, components=found) for hit, found in zip(hits, components, strict=True))
    return SearchResult(hits, message.exact, message.short_by, message.rounds, tuple(message.missing_shards))


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
    )


def _component_from(message: search.Component) -> Component:
    rank = message.rank if message.HasField("rank") else None
    return Component(message.name, rank, message.score, message.contribution)


def view_message(view: ViewScore) -> search.ViewScore:
    """Return the message of a view's share in a score."""
    return search.ViewScore(
        slot=view.slot, score=view.score, span=_span_message(view.span), snippet=view.snippet, weight=view.weight
    )


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


def _span_message(span: Span | None) -> search.Span | None:
    return None if span is None else search.Span(begin=span[0], end=span[1])


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
    for json_name in ("encoder", "search", "fusion"):
        value = values.pop(json_name)
        values[f"{json_name}_json"] = None if value is None else json.dumps(value)
    return service.InfoResponse(index=name, is_read_only=is_read_only, **values)


def info_from(message: service.InfoResponse, path: str) -> IndexInfo:
    """Return the description of an index; path: the caller's name for it."""
    jsons = ("encoder_json", "search_json", "fusion_json")
    dumped = {name: getattr(message, name) for name in jsons if message.HasField(name)}
    optional = ("dim", "prune_views", "shards", "lexical")
    plain = (
        "format_version",
        "documents",
        "views",
        "dtype",
        "kind",
        "temperature",
        "fresh_documents",
        "size_bytes",
    )
    values: dict[str, Any] = {name: getattr(message, name) for name in plain}
    values |= {name: getattr(message, name) if message.HasField(name) else None for name in optional}
    return IndexInfo(
        path=path,
        num_deleted=message.num_deleted,
        encoder=json.loads(dumped.get("encoder_json", "null")),
        search=json.loads(dumped.get("search_json", "null")),
        fusion=json.loads(dumped.get("fusion_json", "null")),
        missing_shards=tuple(message.missing_shards),
        **values,
    )
