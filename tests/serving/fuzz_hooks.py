"""Schemathesis hooks: fit valid requests to the fuzzed index, which the description cannot specify.

It has vectors of 16 dimensions within fp16, and lexical search. Invalid values are left unchanged, so that they are
refused.
"""

import msgspec
import schemathesis

from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES
from mvindex_connectors.server.jobs import StartJobRequest

DIM = 16
DTYPES = ("fp16", "fp32")


def are_all(holds, rows):
    return isinstance(rows, list) and rows != [] and all(map(holds, rows))


def is_vector(row):
    return are_all(lambda each: type(each) in (int, float), row)


def are_vectors(rows):
    return are_all(is_vector, rows)


def is_text(value):
    return isinstance(value, str) and value.strip() != ""


def fitting(row):
    return [0.5 if row[n % len(row)] > 0 else -0.25 for n in range(DIM)]


def distinct(documents):
    """Yield the documents with distinct ids, as a request requires."""
    known = set()
    for number, document in enumerate(documents):
        doc_id = document["id"]
        doc_id = f"{doc_id[:1000]} {number}" if doc_id in known else doc_id
        known.add(doc_id)
        yield {**document, "id": doc_id}


def is_span(value):
    return value is None or (isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value))


def is_view_text(value):
    text = value.get("text") if isinstance(value, dict) and value.keys() <= {"text", "span"} else value
    span = value.get("span") if isinstance(value, dict) else None
    return is_text(text) and "\0" not in text and is_span(span)


def without_view_texts(document):
    """Return the document without its view texts, which have no place beside given views, if these are valid."""
    texts = document.get("view_texts")
    if isinstance(texts, list) and all(map(is_view_text, texts)):
        return {name: value for name, value in document.items() if name != "view_texts"}
    return document


def fitted(body):
    """Return the body of a search or an add for this index, without contradictions and within its limits."""
    body = dict(body)
    if is_text(body.get("query")) and "vector" not in body:
        body["vector"] = [len(body.pop("query")) % 2]
    if are_all(is_text, body.get("queries")) and "vectors" not in body:
        body["vectors"] = [[len(text) % 2] for text in body.pop("queries")]
    if is_vector(body.get("vector")):
        body["vector"] = fitting(body["vector"])
    if are_vectors(body.get("vectors")):
        body["vectors"] = [fitting(row) for row in body["vectors"]]
    if body.get("scoring", "max") == "max" and {"candidates", "temperature"} & body.keys():
        body["scoring"] = "drpq"
    if "candidates" in body and body.get("exact") is True:
        body["exact"] = False
    body = with_texts(body)
    if type(body.get("top_k")) is int:
        body["top_k"] = min(body["top_k"], 100)
    return with_views(body)


def with_views(body):
    """Return the body of an add with views that fit the index, and no spans in place of valid ones."""
    documents = body.get("documents")
    if isinstance(documents, list) and ("views" not in body or are_all(are_vectors, body["views"])):
        body["views"] = [[[0.5] * DIM]] * len(documents)
        if are_all(lambda each: each is None or are_all(is_span, each), body.get("spans")):
            body["spans"] = [None] * len(documents)
    if are_all(lambda one: isinstance(one, dict) and isinstance(one.get("id"), str), documents):
        body["documents"] = [without_view_texts(each) for each in distinct(documents)]
    return body


def with_texts(body):
    """Return the body of a search with the options of its mode, and one text for each vector."""
    mode = body.get("mode", "auto")
    is_valid = {
        "fusion": body.get("fusion") in ("zscore", "minmax", "rrf"),
        "weights": are_all(lambda each: type(each) in (int, float), body.get("weights")),
        "text": is_text(body.get("text")) or are_all(is_text, body.get("text")),
        "operators": type(body.get("operators")) is bool,
    }
    if body.get("combine") in ("max", "sum", "mean"):
        is_group = "vectors" in body and mode in ("auto", "dense") and body.get("explain") is not True
        if not is_group or "operators" in body:
            body = {name: value for name, value in body.items() if name != "combine"}
    # The text beside vectors is one of ours; a drawn query may be all excluded words.
    both = ("text",) if "query" in body or "queries" in body else ("text", "operators")
    allowed = {"auto": (), "dense": (), "lexical": both, "hybrid": ("fusion", "weights", *both)}
    if not isinstance(mode, str) or mode not in allowed:
        return body
    body = {name: value for name, value in body.items() if name in allowed[mode] or not is_valid.get(name)}
    if mode == "lexical" and body.get("scoring") in ("max", "drpq"):
        for name in ("scoring", "temperature", "candidates"):
            body.pop(name, None)
    has_terms = mode in ("lexical", "hybrid")
    if has_terms and "text" not in body:
        body["text"] = "text"
    if has_terms and (is_valid["text"] or body["text"] == "text"):
        several = body.get("vectors")
        body["text"] = "text 3" if "vector" in body or not isinstance(several, list) else ["text 3"] * len(several)
    return body


def without_create(body):
    """Return a valid request that creates an index as one that compacts: this server has no folder for new ones."""
    try:
        made = msgspec.convert(body, StartJobRequest)
    except msgspec.ValidationError:
        return body
    create = body.get("create")
    is_alone = [name for name in made.one_of if name in body] == ["create"]
    if not is_alone or ("dim" in create) == ("encoder" in create):
        return body
    if create.get("encoder", PACKAGED_NAMES[0]) not in PACKAGED_NAMES or create.get("dtype", "fp16") not in DTYPES:
        return body
    return {"index": body["index"], "compact": {}}


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict):
        case.body = without_create(case.body) if "index" in case.body else fitted(case.body)
