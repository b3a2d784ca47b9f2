"""SearchOptions: the options of a search, checked once and carried from every edge to the store."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from mvindex.errors import QueryError
from mvindex.kernels.score import Aggregate, Scoring, parse_scoring
from mvindex.records import ALL_FIELDS, Combine, Field, check_count, check_flag
from mvindex.search.fusion import Fusion, Method, Mode, parse_fusion, parse_mode
from mvindex.search.operators import Operators
from mvindex.store.filters import Filter, operand_as_json

if TYPE_CHECKING:
    from mvindex.search.bm25 import TermCounts
    from mvindex.search.rerank import Reranker

ModeName: TypeAlias = Literal["auto", "dense", "lexical", "hybrid"]
ScoringName: TypeAlias = Literal["max", "drpq"]
FusionName: TypeAlias = Literal["zscore", "minmax", "rrf"]
FieldName: TypeAlias = Literal["text", "title", "metadata"]


class SearchKeywords(TypedDict, total=False):
    """The keyword arguments of search(), for type checkers; see IndexProtocol.search()."""

    temperature: float | None
    candidates: int | None
    mode: ModeName
    fusion: FusionName | None
    weights: tuple[float, float] | None
    text: str | Sequence[str] | None
    operators: bool
    fields: Sequence[FieldName] | None
    rerank: Reranker | str | PathLike[str] | None
    rerank_on: str | None
    rerank_depth: int | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options of a search, checked when made; make one with parse().

    Attributes:
        top_k: Number of distinct documents.
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
        words: What the operators of one query demand; set where its text is read.
        tuned: The fusion of the index, for what a search cannot choose; with_defaults() puts in what it can.
        combine: How the queries make one group, where they are one; servers are sent groups so.
        shard: For one shard of several that are searched as one; its results are then ShardResults.

    """

    top_k: int = 10
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
    words: Operators | None = None
    tuned: Fusion = Fusion()
    combine: Combine | None = None
    shard: ShardSearch | None = None

    @classmethod
    def parse(  # noqa: PLR0913 - one parameter for each option that a caller may give
        cls,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: str = "max",
        exact: bool = False,
        *,
        temperature: float | None = None,
        candidates: int | None = None,
        mode: str = "auto",
        fusion: str | None = None,
        weights: Sequence[float] | None = None,
        fields: Sequence[str] | None = None,
        operators: bool = False,
    ) -> SearchOptions:
        """Return the options of a search as a caller names them.

        Args:
            top_k: Number of distinct documents, from 1 on.
            filter: A metadata filter.
            scoring: "max" or "drpq".
            exact: Whether to demand a certified answer.
            temperature: T of DRPQ, a finite number above 0.
            candidates: For DRPQ: number of view hits to look at.
            mode: "auto", "dense", "lexical" or "hybrid"; auto with a fusion or weights is hybrid.
            fusion: For hybrid: "zscore", "minmax" or "rrf".
            weights: For hybrid: weights of the dense and the lexical score.
            fields: "text", "title", "metadata", those of them that hits carry; all of them by default.
            operators: Whether "quoted phrases", +required and -excluded words in query texts are operators.

        Raises:
            QueryError: For an invalid value, or options that do not go together.

        """
        check_count("top_k", top_k)
        check_flag("exact", exact)
        check_flag("operators", operators)
        chosen = parse_scoring(scoring, temperature)
        if candidates is not None:
            check_count("candidates", candidates)
            if chosen.aggregate is not Aggregate.DRPQ:
                raise QueryError("candidates= belongs to scoring='drpq'; by the best view no document is aggregated")
            if exact:
                raise QueryError("candidates= limits the search, exact=True demands a certified one; give one of them")
        way = parse_mode(mode)
        if way is Mode.AUTO and (fusion is not None or weights is not None):
            way = Mode.HYBRID
        if way is not Mode.HYBRID and (fusion is not None or weights is not None):
            name = "weights" if fusion is None else "fusion"
            raise QueryError(f"{name}= does not belong to mode={way.value!r}; expected mode='hybrid'")
        if way is Mode.LEXICAL and chosen.aggregate is not Aggregate.MAX:
            raise QueryError("scoring= combines the scores of views; mode='lexical' reads none")
        if operators and way is Mode.DENSE:
            raise QueryError("operators= looks at terms; mode='dense' reads none. Expected mode='hybrid' or 'lexical'")
        fused = parse_fusion(fusion, weights) if way is Mode.HYBRID else None
        return cls(
            top_k=int(top_k),
            filter=filter,
            aggregate=chosen.aggregate,
            temperature=None if temperature is None else chosen.temperature,
            exact=bool(exact),
            candidates=None if candidates is None else int(candidates),
            mode=way,
            method=None if fused is None or fusion is None else fused.method,
            weights=None if fused is None or weights is None else fused.weights,
            fields=ALL_FIELDS if fields is None else parse_fields(fields),
            operators=bool(operators),
        )

    def with_defaults(self, temperature: float, fusion: Fusion | None) -> SearchOptions:
        """Return the options with the index's own temperature and fusion where they need and lack them.

        fusion: for searches that read terms; None for others.
        """
        if fusion is None:
            is_complete = self.temperature is not None or self.aggregate is Aggregate.MAX
            return self if is_complete else replace(self, temperature=temperature)
        chosen = parse_fusion(None if self.method is None else self.method.value, self.weights, fusion)
        return replace(
            self,
            temperature=temperature if self.temperature is None else self.temperature,
            method=chosen.method,
            weights=chosen.weights,
            tuned=chosen,
        )

    def with_mode(self, *, has_text: bool, has_lexical: bool) -> SearchOptions:
        """Return the options with the mode that AUTO stands for, of a query with a text, an index with terms."""
        if self.mode is not Mode.AUTO:
            return self
        return replace(self, mode=Mode.HYBRID if has_text and has_lexical else Mode.DENSE)

    @property
    def scoring(self) -> Scoring:
        """The aggregate and its temperature."""
        return Scoring(self.aggregate, 1.0 if self.temperature is None else self.temperature)

    @property
    def fusion(self) -> Fusion:
        """The fusion of hybrid search, with its defaults."""
        if self.method in (None, self.tuned.method) and self.weights in (None, self.tuned.weights):
            return self.tuned
        return parse_fusion(None if self.method is None else self.method.value, self.weights, self.tuned)

    @property
    def depth(self) -> int:
        """How many documents of each list are candidates of hybrid search."""
        return max(self.top_k, self.fusion.depth)

    @property
    def key(self) -> Hashable:
        """A key that is equal for equal options; searches of one key can be answered together."""
        if self.filter is None:
            return self
        return replace(self, filter=None), json.dumps(self.filter, sort_keys=True, default=operand_as_json)

    def as_json(self) -> dict[str, Any]:
        """Return the options other than top_k and filter that results name, as parse() takes them."""
        named: dict[str, Any] = {"mode": self.mode.value, "scoring": self.aggregate.value}
        if self.aggregate is Aggregate.DRPQ:
            named["temperature"] = self.temperature
        if self.candidates is not None:
            named["candidates"] = self.candidates
        if self.mode is Mode.HYBRID:
            named |= {"fusion": self.fusion.method.value, "weights": list(self.fusion.weights)}
        if self.operators:
            named["operators"] = True
        return named


def parse_fields(names: object) -> frozenset[Field]:
    """Return the fields of these names; QueryError for another name, or a string instead of a sequence of them."""
    known = {field.value: field for field in Field}
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise QueryError(f"fields: expected a sequence of {', '.join(known)}, got {names!r:.60}")
    chosen = list(names)
    for name in chosen:
        if not isinstance(name, str) or name not in known:
            raise QueryError(f"fields: expected {', '.join(known)}, got {name!r:.60}")
    return frozenset(known[name] for name in chosen)


def check_reranked_fields(fields: object) -> None:
    """Raise QueryError where fields are given for a search that is reranked."""
    if fields is not None:
        raise QueryError("fields= does not go with rerank=, which reads the hits; give one of them")
