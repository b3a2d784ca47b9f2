"""SearchRequest: what a caller asks of an index, parsed once at the door, whichever door it was.

After the door nothing asks what the query was: texts, vectors and groups are Queries, and options are checked.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.corpus.text.citation import MOST_CONTEXT, MOST_QUOTES, Quoting
from mvindex.errors import QueryError
from mvindex.kernels.score import Aggregate, parse_scoring
from mvindex.records import (
    ALL_FIELDS,
    Combine,
    Field,
    Floats,
    QueryGroup,
    SearchResult,
    check_count,
    check_flags,
    set_asked,
    shown,
)
from mvindex.search.fusion import Method, Mode, parse_choice, parse_fusion
from mvindex.search.pages import Cursor
from mvindex.store.filters import Filter, operand_as_json
from mvindex.store.views import MAX_NORM

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mvindex.search.like import Like
    from mvindex.search.rerank import Rerank, Reranker
    from mvindex.search.terms import TermCounts

ModeName: TypeAlias = Literal["auto", "dense", "lexical", "hybrid"]
ScoringName: TypeAlias = Literal["max", "drpq"]
FusionName: TypeAlias = Literal["zscore", "minmax", "rrf"]
FieldName: TypeAlias = Literal["text", "title", "metadata"]
Vector: TypeAlias = npt.NDArray[np.floating[Any]]
QueryLike: TypeAlias = "str | Sequence[str] | Vector | QueryGroup | Sequence[QueryGroup]"
# Queries searched at once: bounds the memory of their candidates.
QUERY_BATCH = 256
# Documents that a search with diversity= chooses from.
DIVERSE_DEPTH = 100
# Far enough below MAX_NORM that a rounded sum cannot pass for less than it is.
_PLAIN_SQUARE = MAX_NORM**2 / 4
# Numbers that BLAS multiplies by one thread; einsum takes a microsecond more for few, and twice the time for many.
_SHORT = 4096


class OptionKeywords(TypedDict, total=False):
    """The options of a search by name, of those that every door takes; see Searches.search()."""

    scoring: ScoringName
    exact: bool
    temperature: float | None
    candidates: int | None
    mode: ModeName
    fusion: FusionName | None
    weights: tuple[float, float] | None
    operators: bool
    fields: Sequence[FieldName] | None
    offset: int
    cursor: str | None
    citations: int | None
    context: int
    max_chars: int | None
    max_tokens: int | None
    diversity: float | None
    min_confidence: float | None


class SearchKeywords(OptionKeywords, total=False):
    """The keyword arguments of search() beside top_k and filter, for type checkers; see Searches.search()."""

    text: str | Sequence[str] | None
    rerank: Reranker | str | PathLike[str] | None
    rerank_on: str | None
    rerank_depth: int | None
    like: str | None
    positives: Sequence[str]
    negatives: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Queries that are searched together: each row is one, or all rows are one group.

    Attributes:
        rows: What views are compared with: (r, d) float32, or r texts that are not encoded yet.
        texts: A text for each row, whose terms are searched and that citations are chosen for; None without. Those of a
            group's first row are its terms.
        combine: How the scores of a group's rows make one; None where each row is a query.
        are_of_texts: Whether the rows are what an encoder made of the texts.

    """

    rows: Sequence[str] | Floats
    texts: Sequence[str] | None = None
    combine: Combine | None = None
    are_of_texts: bool = False

    def __len__(self) -> int:
        return len(self.rows) if self.combine is None else 1

    def __getitem__(self, part: slice) -> Queries:
        """Return some of the queries, which are not a group."""
        texts = None if self.texts is None else self.texts[part]
        rows = texts if texts is not None and self.texts is self.rows else self.rows[part]
        return replace(self, rows=rows, texts=texts)

    @property
    def are_encoded(self) -> bool:
        """Whether the rows are vectors."""
        return isinstance(self.rows, np.ndarray)

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """The three traits that queries share where they can be joined."""
        return self.texts is None, self.are_encoded, self.are_of_texts

    @property
    def vectors(self) -> Floats:
        """The rows as (r, d) float32; QueryError where they are not encoded."""
        if not isinstance(self.rows, np.ndarray):
            raise QueryError("queries: expected vectors, got texts that are not encoded")
        return self.rows

    @property
    def unencoded(self) -> Sequence[str]:
        """The rows as texts; none where they are vectors."""
        return () if isinstance(self.rows, np.ndarray) else self.rows

    @property
    def own_texts(self) -> Sequence[str] | None:
        """The texts that stand beside the rows; None where the rows are the texts."""
        return None if self.texts is self.rows else self.texts

    @classmethod
    def joined(cls, several: Sequence[Queries]) -> Queries:
        """Return the queries of all of them, which are of one kind."""
        first, *others = several
        if not others:
            return first
        rows: Sequence[str] | Floats = [text for each in several for text in each.unencoded]
        if first.are_encoded:
            rows = np.concatenate([each.vectors for each in several])
        texts = None if first.texts is None else [text for each in several for text in each.texts or ()]
        return cls(rows, texts, are_of_texts=first.are_of_texts)

    def encoded(self, vectors: Floats) -> Queries:
        """Return the queries with the vectors of their texts, (r, d) float32."""
        return replace(self, rows=vectors, are_of_texts=True)

    def batches(self, size: int) -> list[Queries]:
        """Return the queries in batches of up to so many; none for no queries."""
        if self.combine is not None or 0 < len(self.rows) <= size:
            return [self]
        return [self[begin : begin + size] for begin in range(0, len(self.rows), size)]


