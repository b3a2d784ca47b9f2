"""The JSON of requests and answers, as schemas of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from mvindex.ingest import CHUNK_DOCUMENTS
from mvindex.records import MAX_ID_CHARS

_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_INTEGER, _FLAG = {"type": "integer"}, {"type": "boolean"}
_TEXT = {"type": "string", "pattern": r"^[^\u0000]*$"}
_QUERY = {"type": "string", "pattern": r"\S"}
_ID = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_ID_CHARS,
    # No control character, and something beside spaces.
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u001f\u007f-\u009f\s][^\u0000-\u001f\u007f-\u009f]*$",
}
# Of a document that may not exist.
SOME_ID = {"type": "string", "pattern": r"^[^\u0000]+$"}
_KEY = {
    "type": "string",
    "maxLength": 128,
    "pattern": "^[ -~]*$",
    "description": "A request that comes again with it is not done twice.",
}
_SPAN = {
    "type": ["array", "null"],
    "items": _INTEGER,
    "minItems": 2,
    "maxItems": 2,
    "description": "Characters [begin, end) of the text; null where a view stands for none.",
}
_SNIPPET = {"type": ["string", "null"]}


def ref(name: str) -> dict[str, str]:
    """The schema of that name, by reference."""
    return {"$ref": f"#/components/schemas/{name}"}


def taken(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object of a request, which holds nothing else."""
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def given(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object of an answer. It may hold more: answers gain members, which clients are to pass over."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def each(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A list of such values."""
    return {"type": "array", "items": schema, **more}


def _one_of(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name]} for name in names]


