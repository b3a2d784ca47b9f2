"""Arguments of clients as request messages, checked as an index checks them; used by both clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mvindex.index.options import (
    as_vectors,
    asked,
    check_mode,
    check_query_text,
    checked_id,
    checked_ids,
    question_texts,
)

from mvindex.errors import QueryError
from mvindex.records import dump_metadata
from mvindex.scoring.aggregate import parse_scoring
from mvindex.scoring.fusion import Mode, parse_mode
from mvindex.store.filters import Filter
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex_connectors.remote.convert import (
    MAX_INT64,
    filter_json,
    fusion_fields,
    lexical_fields,
    scoring_message,
    vectors_message,
)

# Documents per Explain call; a server explains up to MAX_EXPLAINED.
_EXPLAIN_BATCH = 256


class Queries(NamedTuple):
    """Queries as a message: texts or vectors, and whether it was a single query."""

    texts: search.Texts | None
    vectors: documents.Vectors | None
    is_single: bool


def queries_of(query: Any) -> Queries:
    """Return the queries; QueryError if they are neither texts nor vectors."""
    if isinstance(query, str):
        return Queries(texts_message([query]), None, True)
    if isinstance(query, Sequence) and all(isinstance(text, str) for text in query):
        return Queries(texts_message(query), None, False)
    vectors = as_vectors(query, None)
    return Queries(None, vectors_message(vectors[None] if vectors.ndim == 1 else vectors), vectors.ndim == 1)


def texts_message(texts: Sequence[str]) -> search.Texts:
    """Return the message of texts; QueryError for an empty one."""
    for number, text in enumerate(texts, start=1):
        check_query_text(text, number, len(texts))
    return search.Texts(values=texts)


def search_request(  # noqa: PLR0913 - the arguments of search()
    index: str,
    query: Any,
    top_k: int = 10,
    filter: Filter | None = None,
    scoring: str = "max",
    exact: bool = False,
    *,
    temperature: float | None = None,
    candidates: int | None = None,
    mode: str = "dense",
    fusion: str | None = None,
    weights: tuple[float, float] | None = None,
    text: str | Sequence[str] | None = None,
) -> tuple[search.SearchRequest, bool]:
    """Return the message of a search, and whether it is a single query; QueryError for contradictory arguments."""
    chosen, parsed_mode = parse_scoring(scoring, temperature), parse_mode(mode)
    checked = asked(top_k, filter, chosen, exact, candidates)
    check_mode(parsed_mode, checked, fusion=fusion, weights=weights, text=text)
    lexical: dict[str, Any] = {}
    if parsed_mode is Mode.DENSE:
        queries = queries_of(query)
    else:
        queries, terms = _lexical_queries(query, text, parsed_mode)
        lexical = lexical_fields(parsed_mode, terms) | fusion_fields(fusion, weights)
    message = search.SearchRequest(
        index=index,
        texts=queries.texts,
        vectors=queries.vectors,
        top_k=min(checked.top_k, MAX_INT64),
        filter_json=filter_json(filter),
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
        exact=bool(exact),
        candidates=None if candidates is None else min(int(candidates), MAX_INT64),
        **lexical,
    )
    return message, queries.is_single


def _lexical_queries(query: Any, text: str | Sequence[str] | None, mode: Mode) -> tuple[Queries, list[str] | None]:
    """Return the queries, and the texts of the lexical part; None if these are the queries."""
    texts, is_single = question_texts(query, text, mode)
    if mode is Mode.LEXICAL:
        return Queries(search.Texts(values=texts), None, is_single), None
    queries = queries_of(query)
    count = _num_rows(queries)
    if (count, queries.is_single) != (len(texts), is_single):
        raise QueryError(f"text: expected a text for each of {count} query vectors, got {len(texts)}")
    return queries, None if text is None else texts


def _num_rows(queries: Queries) -> int:
    if queries.vectors is None:
        return 0 if queries.texts is None else len(queries.texts.values)
    return len(queries.vectors.values) // (4 * queries.vectors.dim) if queries.vectors.dim else 0


def explain_request(index: str, query: Any, id: str, scoring: str, temperature: float | None) -> search.ExplainRequest:
    """Return the message of an explanation of one document."""
    message = _explanation(index, query, scoring, temperature)
    message.id = checked_id(id)
    return message


def explain_requests(
    index: str, query: Any, ids: str | Iterable[str], scoring: str, temperature: float | None
) -> Iterator[search.ExplainRequest]:
    """Yield the messages of an explanation of several documents."""
    checked, message = checked_ids(ids), _explanation(index, query, scoring, temperature)
    for begin in range(0, len(checked), _EXPLAIN_BATCH):
        part = search.ExplainRequest(ids=checked[begin : begin + _EXPLAIN_BATCH])
        part.MergeFrom(message)
        yield part


def _explanation(index: str, query: Any, scoring: str, temperature: float | None) -> search.ExplainRequest:
    queries, chosen = queries_of(query), parse_scoring(scoring, temperature)
    if not queries.is_single:
        raise QueryError("explain(): expected one query, a text or a (d,) vector, got several")
    return search.ExplainRequest(
        index=index,
        text=None if queries.texts is None else queries.texts.values[0],
        vector=queries.vectors,
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
    )


def delete_request(index: str, ids: Any, condition: Filter | None, key: str) -> documents.DeleteRequest:
    """Return the message of a deletion."""
    if (ids is None) == (condition is None):
        raise QueryError("delete(): expected either ids= or filter=, got both or neither")
    selected = [ids] if isinstance(ids, str) else list(ids or [])
    return documents.DeleteRequest(
        index=index,
        ids=[checked_id(doc_id) for doc_id in selected],
        filter_json=filter_json(condition),
        idempotency_key=key,
    )


def update_request(index: str, id: str, metadata: Any) -> documents.UpdateRequest:
    """Return the message of an update."""
    return documents.UpdateRequest(index=index, id=checked_id(id), metadata_json=dump_metadata(metadata, id))


def has_queries(request: search.SearchRequest) -> bool:
    """Return whether a request has any query."""
    return bool(request.texts.values or request.vectors.values)
