"""The OpenAPI document of the HTTP interface."""

from __future__ import annotations

from typing import Any

from mvindex import __version__

_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_FILTER = {"type": "object", "description": 'Over metadata, such as {"year": {"gte": 1990}}; see docs/api.md.'}
_KEY = {"type": "string", "maxLength": 128, "description": "A request that comes again with it is not done twice."}


def _object(properties: dict[str, Any], required: list[str] | None = None, *, is_open: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": is_open}
    return made | ({"required": required} if required else {})


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_SPAN = {"type": ["array", "null"], "items": {"type": "integer"}, "description": "Characters [begin, end) of the text."}
_SNIPPET = {"type": ["string", "null"]}
_SCHEMAS: dict[str, Any] = {
    "Document": _object(
        {
            "id": {"type": "string", "minLength": 1, "maxLength": 1024},
            "text": {"type": "string"},
            "title": {"type": "string"},
            "metadata": {"type": "object"},
        },
        ["id"],
    ),
    "ViewScore": _object(
        {
            "slot": {"type": "integer"},
            "score": {"type": "number"},
            "span": _SPAN,
            "snippet": _SNIPPET,
            "weight": {"type": "number"},
        }
    ),
    "Hit": _object(
        {
            "id": {"type": "string"},
            "score": {"type": "number"},
            "slot": {"type": "integer"},
            "span": _SPAN,
            "snippet": _SNIPPET,
            "text": {"type": "string"},
            "title": {"type": "string"},
            "metadata": {"type": "object"},
            "views": {"type": "array", "items": _ref("ViewScore")},
        }
    ),
    "Result": _object(
        {
            "hits": {"type": "array", "items": _ref("Hit")},
            "exact": {"type": "boolean"},
            "short_by": {"type": "integer"},
            "rounds": {"type": "integer"},
            "missing_shards": {"type": "array", "items": {"type": "integer"}},
        }
    ),
    "Results": _object({"results": {"type": "array", "items": _ref("Result")}}),
    "Search": _object(
        {
            "query": {"type": "string", "description": "A text. One of query, queries, vector and vectors."},
            "queries": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "vector": _NUMBERS,
            "vectors": {"type": "array", "items": _NUMBERS, "minItems": 1},
            "top_k": {"type": "integer", "minimum": 1, "default": 10},
            "filter": _FILTER,
            "scoring": {"enum": ["max", "drpq"], "default": "max"},
            "temperature": {"type": "number", "exclusiveMinimum": 0, "description": "Of drpq."},
            "exact": {"type": "boolean", "default": False},
            "candidates": {"type": "integer", "minimum": 1, "description": "Of drpq."},
            "explain": {"type": "boolean", "default": False, "description": "Every view of each hit too."},
        }
    ),
    "Add": _object(
        {
            "documents": {"type": "array", "items": _ref("Document"), "minItems": 1, "maxItems": 1024},
            "views": {"type": "array", "items": {"type": "array", "items": _NUMBERS, "minItems": 1}},
            "idempotency_key": _KEY,
        },
        ["documents"],
    ),
    "Added": _object({name: {"type": "integer"} for name in ("added", "replaced", "updated", "unchanged")}),
    "Delete": _object(
        {"ids": {"type": "array", "items": {"type": "string"}}, "filter": _FILTER, "idempotency_key": _KEY}
    ),
    "Deleted": _object({"deleted": {"type": "integer"}}),
    "Update": _object({"metadata": {"type": "object"}}),
    "Info": _object({"name": {"type": "string"}, "documents": {"type": "integer"}}, is_open=True),
    "Error": _object(
        {
            "error": _object(
                {
                    "class": {"type": "string", "description": "The error class, as in mvindex.errors."},
                    "message": {"type": "string"},
                    "request_id": {"type": "string"},
                }
            )
        }
    ),
}
_ERRORS = {
    "400": "Something asked for is wrong.",
    "401": "The token is missing, wrong, or not for this.",
    "404": "There is no such index or document.",
    "409": "The index cannot do that as it is.",
    "429": "More than the server allows.",
    "501": "This index does not do that.",
    "503": "The server is shutting down.",
    "504": "It took too long.",
}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(name: str, summary: str, gives: dict[str, Any], takes: str | None = None) -> dict[str, Any]:
    failures = {code: {"description": text, "content": _content(_ref("Error"))} for code, text in _ERRORS.items()}
    made: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "Done.", "content": _content(gives)}, **failures},
    }
    if takes is not None:
        made["requestBody"] = {"required": True, "content": _content(_ref(takes))}
    return made


def description() -> dict[str, Any]:
    """The document."""
    index = {"name": "index", "in": "path", "required": True, "schema": {"type": "string"}}
    doc_id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    either = {"oneOf": [_ref("Result"), _ref("Results")]}
    one = "/v1/indexes/{index}"
    paths: dict[str, Any] = {
        "/v1/indexes": {"get": _operation("indexes", "The indexes of this server.", _object(
            {"indexes": {"type": "array", "items": {"type": "string"}}}))},
        one: {"parameters": [index], "get": _operation("info", "What an index is.", _ref("Info"))},
        f"{one}/search": {"parameters": [index], "post": _operation(
            "search", "The best documents of a query, or of each of several.", either, "Search")},
        f"{one}/documents": {"parameters": [index], "post": _operation(
            "add", "Documents are stored, all of them or none.", _ref("Added"), "Add")},
        f"{one}/delete": {"parameters": [index], "post": _operation(
            "delete", "Documents are deleted, by id or by filter, all in one step.", _ref("Deleted"), "Delete")},
        f"{one}/documents/{{id}}": {
            "parameters": [index, doc_id],
            "get": _operation("get", "A document.", _ref("Document")),
            "delete": _operation("deleteOne", "A document is deleted.", _ref("Deleted")),
            "patch": _operation("update", "A document gets other metadata.", _object({}), "Update"),
        },
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "mvindex", "version": __version__, "description": "Multi-view dense retrieval over HTTP."},
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }
