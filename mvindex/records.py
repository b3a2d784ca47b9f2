"""The records that travel through mvindex: frozen, checked when made, without behaviour."""

from __future__ import annotations

import datetime
import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from mvindex.errors import DocumentError, EncoderError, QueryError

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Span: TypeAlias = tuple[int, int]
# Those of the views of several documents, as add_views() takes them.
ViewSpans: TypeAlias = "Ints | Sequence[Ints | Sequence[Span | None] | None]"
# Called with a step, how much of it is done, and how much there is (None: not known).
ProgressCallback: TypeAlias = "Callable[[str, int, int | None], None]"
# Called with how many were done since the last call.
CountCallback: TypeAlias = "Callable[[int], None]"

MAX_ID_CHARS = 1024
# Of a document's metadata: values in it, at all depths, and objects and lists inside one another. JSON is decoded by
# recursion, so that deeper ones could not be read where the caller's own stack is deep.
MAX_METADATA_VALUES, MAX_METADATA_DEPTH = 100_000, 64
# Most values of metadata are of these, which hold no others.
_SCALARS = frozenset((str, int, float, bool, type(None)))
_STRINGS = frozenset((str,))
# Of title, text and view texts together, unless a caller allows more: the work of a search grows with what it cites.
MAX_DOCUMENT_CHARS = 1 << 20


def no_progress(*_: object) -> None:
    """Ignore progress, of steps or of counts: the default of on_progress."""


@dataclass(frozen=True, slots=True)
class ViewText:
    """A text that makes a view of a document: a generated question, a proposition, a title, a caption.

    Attributes:
        text: The text, with at least one letter, digit or sign.
        span: The characters [begin, end) of the document's text that a hit by this view cites; None cites none.

    Raises DocumentError for an empty text or a span that is no range.
    """

    text: str
    span: Span | None = None

    def __post_init__(self) -> None:
        _check_string("view text", self.text)
        if not has_visible(self.text):
            raise DocumentError(f"view text: expected one that says something, got {self.text!r:.60}")
        if self.span is None:
            return
        places = tuple(map(plain_value, self.span)) if isinstance(self.span, Sequence | np.ndarray) else ()
        if len(places) != 2 or not all(type(place) is int for place in places):
            raise DocumentError(
                f"view text {self.text!r:.60}: span: expected two whole numbers, got {shown(self.span)}"
            )
        object.__setattr__(self, "span", places)
        if not 0 <= self.span[0] < self.span[1]:
            raise DocumentError(
                f"view text {self.text!r:.60}: span: expected 0 <= begin < end, got {short_repr(self.span)}"
            )


