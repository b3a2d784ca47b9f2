"""The plan of a search: a request and the state of an index make what will be done, every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mvindex.corpus.text.citation import Quoting
from mvindex.errors import QueryError
from mvindex.kernels.score import BY_BEST_VIEW, Aggregate, Scoring
from mvindex.records import ALL_FIELDS, Field, SearchResult
from mvindex.search.confidence import Calibration, Model, model_of, not_calibrated
from mvindex.search.fusion import Fusion, Mode, parse_fusion
from mvindex.search.operators import Operators, parse_operators
from mvindex.search.request import Queries, SearchRequest, ShardSearch
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """The state of an index that a plan depends on: read once for a search.

    Attributes:
        where: The index, in errors.
        capabilities: The operations that it has.
        has_lexical: Whether it has a lexical side.
        temperature: T of DRPQ where a search gives none.
        fusion: How hybrid search fuses where a search does not say.
        encoder: The record of the encoder that made the views; None for given vectors.
        calibration: What confidences are estimated by; None without.

    """

    where: str
    capabilities: Capabilities
    has_lexical: bool
    temperature: float
    fusion: Fusion
    encoder: Mapping[str, Any] | None = None
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps and numbers of a search.

    Attributes:
        mode: Dense, lexical or hybrid.
        top_k: Number of distinct documents, with those that the page leaves out.
        offset: Number of documents before the page.
        filter: A metadata filter; None allows all documents.
        scoring: How view scores make a document's score.
        exact: Whether a certified answer is demanded.
        candidates: For DRPQ: look at no more than so many view hits; None looks as far as it takes.
        fusion: How both lists are fused, and BM25's numbers.
        fields: What hits carry beside id, score and slot.
        operators: What the operators of the one text demand; None without operators.
        shard: For one shard of several that are searched as one.
        quoting: How much is quoted of each hit; None for its citation alone.
        model: What the confidence of hits is estimated by; None for hits without one.

    """

    mode: Mode = Mode.DENSE
    top_k: int = 10
    offset: int = 0
    filter: Filter | None = None
    scoring: Scoring = BY_BEST_VIEW
    exact: bool = False
    candidates: int | None = None
    fusion: Fusion = Fusion()
    fields: frozenset[Field] = ALL_FIELDS
    operators: Operators | None = None
    shard: ShardSearch | None = None
    quoting: Quoting | None = None
    model: Model | None = None

    @property
    def depth(self) -> int:
        """How many documents the search by views looks for: in hybrid search those of its list."""
        return max(self.top_k, self.fusion.depth) if self.mode is Mode.HYBRID else self.top_k

    def as_json(self) -> dict[str, Any]:
        """Return the options other than top_k and filter that results name, as parse_options() takes them."""
        named: dict[str, Any] = {"mode": self.mode.value, "scoring": self.scoring.aggregate.value}
        if self.scoring.aggregate is Aggregate.DRPQ:
            named["temperature"] = self.scoring.temperature
        if self.offset:
            named["offset"] = self.offset
        if self.candidates is not None:
            named["candidates"] = self.candidates
        if self.mode is Mode.HYBRID:
            named |= {"fusion": self.fusion.method.value, "weights": list(self.fusion.weights)}
        return named


def make_plan(request: SearchRequest, state: IndexState, *, has_text: bool, is_group: bool = False) -> Plan:
    """Return the plan for queries with or without texts; Unsupported for what the index does not have.

    is_group: Whether the queries are one group. NotCalibrated where a least confidence is asked for and hits have none.
    """
    mode = request.mode
    if request.operators and not state.has_lexical:
        state.capabilities.check(Operation.LEXICAL, state.where)
        raise QueryError(
            f"{state.where}: operators= looks at terms, and this index has none; `mvindex build --lexical` adds them"
        )
    if mode is Mode.AUTO:
        mode = Mode.HYBRID if has_text and state.has_lexical else Mode.DENSE
    if mode is not Mode.DENSE and not state.has_lexical:
        state.capabilities.check(Operation.LEXICAL, state.where)
    fusion = state.fusion
    if request.method is not None or request.weights is not None:
        method = None if request.method is None else request.method.value
        fusion = parse_fusion(method, request.weights, state.fusion)
    temperature = state.temperature if request.temperature is None else request.temperature
    is_drpq = request.aggregate is Aggregate.DRPQ
    model = model_of(state.calibration, mode, is_scored_plainly=not is_drpq and not is_group and request.shard is None)
    if request.min_confidence is not None and model is None:
        raise not_calibrated(state.where, mode)
    return Plan(
        mode=mode,
        top_k=request.offset + request.top_k if request.cursor is None else request.depth,
        offset=request.offset,
        filter=request.filter,
        scoring=Scoring(request.aggregate, temperature) if is_drpq else BY_BEST_VIEW,
        exact=request.exact,
        candidates=request.candidates,
        fusion=fusion,
        fields=request.fields,
        shard=request.shard,
        quoting=request.quoting,
        model=model,
    )


def make_plans(request: SearchRequest, state: IndexState) -> list[tuple[Queries, Plan]]:
    """Return the queries of a request with their plans: those with operators one by one, without these."""
    planned = []
    for queries in request.queries:
        is_group = queries.combine is not None
        plan = make_plan(request, state, has_text=queries.texts is not None, is_group=is_group)
        if not request.operators or queries.texts is None:
            planned.append((queries, plan))
            continue
        for number, text in enumerate(queries.texts):
            operators = parse_operators(text)
            rows = queries.rows[number : number + 1] if queries.are_encoded else [operators.text]
            planned.append((Queries(rows, [operators.text]), replace(plan, operators=operators)))
    return planned


class SearchEngine(Protocol):
    """Answers queries over one store."""

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a result for each query; they have vectors where the plan reads views."""

    def copy_bytes(self) -> int | None:
        """Return the bytes of copies of views that exact scans of this process have in memory; None without scans."""

    def mapped_bytes(self) -> int | None:
        """Return the bytes of copies of views that they have mapped from files; None without scans."""

    def close(self) -> None:
        """Let go of the files of the store, which is closed."""
