"""Records <-> messages, one pair of functions a type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mvindex.errors import DocumentError, EncoderError, QueryError
from mvindex.index.results import IndexInfo, ViewScore
from mvindex.ingest import IngestReport
from mvindex.records import Component, Document, Floats, Hit, SearchResult, Span, dump_metadata
from mvindex.scoring.aggregate import Aggregate
from mvindex.scoring.fusion import Method, Mode, parse_fusion
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service

# The most that a proto integer holds: no index has so many views, so that more means the same.
MOST = 2**63 - 1
# Documents that a server explains in one call.
MOST_EXPLAINED = 1000
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
    """The message of a document."""
    dumped = dump_metadata(document.metadata, document.id) if document.metadata else ""
    return documents.Document(id=document.id, text=document.text, title=document.title, metadata_json=dumped)


def document_from(message: documents.Document) -> Document:
    """The document of a message; DocumentError where it is none."""
    return Document(message.id, message.text, message.title, metadata_from(message.metadata_json, message.id))


def metadata_from(text: str, doc_id: str) -> Mapping[str, Any]:
    """The metadata that JSON says; DocumentError where it says none."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise DocumentError(f"document {doc_id!r}: metadata is not JSON: {err}") from err
    if not isinstance(value, dict):
        raise DocumentError(f"document {doc_id!r}: metadata is {type(value).__name__}; wanted an object")
    return value


def vectors_message(vectors: Floats) -> documents.Vectors:
    """The message of vectors, (q, d) float32."""
    return documents.Vectors(dim=vectors.shape[1], values=np.ascontiguousarray(vectors, dtype="<f4").tobytes())


def vectors_from(message: documents.Vectors) -> Floats:
    """The vectors, (q, d) float32; QueryError where the bytes are not so many."""
    row_bytes = 4 * message.dim
    if not row_bytes or len(message.values) % row_bytes:
        raise QueryError(
            f"vectors of {len(message.values)} bytes and dim {message.dim}; wanted 4 bytes a dim, and whole vectors"
        )
    return np.frombuffer(message.values, dtype="<f4").reshape(-1, message.dim).astype(np.float32, copy=False)


def views_message(views: Sequence[Floats]) -> documents.Views:
    """The message of documents' views, (k_i, d) float32 each, all of one d."""
    return documents.Views(vectors=vectors_message(np.concatenate(views)), counts=[len(each) for each in views])


def views_from(message: documents.Views, num_documents: int) -> list[Floats]:
    """The views of each document; EncoderError where there are fewer or more than the documents need."""
    try:
        rows = vectors_from(message.vectors)
    except QueryError as err:
        raise EncoderError(f"views: {err}") from err
    counts = np.array(message.counts, dtype=np.int64)
    if len(counts) != num_documents or not (counts > 0).all() or counts.sum() != len(rows):
        raise EncoderError(
            f"{len(rows)} views with {len(counts)} counts, {counts.sum()} in all, for {num_documents} documents; "
            "wanted a count for each document, at least 1, and as many views as they say"
        )
    return np.split(rows, np.cumsum(counts)[:-1])


