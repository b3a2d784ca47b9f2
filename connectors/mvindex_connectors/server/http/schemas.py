"""The JSON of requests and responses as types: what is accepted is checked by them, and OpenAPI is generated from them.

A member that is left out is UNSET; null is refused where no type names it. Rules that the index checks itself (and
names better) stand in the description only.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mvindex.ingest import CHUNK_DOCUMENTS
from mvindex.records import MAX_ID_CHARS, Combine, Field
from mvindex.search.flags import SEARCH_FLAGS
from mvindex.store.filters import OPERATORS, Takes
from mvindex_connectors.remote.admin import JobStatus
from mvindex_connectors.remote.convert import MAX_IDS
from mvindex_connectors.server.jobs import Count, IdempotencyKey, Offset, Request, Vector, described

DEFAULT_PAGE = 100
MAX_PAGE = 1000


def search_option(name: str) -> Meta:
    """Return the note of an option of a search, as SEARCH_FLAGS describes it for every door."""
    flag = SEARCH_FLAGS[name]
    return described(flag.help, **({"enum": list(flag.choices)} if flag.choices else {}))


Text = Annotated[str, described(pattern=r"^[^\u0000]*$")]
ViewTextString = Annotated[str, described(pattern=r"^[^\u0000]*[^\s\u0000][^\u0000]*$")]
QueryText = Annotated[str, described(pattern=r"\S")]
DocumentId = Annotated[
    str,
    described(
        minLength=1,
        maxLength=MAX_ID_CHARS,
        # No control character, and not only spaces.
        pattern=r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u001f\u007f-\u009f\s][^\u0000-\u001f\u007f-\u009f]*$",
    ),
]
Filter = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/Filter"})]
Span = Annotated[
    tuple[int, int] | None,
    described("Characters [begin, end) of the text; null where a view stands for no part of it."),
]


class SearchRequest(Request):
    """A search with one query or several."""

    one_of = ("query", "queries", "vector", "vectors", "like", "positives")

    query: (
        Annotated[QueryText, described("A text. Give one of query, queries, vector, vectors, like and positives.")]
        | UnsetType
    ) = UNSET
    queries: Annotated[list[QueryText], Meta(min_length=1)] | UnsetType = UNSET
    vector: Annotated[Vector, described("As many dimensions as the index has.")] | UnsetType = UNSET
    vectors: (
        Annotated[list[Vector], Meta(min_length=1, description="All of the same number of dimensions.")] | UnsetType
    ) = UNSET
    like: Annotated[DocumentId, search_option("like")] | UnsetType = UNSET
    positives: Annotated[list[DocumentId], Meta(min_length=1), search_option("positives")] | UnsetType = UNSET
    negatives: Annotated[list[DocumentId], search_option("negatives")] | UnsetType = UNSET
    top_k: Annotated[Count, search_option("top_k")] | UnsetType = UNSET
    offset: Annotated[Offset, search_option("offset")] | UnsetType = UNSET
    cursor: Annotated[str, search_option("cursor")] | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    scoring: Annotated[str, search_option("scoring")] | UnsetType = UNSET
    temperature: Annotated[float, Meta(gt=0), search_option("temperature")] | UnsetType = UNSET
    exact: Annotated[bool, search_option("exact")] = False
    candidates: Annotated[Count, search_option("candidates")] | UnsetType = UNSET
    explain: Annotated[bool, described("Also return every view of each hit.")] = False
    citations: Annotated[Count, search_option("citations")] | UnsetType = UNSET
    context: Annotated[Offset, search_option("context")] | UnsetType = UNSET
    max_chars: Annotated[Count, search_option("max_chars")] | UnsetType = UNSET
    max_tokens: Annotated[Count, search_option("max_tokens")] | UnsetType = UNSET
    diversity: Annotated[float, Meta(ge=0, le=1), search_option("diversity")] | UnsetType = UNSET
    min_confidence: Annotated[float, Meta(ge=0, le=1), search_option("min_confidence")] | UnsetType = UNSET
    mode: Annotated[str, search_option("mode")] | UnsetType = UNSET
    fusion: Annotated[str, search_option("fusion")] | UnsetType = UNSET
    weights: (
        Annotated[tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]], search_option("weights")]
        | UnsetType
    ) = UNSET
    combine: (
        Annotated[
            str,
            described(
                "Given: queries or vectors are one group, with one result; a document's score is the max, sum or mean "
                "of its scores for them. Not with mode lexical, operators or explain.",
                enum=[each.value for each in Combine],
            ),
        ]
        | UnsetType
    ) = UNSET
    operators: Annotated[bool, search_option("operators")] | UnsetType = UNSET
    fields: (
        Annotated[
            list[Annotated[str, described("A field of documents.", enum=[each.value for each in Field])]],
            described(SEARCH_FLAGS["fields"].help),
        ]
        | UnsetType
    ) = UNSET
    text: Annotated[QueryText | Annotated[list[QueryText], Meta(min_length=1)], search_option("text")] | UnsetType = (
        UNSET
    )


class ViewText(Request):
    """A text that makes a view of a document: a generated question, a proposition, a title, a caption."""

    text: ViewTextString
    span: Annotated[
        tuple[int, int] | None,
        described("The characters [begin, end) of the document's text that a hit by this view cites; null: none."),
    ] = None


class NewDocument(Request):
    """A document to store. Text and title may both be empty only where views are given."""

    id: DocumentId
    text: Text = ""
    title: Text = ""
    metadata: dict[str, Any] = {}
    view_texts: Annotated[
        list[ViewTextString | ViewText],
        described("Texts that make views beside those of the text. They are not stored: returned documents have none."),
    ] = []


class AddRequest(Request):
    """Documents to store, all of them or none."""

    documents: Annotated[list[NewDocument], Meta(min_length=1), described(maxItems=CHUNK_DOCUMENTS)]
    views: (
        Annotated[
            list[Annotated[list[Vector], Meta(min_length=1)]],
            Meta(min_length=1, description="A list of vectors for each document."),
            described(maxItems=CHUNK_DOCUMENTS),
        ]
        | UnsetType
    ) = UNSET
    spans: (
        Annotated[
            list[Annotated[list[tuple[int, int] | None], Meta(min_length=1)] | None],
            Meta(
                min_length=1,
                description="For each document, the characters [begin, end) of its text that each of its views stands "
                "for; null: none.",
            ),
            described(maxItems=CHUNK_DOCUMENTS),
        ]
        | UnsetType
    ) = UNSET
    idempotency_key: IdempotencyKey = ""


class DeleteRequest(Request):
    """Documents to delete: give ids, a filter or all."""

    one_of = ("ids", "filter", "all")

    ids: list[Text] | UnsetType = UNSET
    # With a condition: {} matches every document, and is refused.
    filter: Annotated[Filter, described(minProperties=1)] | UnsetType = UNSET
    all: Annotated[bool, described("Delete every document.", enum=[True])] | UnsetType = UNSET
    idempotency_key: IdempotencyKey = ""


class UpdateRequest(Request):
    """Metadata that replaces a document's."""

    metadata: dict[str, Any]
    idempotency_key: IdempotencyKey = ""