@dataclass(frozen=True, slots=True)
class ShardSearch:
    """How one shard of several is searched, so that its results can be merged with those of the others.

    Attributes:
        counts: The counts of all shards for the terms of the queries; None for a dense search.
        all_candidates: Whether a hybrid search returns every document that one of both lists proposes.
        num_shards: Number of shards over which documents are spread by chance: an approximate search looks at this
            shard's share of the view hits, see Share; with 1 at all of them.

    """

    counts: TermCounts | None = None
    all_candidates: bool = False
    num_shards: int = 1


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A search as a caller asks for it, checked; parse_request() makes it. What is None, an index's plan fills in.

    Attributes:
        queries: What is searched for, each of its own; one, but for several groups, and none with like.
        like: The documents whose views are searched for in place of queries.
        is_single: Whether the caller gets one result instead of a list.
        top_k: Number of distinct documents, before reranking.
        offset: Number of documents before them in the ranking.
        cursor: The place in pages of the query; the first page has an empty one. None without pages.
        filter: A metadata filter; None allows all documents.
        aggregate: How view scores make a document's score.
        temperature: T of DRPQ's softmax; None for the index's own.
        exact: Whether a certified answer is demanded, whatever engine is active.
        candidates: For DRPQ: look at no more than so many view hits; None looks as far as it takes.
        mode: Dense, lexical, hybrid, or which of dense and hybrid the query and the index allow.
        method: For hybrid: how scores are put on one scale; None for the index's own.
        weights: For hybrid: weights of the dense and the lexical score; None for the index's own.
        fields: What hits carry beside id, score and slot.
        operators: Whether quotes, + and - in the texts of queries are operators.
        rerank: What scores the hits again; it is done where the caller is.
        shard: For one shard of several that are searched as one; its results are then ShardResults.
        quoting: How much is quoted of each hit; None for its citation alone.
        diversity: The weight of likeness against relevance, 0 to 1; None orders by score.
        min_confidence: Hits of a lower confidence are left out; None keeps all.

    """

    queries: tuple[Queries, ...] = ()
    like: Like | None = None
    is_single: bool = False
    top_k: int = 10
    offset: int = 0
    cursor: Cursor | None = None
    filter: Filter | None = None
    aggregate: Aggregate = Aggregate.MAX
    temperature: float | None = None
    exact: bool = False
    candidates: int | None = None
    mode: Mode = Mode.AUTO
    method: Method | None = None
    weights: tuple[float, float] | None = None
    fields: frozenset[Field] = ALL_FIELDS
    operators: bool = False
    rerank: Rerank | None = None
    shard: ShardSearch | None = None
    quoting: Quoting | None = None
    diversity: float | None = None
    min_confidence: float | None = None

    @property
    def num_rows(self) -> int:
        """Number of texts or vectors that are searched for; 1 for documents."""
        return sum(len(each.rows) for each in self.queries) if self.like is None else 1

    @property
    def depth(self) -> int:
        """Number of documents that are searched for: those of the page, those before it, and those to choose from."""
        depth = self.num_before + self.top_k
        return depth if self.diversity is None else max(depth, DIVERSE_DEPTH)

    @property
    def num_before(self) -> int:
        """Number of documents that stand before the page, by its offset or its cursor."""
        return self.offset + (0 if self.cursor is None else self.cursor.num_shown)

    def of(self, query: QueryLike, text: str | Sequence[str] | None = None) -> SearchRequest:
        """Return the request for these queries; QueryError where they are none, or do not go with the options."""
        if isinstance(query, str) and text is None:
            texts = _texts_of(query)
            return self._with(Queries(texts, texts), is_single=True)
        groups = as_groups(query)
        if groups is None:
            queries, is_single = self._parsed(query, text)
            return self._with(queries, is_single)
        is_single = isinstance(query, QueryGroup)
        beside: Any = [text] * len(groups) if text is None or is_single else text
        if isinstance(beside, str) or len(beside) != len(groups):
            raise QueryError(f"text: expected a text for each of {len(groups)} query groups")
        parsed = tuple(self._parsed_group(*each) for each in zip(groups, beside, strict=True))
        return replace(self, queries=parsed, is_single=is_single)

    def of_documents(self, like: Like | None) -> SearchRequest:
        """Return the request that documents stand for; QueryError without, or where they do not go with the options."""
        if like is None:
            raise QueryError("query: expected a text, a vector or a query group, or documents by like= or positives=")
        if self.mode not in (Mode.AUTO, Mode.DENSE):
            raise QueryError(f"mode={self.mode.value!r} searches texts; documents are compared by views, mode='dense'")
        if self.rerank is not None:
            raise QueryError("rerank= reads a question; documents stand for the query here")
        if self.cursor is not None and like.negatives:
            raise QueryError("cursor= does not go with negatives=; give offset=")
        if self.min_confidence is not None:
            raise QueryError("min_confidence= is of answers to a query; documents stand for the query here")
        if self.diversity is not None and like.negatives:
            raise QueryError("diversity= does not go with negatives=; give one of them")
        return replace(self, like=like, mode=Mode.DENSE, is_single=True)

    def _with(self, queries: Queries, is_single: bool) -> SearchRequest:
        """Return what replace() would, faster: every search comes by here."""
        made = object.__new__(SearchRequest)
        made.__dict__.update(self.__dict__, queries=(queries,), is_single=is_single)
        return made

    def check_group(self) -> None:
        """Raise QueryError for an option that does not go with a query group."""
        if self.rerank is not None:
            raise QueryError("rerank= reads one text, a query group has several; rerank its hits, or search a text")
        if self.operators:
            raise QueryError("operators= reads the text of one query; a query group has several")
        if self.mode is Mode.LEXICAL:
            raise QueryError("mode='lexical' reads no vectors of a query group; expected mode='dense' or 'hybrid'")

    def with_queries(self, queries: Queries) -> SearchRequest:
        """Return the request for these queries, which are checked."""
        return replace(self, queries=(queries,))

    def reranked(self, rerank: Rerank | None) -> SearchRequest:
        """Return the request with reranking, for as many documents as that reads; QueryError for conflicts."""
        if rerank is None:
            return self
        if self.fields is not ALL_FIELDS:  # the caller has named some, or all of them
            raise QueryError("fields= does not go with rerank=, which reads the hits; give one of them")
        if self.diversity is not None:
            raise QueryError("diversity= does not go with rerank=, which orders again; give one of them")
        if self.cursor is not None:
            raise QueryError("cursor= does not go with rerank=, which orders again; give offset= and rerank_depth=")
        return replace(self, rerank=rerank, top_k=rerank.depth, offset=0)

    @property
    def key(self) -> Hashable:
        """A key that is equal for equal options; queries of one key can be searched together."""
        bare = replace(self, queries=(), is_single=False, filter=None)
        return bare, None if self.filter is None else json.dumps(self.filter, sort_keys=True, default=operand_as_json)

    def answer(self, results: list[SearchResult]) -> Any:
        """Return what the caller gets of the results of all queries: reranked, and one for a single query."""
        if self.rerank is not None:
            results = self.rerank.reranked(self._questions(), results)
        if self.like is None and self.queries[0].combine is None:
            rows, scoring = self.queries[0].rows, self.aggregate.value
            # A copy of vectors: the caller may write the next query into the same array.
            for row, result in zip(rows.copy() if isinstance(rows, np.ndarray) else rows, results, strict=True):
                asked = (row, scoring, self.temperature)
                for hit in result.hits:
                    set_asked(hit, asked)
        return results[0] if self.is_single else results

    def _questions(self) -> list[str]:
        """Return the text of each query, as a reranker reads it; QueryError without."""
        sources = [each.rows if not each.are_encoded else each.texts for each in self.queries]
        return [text for source in sources for text in cast("Sequence[str]", source)]

    def _parsed(self, query: Any, text: object) -> tuple[Queries, bool]:
        """Return queries that are no groups, and whether a single one was given."""
        has_texts = is_texts(query)
        source = query if text is None else text
        if not (has_texts if text is None else is_texts(text)):
            if text is not None:
                raise QueryError(f"text: expected a text or texts, got {type(text).__name__}")
            if self.mode in (Mode.LEXICAL, Mode.HYBRID):
                raise QueryError(
                    f"mode={self.mode.value!r} searches texts, got {type(query).__name__}; "
                    "give the text, or both: search(vector, text=..., ...)"
                )
            if self.rerank is not None:
                raise QueryError("rerank= reads the question; give it beside the vector: search(vector, text=..., ...)")
            vectors = as_vectors(query, None)
            is_single = vectors.ndim == 1
            return Queries(vectors[None] if is_single else vectors), is_single
        texts, is_single = _texts_of(source), isinstance(source, str)
        if self.mode is Mode.LEXICAL:
            return Queries(texts, texts), is_single
        if has_texts:
            rows: Sequence[str] | Floats = texts if text is None else _texts_of(query)
            is_one = isinstance(query, str)
        else:
            vectors = as_vectors(query, None)
            rows, is_one = np.atleast_2d(vectors), vectors.ndim == 1
        if (len(rows), is_one) != (len(texts), is_single):
            given = f"one {'text' if has_texts else 'vector'}" if is_one else f"{len(rows)} vectors"
            raise QueryError(
                f"text: expected a text for each query vector, got {given} and "
                f"{'one text' if is_single else f'a list of {len(texts)} texts'}"
            )
        return Queries(rows, texts), is_single

    def _parsed_group(self, group: QueryGroup, text: object) -> Queries:
        """Return one query group, its text beside each row."""
        self.check_group()
        if text is not None and not isinstance(text, str):
            raise QueryError(f"text: expected one text for a query group, got {type(text).__name__}")
        rows: Sequence[str] | Floats
        if is_texts(group.queries):
            rows = texts = _texts_of(group.queries)
        else:
            vectors, texts = as_vectors(group.queries, None), None
            if vectors.ndim == 1:
                raise QueryError(f"query group: expected an (m, d) array, got shape {vectors.shape}")
            rows = vectors
        if text is not None:
            texts = _texts_of(text) * len(rows)
        if self.mode is Mode.HYBRID and texts is None:
            raise QueryError("mode='hybrid' searches texts; give one beside the vectors of the group: text=...")
        return Queries(rows, texts, Combine(group.combine))


def parse_request(  # noqa: PLR0913 - one parameter for each option that a caller may give
    query: QueryLike | None,
    top_k: int = 10,
    filter: Filter | None = None,
    *,
    text: str | Sequence[str] | None = None,
    rerank: Reranker | str | PathLike[str] | None = None,
    rerank_on: str | None = None,
    rerank_depth: int | None = None,
    device: str | None = None,
    like: str | None = None,
    positives: Sequence[str] = (),
    negatives: Sequence[str] = (),
    **options: Unpack[OptionKeywords],
) -> SearchRequest:
    """Return the request of a search as a caller names it; see Searches.search() for the arguments.

    Raises:
        TypeError: For a keyword that search() does not have.
        QueryError: For an invalid value, or options that do not go together.
        CheckpointError: For rerank= without a cross-encoder there; it is loaded to the device.

    """
    if options and (unknown := options.keys() - OptionKeywords.__optional_keys__):
        raise TypeError(f"search() got an unexpected keyword argument {min(unknown)!r}")
    if options or filter is not None or type(top_k) is not int:
        request = parse_options(top_k, filter, **options)
    else:
        request = _plain_options(top_k)
    if rerank is not None or rerank_on is not None or rerank_depth is not None:
        from mvindex.search.rerank import parse_rerank

        request = request.reranked(parse_rerank(rerank, rerank_on, rerank_depth, request, device))
    # Most searches have neither, and no import is made for them.
    likeness = None
    is_plain = type(positives) is type(negatives) is tuple and not (positives or negatives)
    if query is None or like is not None or not is_plain:
        from mvindex.search.like import parse_like

        likeness = parse_like(like, positives, negatives)
    if query is not None and likeness is None:
        return request.of(query, text)
    if query is not None or text is not None:
        raise QueryError("like= and positives= stand for the query; give no query and no text= beside them")
    return request.of_documents(likeness)


@lru_cache(maxsize=64)
def _plain_options(top_k: int) -> SearchRequest:
    """Return the request without queries that has no options, as most have none."""
    return parse_options(top_k)


def parse_options(  # noqa: PLR0913 - one parameter for each option that a caller may give
    top_k: int = 10,
    filter: Filter | None = None,
    *,
    scoring: str = "max",
    exact: bool = False,
    temperature: float | None = None,
    candidates: int | None = None,
    mode: str = "auto",
    fusion: str | None = None,
    weights: Sequence[float] | None = None,
    operators: bool = False,
    fields: Sequence[str] | None = None,
    offset: int = 0,
    cursor: str | None = None,
    citations: int | None = None,
    context: int = 0,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    diversity: float | None = None,
    min_confidence: float | None = None,
) -> SearchRequest:
    """Return a request without queries yet; QueryError for an invalid value, or options that do not go together."""
    check_count("top_k", top_k)
    check_flags(exact=exact, operators=operators)
    if type(offset) is not int or offset:
        check_offset(offset, cursor)
    chosen = parse_scoring(scoring, temperature)
    if candidates is not None:
        check_count("candidates", candidates)
        if chosen.aggregate is not Aggregate.DRPQ:
            raise QueryError("candidates= belongs to scoring='drpq'; by the best view no document is aggregated")
        if exact:
            raise QueryError("candidates= limits the search, exact=True demands a certified one; give one of them")
    way = parse_choice("mode", mode, Mode)
    if way is Mode.AUTO and (fusion is not None or weights is not None or operators):
        way = Mode.HYBRID
    if way is not Mode.HYBRID and (fusion is not None or weights is not None):
        name = "weights" if fusion is None else "fusion"
        raise QueryError(f"{name}= does not belong to mode={way.value!r}; expected mode='hybrid'")
    if way is Mode.LEXICAL and chosen.aggregate is not Aggregate.MAX:
        raise QueryError("scoring= combines the scores of views; mode='lexical' reads none")
    if operators and way is Mode.DENSE:
        raise QueryError("operators= looks at terms; mode='dense' reads none. Expected mode='hybrid' or 'lexical'")
    fused = parse_fusion(fusion, weights) if way is Mode.HYBRID else None
    request = SearchRequest(
        top_k=int(top_k),
        offset=int(offset),
        cursor=None if cursor is None else Cursor.parse(cursor),
        filter=filter,
        aggregate=chosen.aggregate,
        temperature=None if temperature is None else chosen.temperature,
        exact=bool(exact),
        candidates=None if candidates is None else int(candidates),
        mode=way,
        method=None if fused is None or fusion is None else fused.method,
        weights=None if fused is None or weights is None else fused.weights,
        fields=ALL_FIELDS if fields is None else _parse_fields(fields),
        operators=bool(operators),
        min_confidence=None if min_confidence is None else check_min_confidence(min_confidence),
        quoting=None
        if citations is max_chars is max_tokens is None and type(context) is int and context == 0
        else _checked_quoting(Quoting(1 if citations is None else citations, context, max_chars, max_tokens), fields),
    )
    if diversity is None:
        return request
    from mvindex.search.diversity import check_diversity

    return replace(request, diversity=check_diversity(diversity, request))


def check_offset(offset: object, cursor: object = None) -> None:
    """Raise QueryError unless the offset is a whole number from 0 on, and there is no cursor beside one."""
    is_whole = isinstance(offset, int | np.integer) and not isinstance(offset, bool)
    if not is_whole or offset < 0:  # type: ignore[operator]  # a number
        raise QueryError(f"offset: expected a whole number from 0 on, got {offset!r:.60}")
    if offset and cursor is not None:
        raise QueryError("offset= and cursor= both say where the page begins; give one of them")


def check_min_confidence(value: object) -> float:
    """Return the least confidence; QueryError for another value than 0 to 1."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:  # type: ignore[operator]  # a number
        raise QueryError(f"min_confidence: expected a number from 0 to 1, got {value!r:.60}")
    return float(value)  # type: ignore[arg-type]  # a number