_FILTERS: dict[str, Any] = {
    "Scalar": {"type": ["string", "number", "boolean", "null"]},
    "Filter": {
        "type": "object",
        "description": 'Over metadata, such as {"year": {"gte": 1990}}. "id" is the id, a.b key b in a; all must hold.',
        "properties": {
            "and": each(ref("Filter")),
            "or": each(ref("Filter")),
            "not": ref("Filter"),
        },
        # Keys joined by dots; no quote or backslash.
        "propertyNames": {"pattern": r'^[^."\\]+(\.[^."\\]+)*$'},
        "additionalProperties": {"anyOf": [ref("Scalar"), ref("Operators")]},
    },
    "Operators": taken(
        {
            **{name: ref("Scalar") for name in ("eq", "ne")},
            **{name: {"type": ["string", "number"]} for name in ("lt", "lte", "gt", "gte")},
            **{name: each(ref("Scalar")) for name in ("in", "nin")},
            "exists": _FLAG,
        },
        minProperties=1,
    ),
}
_TAKEN: dict[str, Any] = {
    "Search": taken(
        {
            "query": {**_QUERY, "description": "A text. One of query, queries, vector and vectors."},
            "queries": each(_QUERY, minItems=1),
            "vector": {**_NUMBERS, "description": "Of as many dims as the index holds."},
            "vectors": each(_NUMBERS, minItems=1, description="All of the same number of dims."),
            "top_k": {"type": "integer", "minimum": 1, "default": 10, "description": "Documents."},
            "filter": ref("Filter"),
            "scoring": {"enum": ["max", "drpq"], "default": "max"},
            "temperature": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Of drpq; the index's own if not given.",
            },
            "exact": {**_FLAG, "default": False, "description": "A certified answer, or an error."},
            "candidates": {
                "type": "integer",
                "minimum": 1,
                "description": "Of drpq: aggregate this many views' documents.",
            },
            "explain": {**_FLAG, "default": False, "description": "Every view of each hit too."},
            "mode": {
                "enum": ["dense", "lexical", "hybrid"],
                "default": "dense",
                "description": "By views, by words (BM25), or by both; the last two want an index with words.",
            },
            "fusion": {"enum": ["zscore", "minmax", "rrf"], "description": "Of hybrid; if not given, the index's own."},
            "weights": {
                "type": "array",
                "items": {"type": "number", "minimum": 0},
                "minItems": 2,
                "maxItems": 2,
                "description": "Of hybrid: of views and of words, not both 0; if not given, the index's own.",
            },
            "text": {
                "oneOf": [_QUERY, each(_QUERY, minItems=1)],
                "description": "Of lexical and hybrid: whose words are looked for, the query if not given. A list of "
                "as many for queries or vectors.",
            },
        },
        oneOf=_one_of("query", "queries", "vector", "vectors"),
    ),
    "NewDocument": taken(
        {"id": _ID, "text": _TEXT, "title": _TEXT, "metadata": {"type": "object"}},
        required=["id"],
        description="Text and title may both be empty only where views are given.",
    ),
    "Add": taken(
        {
            "documents": each(ref("NewDocument"), minItems=1, maxItems=CHUNK_DOCUMENTS),
            "views": each(
                each(_NUMBERS, minItems=1),
                minItems=1,
                maxItems=CHUNK_DOCUMENTS,
                description="A list of vectors for each document.",
            ),
            "idempotency_key": _KEY,
        },
        required=["documents"],
    ),
    "Delete": taken(
        {"ids": each(_TEXT), "filter": ref("Filter"), "idempotency_key": _KEY}, oneOf=_one_of("ids", "filter")
    ),
    "Update": taken({"metadata": {"type": "object"}}, required=["metadata"]),
}
_GIVEN: dict[str, Any] = {
    "Document": given({"id": _ID, "text": _TEXT, "title": _TEXT, "metadata": {"type": "object"}}),
    "ViewScore": given(
        {
            "slot": _INTEGER,
            "score": {"type": "number"},
            "span": _SPAN,
            "snippet": _SNIPPET,
            "weight": {"type": "number", "description": "Its share in the document's score."},
        }
    ),
    "Hit": given(
        {
            "id": {"type": "string"},
            "score": {"type": "number"},
            "slot": {**_INTEGER, "description": "Of the view that won."},
            "span": _SPAN,
            "snippet": _SNIPPET,
            "text": {"type": "string"},
            "title": {"type": "string"},
            "metadata": {"type": "object"},
            "views": {**each(ref("ViewScore")), "description": "Where explain was asked for: best first."},
            "components": {
                **each(ref("Component")),
                "description": "Of lexical and hybrid: what views and words have to do with the score.",
            },
        },
        optional=("views", "components"),
    ),
    "Component": given(
        {
            "name": {"enum": ["dense", "lexical"]},
            "rank": {"type": ["integer", "null"], "description": "From 1; null where that ranking did not propose it."},
            "score": {"type": "number"},
            "part": {"type": "number", "description": "What it adds to the document's score."},
        }
    ),
    "Result": given(
        {
            "hits": each(ref("Hit")),
            "exact": {**_FLAG, "description": "True when these are provably the best."},
            "short_by": {**_INTEGER, "description": "Documents that are missing from what was asked for."},
            "rounds": _INTEGER,
            "missing_shards": each(_INTEGER),
        }
    ),
    "Results": given({"results": each(ref("Result"))}),
    "Added": given({name: _INTEGER for name in ("added", "replaced", "updated", "unchanged")}),
    "Deleted": given({"deleted": _INTEGER}),
    "Updated": {"type": "object"},
    "Indexes": given({"indexes": each({"type": "string"})}),
    "Info": given(
        {
            "name": {"type": "string"},
            "is_read_only": _FLAG,
            "documents": _INTEGER,
            "views": _INTEGER,
            "dim": {"type": ["integer", "null"]},
            "encoder": {"type": ["object", "null"], "description": "null: the index takes vectors, no texts."},
            "kind": {"type": "string"},
            "temperature": {"type": "number"},
            "lexical": {"type": ["string", "null"], "description": "null: it cannot be searched by words."},
            "size_bytes": _INTEGER,
        }
    ),
    "Health": given({"status": {"const": "serving"}}),
    "Error": given(
        {
            "error": given(
                {
                    "class": {"type": "string", "description": "The error class, as in mvindex.errors."},
                    "message": {"type": "string"},
                    "request_id": {"type": "string", "description": "By which the server's log names the call."},
                }
            )
        }
    ),
}
SCHEMAS: dict[str, Any] = {**_FILTERS, **_TAKEN, **_GIVEN}
