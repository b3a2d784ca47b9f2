"""JSON bodies: requests decoded and checked by their types, and results as the types of responses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from msgspec import UNSET

from mvindex import records
from mvindex.errors import DocumentError, MvindexError, QueryError
from mvindex.ingest import CHUNK_DOCUMENTS, GivenViews, view_entries
from mvindex.records import Combine, Floats, require_text
from mvindex.search.fusion import parse_choice
from mvindex.search.like import Like, parse_like
from mvindex.search.request import Queries, SearchRequest, as_vectors, parse_options
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.idempotency import check_idempotency_key
from mvindex_connectors.server.jobs import Request, StartJobRequest
from mvindex_connectors.server.limits import check_json_values
from mvindex_connectors.server.servicer import check_chunk, too_many_documents

# The forms of msgspec: "Expected `int`, got `str` - at `$.top_k`", and
# "Object contains unknown field `x` - at `$.documents[0]`".
_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `(?P<key>key in )?\$\.?(?P<place>.*)`)?", re.DOTALL)
_BOUND = re.compile(r"Expected `(?P<type>float|int)` (?P<sign>>=|<=|>|<) (?P<bound>[-\d.]+)")
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+|\[\.\.\.\])")
_SIGNS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_SURROGATE = re.compile("[\ud800-\udfff]")
# Members that are whole numbers, which msgspec reads as float: JSON has one kind of number.
COUNTS = re.compile(r"(?:.*\.)?(?:top_k|candidates|citations|max_chars|max_tokens|dim|shards|parameters\[\.\.\.\])")
_GOT_CHARS = 60
RequestT = TypeVar("RequestT", bound=Request)

_DECODERS: dict[type[Request], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        schemas.SearchRequest,
        schemas.AddRequest,
        schemas.DeleteRequest,
        schemas.UpdateRequest,
        schemas.GetRequest,
        StartJobRequest,
    )
}
_OPTIONS = (
    "filter",
    "scoring",
    "temperature",
    "exact",
    "mode",
    "fusion",
    "weights",
    "operators",
    "fields",
    "cursor",
    "diversity",
    "min_confidence",
)
_DOCUMENTS = ("like", "positives", "negatives")
_COUNTS = ("top_k", "candidates", "offset", "citations", "context", "max_chars", "max_tokens")


def readable(message: str, body: Callable[[], Any], whole: str = "body") -> MvindexError:
    """Return the error of a message of msgspec, as "<place>: expected ..., got ...".

    Args:
        message: Of a ValidationError.
        body: Returns the request as lists, dicts and values; called where a value is shown.
        whole: The place of what concerns the request as a whole.

    """
    parts = _MESSAGE.fullmatch(message)
    problem, place = (parts["problem"], parts["place"]) if parts else (message, None)
    where = place or whole
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _error(where, f"expected known members only, got {unknown[1]!r:.{_GOT_CHARS}}")
    if missing := re.fullmatch("Object missing required field `(.*)`", problem):
        return _error(where, f'expected a member "{missing[1]}", got none')
    if problem.endswith("out of range"):
        return _error(
            _first(_parsed(body), _is_out_of_range) or where, "expected a finite number, got one out of range"
        )
    if where in ("offset", "context"):
        return _error(where, f"expected a whole number of at least 0, got {_shown(_parsed(body), where)}")
    if COUNTS.fullmatch(where):
        return _error(where, f"expected a whole number of at least 1, got {_shown(_parsed(body), where)}")
    if bound := _BOUND.fullmatch(problem):
        kind = "a whole number" if bound["type"] == "int" else "a number"
        limit = f"{_SIGNS[bound['sign']]} {float(bound['bound']):g}"
        return _error(where, f"expected {kind} {limit}, got {_shown(_parsed(body), where)}")
    if problem.startswith("Expected `int`, got"):
        return _error(where, f"expected a whole number, got {_shown(_parsed(body), where)}")
    problem = problem.replace("`", "")
    return _error(where, f"{problem[0].lower()}{problem[1:]}")


def undecodable(content: str | bytes | bytearray, error: Exception, whole: str = "") -> MvindexError:
    """Return the error of a text that is no JSON, or has half of a character that two escapes write.

    whole: the member that the text is; empty for a body.
    """
    # Python's reader takes what msgspec refuses by "Input data was truncated".
    place = _first(
        _parsed(lambda: json.loads(content)), lambda value: isinstance(value, str) and _SURROGATE.search(value)
    )
    if place is None:
        return QueryError(f"{whole or 'body'}: expected JSON, got something else: {error}")
    where = ".".join(filter(None, (whole, place))) or "body"
    return _error(where, r"expected whole characters, got a lone surrogate, such as \ud800 without a second half")


def _error(place: str, problem: str) -> MvindexError:
    kind = DocumentError if place.startswith("documents[") else QueryError
    return kind(f"{place}: {problem}")


def _parsed(body: Callable[[], Any]) -> Any:
    """Return the values of a request; None where Python's reader cannot tell."""
    try:
        return body()
    except (ValueError, RecursionError):
        return None


