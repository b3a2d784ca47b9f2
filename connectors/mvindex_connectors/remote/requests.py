"""Arguments of clients as request messages, checked as an index checks them; used by both clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mvindex.errors import QueryError
from mvindex.kernels.score import parse_scoring
from mvindex.records import Combine, QueryGroup, SearchResult, check_count, check_id, check_ids, dump_metadata
from mvindex.search.fusion import Mode
from mvindex.search.options import SearchOptions
from mvindex.search.queries import as_groups, as_vectors, check_query_text, group_texts, is_texts, query_texts
from mvindex.store.filters import Filter, check_deletion
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex_connectors.remote.convert import (
    MAX_IDS,
    MAX_INT64,
    filter_json,
    options_fields,
    result_from,
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

    @property
    def num_queries(self) -> int:
        """The number of queries."""
        if self.vectors is None:
            return 0 if self.texts is None else len(self.texts.values)
        return len(self.vectors.values) // (4 * self.vectors.dim) if self.vectors.dim else 0


class SearchCall(NamedTuple):
    """The message of a search, and how its results are returned."""

    request: search.SearchRequest
    queries: Queries

    @property
    def is_empty(self) -> bool:
        """Whether there is no query, so that nothing needs to be sent."""
        return self.queries.num_queries == 0

    def results(self, response: search.SearchResponse) -> SearchResult | list[SearchResult]:
        """Return the result of a single query, or a list of results."""
        results = [result_from(each) for each in response.results]
        return results[0] if self.queries.is_single else results


def queries_of(query: Any) -> Queries:
    """Return the queries; QueryError if they are neither texts nor vectors."""
    if is_texts(query):
        is_single = isinstance(query, str)
        return Queries(texts_message([query] if is_single else query), None, is_single)
    vectors = as_vectors(query, None)
    return Queries(None, vectors_message(vectors[None] if vectors.ndim == 1 else vectors), vectors.ndim == 1)


def texts_message(texts: Sequence[str]) -> search.Texts:
    """Return the message of texts; QueryError for an empty one."""
    for number, text in enumerate(texts, start=1):
        check_query_text(text, number, len(texts))
    return search.Texts(values=texts)


def search_call(index: str, query: Any, options: SearchOptions, text: str | Sequence[str] | None) -> SearchCall:
    """Return the call of a search; QueryError for queries and texts that do not go together."""
    if isinstance(query, QueryGroup):
        return _group_call(index, query, options, text)
    terms: list[str] | None = None
    if options.mode in (Mode.AUTO, Mode.DENSE) and text is None:
        queries = queries_of(query)
    else:
        queries, terms = _text_queries(query, text, options.mode)
    request = search.SearchRequest(
        index=index,
        texts=queries.texts,
        vectors=queries.vectors,
        terms=None if terms is None else search.Texts(values=terms),
        **options_fields(options),
    )
    return SearchCall(request, queries)


def search_calls(
    index: str, query: Any, options: SearchOptions, text: str | Sequence[str] | None
) -> list[SearchCall] | None:
    """Return the calls of several query groups, one for each; None where the query is something else."""
    groups = None if isinstance(query, QueryGroup) else as_groups(query)
    if groups is None:
        return None
    texts = [None] * len(groups) if text is None else text
    if isinstance(texts, str) or len(texts) != len(groups):
        raise QueryError(f"text: expected a text for each of {len(groups)} query groups")
    return [search_call(index, group, options, one) for group, one in zip(groups, texts, strict=True)]


def _group_call(index: str, group: QueryGroup, options: SearchOptions, text: object) -> SearchCall:
    """Return the call of one query group."""
    if options.mode is Mode.LEXICAL:
        raise QueryError("mode='lexical' reads no vectors of a query group; expected mode='dense' or 'hybrid'")
    if options.operators:
        raise QueryError("operators= reads the text of one query; a query group has several")
    texts = group_texts(group, text)
    if options.mode is Mode.HYBRID and texts is None:
        raise QueryError("mode='hybrid' searches texts; give one beside the vectors of the group: text=...")
    queries = queries_of(group.queries)
    if queries.is_single:
        raise QueryError("query group: expected an (m, d) array, got one vector")
    request = search.SearchRequest(
        index=index,
        texts=queries.texts,
        vectors=queries.vectors,
        terms=None if text is None else search.Texts(values=texts),
        **options_fields(replace(options, combine=Combine(group.combine))),
    )
    return SearchCall(request, queries._replace(is_single=True))


def _text_queries(query: Any, text: str | Sequence[str] | None, mode: Mode) -> tuple[Queries, list[str] | None]:
    """Return the queries of a search, and the texts beside them; None if these are the queries."""
    texts, is_single = query_texts(query, text, mode)
    if mode is Mode.LEXICAL:
        return Queries(search.Texts(values=texts), None, is_single), None
    queries = queries_of(query)
    if (queries.num_queries, queries.is_single) != (len(texts), is_single):
        raise QueryError(f"text: expected a text for each of {queries.num_queries} query vectors, got {len(texts)}")
    return queries, None if text is None else texts


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
    queries, chosen = queries_of(query), parse_scoring(scoring, temperature)
    if not queries.is_single:
        raise QueryError("explain: expected one query, a text or a (d,) vector, got several")
    return search.ExplainRequest(
        index=index,
        text=None if queries.texts is None else queries.texts.values[0],
        vector=queries.vectors,
        scoring=scoring_message(chosen.aggregate),
        temperature=None if temperature is None else float(temperature),
    )


def get_requests(index: str, ids: str | Iterable[str]) -> Iterator[documents.GetRequest]:
    """Yield the messages that get documents by id, each of as many ids as a server takes."""
    checked = check_ids(ids)
    for begin in range(0, len(checked), MAX_IDS):
        yield documents.GetRequest(index=index, ids=checked[begin : begin + MAX_IDS])


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