def checked_texts(texts: object) -> list[str]:
    """Return texts to be encoded as a list; QueryError for another value, an empty text or broken Unicode."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise QueryError(f"texts: expected a list of texts, got {shown(texts)}")
    listed = list(texts)
    for number, text in enumerate(listed, start=1):
        check_query_text(text, number, len(listed))
    return listed


def check_query_text(text: object, number: int, count: int) -> None:
    """Raise QueryError, with the number among count queries, for an empty text, broken Unicode, or no text."""
    which = "the query" if count == 1 else f"query {number}"
    if not isinstance(text, str):
        raise QueryError(f"{which}: expected a text, got {shown(text)}")
    if not text.strip():
        raise QueryError(f"{which} is empty; expected a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"{which} is not valid Unicode at position {err.start}") from err


def is_texts(query: Any) -> bool:
    """Return whether the query is a text or a sequence of texts."""
    if isinstance(query, str | np.ndarray):  # before Sequence, which takes longer to ask for
        return isinstance(query, str)
    return isinstance(query, Sequence) and all(isinstance(text, str) for text in query)


def as_groups(query: Any) -> list[QueryGroup] | None:
    """Return the groups of a query that is one or a sequence of them, else None; QueryError for a mixture."""
    if isinstance(query, QueryGroup):
        return [query]
    if isinstance(query, str | np.ndarray) or not isinstance(query, Sequence):
        return None
    groups = [each for each in query if isinstance(each, QueryGroup)]
    if groups and len(groups) < len(query):
        raise QueryError(f"queries: expected query groups only, got {len(groups)} of {len(query)}")
    return groups or None


def as_vectors(query: Any, dim: int | None) -> Floats:
    """Return a (d,) or (q, d) array as float32, without a copy where it is one; QueryError for what is not finite.

    Args:
        query: An array or nested sequence of numbers.
        dim: The dimensions expected; None takes any.

    """
    if _is_plain(query, dim):
        return cast(Floats, query)
    try:
        wide = as_numbers(query).astype(np.float64)
    except ValueError as err:
        raise QueryError(f"query: expected a text, texts, or a (d,) or (q, d) array: {err}") from err
    if wide.ndim not in (1, 2) or (dim is not None and wide.shape[-1] != dim):
        which = "" if dim is None else f" with d = {dim}"
        raise QueryError(f"query vectors: expected shape (d,) or (q, d){which}, got {wide.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(np.atleast_2d(wide), axis=1)
    if not (norms <= MAX_NORM).all():
        row = int(np.argmax(~(norms <= MAX_NORM)))
        raise QueryError(f"query vector {row}: expected finite numbers and a norm up to 1e18, got {norms[row]}")
    narrow: Floats = wide.astype(np.float32)
    return narrow


def _is_plain(query: Any, dim: int | None) -> bool:
    """Return whether the query is float32 of small norm, as nearly all are: checked in a third of the time."""
    if not isinstance(query, np.ndarray) or query.dtype != np.float32 or query.ndim not in (1, 2):
        return False
    if (dim is not None and query.shape[-1] != dim) or not query.flags.c_contiguous:
        return False
    values = query.reshape(-1).astype(np.float64)
    # Of long vectors numpy's BLAS has threads do it, which then wait for more by spinning, on the cores of the search.
    square = values.dot(values) if len(values) <= _SHORT else np.einsum("i,i->", values, values)
    # The norm of all vectors together: none has a larger one. NaN compares as False.
    return bool(square <= _PLAIN_SQUARE)


def _texts_of(source: Any) -> list[str]:
    """Return a text or texts as a list; QueryError for one that cannot be searched."""
    texts = [source] if isinstance(source, str) else list(source)
    for number, text in enumerate(texts, start=1):
        check_query_text(text, number, len(texts))
    return texts


def _checked_quoting(given: Quoting, fields: object) -> Quoting:
    """Return how much is quoted; QueryError for numbers out of range, and fields without the text."""
    check_count("citations", given.count)
    if given.count > MOST_QUOTES:
        raise QueryError(f"citations: expected a whole number up to {MOST_QUOTES}, got {given.count}")
    context = given.context
    is_whole = isinstance(context, int | np.integer) and not isinstance(context, bool)
    if not is_whole or not 0 <= context <= MOST_CONTEXT:
        raise QueryError(f"context: expected a whole number from 0 to {MOST_CONTEXT}, got {context!r:.60}")
    limits = {"max_chars": given.max_chars, "max_tokens": given.max_tokens}
    for name, limit in limits.items():
        if limit is not None:
            check_count(name, limit)
    if fields is not None and Field.TEXT not in _parse_fields(fields):
        raise QueryError("citations= quotes the text, which fields= leaves out; expected 'text' in fields")
    kept = {name: None if limit is None else int(limit) for name, limit in limits.items()}
    return Quoting(int(given.count), int(context), **kept)


def _parse_fields(names: object) -> frozenset[Field]:
    """Return the fields of these names; QueryError for another name, or a string instead of a sequence of them."""
    known = {field.value: field for field in Field}
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise QueryError(f"fields: expected a sequence of {', '.join(known)}, got {names!r:.60}")
    chosen = list(names)
    for name in chosen:
        if not isinstance(name, str) or name not in known:
            raise QueryError(f"fields: expected {', '.join(known)}, got {name!r:.60}")
    return frozenset(known[name] for name in chosen)