def _is_out_of_range(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _first(root: Any, is_wrong: Callable[[Any], Any]) -> str | None:
    """Return the place of the first value or key that is wrong, "" for the root itself; None where there is none."""
    ahead = [("", root)]
    while ahead:
        place, value = ahead.pop()
        if is_wrong(value) or (isinstance(value, dict) and any(map(is_wrong, value))):
            return place
        ahead.extend(reversed(_members(place, value)))
    return None


def _members(place: str, value: Any) -> list[tuple[str, Any]]:
    """Return the members of an object or a list, each with its place."""
    if isinstance(value, dict):
        return [(f"{place}.{name}" if place else name, each) for name, each in value.items()]
    return [(f"{place}[{number}]", each) for number, each in enumerate(value)] if isinstance(value, list) else []


def _shown(root: Any, place: str) -> str:
    """Return the value at a place as JSON, shortened; "another" where msgspec does not name the place in full."""
    value = root
    try:
        for number, name in _STEP.findall(place):
            value = value[int(number) if number else name]
        shown = json.dumps(value)
    except (LookupError, TypeError, ValueError):
        return "another"
    return shown if len(shown) <= _GOT_CHARS else f"{shown[:_GOT_CHARS]}..."


def decode(kind: type[RequestT], content: bytes | bytearray) -> RequestT:
    """Return the request of a body; QueryError, or DocumentError within a document, if it is malformed."""
    check_json_values(content)
    try:
        request = cast(RequestT, _DECODERS[kind].decode(content))
    except msgspec.ValidationError as err:
        raise readable(str(err), lambda: json.loads(content)) from err
    except (ValueError, RecursionError) as err:
        raise undecodable(content, err) from err
    given = [name for name in kind.one_of if getattr(request, name) is not UNSET]
    if kind.one_of and len(given) != 1:
        raise QueryError(f"body: expected one of {', '.join(kind.one_of)}, got {' and '.join(given) or 'none'}")
    return request


def list_parameters(given: Sequence[tuple[str, str]]) -> schemas.ListParameters:
    """Return the parameters of a query string; QueryError for one that is malformed, unknown or there twice."""
    values: dict[str, Any] = dict(given)
    if len(values) < len(given):
        raise QueryError("query string: expected each parameter once, got one twice")
    try:
        if "filter" in values:
            values["filter"] = msgspec.json.decode(values["filter"])
        return msgspec.convert(values, schemas.ListParameters, strict=False)
    except msgspec.ValidationError as err:
        raise readable(str(err), lambda: values, "query string") from err
    except (ValueError, RecursionError) as err:
        raise undecodable(values["filter"], err, "filter") from err


def search_request(request: schemas.SearchRequest) -> SearchRequest:
    """Return the search that a body describes; QueryError where its members do not go together."""
    is_single = request.query is not UNSET or request.vector is not UNSET
    options: dict[str, Any] = {name: value for name in _OPTIONS if (value := getattr(request, name)) is not UNSET}
    options |= {name: int(value) for name in _COUNTS if (value := getattr(request, name)) is not UNSET}
    parsed, combine = parse_options(**options), None
    given = {name: value for name in _DOCUMENTS if (value := getattr(request, name)) is not UNSET}
    if given:
        return parsed.of_documents(_like(request, given))
    texts = _texts(request, is_single or request.combine is not UNSET)
    if request.combine is not UNSET:
        combine = parse_choice("combine", request.combine, Combine)
        if is_single:
            raise QueryError("combine: expected queries or vectors, the members of a group, got a single query")
        if request.explain:
            raise QueryError("combine: expected no explain, which takes single queries")
        is_single = True
    return replace(parsed, queries=(Queries(_rows(request), texts, combine),), is_single=is_single)


def _like(request: schemas.SearchRequest, given: Mapping[str, Any]) -> Like | None:
    """Return the documents that a search stands for; QueryError beside what belongs to queries."""
    for name in ("combine", "text"):
        if getattr(request, name) is not UNSET:
            raise QueryError(f"{name}: belongs to queries, got documents")
    if request.explain:
        raise QueryError("explain: expected a query, got documents, whose views are several")
    return parse_like(given.get("like"), given.get("positives", ()), given.get("negatives", ()))


def _rows(request: schemas.SearchRequest) -> list[str] | Floats:
    if request.query is not UNSET:
        return [request.query]
    if request.queries is not UNSET:
        return request.queries
    if request.vector is not UNSET:
        return as_vectors([request.vector], None)
    return _vectors("vectors", request.vectors or [])


def _texts(request: schemas.SearchRequest, is_one: bool) -> list[str] | None:
    """Return the texts beside the queries; QueryError where one query has several, or several queries have one."""
    text = request.text
    if text is UNSET:
        return None
    if isinstance(text, str) != is_one:
        expected, got = ("one text", "a list") if is_one else ("a list of texts", "one text")
        raise QueryError(f"text: expected {expected}, as there are queries, got {got}")
    return [text] if isinstance(text, str) else text


def _vectors(place: str, rows: list[list[float]]) -> Floats:
    """Return the rows as (q, d) float32; QueryError where their lengths differ."""
    dims = {len(row) for row in rows}
    if len(dims) > 1:
        raise QueryError(f"{place}: expected vectors of one dimension, got {min(dims)} and {max(dims)} numbers")
    made = np.empty((len(rows), *dims), dtype=np.float64)
    for number, row in enumerate(rows):
        # One by one: NumPy would keep the interpreter until all are converted.
        made[number] = row
    return as_vectors(made, None)


class AddCall(NamedTuple):
    """Documents to store at once, with their views where these are given."""

    documents: Sequence[records.Document]
    views: GivenViews | None
    key: str


def add_call(request: schemas.AddRequest) -> AddCall:
    """Return the documents of a request; LimitExceeded for more than are committed at once."""
    key = check_idempotency_key(request.idempotency_key)
    if len(request.documents) > CHUNK_DOCUMENTS:
        raise too_many_documents(len(request.documents))
    documents = [_document(each) for each in request.documents]
    check_chunk(documents)
    if request.views is UNSET:
        if request.spans is not UNSET:
            raise QueryError("spans: expected views beside them, which they are spans of, got none")
        return AddCall([require_text(document) for document in documents], None, key)
    if len(request.views) != len(documents):
        raise QueryError(f"views: expected a list of vectors for each of {len(documents)} documents, got "
                         f"{len(request.views)} lists")  # fmt: skip
    arrays = [_vectors(f"views[{number}]", rows) for number, rows in enumerate(request.views)]
    entries = list(view_entries(documents, arrays, None, None if request.spans is UNSET else request.spans))
    rows = [entry.views for entry in entries if entry.views is not None]
    return AddCall(documents, GivenViews(rows, [entry.spans for entry in entries]), key)


def _document(given: schemas.NewDocument) -> records.Document:
    view_texts = [
        each if isinstance(each, str) else records.ViewText(each.text, each.span) for each in given.view_texts
    ]
    return records.Document(given.id, given.text, given.title, given.metadata, view_texts)


def document_response(document: records.Document) -> schemas.Document:
    """Return a document as the response shows it."""
    return schemas.Document(document.id, document.text, document.title, dict(document.metadata))


def result_response(
    result: records.SearchResult, explanations: Mapping[str, Sequence[records.ViewScore]] | None
) -> schemas.SearchResult:
    """Return a result as the response shows it; explanations: every view of each hit by id, best first."""
    hits = [_hit(hit, explanations) for hit in result.hits]
    missing = list(result.missing_shards)
    shown = schemas.SearchResult(hits, result.exact, result.short_by, result.rounds, missing, result.mode)
    if result.next is not None:
        shown.next = result.next
    if result.below_confidence:
        shown.below_confidence = result.below_confidence
    if result.duplicates_of:
        shown.duplicates_of = dict(result.duplicates_of)
    return shown


def _citation_response(cited: records.Citation) -> schemas.Citation:
    """Return a citation; what is not known of its place is absent."""
    return schemas.Citation(**cited.as_json())


def _hit(hit: records.Hit, explanations: Mapping[str, Sequence[records.ViewScore]] | None) -> schemas.Hit:
    cited = hit.citation
    shown = schemas.Hit(
        hit.id,
        hit.score,
        hit.slot,
        hit.span,
        hit.snippet,
        hit.text,
        hit.title,
        cast(dict[str, Any], hit.metadata),
        None if cited is None else _citation_response(cited),
    )
    if hit.confidence is not None:
        shown.confidence = hit.confidence
    if hit.citations:
        shown.citations = list(map(_citation_response, hit.citations))
    if hit.components:
        shown.components = [
            schemas.Component(each.name, each.rank, each.score, each.contribution) for each in hit.components
        ]
    if explanations is not None:
        # No views for a document that was deleted since the search.
        shown.views = [schemas.ViewScore(*view) for view in explanations.get(hit.id, ())]
    return shown


def info_response(name: str, info: records.IndexInfo, is_read_only: bool) -> schemas.IndexInfo:
    """Return what an index is, without where it lies."""
    renamed: dict[str, Any] = {"name": name, "is_read_only": is_read_only}
    names = (each for each in schemas.IndexInfo.__struct_fields__ if each not in renamed)
    return schemas.IndexInfo(**renamed, **{each: getattr(info, each) for each in names})