@dataclass(frozen=True, slots=True)
class Document:
    """One document: an id, a text and/or a title, and JSON metadata; dates in it are stored as ISO 8601 texts.

    Attributes:
        id: Up to MAX_ID_CHARS characters, without control characters.
        text: The text that is encoded, cited and searched by terms.
        title: Encoded with the text. One of both may be empty, and with given views also both.
        metadata: A JSON object of finite numbers and string keys, up to MAX_METADATA_VALUES values and
            MAX_METADATA_DEPTH levels.
        view_texts: Texts that are encoded on their own, beside the views of the text. A string cites no span. They
            are not stored: a document that an index returns has none.

    Raises DocumentError for a value that breaks these rules, a string with NUL or a lone surrogate, and a span that
    ends after the text.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    view_texts: Sequence[str | ViewText] = ()

    def __post_init__(self) -> None:
        for name in ("id", "text", "title"):
            _check_string(name, getattr(self, name))
        _check_id(self.id)
        dump_metadata(self.metadata, self.id)
        if type(self.view_texts) is not tuple or self.view_texts:
            self._check_view_texts()

    @property
    def own_view_texts(self) -> tuple[ViewText, ...]:
        """The view_texts, each as a ViewText."""
        return tuple(each if isinstance(each, ViewText) else ViewText(each) for each in self.view_texts)

    def check_length(self, most_chars: int) -> None:
        """Raise DocumentError where title, text and view texts have more characters together."""
        num_chars = len(self.title) + len(self.text)
        if len(self.view_texts):
            num_chars += sum(len(each.text) for each in self.own_view_texts)
        if num_chars > most_chars:
            raise DocumentError(
                f"document {self.id!r}: expected at most {most_chars:,} characters, got {num_chars:,}; split it, or "
                "raise --max-document-chars (in Python: hooks=mvindex.ingest.IngestHooks(max_document_chars=...))"
            )

    def _check_view_texts(self) -> None:
        if isinstance(self.view_texts, str) or not isinstance(self.view_texts, Sequence | np.ndarray):
            got = shown(self.view_texts)
            raise DocumentError(f"document {self.id!r}: view_texts: expected a list of texts, got {got}")
        for each in self.own_view_texts:
            if each.span is not None and each.span[1] > len(self.text):
                raise DocumentError(
                    f"document {self.id!r}: view_texts: expected a span within the text's {len(self.text)} characters, "
                    f"got {short_repr(each.span)}"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The views of n documents, ragged.

    Attributes:
        rows: (r, d) float32, the views of all documents, one after the other.
        starts: (n + 1,) int64; document i has rows[starts[i]:starts[i + 1]], at least one.
        spans: (r, 2) int64, the characters [begin, end) of the text that a view stands for; -1 for none.
        is_reused: (r,) bool, which views were taken from an index instead of being encoded; None for none of them.

    Raises EncoderError for arrays that do not fit together.
    """

    rows: Floats
    starts: Ints
    spans: Ints
    is_reused: Bools | None = None

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.spans.shape != (len(self.rows), 2):
            raise EncoderError(
                f"views: expected shape (r, d) and spans (r, 2), got {self.rows.shape} and {self.spans.shape}"
            )
        if len(self.starts) < 1 or self.starts[0] != 0 or self.starts[-1] != len(self.rows):
            raise EncoderError("view starts must run from 0 to the number of rows")
        if np.any(np.diff(self.starts) < 1):
            raise EncoderError(
                f"document {int(np.argmin(np.diff(self.starts)))} of the batch has no view; it needs one"
            )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, numbers: Sequence[int]) -> Views:
        """Return the views of these documents, by their numbers, in this order."""
        counts = np.diff(self.starts)[numbers]
        starts = np.append(0, np.cumsum(counts))
        rows = np.repeat(self.starts[numbers] - starts[:-1], counts) + np.arange(starts[-1])
        is_reused = None if self.is_reused is None else self.is_reused[rows]
        return Views(self.rows[rows], starts, self.spans[rows], is_reused)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentViews:
    """The views of one document as they are stored.

    Attributes:
        id: The document's id.
        vectors: (k, d) float32, by slot.
        spans: k spans: the characters [begin, end) of the text that a view stands for, None where it stands for none.
        snippets: k texts: these characters, or the title where the text is empty; None without a span.
    """

    id: str
    vectors: Floats
    spans: tuple[Span | None, ...]
    snippets: tuple[str | None, ...]

    def __len__(self) -> int:
        """Return the number of views."""
        return len(self.vectors)


@dataclass(frozen=True, slots=True)
class Component:
    """The contribution of one ranking to a fused or reranked score.

    Attributes:
        name: "dense" or "lexical"; after reranking also "hybrid" and "rerank".
        rank: From 1; None where this ranking did not propose the document.
        score: The document's score in this ranking, exact whether it was proposed or not.
        contribution: What it adds to the document's score, scaled and weighted.
    """

    name: str
    rank: int | None
    score: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Citation:
    """The part of a hit's text that most likely answers the query.

    Attributes:
        text: The characters [start, end) of the document's text; of a row of a table below a header its cells, each
            with the name of its column.
        start, end: Offsets in code points, from 0.
        why: The parts of its score, which add up: "views", "terms", "context" (what stands beside it) and "cues" (the
            kind of thing that the query asks for).
        file, page: Those of the document's metadata; None where it has none.
        line, end_line: Its first and last line, from 1, where the metadata have "line", the number of the text's first.
        before, after: The text of the sentences before and after it, where a search asks for them.
    """

    text: str
    start: int
    end: int
    why: Mapping[str, float]
    file: str | None = None
    page: int | None = None
    line: int | None = None
    end_line: int | None = None
    before: str = ""
    after: str = ""

    @property
    def score(self) -> float:
        """The sum of its parts: among citations of one text, higher is better."""
        return sum(self.why.values())

    def as_json(self) -> dict[str, Any]:
        """Return the citation as a JSON object, without what is not known of its place."""
        place = {name: getattr(self, name) for name in ("file", "page", "line", "end_line")}
        known = {name: value for name, value in place.items() if value is not None}
        around = {name: text for name, text in (("before", self.before), ("after", self.after)) if text}
        return {"text": self.text, "start": self.start, "end": self.end, "why": dict(self.why)} | known | around


# Chooses the citation of a hit.
Cite: TypeAlias = "Callable[[], Citation | None]"
# Estimates the confidence of a hit.
EstimateConfidence: TypeAlias = "Callable[[Hit], float]"


