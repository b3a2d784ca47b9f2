"""JSON bodies: what requests ask for, checked name by name, and what responses show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from mvindex.errors import QueryError
from mvindex.index.options import as_vectors, checked_document, entry_with_views
from mvindex.index.results import ViewScore
from mvindex.records import Document, Floats, SearchResult, require_text
from mvindex_connectors.server.idempotency import checked_key
from mvindex_connectors.server.servicer import check_chunk

_ONE_OF = "give one of query (a text), queries (texts), vector and vectors"


class Body:
    """A JSON object, whose members are taken one by one; what is left at the end was not understood."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    @classmethod
    def of(cls, content: bytes) -> Body:
        """The body; QueryError for what is no JSON object."""
        try:
            value = json.loads(content, parse_constant=_refused)
        except (ValueError, RecursionError) as err:
            raise QueryError(f"the body is not JSON: {err}") from err
        if not isinstance(value, dict):
            raise QueryError(f"the body is a JSON {type(value).__name__}; wanted an object")
        return cls(value)

    def taken(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The member, None where it is missing; QueryError where it is of another kind, null too."""
        if name not in self._members:
            return None
        value = self._members.pop(name)
        if kind is int and isinstance(value, float) and value.is_integer():
            # JSON has one kind of numbers: 10.0 is the whole number 10.
            value = int(value)
        is_odd = isinstance(value, bool) and kind is not bool
        if is_odd or not isinstance(value, kind):
            wanted = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
            raise QueryError(f'"{name}" is {"null" if value is None else type(value).__name__}; wanted {wanted}')
        return value

    def check_empty(self) -> None:
        """Nothing; QueryError for members that nobody took."""
        if self._members:
            raise QueryError(f"the body has a member {sorted(self._members)[0]!r:.60} that means nothing here")


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAsked:
    """A search: texts or vectors (q, d), and its options. explains: every view of each hit is wanted too.

    words: one for each query, where words are searched and are not the queries.
    """

    queries: list[str] | Floats
    is_single: bool
    options: Mapping[str, Any]
    explains: bool
    words: list[str] | None = None


def search_arguments(body: Body) -> SearchAsked:
    """The search that a body asks for."""
    text, texts = body.taken("query", str), body.taken("queries", list)
    vector, vectors = body.taken("vector", list), body.taken("vectors", list)
    if sum(each is not None for each in (text, texts, vector, vectors)) != 1:
        raise QueryError(_ONE_OF)
    if texts is not None and not all(isinstance(each, str) for each in texts):
        raise QueryError('"queries" holds something that is no text')
    options = {
        "top_k": body.taken("top_k", int),
        "filter": body.taken("filter", dict),
        "scoring": body.taken("scoring", str),
        "temperature": body.taken("temperature", (int, float)),
        "exact": bool(body.taken("exact", bool)),
        "candidates": body.taken("candidates", int),
        "mode": body.taken("mode", str),
        "fusion": body.taken("fusion", str),
        "weights": _weights(body.taken("weights", list)),
    }
    words = _words(body.taken("text", (str, list)), is_single=text is not None or vector is not None)
    explains = bool(body.taken("explain", bool))
    body.check_empty()
    asked = partial(SearchAsked, options=options, explains=explains, words=words)
    if vector is not None or vectors is not None:
        return asked(queries=_vectors([vector] if vector is not None else vectors), is_single=vector is not None)
    return asked(queries=[text] if text is not None else texts or [], is_single=text is not None)


def _weights(given: list[Any] | None) -> tuple[Any, ...] | None:
    """The weights; QueryError for a list of anything but numbers."""
    if given is None:
        return None
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in given):
        raise QueryError('"weights" holds something that is no number')
    return tuple(given)


def _words(given: str | list[Any] | None, *, is_single: bool) -> list[str] | None:
    """The texts beside the queries; QueryError where one query has several, or several have one."""
    if given is None:
        return None
    if isinstance(given, str) != is_single:
        raise QueryError('"text" is a text for query or vector, a list of texts for queries or vectors')
    texts = [given] if isinstance(given, str) else given
    if not all(isinstance(each, str) for each in texts):
        raise QueryError('"text" holds something that is no text')
    return texts


def _vectors(rows: Any) -> Floats:
    """Lists of numbers as (q, d); QueryError for anything else."""
    if not rows or not all(isinstance(row, list) and row for row in rows):
        raise QueryError('"vectors" is a list of vectors, each a list of numbers')
    if any(isinstance(each, bool) or not isinstance(each, int | float) for row in rows for each in row):
        raise QueryError("a vector holds something that is no number")
    if len({len(row) for row in rows}) > 1:
        raise QueryError("the vectors have different numbers of dims")
    try:
        return as_vectors(rows, None)
    except OverflowError as err:
        raise QueryError("a vector holds a number too large for a float") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAsked:
    """Documents to be stored at once, with their views where these are given."""

    documents: Sequence[Document]
    views: Sequence[Floats] | None
    key: str


def add_arguments(body: Body) -> AddAsked:
    """The documents of a body, up to what is committed at once."""
    rows, views = body.taken("documents", list), body.taken("views", list)
    key = checked_key(body.taken("idempotency_key", str) or "")
    body.check_empty()
    if not rows:
        raise QueryError('"documents" is missing or empty; wanted a list of {"id", "text", "title", "metadata"}')
    documents = [_document(row, number) for number, row in enumerate(rows, start=1)]
    check_chunk(documents)
    if views is None:
        return AddAsked(documents=[require_text(document) for document in documents], views=None, key=key)
    if len(views) != len(documents):
        raise QueryError(f"{len(documents)} documents and {len(views)} views; wanted a list of vectors for each")
    arrays = [_vectors(each) for each in views]
    entries = [entry_with_views(n, *pair, None) for n, pair in enumerate(zip(documents, arrays, strict=True), start=1)]
    return AddAsked(documents=documents, views=[entry.views for entry in entries if entry.views is not None], key=key)


def _document(row: Any, number: int) -> Document:
    if not isinstance(row, dict):
        raise QueryError(f"document {number} is {type(row).__name__}; wanted an object")
    if unknown := row.keys() - {"id", "text", "title", "metadata"}:
        raise QueryError(f"document {number} has a member {sorted(unknown)[0]!r:.60} that means nothing here")
    if "id" not in row:
        raise QueryError(f'document {number} has no "id"')
    return checked_document(
        Document(row["id"], row.get("text", ""), row.get("title", ""), row.get("metadata", {})), number
    )


def delete_arguments(body: Body) -> tuple[list[str] | None, Any, str]:
    """Ids or filter, and the idempotency key."""
    ids, condition = body.taken("ids", list), body.taken("filter", dict)
    key = checked_key(body.taken("idempotency_key", str) or "")
    body.check_empty()
    if (ids is None) == (condition is None):
        raise QueryError("give either ids or filter")
    return ids, condition, key


def document_json(document: Document) -> dict[str, Any]:
    """A document."""
    return {
        "id": document.id,
        "text": document.text,
        "title": document.title,
        "metadata": dict(document.metadata),
    }


def result_json(result: SearchResult, explained: Mapping[str, Sequence[ViewScore]] | None) -> dict[str, Any]:
    """A result; explained: every view of each hit, by id, best first."""
    row = asdict(result)
    for hit in row["hits"]:
        if not hit["components"]:
            del hit["components"]  # of searches by words alone
        if explained is not None:
            # None of a document that was deleted since the search.
            hit["views"] = [view._asdict() for view in explained.get(hit["id"], ())]
    return row
