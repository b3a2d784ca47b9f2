"""The plan of a search: a request with the defaults of its index, and operators in the text of a query.

SearchEngine is what answers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvindex.corpus.text.citation import Quoting
from mvindex.errors import QueryError
from mvindex.kernels.score import BY_BEST_VIEW, Aggregate, Scoring
from mvindex.records import ALL_FIELDS, Bools, Field, SearchResult
from mvindex.search.confidence import Calibration, Model, not_calibrated
from mvindex.search.fusion import Fusion, Mode, parse_fusion
from mvindex.search.request import Queries, SearchRequest, ShardSearch
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation

if TYPE_CHECKING:
    from mvindex.store.lexical.tokenizer import Lexical, Tokens

# A quoted phrase, which may have a sign, or what stands between spaces.
_PARTS = re.compile(r'(?<!\S)(?P<sign>[+-]?)"(?P<phrase>[^"]+)"|(?P<word>\S+)')
# Each of them looks at all documents, and at the texts of those that have its words.
_MAX_OPERATORS = 64
# Each term of them looks at all documents, and SQLite takes memory for each term of a phrase and each place in a text.
_MAX_PHRASE_TERMS, _MAX_TERMS = 64, 256
# Documents whose texts are searched for a phrase at once: bounds memory.
_TEXTS_AT_ONCE = 1024


class TermRows(Protocol):
    """The documents of one index by their terms. num_rows: row numbers are below it."""

    @property
    def kind(self) -> Lexical:
        """How texts are split into terms."""

    @property
    def num_rows(self) -> int:
        """The number above all document rows."""

    def rows_with(self, term: int) -> npt.NDArray[Any]:
        """Return the rows of the documents that have the term of this hash, deleted ones or not."""

    def texts(self, rows: list[int]) -> list[str]:
        """Return what lexical search indexes of these documents; an empty text for one that is gone."""


class Operators(NamedTuple):
    """A query's text, and the words and phrases that its operators demand.

    Attributes:
        text: The query without operators and without what it excludes.
        required: Words and phrases that a document must have in its title or text.
        excluded: Words and phrases that it must not have.

    """

    text: str
    required: tuple[str, ...]
    excluded: tuple[str, ...]

    def matching(self, source: TermRows) -> Bools:
        """Return which document rows have all that is required and nothing that is excluded, (num_rows,).

        A phrase is looked for in the texts of the documents that have all its words. QueryError where they have more
        terms than are looked for.
        """
        required, excluded = (
            {expression: _terms_of(expression, source.kind) for expression in expressions}
            for expressions in (self.required, self.excluded)
        )
        count = sum(int(terms.lengths[0]) for terms in chain(required.values(), excluded.values()))
        if count > _MAX_TERMS:
            raise QueryError(
                f"query {self.text!r:.60}: expected at most {_MAX_TERMS} terms in operators, got {count:,}"
            )
        found = np.ones(source.num_rows, dtype=bool)
        for expression, terms in required.items():
            found &= _having(expression, terms, source)
        for expression, terms in excluded.items():
            found &= ~_having(expression, terms, source)
        return found


def parse_operators(text: str) -> Operators:
    """Return the operators of a query's text; QueryError where nothing is left to search for."""
    words, required, excluded = [], [], []
    for part in _PARTS.finditer(text):
        word = part["word"]
        is_signed = word is not None and len(word) > 1 and word[0] in "+-"
        sign, expression = (word[0], word[1:]) if is_signed else (part["sign"], part["phrase"])
        if word is not None and not is_signed:
            words.append(word)
        elif sign == "-":
            excluded.append(expression)
        else:
            required.append(expression)
            words.append(expression)
    if (count := len(required) + len(excluded)) > _MAX_OPERATORS:
        raise QueryError(f"query {text!r:.60}: expected at most {_MAX_OPERATORS} operators, got {count:,}")
    if not words:
        raise QueryError(f"query {text!r:.60}: expected a word beside the excluded ones")
    return Operators(" ".join(words), tuple(required), tuple(excluded))


def _terms_of(expression: str, kind: Lexical) -> Tokens:
    """Return the terms of a word or phrase; QueryError for none, and for more than are looked for."""
    from mvindex.store.lexical.tokenizer import tokenize_query

    tokens = tokenize_query(expression, kind)
    count = int(tokens.lengths[0])
    if not count:
        raise QueryError(f"operator {expression!r:.60}: expected a letter or a digit in it")
    if count > _MAX_PHRASE_TERMS:
        raise QueryError(f"operator {expression!r:.60}: expected at most {_MAX_PHRASE_TERMS} terms, got {count:,}")
    return tokens


def _having(expression: str, tokens: Tokens, source: TermRows) -> Bools:
    """Return which document rows have the word or phrase of these terms, (num_rows,)."""
    from mvindex.store.lexical.tokenizer import has_phrase

    found = np.ones(source.num_rows, dtype=bool)
    for hashed in tokens.hashes.tolist():
        has_term = np.zeros(source.num_rows, dtype=bool)
        has_term[source.rows_with(hashed)] = True
        found &= has_term
    if tokens.lengths[0] > 1:
        rows = np.flatnonzero(found)
        for begin in range(0, len(rows), _TEXTS_AT_ONCE):
            some = rows[begin : begin + _TEXTS_AT_ONCE].tolist()
            found[some] = has_phrase(source.texts(some), expression, source.kind)
    return found


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


class Plan(NamedTuple):
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
    model = None
    # A model was fitted on scores of single queries by their best view, over the whole index.
    if state.calibration is not None and not is_drpq and not is_group and request.shard is None:
        model = state.calibration.models.get(mode)
    if request.min_confidence is not None and model is None:
        raise not_calibrated(state.where, mode, is_drpq=is_drpq)
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
            planned.append((Queries(rows, [operators.text]), plan._replace(operators=operators)))
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