class Field(Enum):
    """A part of a document that hits may carry beside id, score and slot."""

    TEXT = "text"
    TITLE = "title"
    METADATA = "metadata"


ALL_FIELDS: frozenset[Field] = frozenset(Field)


class HitSource(Protocol):
    """A stored document, which decodes what a hit is asked for."""

    @property
    def id(self) -> str:
        """The id."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def title(self) -> str:
        """The title."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata."""

    def span(self, slot: int) -> Span | None:
        """Return the span of the view in a slot."""


class _Undecoded:
    """Holds what a hit of undecoded_hit() decodes on demand, what makes citation and confidence, and what was asked."""

    __slots__ = ("_asked", "_cite", "_estimate", "_source")


@dataclass(frozen=True, slots=True)
class Hit(_Undecoded):
    """A document in a result: its score, the slot of its winning view, and what that view stands for.

    Attributes:
        id: The document's id.
        score: Higher is better; its scale is that of the search's mode and scoring.
        slot: The number of the winning view, from 0.
        span: The characters [begin, end) of the text that the view stands for; None where it stands for none, or the
            search left the text out.
        snippet: The text of the citation. Without one that of the span, or the title where the text is empty; None
            where there is none of these, or the search left the text out.
        text, title, metadata: Those of the document; "" and {} where the search left them out.
        components: In lexical and hybrid search and after reranking, the part of each ranking in the score.
        citation: The part of the text that most likely answers, chosen when it is first read. None for a query without
            a text, and without the document's text. It does not count when hits are compared.
        citations: Where the search asks for several: these, distinct, best first, with what stands around them.
        confidence: The estimated probability that the document answers, 0 to 1, computed when it is first read;
            comparable between queries. None without a calibration. It does not count when hits are compared.
    """

    id: str
    score: float
    slot: int
    span: Span | None
    snippet: str | None
    text: str
    title: str
    metadata: Mapping[str, Any]
    components: tuple[Component, ...] = ()
    citation: Citation | None = field(default=None, compare=False)
    citations: tuple[Citation, ...] = field(default=(), compare=False)
    confidence: float | None = field(default=None, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Decode an attribute that undecoded_hit() left open; called for unset slots and unknown names only."""
            decode = _DECODERS.get(name)
            if decode is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            _SET[name](self, decode(self))
            return object.__getattribute__(self, name)


# A frozen dataclass sets its attributes by name; by their slots it takes half the time.
_SET: dict[str, Callable[[Hit, Any], None]] = {name: getattr(Hit, name).__set__ for name in Hit.__dataclass_fields__}
_ASKED: Callable[[Hit], tuple[Any, str, float | None]] = _Undecoded.__dict__["_asked"].__get__
# Takes a hit, and query, scoring and temperature of the search that found it.
set_asked: Callable[[Hit, tuple[Any, str, float | None]], None] = _Undecoded.__dict__["_asked"].__set__
_SOURCE: Callable[[Hit], HitSource] = _Undecoded.__dict__["_source"].__get__
_SET_SOURCE: Callable[[Hit, HitSource], None] = _Undecoded.__dict__["_source"].__set__
_CITE: Callable[[Hit], Cite] = _Undecoded.__dict__["_cite"].__get__
_SET_CITE: Callable[[Hit, Cite], None] = _Undecoded.__dict__["_cite"].__set__
_ESTIMATE: Callable[[Hit], EstimateConfidence] = _Undecoded.__dict__["_estimate"].__get__
_SET_ESTIMATE: Callable[[Hit, EstimateConfidence], None] = _Undecoded.__dict__["_estimate"].__set__
_SET_ID, _SET_SCORE, _SET_SLOT, _SET_TEXT, _SET_TITLE, _SET_COMPONENTS = (
    _SET[name] for name in ("id", "score", "slot", "text", "title", "components")
)
_SET_SPAN, _SET_SNIPPET, _SET_CITATION = _SET["span"], _SET["snippet"], _SET["citation"]
_SET_CONFIDENCE = _SET["confidence"]


def _quotes_of(hit: Hit) -> tuple[Citation, ...]:
    """Return the citations of a hit of undecoded_hit(): what `quotes` of its cite returns, if that has it."""
    try:
        quotes = getattr(_CITE(hit), "quotes", None)
    except AttributeError:
        return ()
    return () if quotes is None else quotes()


def _snippet_of(hit: Hit) -> str | None:
    """Return the text of the citation, else that of the winning view."""
    cited = hit.citation
    return winning_text(hit) if cited is None else cited.text


# What undecoded_hit() leaves open.
_DECODERS: dict[str, Callable[[Hit], Any]] = {
    "span": lambda hit: _SOURCE(hit).span(hit.slot),
    "metadata": lambda hit: _SOURCE(hit).metadata,
    "snippet": _snippet_of,
    "citation": lambda hit: _CITE(hit)(),
    "citations": _quotes_of,
    "confidence": lambda hit: _ESTIMATE(hit)(hit),
}


def estimator_of(hit: Hit) -> EstimateConfidence | None:
    """Return what estimates the confidence of a hit of undecoded_hit(); None for a hit without one."""
    try:
        return _ESTIMATE(hit)
    except AttributeError:
        return None


def undecoded_hit(  # noqa: PLR0913 - what a hit is made of
    source: HitSource,
    score: float,
    slot: int,
    components: tuple[Component, ...] = (),
    cite: Cite | None = None,
    estimate: EstimateConfidence | None = None,
) -> Hit:
    """Return the hit of a document whose span, snippet and metadata are decoded when they are asked for.

    cite: called when the citation is first asked for, and its method quotes(), if any, when all of them are; None for
    a hit without one. estimate: called when the confidence is first asked for; None for a hit without one.
    """
    hit: Hit = object.__new__(Hit)
    _SET_ID(hit, source.id)
    _SET_SCORE(hit, score)
    _SET_SLOT(hit, slot)
    _SET_TEXT(hit, source.text)
    _SET_TITLE(hit, source.title)
    _SET_COMPONENTS(hit, components)
    _SET_SOURCE(hit, source)
    if cite is None:
        _SET_CITATION(hit, None)
    else:
        _SET_CITE(hit, cite)
    if estimate is None:
        _SET_CONFIDENCE(hit, None)
    else:
        _SET_ESTIMATE(hit, estimate)
    return hit


def undecoded_hit_without_text(  # noqa: PLR0913 - as undecoded_hit()
    source: HitSource,
    score: float,
    slot: int,
    components: tuple[Component, ...] = (),
    cite: Cite | None = None,
    estimate: EstimateConfidence | None = None,
) -> Hit:
    """Return the same without span, snippet (be it the title) and citation."""
    hit = undecoded_hit(source, score, slot, components, None, estimate)
    _SET_SPAN(hit, None)
    _SET_SNIPPET(hit, None)
    return hit


def winning_text(hit: Hit) -> str | None:
    """Return the text that the winning view of a hit stands for, as span_and_snippet(); the hit has its text."""
    if hit.span is None:
        return None if hit.text.strip() else hit.title
    return hit.text[hit.span[0] : hit.span[1]]


def span_and_snippet(stored: HitSource, slot: int) -> tuple[Span | None, str | None]:
    """Return a view's span and snippet; a document encoded by its title has no span, and its title as snippet."""
    span = stored.span(slot)
    if span is None:
        return None, None if stored.text.strip() else stored.title
    return span, stored.text[span[0] : span[1]]


class Combine(Enum):
    """How the scores of a document for the queries of a group make one."""

    MAX = "max"
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, eq=False)
class QueryGroup:
    """Several queries of one question, searched as one: a single list of documents, not one for each query.

    A document's score is the max, sum or mean of its scores for the queries.

    Attributes:
        queries: Texts, or an (m, d) array of query vectors; at least one.
        combine: "max", "sum" or "mean".

    Raises QueryError for a single text, no query, or another way to combine.
    """

    queries: Sequence[str] | npt.NDArray[np.floating[Any]]
    combine: str = "max"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.combine not in [one.value for one in Combine]:
            raise QueryError(f"combine: expected 'max', 'sum' or 'mean', got {self.combine!r:.60}")
        if isinstance(self.queries, str | bytes) or not hasattr(self.queries, "__len__"):
            got = type(self.queries).__name__
            raise QueryError(f"query group: expected several texts or an (m, d) array, got {got}")
        if len(self.queries) == 0:
            raise QueryError("query group: expected at least one query, got none")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one query, best first.

    Attributes:
        hits: Distinct documents.
        exact: True only when they are provably the top_k of brute force over the stored vectors.
        short_by: Number of documents missing from min(top_k, documents allowed).
        rounds: Number of searches of the engine.
        missing_shards: The numbers of shards that could not be searched.
        mode: "dense", "lexical" or "hybrid", as the query was searched.
        next: The cursor of the next page, where the search had one; None after the last page.
        duplicates_of: With diversity: of each document that is a near-duplicate of a better one, its id and that one's.
        below_confidence: Number of hits left out since their confidence was below min_confidence.
    """

    hits: tuple[Hit, ...]
    exact: bool
    short_by: int
    rounds: int
    missing_shards: tuple[int, ...] = ()
    mode: str = "dense"
    next: str | None = None
    duplicates_of: Mapping[str, str] = field(default_factory=dict)
    below_confidence: int = 0

    def __iter__(self) -> Iterator[Hit]:
        """Yield the hits, best first."""
        return iter(self.hits)

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.hits)

    def __bool__(self) -> bool:
        """Return True: a result without hits is a result."""
        return True

    def __repr__(self) -> str:
        """Return how many documents there are, how they were searched, and the first of them with their scores."""
        first = ", ".join(f"{hit.id!r} {hit.score:.4f}" for hit in self.hits[:_REPR_HITS])
        more = ", ..." if len(self.hits) > _REPR_HITS else ""
        return f"<SearchResult: {self._state()}{': ' if first else ''}{first}{more}>"

    def _state(self) -> str:
        return f"{len(self.hits)} documents, {self.mode}, {'exact' if self.exact else 'approximate'}"

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        """Return a hit by its place, 0 for the best, or the hits of a slice."""
        return self.hits[place]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each hit as a JSON object: rank from 1, id, score, confidence, title, text, citation and so on."""
        return [
            {
                "rank": rank,
                "id": hit.id,
                "score": hit.score,
                "confidence": hit.confidence,
                "title": hit.title,
                "text": hit.text,
                "citation": None if hit.citation is None else hit.citation.text,
                "snippet": hit.snippet,
                "metadata": dict(hit.metadata),
            }
            for rank, hit in enumerate(self.hits, start=1)
        ]

    def to_pandas(self) -> Any:
        """Return the hits as a pandas.DataFrame; ExtraMissing without pandas.

        The columns are rank, id, score, confidence, title, text, citation, snippet and metadata.
        """
        from mvindex.plugins import require

        rows = self.to_dicts()
        columns = ("rank", "id", "score", "confidence", "title", "text", "citation", "snippet", "metadata")
        return require("pandas", "pandas", "to_pandas()").DataFrame(rows, columns=list(columns))

    def _repr_html_(self) -> str:
        """Return a table for notebooks, the cited sentence of each text marked."""
        rows = "".join(
            f"<tr><td>{rank}</td><td>{hit.score:.4f}</td><td>{escape(hit.id)}</td>"
            f'<td style="text-align:left"><b>{escape(hit.title)}</b> {_marked(hit)}</td></tr>'
            for rank, hit in enumerate(self.hits[:_SHOWN_HITS], start=1)
        )
        heads = "".join(f"<th>{name}</th>" for name in ("rank", "score", "id", "text"))
        return f"<table><caption>{self._state()}</caption><tr>{heads}</tr>{rows}</table>"


