"""What a caller of a client asks for, checked as an index checks it, as a message; used by both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mvindex.aggregate import Aggregate, Scoring, parse_aggregate
from mvindex.arguments import as_vectors, asked, check_query_text, checked_id
from mvindex.errors import QueryError
from mvindex.records import dump_metadata
from mvindex.store.filters import Filter
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex_connectors.remote.convert import MOST, filter_json, scoring_message, vectors_message


class Queries(NamedTuple):
    """Queries as a message: texts or vectors, and whether one was given alone."""

    texts: search.Texts | None
    vectors: documents.Vectors | None
    is_single: bool


def queries_of(query: Any) -> Queries:
    """The queries; QueryError for what is neither text nor vector."""
    if isinstance(query, str):
        return Queries(texts_message([query]), None, True)
    if isinstance(query, Sequence) and all(isinstance(text, str) for text in query):
        return Queries(texts_message(query), None, False)
    vectors = as_vectors(query, None)
    return Queries(None, vectors_message(vectors[None] if vectors.ndim == 1 else vectors), vectors.ndim == 1)


def texts_message(texts: Sequence[str]) -> search.Texts:
    """The texts; QueryError for an empty one."""
    for number, text in enumerate(texts, start=1):
        check_query_text(text, number, len(texts))
    return search.Texts(values=texts)


def scoring_of(name: str, temperature: float | None) -> Scoring:
    """The scoring, checked; without a temperature the index's own is meant."""
    aggregate = parse_aggregate(name)
    if aggregate is Aggregate.MAX and temperature is not None:
        raise QueryError("temperature= belongs to scoring='drpq'")
    return Scoring(aggregate) if temperature is None else Scoring(aggregate, temperature)


def search_request(  # noqa: PLR0913 - the arguments of search()
    index: str,
    queries: Queries,
    top_k: int = 10,
    filter: Filter | None = None,
    scoring: str = "max",
    exact: bool = False,
    *,
    temperature: float | None = None,
    candidates: int | None = None,
) -> search.SearchRequest:
    """The message of a search; QueryError for arguments that do not go together."""
    chosen = scoring_of(scoring, temperature)
    wanted = asked(top_k, filter, chosen, exact, candidates)
    return search.SearchRequest(
        index=index,
        texts=queries.texts,
        vectors=queries.vectors,
        top_k=min(wanted.top_k, MOST),
        filter_json=filter_json(filter),
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
        exact=bool(exact),
        candidates=None if candidates is None else min(int(candidates), MOST),
    )


def explain_request(index: str, query: Any, id: str, scoring: str, temperature: float | None) -> search.ExplainRequest:
    """The message of an explanation."""
    queries, chosen = queries_of(query), scoring_of(scoring, temperature)
    if not queries.is_single:
        raise QueryError("explain() takes one query: a text or a (d,) vector")
    return search.ExplainRequest(
        index=index,
        text=None if queries.texts is None else queries.texts.values[0],
        vector=queries.vectors,
        id=checked_id(id),
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
    )


def delete_request(index: str, ids: Any, condition: Filter | None, key: str) -> documents.DeleteRequest:
    """The message of a deletion."""
    if (ids is None) == (condition is None):
        raise QueryError("delete() takes either ids= or filter=")
    wanted = [ids] if isinstance(ids, str) else list(ids or [])
    return documents.DeleteRequest(
        index=index,
        ids=[checked_id(doc_id) for doc_id in wanted],
        filter_json=filter_json(condition),
        idempotency_key=key,
    )


def update_request(index: str, id: str, metadata: Any) -> documents.UpdateRequest:
    """The message of an update."""
    return documents.UpdateRequest(index=index, id=checked_id(id), metadata_json=dump_metadata(metadata, id))


def num_queries(request: search.SearchRequest) -> int:
    """How many queries a request holds."""
    return len(request.texts.values) + len(request.vectors.values)
