"""What a caller of a client asks for, checked as an index checks it, as a message; used by both clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mvindex.errors import QueryError
from mvindex.index.options import (
    as_vectors,
    asked,
    check_mode,
    check_query_text,
    checked_id,
    checked_ids,
    question_texts,
)
from mvindex.records import dump_metadata
from mvindex.scoring.aggregate import parse_scoring
from mvindex.scoring.fusion import Mode, parse_mode
from mvindex.store.filters import Filter
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex_connectors.remote.convert import (
    MOST,
    filter_json,
    fusion_fields,
    mixed_fields,
    scoring_message,
    vectors_message,
)

# Documents asked for in one call; a server explains up to MOST_EXPLAINED.
_EXPLAINED = 256


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
    """The message of a search, and whether one query was given alone; QueryError for what does not go together."""
    chosen, way = parse_scoring(scoring, temperature), parse_mode(mode)
    wanted = asked(top_k, filter, chosen, exact, candidates)
    check_mode(way, wanted, fusion=fusion, weights=weights, text=text)
    mixed: dict[str, Any] = {}
    if way is Mode.DENSE:
        queries = queries_of(query)
    else:
        queries, words = _with_words(query, text, way)
        mixed = mixed_fields(way, words) | fusion_fields(fusion, weights)
    message = search.SearchRequest(
        index=index,
        texts=queries.texts,
        vectors=queries.vectors,
        top_k=min(wanted.top_k, MOST),
        filter_json=filter_json(filter),
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
        exact=bool(exact),
        candidates=None if candidates is None else min(int(candidates), MOST),
        **mixed,
    )
    return message, queries.is_single


def _with_words(query: Any, text: str | Sequence[str] | None, way: Mode) -> tuple[Queries, list[str] | None]:
    """The queries, and the words beside them; None where they are the queries."""
    words, is_single = question_texts(query, text, way)
    if way is Mode.LEXICAL:
        return Queries(search.Texts(values=words), None, is_single), None
    queries = queries_of(query)
    count = _num_rows(queries)
    if (count, queries.is_single) != (len(words), is_single):
        raise QueryError(f"{count} query vectors and {len(words)} texts; wanted a text for each")
    return queries, None if text is None else words


def _num_rows(queries: Queries) -> int:
    if queries.vectors is None:
        return 0 if queries.texts is None else len(queries.texts.values)
    return len(queries.vectors.values) // (4 * queries.vectors.dim) if queries.vectors.dim else 0


def explain_request(index: str, query: Any, id: str, scoring: str, temperature: float | None) -> search.ExplainRequest:
    """The message of an explanation of one document."""
    message = _explanation(index, query, scoring, temperature)
    message.id = checked_id(id)
    return message


def explain_requests(
    index: str, query: Any, ids: str | Iterable[str], scoring: str, temperature: float | None
) -> Iterator[search.ExplainRequest]:
    """The messages of an explanation of several documents, some in each."""
    wanted, message = checked_ids(ids), _explanation(index, query, scoring, temperature)
    for begin in range(0, len(wanted), _EXPLAINED):
        part = search.ExplainRequest(ids=wanted[begin : begin + _EXPLAINED])
        part.MergeFrom(message)
        yield part


def _explanation(index: str, query: Any, scoring: str, temperature: float | None) -> search.ExplainRequest:
    queries, chosen = queries_of(query), parse_scoring(scoring, temperature)
    if not queries.is_single:
        raise QueryError("explain() takes one query: a text or a (d,) vector")
    return search.ExplainRequest(
        index=index,
        text=None if queries.texts is None else queries.texts.values[0],
        vector=queries.vectors,
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