# Of a result in a notebook: hits, and characters of each text around what is cited.
_SHOWN_HITS, _SHOWN_CHARS = 20, 600
# Of a result in a terminal.
_REPR_HITS = 3


def _marked(hit: Hit) -> str:
    """Return the text of a hit as HTML, cut around the citation, which is marked."""
    begin, end = (0, 0) if hit.citation is None else (hit.citation.start, hit.citation.end)
    first = max(0, min(begin - _SHOWN_CHARS // 2, len(hit.text) - _SHOWN_CHARS))
    last = max(end, first + _SHOWN_CHARS)
    cited = f"<mark>{escape(hit.text[begin:end])}</mark>" if end > begin else ""
    before, after = ("" if first == 0 else "... "), ("" if last >= len(hit.text) else " ...")
    return f"{before}{escape(hit.text[first:begin])}{cited}{escape(hit.text[max(end, first) : last])}{after}"


class ViewScore(NamedTuple):
    """The part of one view in a document's score.

    Attributes:
        slot: The view's slot.
        score: Its score for the query.
        span: The characters [begin, end) of the text that it stands for; None where it stands for none.
        snippet: The text of the span.
        weight: Its weight in the document's score: DRPQ's softmax (eq. 4; the weights of a document sum to 1), or for
            "max" 1.0 for the winning view and 0.0 for the others.

    """

    slot: int
    score: float
    span: Span | None
    snippet: str | None
    weight: float


class Explanation(list[ViewScore]):
    """The views of a document with their scores for a query, best first; in a notebook a table with a bar for each.

    Attributes:
        components: Those of the hit that was explained: what views and terms contributed; none for an id.

    """

    def __init__(self, views: Iterable[ViewScore], document: str | Hit) -> None:
        """Take the views of a document, which was given by its id or as a hit."""
        super().__init__(views)
        self.components = document.components if isinstance(document, Hit) else ()

    def _repr_html_(self) -> str:
        """Return a table for notebooks, the winning view in bold, and the ranks by views and terms."""
        heads = "".join(f"<th>{name}</th>" for name in ("slot", "score", "", "text"))
        best = max((view.score for view in self), default=0.0)
        rows = "".join(
            f"<tr><td>{view.slot}</td><td>{view.score:.4f}</td>"
            f'<td><progress value="{max(view.score / best, 0.0) if best > 0 else 0.0:.4f}"></progress></td>'
            f'<td style="text-align:left">{_in_bold(escape(view.snippet or ""), place == 0)}</td></tr>'
            for place, view in enumerate(self)
        )
        parts = "; ".join(
            f"{escape(part.name)}: rank {'none' if part.rank is None else part.rank}, "
            f"score {part.score:.4f}, adding {part.contribution:.4f}"
            for part in self.components
        )
        caption = f"<caption>{parts}</caption>" if parts else ""
        return f"<table>{caption}<tr>{heads}</tr>{rows}</table>"


def _in_bold(text: str, is_bold: bool) -> str:
    return f"<b>{text}</b>" if is_bold else text


class ToExplain(NamedTuple):
    """A document, by its id or as a hit, that is explained for a query, a text or a (d,) vector."""

    query: Any
    document: str | Hit
    scoring: str
    temperature: float | None

    @property
    def id(self) -> str:
        """Return the document's id."""
        return self.document.id if isinstance(self.document, Hit) else self.document


def to_explain(query: object, document: str | Hit | None, scoring: str | None, temperature: float | None) -> ToExplain:
    """Return what the arguments of explain() ask for: a hit alone stands for what found it; QueryError for neither."""
    if not isinstance(query, Hit):
        if document is None:
            raise QueryError("explain: expected a hit, or a query and a hit or an id, got a query alone")
        return ToExplain(query, document, "max" if scoring is None else scoring, temperature)
    if document is not None:
        raise QueryError("explain: expected a hit alone, or a query and a hit or an id, got a hit and another document")
    try:
        asked, own_scoring, own_temperature = _ASKED(query)
    except AttributeError:
        raise QueryError(
            f"explain: the hit {query.id!r} has no query: it was found by documents or by several queries, or is a "
            "copy; give the query, too: explain(query, hit)"
        ) from None
    if scoring is None:
        scoring, temperature = own_scoring, own_temperature if temperature is None else temperature
    return ToExplain(asked, query, scoring, temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """A description of an index; sizes in bytes.

    Attributes:
        num_deleted: Rows of deleted and replaced documents that are still on disk.
        prune_views: Distance within which near-duplicate views are not stored; None stores all.
        search: Search parameters of the engine, as tuned; None for the defaults of its kind.
        fresh_documents: Documents added since the engine was built; they are scanned beside it.
        shards: Number of shards; None for an index without.
        missing_shards: Shards that are left out, whose documents are not counted.
        server: The server that holds the index, and its abilities; None for a directory.
        lexical: How texts are split into terms for lexical search; None without a lexical side.
        fusion: Method and weights of hybrid search, as tuned; None for the defaults.
        filter_fields: Declared filter fields, name to type (docs/how-to/filters.md).
        copy_bytes: Memory that copies of views for the exact scan take in this process; they are made by the first
            exact searches. For a server those of its process; None for Milvus.
        mapped_bytes: Bytes of such copies that this process has mapped from the file of copies instead. They are in the
            page cache once for all processes, and the kernel takes them back when memory falls short.
        copies_file_bytes: Size of the file of copies on disk, which `build("exact")` writes; 0 where there is none.
        text_bytes: Memory that documents shown lately take in this process, or in the server's; None for Milvus.
        shard: Which shard of how many it is, such as "3/16"; None for an index that is none.
        term_bytes: Memory that decoded postings of lexical search take in this process, or in the server's; None for
            Milvus.
        confidence: Calibration of confidences, as tuned; None for the one that is kept with the encoder, if any.
        index_id: The index's own id, which its snapshots share; of the first shard for an index in shards, None for
            one that was adopted.
        whole_id: The id of the index that it is a shard of, which all its shards share; None for an index that is no
            shard, and for a shard that was filled apart and not assembled.

    """

    path: str
    format_version: int
    documents: int
    views: int
    num_deleted: int
    dim: int | None
    dtype: str
    encoder: Mapping[str, Any] | None
    kind: str
    temperature: float
    prune_views: float | None
    search: Mapping[str, int] | None
    fresh_documents: int
    size_bytes: int
    shards: int | None = None
    missing_shards: tuple[int, ...] = ()
    server: Mapping[str, Any] | None = None
    lexical: str | None = None
    fusion: Mapping[str, Any] | None = None
    filter_fields: Mapping[str, str] = field(default_factory=dict)
    copy_bytes: int | None = None
    mapped_bytes: int | None = None
    copies_file_bytes: int | None = None
    text_bytes: int | None = None
    shard: str | None = None
    term_bytes: int | None = None
    index_id: str | None = None
    confidence: Mapping[str, Any] | None = None
    whole_id: str | None = None


def check_count(name: str, value: object) -> None:
    """Raise QueryError unless the value is a whole number from 1 on."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < 1:  # type: ignore[operator]  # a number
        raise QueryError(f"{name}: expected a whole number from 1 on, got {value if is_whole else shown(value)}")


def check_flags(**flags: object) -> None:
    """Raise QueryError for a value other than True or False: a text such as "no" would pass for True."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise QueryError(f"{name}: expected True or False, got {value!r:.60}")


def check_id(doc_id: object) -> str:
    """Return the id; raise QueryError unless it is a string that a document may have as its id."""
    if not isinstance(doc_id, str):
        raise QueryError(f"id: expected a string, got {shown(doc_id)}")
    if "\0" in doc_id:
        raise QueryError(f"id: expected a string without NUL, got {doc_id!r:.60}")
    try:
        doc_id.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"id: expected valid Unicode, got {doc_id!r:.60}") from err
    return doc_id


def check_ids(ids: str | Iterable[str]) -> list[str]:
    """Return the ids, each once, in their order; one string is one id. QueryError for what cannot be an id."""
    if not isinstance(ids, Iterable):
        raise QueryError(f"ids: expected an id or several, got {shown(ids)}")
    return list(dict.fromkeys(check_id(each) for each in ([ids] if isinstance(ids, str) else ids)))


def dump_metadata(metadata: Mapping[str, Any], doc_id: str) -> str:
    """Return metadata as canonical JSON (sorted keys, dates in ISO 8601); DocumentError names what JSON cannot hold.

    Scalars and arrays of NumPy are numbers, strings, booleans, dates and lists.
    """
    if not isinstance(metadata, Mapping):
        raise DocumentError(f"document {doc_id!r}: metadata: expected an object, got {type(metadata).__name__}")
    if not metadata:
        return "{}"
    # Most metadata is a few scalars by name, and a passage of a file has little more than that.
    is_plain = _SCALARS.issuperset(map(type, metadata.values())) and _STRINGS.issuperset(map(type, metadata))
    if not is_plain or len(metadata) > MAX_METADATA_VALUES:
        _check_size(metadata, doc_id)
    try:
        dumped = _METADATA_JSON.encode(metadata if type(metadata) is dict else dict(metadata))
        is_sound = (is_plain or _has_string_keys(metadata)) and _is_text(dumped)
    except (TypeError, ValueError, RecursionError) as err:
        reason = _refused_part("metadata", metadata) or f"metadata is not JSON: {err}"
        raise DocumentError(f"document {doc_id!r}: {reason}") from err
    # An escaped NUL is a backslash of its own, not the second half of an escaped backslash.
    if not is_sound or "\\u0000" in dumped.replace("\\\\", ""):
        raise DocumentError(f"document {doc_id!r}: {_refused_part('metadata', metadata)}")
    return dumped


def plain_value(value: object) -> Any:
    """Return a scalar of NumPy as Python's own value; anything else, and NaT, as it is."""
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.floating):
        return float(value)
    if not isinstance(value, np.datetime64):
        return value.item()
    # What is finer than a microsecond, and what Python has no year for, would become a number.
    date = (
        value.astype("datetime64[us]").item()
        if np.datetime_data(value)[0] in ("ns", "ps", "fs", "as")
        else value.item()
    )
    return date if isinstance(date, datetime.date) else value


def _json_form(value: object) -> Any:
    """Return what JSON has a form for, in place of a date, a value of NumPy, or a mapping; TypeError for others."""
    # The NaT of pandas is a datetime, too, and no date.
    if isinstance(value, datetime.date) and (text := value.isoformat()) != "NaT":
        return text
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray):
        return list(value) if value.ndim else value.item()
    plain = plain_value(value)
    if plain is value:
        raise TypeError(f"expected a string, number, boolean, null, date, list or object, got {shown(value)}")
    return plain