def filter_json(condition: Mapping[str, Any] | None) -> str | None:
    """A filter as JSON; QueryError where it is none that JSON can hold."""
    if condition is None:
        return None
    try:
        return json.dumps(condition, allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as err:
        raise QueryError(f"filter cannot be written as JSON: {err}") from err


def filter_from(text: str) -> Any:
    """What JSON says; QueryError where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise QueryError(f"filter is not JSON: {err}") from err


def scoring_message(aggregate: Aggregate) -> Any:
    """The scoring's number."""
    return _TO_SCORING[aggregate]


def scoring_from(number: int) -> str:
    """The scoring's name; QueryError for a number that this version does not know."""
    if number not in _FROM_SCORING:
        raise QueryError(f"scoring is {number}; this server knows 1 (max) and 2 (drpq)")
    return _FROM_SCORING[number]


def mixed_fields(mode: Mode, words: Sequence[str] | None) -> dict[str, Any]:
    """What a request says of a search that looks at words. words: None where they are the queries."""
    return {"mode": _TO_MODE[mode], "words": None if words is None else search.Texts(values=words)}


def fusion_fields(fusion: str | None, weights: Any) -> dict[str, Any]:
    """What a request says of fusion: only what is given, the index has its own. QueryError for what is none."""
    checked = parse_fusion(fusion, weights)
    dense, lexical = checked.weights
    return {
        "fusion": None if fusion is None else _TO_FUSION[checked.method],
        "weights": None if weights is None else search.Weights(dense=dense, lexical=lexical),
    }


def mixed_from(message: search.SearchRequest) -> dict[str, Any]:
    """The arguments of search() that belong to words, none for a dense search; QueryError for an unknown number."""
    has_weights, has_words = message.HasField("weights"), message.HasField("words")
    if not (message.mode or message.fusion or has_weights or has_words):
        return {}
    if message.mode not in _FROM_MODE:
        raise QueryError(f"mode is {message.mode}; this server knows 1 (dense), 2 (lexical) and 3 (hybrid)")
    if message.fusion and message.fusion not in _FROM_FUSION:
        raise QueryError(f"fusion is {message.fusion}; this server knows 1 (zscore), 2 (minmax) and 3 (rrf)")
    return {
        "mode": _FROM_MODE[message.mode],
        "fusion": _FROM_FUSION.get(message.fusion),
        "weights": (message.weights.dense, message.weights.lexical) if has_weights else None,
        "text": list(message.words.values) if has_words else None,
    }


def results_message(results: Sequence[SearchResult]) -> search.SearchResponse:
    """The message of results. Filled in place: messages that are made and then copied take four times as long."""
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
        message.components.add(name=each.name, rank=each.rank, score=each.score, part=each.part)


def result_from(message: search.SearchResult) -> SearchResult:
    """The result of a message."""
    hits = tuple(map(_hit_from, message.hits))
    # All have some or none has: by views alone none is looked through for them.
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
    return Component(message.name, rank, message.score, message.part)


def view_message(view: ViewScore) -> search.ViewScore:
    """The message of a view's part in a score."""
    return search.ViewScore(
        slot=view.slot, score=view.score, span=_span_message(view.span), snippet=view.snippet, weight=view.weight
    )


def view_from(message: search.ViewScore) -> ViewScore:
    """A view's part in a score."""
    snippet = message.snippet if message.HasField("snippet") else None
    return ViewScore(message.slot, message.score, _span_from(message), snippet, message.weight)


def explanations_message(found: Mapping[str, Sequence[ViewScore]]) -> search.ExplainResponse:
    """The message of the views of several documents, by id."""
    documents = (
        search.Explanation(id=doc_id, views=[view_message(view) for view in views]) for doc_id, views in found.items()
    )
    return search.ExplainResponse(documents=documents)


def explanations_from(message: search.ExplainResponse) -> dict[str, list[ViewScore]]:
    """The views of several documents, by id."""
    return {each.id: [view_from(view) for view in each.views] for each in message.documents}


def _span_message(span: Span | None) -> search.Span | None:
    return None if span is None else search.Span(begin=span[0], end=span[1])


def _span_from(message: search.Hit | search.ViewScore) -> Span | None:
    if not message.HasField("span"):
        return None
    span = message.span
    return span.begin, span.end


def report_message(chunk: int, report: IngestReport) -> documents.AddResponse:
    """The acknowledgement of a chunk."""
    return documents.AddResponse(chunk=chunk, **{name: getattr(report, name) for name in _COUNTS})


def add_counts(report: IngestReport, message: documents.AddResponse) -> None:
    """Nothing; the report counts what the acknowledgement says."""
    for name in _COUNTS:
        setattr(report, name, getattr(report, name) + getattr(message, name))


def info_message(name: str, info: IndexInfo, is_read_only: bool) -> service.InfoResponse:
    """The message of what an index is; where it lies, on the server's disk or in Milvus, is not told."""
    values = asdict(info)
    del values["path"], values["server"]
    for json_name in ("encoder", "search", "fusion"):
        value = values.pop(json_name)
        values[f"{json_name}_json"] = None if value is None else json.dumps(value)
    return service.InfoResponse(index=name, is_read_only=is_read_only, **values)


def info_from(message: service.InfoResponse, path: str) -> IndexInfo:
    """What an index is; path: how the caller calls it."""
    jsons = ("encoder_json", "search_json", "fusion_json")
    given = {name: getattr(message, name) for name in jsons if message.HasField(name)}
    optional = ("dim", "prune_views", "engine_prune_views", "shards", "lexical")
    plain = (
        "format_version",
        "documents",
        "views",
        "num_deleted",
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
        encoder=json.loads(given.get("encoder_json", "null")),
        search=json.loads(given.get("search_json", "null")),
        fusion=json.loads(given.get("fusion_json", "null")),
        missing_shards=tuple(message.missing_shards),
        **values,
    )