class GetRequest(Request):
    """Ids of documents; a repeated one counts once."""

    ids: Annotated[list[Text], described(maxItems=MAX_IDS)]


class ListParameters(Request):
    """The parameters of a page of documents."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="The largest number of documents.")] = DEFAULT_PAGE
    after: Annotated[DocumentId, described("`next` of the page before; without it, the first page.")] | UnsetType = (
        UNSET
    )
    filter: Filter | UnsetType = UNSET


class Document(Struct):
    """A document as stored."""

    id: DocumentId
    text: Text
    title: Text
    metadata: dict[str, Any]


class Documents(Struct):
    """The documents that exist, in the order of the ids."""

    documents: list[Document]


class DocumentPage(Struct):
    """Documents in the order in which they were first added; a page of long ones ends early."""

    documents: list[Document]
    next: Annotated[DocumentId | None, described("`after` of the next page; null: this is the last one.")]


class ViewScore(Struct):
    """One view's share in a document's score."""

    slot: int
    score: float
    span: Span
    snippet: str | None
    weight: Annotated[float, described("Its share in the document's score.")]


class Component(Struct):
    """The contribution of one ranking to a document's score."""

    name: Annotated[str, described(enum=["dense", "lexical"])]
    rank: Annotated[int | None, described("From 1; null where that ranking did not propose the document.")]
    score: float
    contribution: Annotated[float, described("What it adds to the document's score.")]