# Made once: json.dumps() makes an encoder at every call that has options.
_METADATA_JSON = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"), default=_json_form
)


def _refused_part(place: str, value: object) -> str | None:
    """Return what is wrong with the first part of metadata that cannot be stored, and its place; None for no part."""
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str) or not _is_text(key) or "\0" in key]
        if wrong:
            return f"{place}: expected a string without NUL as key, got {shown(wrong[0])}"
        return next(filter(None, (_refused_part(f"{place}: {key!r}", each) for key, each in value.items())), None)
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return next(filter(None, (_refused_part(place, each) for each in value)), None)
    if isinstance(value, str) and "\0" in value:
        return f"{place} holds a NUL character"
    if isinstance(value, str) and not _is_text(value):
        return f"{place} holds a lone surrogate; it is not valid Unicode"
    plain = plain_value(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        return f"{place}: expected a finite number, got {plain}"
    try:
        _METADATA_JSON.encode(plain)
    except (TypeError, ValueError) as err:
        return f"{place}: {err}"
    return None


def _is_text(text: str) -> bool:
    """Return whether a string is valid Unicode."""
    try:
        return text.isascii() or bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def shown(value: object) -> str:
    """Return type and beginning of a value for a message."""
    return f"{type(value).__name__} {short_repr(value)}"


def short_repr(value: object) -> str:
    """Return the beginning of a value's repr(), or a word where it has none, for a message."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - a repr() of the user's may raise anything; that of a long or deep value does
        return "that cannot be shown"


def require_text(document: Document) -> Document:
    """Return the document; raise DocumentError unless its text or title holds anything that an encoder can read."""
    if has_visible(document.text) or has_visible(document.title):
        return document
    raise DocumentError(f"document {document.id!r}: text and title are both empty; one of them must say something")


def has_visible(text: str) -> bool:
    """Return whether the text holds a character that is neither space nor control, format or unassigned."""
    first = text[:1]
    return (first > " " and first.isprintable()) or any(char > " " and char.isprintable() for char in text)


def _check_string(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise DocumentError(f"{name}: expected a string, got {shown(value)}")
    if "\0" in value:
        raise DocumentError(f"{name} holds a NUL character at position {value.index(chr(0))}")
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as err:
        raise DocumentError(f"{name} holds a lone surrogate at position {err.start}; it is not valid Unicode") from err


def _check_id(doc_id: str) -> None:
    if not doc_id.strip():
        raise DocumentError(f"id is {doc_id!r:.60}; every document needs a non-empty id")
    if len(doc_id) > MAX_ID_CHARS:
        raise DocumentError(f"id {doc_id[:40]!r}... has {len(doc_id)} characters; at most {MAX_ID_CHARS} are taken")
    if not doc_id.isprintable() and any(unicodedata.category(char) == "Cc" for char in doc_id):
        raise DocumentError(f"id {doc_id!r} holds a control character")


def _check_size(metadata: Mapping[str, Any], doc_id: str) -> None:
    """Raise DocumentError for metadata of too many values, or too deep."""
    level: list[Any] = [metadata]
    count = depth = 0
    while level:
        depth += 1
        if depth > MAX_METADATA_DEPTH:
            raise DocumentError(
                f"document {doc_id!r}: metadata: expected at most {MAX_METADATA_DEPTH} objects and lists inside one "
                "another, got more"
            )
        count += sum(map(len, level))
        if count > MAX_METADATA_VALUES:
            raise DocumentError(
                f"document {doc_id!r}: metadata: expected at most {MAX_METADATA_VALUES:,} values, got more"
            )
        level = [
            value
            for each in level
            for value in (each.values() if isinstance(each, Mapping) else each)
            if type(value) not in _SCALARS
            and (isinstance(value, Mapping | list | tuple) or (isinstance(value, np.ndarray) and value.ndim))
        ]


def _has_string_keys(value: object) -> bool:
    if isinstance(value, Mapping):
        has_strings = all([isinstance(key, str) for key in value])
        return has_strings and all([_has_string_keys(item) for item in value.values() if type(item) not in _SCALARS])
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        return all([_has_string_keys(item) for item in value if type(item) not in _SCALARS])
    return True


T = TypeVar("T")
SlicedT = TypeVar("SlicedT", bound="Sequence[Any] | npt.NDArray[Any]")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of up to `size`."""
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


def sliced(items: SlicedT, size: int) -> Iterator[SlicedT]:
    """Yield the sequence or array in slices of up to `size`."""
    for begin in range(0, len(items), size):
        yield cast(SlicedT, items[begin : begin + size])
