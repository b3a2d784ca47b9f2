"""The OpenAPI document of the HTTP interface."""

from __future__ import annotations

from typing import Any

from mvindex import __version__
from mvindex_connectors.remote.status import REQUEST_ID_KEY
from mvindex_connectors.server.http.schemas import SCHEMAS, SOME_ID, ref

_ERRORS = {
    "400": "Something asked for is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The token only reads.",
    "404": "There is no such index or document.",
    "409": "The index cannot do that as it is.",
    "429": "More than the server allows.",
    "501": "This index does not do that.",
    "503": "The server is shutting down.",
    "504": "It took too long.",
}
_HEADERS = {
    REQUEST_ID_KEY: {
        "description": "The caller's, or a new one; the server's log names the call by it.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
}
_INDEX = "/v1/indexes/{index}"


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _response(text: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "headers": _HEADERS, "content": content}


def _operation(name: str, summary: str, gives: dict[str, Any], takes: str | None = None) -> dict[str, Any]:
    failures = {code: _response(text, _json(ref("Error"))) for code, text in _ERRORS.items()}
    made: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": _response("Done.", gives), **failures},
    }
    if takes is not None:
        made["requestBody"] = {"required": True, "content": _json(ref(takes))}
    return made


def _linked(operation: dict[str, Any], doc_id: str, *names: str) -> dict[str, Any]:
    """The operation, after which those others may be asked about the document."""
    parameters = {"index": "$request.path.index", "id": doc_id}
    operation["responses"]["200"]["links"] = {name: {"operationId": name, "parameters": parameters} for name in names}
    return operation


def _document_paths() -> dict[str, Any]:
    added = _operation("add", "Documents are stored, all of them or none.", _json(ref("Added")), "Add")
    here = "$request.path.id"
    return {
        "/documents": {"post": _linked(added, "$request.body#/documents/0/id", "get", "update", "deleteOne")},
        "/documents/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": SOME_ID}],
            "get": _linked(_operation("get", "A document.", _json(ref("Document"))), here, "update", "deleteOne"),
            "delete": _linked(_operation("deleteOne", "A document is deleted.", _json(ref("Deleted"))), here, "get"),
            "patch": _linked(
                _operation("update", "A document gets other metadata.", _json(ref("Updated")), "Update"), here, "get"
            ),
        },
    }


def _index_paths() -> dict[str, Any]:
    either = _json({"oneOf": [ref("Result"), ref("Results")]})
    return {
        "": {"get": _operation("info", "What an index is.", _json(ref("Info")))},
        "/search": {
            "post": _operation("search", "The best documents of a query, or of each of several.", either, "Search")
        },
        "/delete": {
            "post": _operation(
                "delete", "Documents are deleted, by id or by filter, all in one step.", _json(ref("Deleted")), "Delete"
            )
        },
        **_document_paths(),
    }


def description(*, wants_token: bool) -> dict[str, Any]:
    """The document; wants_token: of a server that has tokens."""
    index = {"name": "index", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    metrics = {"text/plain": {"schema": {"type": "string"}}}
    paths: dict[str, Any] = {
        "/v1/indexes": {"get": _operation("indexes", "The indexes of this server.", _json(ref("Indexes")))},
        "/metrics": {"get": _operation("metrics", "Figures for Prometheus.", metrics)},
        "/healthz": {
            "get": _operation("health", "Whether the server serves.", _json(ref("Health"))) | {"security": []}
        },
    }
    for end, path in _index_paths().items():
        path["parameters"] = [index, *path.get("parameters", ())]
        paths[_INDEX + end] = path
    return {
        "openapi": "3.1.0",
        "info": {"title": "mvindex", "version": __version__, "description": "Multi-view dense retrieval over HTTP."},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}] if wants_token else [],
    }