class Citation(Struct):
    """A sentence, a line or a window of a document's text."""

    text: Annotated[
        str,
        described("The characters [start, end) of the text; of a table's row its cells, each with its column's name."),
    ]
    start: int
    end: int
    why: Annotated[
        dict[str, float], described("The parts of its score: views, terms, context and cues. Higher is better.")
    ]
    file: Annotated[str, described("The document's metadata file; absent where it has none.")] | UnsetType = UNSET
    page: Annotated[int, described("The document's metadata page; absent where it has none.")] | UnsetType = UNSET
    line: (
        Annotated[int, described("The first line, counted from the document's metadata line; absent without that.")]
        | UnsetType
    ) = UNSET
    end_line: Annotated[int, described("The last line.")] | UnsetType = UNSET
    before: Annotated[str, described("With context: the text of the sentences before it.")] | UnsetType = UNSET
    after: Annotated[str, described("With context: the text of the sentences after it.")] | UnsetType = UNSET


class Hit(Struct):
    """A document in a result."""

    id: str
    score: float
    slot: Annotated[int, described("The winning view.")]
    span: Annotated[Span, described("What the winning view stands for.")]
    snippet: Annotated[str | None, described("The text of the citation, or without one that of the span.")]
    text: str
    title: str
    metadata: dict[str, Any]
    citation: Annotated[
        Citation | None,
        described("The part of the text that most likely answers; null for a query without a text."),
    ]
    citations: Annotated[list[Citation], described("With citations: these, best first.")] | UnsetType = UNSET
    confidence: (
        Annotated[
            float, described("The estimated probability that the document answers, 0 to 1; absent without calibration.")
        ]
        | UnsetType
    ) = UNSET
    views: Annotated[list[ViewScore], described("With explain: best first.")] | UnsetType = UNSET
    components: (
        Annotated[list[Component], described("For lexical and hybrid: what views and terms add to the score.")]
        | UnsetType
    ) = UNSET


class SearchResult(Struct):
    """The hits of one query."""

    hits: list[Hit]
    exact: Annotated[bool, described("True when these are provably the best.")]
    short_by: Annotated[int, described("How many fewer documents these are than requested.")]
    rounds: int
    missing_shards: list[int]
    mode: Annotated[str, described("How the query was searched.", enum=["dense", "lexical", "hybrid"])]
    next: Annotated[str, described("With cursor: that of the next page; absent after the last page.")] | UnsetType = (
        UNSET
    )
    duplicates_of: (
        Annotated[
            dict[str, str],
            described("With diversity: the ids of near-duplicates of better documents, and the ids of these."),
        ]
        | UnsetType
    ) = UNSET
    below_confidence: (
        Annotated[int, described("With min_confidence: how many hits were left out; absent for none.")] | UnsetType
    ) = UNSET


class SearchResults(Struct):
    """A result for each of several queries, in their order."""

    results: list[SearchResult]


class AddResponse(Struct):
    """How many documents were new, replaced, given new metadata, or there already."""

    added: int
    replaced: int
    updated: int
    unchanged: int
    views_encoded: Annotated[int, Meta(description="Views of these documents that were encoded")]
    views_reused: Annotated[int, Meta(description="Views whose vectors were taken from the documents replaced")]


class DeleteResponse(Struct):
    """How many documents were deleted."""

    deleted: int


class UpdateResponse(Struct):
    """The metadata was replaced."""


class IndexList(Struct):
    """The names of the indexes of this server."""

    indexes: list[str]


