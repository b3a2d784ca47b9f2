"""The operations of the HTTP interface, and their OpenAPI description, generated from the types of their bodies."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec

from mvindex import __version__
from mvindex_connectors.remote.admin import JobStatus
from mvindex_connectors.remote.status import REQUEST_ID_KEY
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.jobs import Request, StartJobRequest

_ERRORS = {
    "400": "Something in the request is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The token does not permit this.",
    "404": "There is no such index, document or job.",
    "409": "The index cannot do that in its present state.",
    "413": "The request, or its response, has too many bytes.",
    "429": "The request exceeds a limit of the server.",
    "501": "This index does not support that.",
    "503": "The server is shutting down.",
    "504": "It took too long.",
}
_HEADERS = {
    REQUEST_ID_KEY: {
        "description": "The caller's request id, or a new one; the server's log lists the call under it.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
}
_INDEX = "/v1/indexes/{index}"
_DOCUMENT = _INDEX + "/documents/{id}"
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "{index}": {"name": "index", "schema": {"type": "string", "minLength": 1}},
    "{job}": {"name": "job", "schema": {"type": "string", "minLength": 1}},
    # Also of a document that does not exist.
    "{id}": {"name": "id", "schema": {"type": "string", "pattern": r"^[^\u0000]+$"}},
}


class Endpoint(NamedTuple):
    """A method of a path.

    Attributes:
        call: Its name in the log and the metrics.
        request: The type of its body.
        parameters: The type of its query string.
        links: Operations on the document that it names.
        is_open: Whether it needs no token.

    """

    id: str
    call: str
    method: str
    path: str
    summary: str
    request: type[Request] | None = None
    responses: tuple[type, ...] = ()
    links: tuple[str, ...] = ()
    is_open: bool = False
    parameters: type[Request] | None = None


OPERATIONS = (
    Endpoint("indexes", "Indexes", "GET", "/v1/indexes", "List the indexes of this server.", None,
              (schemas.IndexList,)),
    Endpoint("info", "Info", "GET", _INDEX, "Describe an index.", None, (schemas.IndexInfo,)),
    Endpoint("search", "Search", "POST", _INDEX + "/search", "Search with one query or several.",
              schemas.SearchRequest, (schemas.SearchResult, schemas.SearchResults)),
    Endpoint("delete", "Delete", "POST", _INDEX + "/delete", "Delete documents by id or by filter, in one step.",
              schemas.DeleteRequest, (schemas.DeleteResponse,)),
    Endpoint("getMany", "Get", "POST", _INDEX + "/get", "Return documents by id, all of one state.",
              schemas.GetRequest, (schemas.Documents,)),
    Endpoint("list", "List", "GET", _INDEX + "/documents", "Return a page of the documents.", None,
              (schemas.DocumentPage,), parameters=schemas.ListParameters),
    Endpoint("add", "Add", "POST", _INDEX + "/documents", "Store documents, all of them or none.",
              schemas.AddRequest, (schemas.AddResponse,), ("get", "update", "deleteOne")),
    Endpoint("get", "Get", "GET", _DOCUMENT, "Return a document.", None, (schemas.Document,),
              ("update", "deleteOne")),
    Endpoint("deleteOne", "Delete", "DELETE", _DOCUMENT, "Delete a document.", None, (schemas.DeleteResponse,),
              ("get",)),
    Endpoint("update", "Update", "PATCH", _DOCUMENT, "Replace a document's metadata.", schemas.UpdateRequest,
              (schemas.UpdateResponse,), ("get",)),
    Endpoint("startJob", "StartJob", "POST", "/v1/admin/jobs", "Start a job of administration.",
              StartJobRequest, (JobStatus,)),
    Endpoint("listJobs", "ListJobs", "GET", "/v1/admin/jobs", "List jobs.", None, (schemas.JobList,)),
    Endpoint("getJob", "GetJob", "GET", "/v1/admin/jobs/{job}", "Return a job.", None, (JobStatus,)),
    Endpoint("cancelJob", "CancelJob", "POST", "/v1/admin/jobs/{job}/cancel", "Ask a job to stop.", None,
              (JobStatus,)),
    Endpoint("metrics", "Metrics", "GET", "/metrics", "Return the metrics for Prometheus."),
    Endpoint("health", "Health", "GET", "/healthz", "Check that the server accepts calls.", None,
              (schemas.Health,), is_open=True),
    Endpoint("ready", "Ready", "GET", "/readyz", "Check that the indexes are open, their encoders loaded, and calls "
              "accepted.", None, (schemas.Health,), is_open=True),
    Endpoint("live", "Live", "GET", "/livez", "Check that the server runs, even while it shuts down.", None,
              (schemas.Alive,), is_open=True),
)  # fmt: skip


def openapi(*, requires_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document; requires_token: whether the server has tokens."""
    bodies = {kind for each in OPERATIONS for kind in (each.request, *each.responses) if kind is not None}
    kinds = [*sorted(bodies, key=lambda kind: kind.__name__), schemas.Error]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    for kind in Request.__subclasses__():
        if kind.one_of and kind.__name__ in components:
            components[kind.__name__]["oneOf"] = [{"required": [name]} for name in kind.one_of]
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        path = paths.setdefault(operation.path, _path(operation.path))
        path[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mvindex", "version": __version__, "description": "Multi-view dense retrieval over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {**components, "Filter": schemas.FILTER_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}] if requires_token else [],
    }


def _path(path: str) -> dict[str, Any]:
    found = [parameter for mark, parameter in _PATH_PARAMETERS.items() if mark in path]
    return {"parameters": [{"in": "path", "required": True, **parameter} for parameter in found]} if found else {}


def _described(operation: Endpoint) -> dict[str, Any]:
    success = _response("Success.", _content(*operation.responses))
    if operation.links:
        doc_id = "$request.path.id" if "{id}" in operation.path else "$request.body#/documents/0/id"
        parameters = {"index": "$request.path.index", "id": doc_id}
        success["links"] = {name: {"operationId": name, "parameters": parameters} for name in operation.links}
    failures = {code: _response(text, _content(schemas.Error)) for code, text in _ERRORS.items()}
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": {"200": success, **failures},
    }
    if operation.parameters is not None:
        described["parameters"] = _query_parameters(operation.parameters)
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.request)}
    return described | ({"security": []} if operation.is_open else {})


def _query_parameters(kind: type[Request]) -> list[dict[str, Any]]:
    """Return the parameters of a query string, optional ones; an object is sent as JSON."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    parameters = []
    for name, schema in components[kind.__name__]["properties"].items():
        is_object = "$ref" in schema or schema.get("type") == "object"
        sent = {"content": {"application/json": {"schema": schema}}} if is_object else {"schema": schema}
        parameters.append({"in": "query", "name": name, "required": False, **sent})
    return parameters


def _response(text: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "headers": _HEADERS, "content": content}


def _content(*kinds: type) -> dict[str, Any]:
    """Return the content of a body of one of the types; plain text without any."""
    refs = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
    if not refs:
        return {"text/plain": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}}
