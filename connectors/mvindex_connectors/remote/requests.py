"""Arguments of clients as request messages, checked as an index checks them; used by both clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.errors import QueryError
from mvindex.kernels.score import parse_scoring
from mvindex.records import check_count, check_id, check_ids, dump_metadata, sliced
from mvindex.search.request import Queries, SearchRequest, check_query_text
from mvindex.store.filters import Filter, check_deletion
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex_connectors.remote.convert import (
    MAX_IDS,
    MAX_INT64,
    filter_json,
    scoring_message,
    search_message,
    vectors_message,
)

# Documents per Explain call; a server explains up to MAX_EXPLAINED.
_EXPLAIN_BATCH = 256
# Queries per Search call, and the bytes of their vectors and texts, below the limits of a server.
_SEARCH_QUERIES, _SEARCH_BYTES = 4096, 4 << 20


def texts_message(texts: Sequence[str]) -> search.Texts:
    """Return the message of texts; QueryError for an empty one."""
    for number, text in enumerate(texts, start=1):
        check_query_text(text, number, len(texts))
    return search.Texts(values=texts)


def search_messages(index: str, request: SearchRequest) -> Iterator[search.SearchRequest]:
    """Yield the messages of a request, one for each of its queries that are searched together; none without a query."""
    if request.like is not None:
        return iter([search_message(index, request, None)])
    parts = (part for queries in request.queries if len(queries) for part in split_queries(queries))
    return (search_message(index, request, part) for part in parts)


def split_queries(queries: Queries) -> Iterator[Queries]:
    """Yield the queries in parts that are small enough for a message; a group is one."""
    if queries.combine is not None or not len(queries):
        yield queries
        return
    sizes = np.full(len(queries), 4 * queries.vectors.shape[1] if queries.are_encoded else 0)
    for texts in (queries.unencoded, queries.own_texts):
        if texts:
            # A character takes at most four bytes.
            sizes += 4 * np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(queries):
        sent = ends[begin] - sizes[begin]
        fitting = int(np.searchsorted(ends, sent + _SEARCH_BYTES, side="right"))
        end = min(max(begin + 1, fitting), begin + _SEARCH_QUERIES)
        yield queries[begin:end] if end - begin < len(queries) else queries
        begin = end


def renamed(request: Any) -> Callable[[str], Any]:
    """Return a function that returns the request for an index of another name."""

    def make(name: str) -> Any:
        named = type(request)()
        named.CopyFrom(request)
        named.index = name
        return named

    return make


def encode_request(index: str, texts: Sequence[str]) -> search.EncodeRequest:
    """Return the message of texts to encode; QueryError for an empty one."""
    return search.EncodeRequest(index=index, texts=texts_message(texts))


def explain_request(index: str, query: Any, id: str, scoring: str, temperature: float | None) -> search.ExplainRequest:
    """Return the message of an explanation of one document."""
    message = _explanation(index, query, scoring, temperature)
    message.id = check_id(id)
    return message


def explain_requests(
    index: str, query: Any, ids: str | Iterable[str], scoring: str, temperature: float | None
) -> Iterator[search.ExplainRequest]:
    """Yield the messages of an explanation of several documents."""
    checked, message = check_ids(ids), _explanation(index, query, scoring, temperature)
    for begin in range(0, len(checked), _EXPLAIN_BATCH):
        part = search.ExplainRequest(ids=checked[begin : begin + _EXPLAIN_BATCH])
        part.MergeFrom(message)
        yield part


def _explanation(index: str, query: Any, scoring: str, temperature: float | None) -> search.ExplainRequest:
    chosen, request = parse_scoring(scoring, temperature), SearchRequest().of(query)
    [queries, *_] = request.queries
    if not request.is_single or queries.combine is not None:
        raise QueryError("explain: expected one query, a text or a (d,) vector, got several")
    return search.ExplainRequest(
        index=index,
        text=None if queries.are_encoded else queries.unencoded[0],
        vector=vectors_message(queries.vectors) if queries.are_encoded else None,
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
    )


def get_requests(index: str, ids: str | Iterable[str]) -> Iterator[documents.GetRequest]:
    """Return the messages that get documents by id, each of as many ids as a server takes."""
    return (documents.GetRequest(index=index, ids=some) for some in sliced(check_ids(ids), MAX_IDS))


def list_request(
    index: str, condition: Filter | None = None, limit: int | None = None, after: str | None = None
) -> documents.ListRequest:
    """Return the message of a scan."""
    if limit is not None:
        check_count("limit", limit)
    return documents.ListRequest(
        index=index,
        filter_json=filter_json(condition),
        limit=None if limit is None else min(int(limit), MAX_INT64),
        after=None if after is None else check_id(after),
    )


def delete_request(
    index: str, ids: str | Iterable[str] | None, condition: Filter | None, everything: bool
) -> documents.DeleteRequest:
    """Return the message of a deletion, with a key of its own: sent again, it deletes nothing more."""
    check_deletion(ids, condition, everything)
    return documents.DeleteRequest(
        index=index,
        ids=[] if ids is None else check_ids(ids),
        filter_json=filter_json(condition),
        idempotency_key=new_key(),
        all=everything,
    )


def update_request(index: str, id: str, metadata: Mapping[str, Any]) -> documents.UpdateRequest:
    """Return the message of an update, with a key of its own: sent again, it changes nothing more."""
    return documents.UpdateRequest(
        index=index, id=check_id(id), metadata_json=dump_metadata(metadata, id), idempotency_key=new_key()
    )


def new_key() -> str:
    """Return an idempotency key."""
    return secrets.token_hex(16)