class IndexInfo(Struct, kw_only=True):
    """Sizes and settings of an index."""

    name: str
    is_read_only: bool
    format_version: int
    documents: int
    views: int
    num_deleted: Annotated[int, described("Rows of deleted or replaced documents that still take space.")]
    dim: int | None
    dtype: str
    encoder: Annotated[dict[str, Any] | None, described("null: the index takes vectors, not texts.")]
    kind: str
    temperature: float
    prune_views: float | None
    search: dict[str, Any] | None
    fresh_documents: Annotated[int, described("Documents added since the engine was built.")]
    lexical: Annotated[str | None, described("null: the index has no lexical search.")]
    fusion: dict[str, Any] | None
    confidence: Annotated[dict[str, Any] | None, described("Calibration as tuned; null: that of the encoder, if any.")]
    filter_fields: Annotated[dict[str, str], described("Declared filter fields, name to type.")]
    size_bytes: int
    copy_bytes: Annotated[int | None, described("Memory of the exact scan's copies; null for an index in Milvus.")]
    mapped_bytes: Annotated[int | None, described("Copies mapped from the file of copies; null for Milvus.")]
    copies_file_bytes: Annotated[int | None, described("Size of the file of copies; null for Milvus.")]
    text_bytes: Annotated[int | None, described("Memory of documents shown lately; null for an index in Milvus.")]
    term_bytes: Annotated[int | None, described("Memory of decoded postings; null for an index in Milvus.")]
    index_id: Annotated[str | None, described("Its own id, which its snapshots share; null for an adopted index.")]
    shards: int | None
    missing_shards: list[int]


class JobList(Struct):
    """Jobs that run, and the latest that ended, in the order in which they were started."""

    jobs: list[JobStatus]


class Health(Struct):
    """The server accepts calls."""

    status: Literal["serving"]


class Alive(Struct):
    """The server runs."""

    status: Literal["alive"]


class ErrorDetail(Struct):
    """An error."""

    class_: Annotated[str, described("The error class, as in mvindex.errors.")] = field(name="class")
    message: str
    request_id: Annotated[str, described("The id under which the server's log lists the call.")]


class Error(Struct):
    """The body of every response that is not a success."""

    error: ErrorDetail


# As store/fields.py reads them; of what no month or day has, such as February 30, the answer is an error all the same.
_TIME = r"[Tt ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?"
_ISO_DATE = rf"^\d{{4}}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01])({_TIME})?)?)?$"
_DATE = {
    "type": "object",
    "properties": {"$date": {"type": "string", "pattern": _ISO_DATE}},
    "required": ["$date"],
    "additionalProperties": False,
}
_SCALAR = {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, _DATE]}
_ORDERED = {"anyOf": [{"type": ["string", "number"]}, _DATE]}
_MEMBER = {"anyOf": [{"type": ["string", "number", "boolean"]}, _DATE]}
_FILTER_REF = {"$ref": "#/components/schemas/Filter"}
_LOGIC: dict[str, Any] = {
    **dict.fromkeys(("and", "or"), {"type": "array", "items": _FILTER_REF}),
    "not": _FILTER_REF,
}
_TAKES: dict[Takes, dict[str, Any]] = {
    Takes.SCALAR: _SCALAR,
    Takes.ORDERED: _ORDERED,
    Takes.SCALARS: {"type": "array", "items": _SCALAR},
    Takes.MEMBER: _MEMBER,
    Takes.MEMBERS: {"type": "array", "items": _MEMBER},
    Takes.FLAG: {"type": "boolean"},
}
_OPERATORS: dict[str, Any] = {word: _TAKES[operator.takes] for word, operator in OPERATORS.items()}


def _with_sigils(names: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of names, which may have a "$" before them."""
    return names | {f"${name}": schema for name, schema in names.items()}


# The members of a filter are the names of metadata, so that no type describes them.
FILTER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": 'Over metadata, such as {"year": {"gte": 1990}, "tags": {"contains": "oil"}}; all conditions must '
    'hold. "id" is the document\'s id, a string; a.b is the key a.b, else key b of object a. Operators may have a "$" '
    "before them.",
    "properties": _with_sigils(_LOGIC),
    # Keys joined by dots; no quote or backslash, and no other name that begins as operators do.
    "propertyNames": {"pattern": r'^([^$"\\][^"\\]*|\$and|\$or|\$not)$'},
    "additionalProperties": {
        "anyOf": [
            _SCALAR,
            {
                "type": "object",
                "properties": _with_sigils(_OPERATORS),
                "additionalProperties": False,
                "minProperties": 1,
            },
        ]
    },
}
