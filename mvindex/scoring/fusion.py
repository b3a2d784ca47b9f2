"""Fusion of two rankings: scores put on a common scale, weighted and added; or reciprocal ranks.

zscore: (s - mean) / standard deviation over the list's own best 100 scores for the question; minmax: (s - lowest) /
(highest - lowest) of these; rrf: 1 / (60 + rank) (Cormack, Clarke and Buettcher 2009). A list without spread adds 0.
A score below the best 100 counts as the last of them: how far below says nothing of the document (in a large corpus the
best 100 lie close together, and a term that only one document has could never lift it).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Doubles, Floats, Ints

# What a list is standardised over; and no list is read less deep.
DEPTH = 100
RRF_K = 60
# Of the larger weight: far beyond, fused scores would be infinite, or all 0, in float32.
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-6, 1e6

_Choice = TypeVar("_Choice", bound=Enum)


class Mode(Enum):
    """The mode of a search: by views, by terms, or by both.

    AUTO: both for a query with a text in an index with a lexical side, else by views.
    """

    AUTO = "auto"
    DENSE = "dense"
    LEXICAL = "lexical"
    HYBRID = "hybrid"


class Method(Enum):
    """How two rankings become one."""

    ZSCORE = "zscore"
    MINMAX = "minmax"
    RRF = "rrf"


@dataclass(frozen=True, slots=True)
class Fusion:
    """The scale and the weights of views and terms. Raises QueryError for weights out of range."""

    method: Method = Method.ZSCORE
    weights: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        is_right = len(self.weights) == 2 and all(math.isfinite(weight) and weight >= 0 for weight in self.weights)
        if not is_right or not _LEAST_WEIGHT <= max(self.weights) <= _MOST_WEIGHT:
            raise QueryError(
                f"weights are {self.weights!r}; expected two numbers from 0 on (dense, lexical), the larger from "
                f"{_LEAST_WEIGHT:g} to {_MOST_WEIGHT:g}"
            )

    def as_setting(self) -> dict[str, Any]:
        """Return the JSON value that an index stores."""
        return {"method": self.method.value, "weights": list(self.weights)}


class RankedList(NamedTuple):
    """One list for one question.

    rows: of its best documents, in order. top: the scores of its best DEPTH documents. scores: of the candidates of
    both lists, (u,), whether they are in this one or not.
    """

    rows: Ints
    top: Floats
    scores: Floats


class FusionResult(NamedTuple):
    """The fused score of each candidate, (u,), and the contribution and rank of each list, (lists, u).

    A rank of 0 is of a document that is not in the list.
    """

    scores: Floats
    parts: Doubles
    ranks: Ints


def parse_mode(name: object) -> Mode:
    """Return the mode of that name; QueryError for another."""
    return _parsed("mode", name, Mode)


def parse_fusion(method: object, weights: object, default: Fusion = Fusion()) -> Fusion:  # noqa: B008 - is not changed
    """Return the fusion of that method and weights; raise QueryError for an unknown one.

    Missing values are those of the default; weights of another method become equal.
    """
    chosen = default.method if method is None else _parsed("fusion", method, Method)
    if weights is None:
        return default if chosen is default.method else Fusion(chosen)
    # Of "12" letters would be taken, of a set numbers in no order.
    ordered: Any = None if isinstance(weights, str | bytes | Set | Mapping) else weights
    try:
        return Fusion(chosen, tuple(float(weight) for weight in ordered))  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError, OverflowError) as err:
        raise QueryError(f"weights are {weights!r:.60}; expected two numbers (dense, lexical)") from err


def is_fusion(setting: object) -> bool:
    """Return whether a value is one that as_setting() returns."""
    if not isinstance(setting, dict) or set(setting) != {"method", "weights"}:
        return False
    weights = setting["weights"]
    if not isinstance(weights, list) or not all(type(weight) is float for weight in weights):
        return False
    try:
        parse_fusion(setting["method"], weights)
    except QueryError:
        return False
    return True


def fuse(candidates: Ints, lists: Sequence[RankedList], fusion: Fusion) -> FusionResult:
    """Fuse both lists' scores of the candidates, (u,) rows."""
    ranks = np.array([_ranks(candidates, each.rows) for each in lists])
    parts = np.empty(ranks.shape)
    for number, (each, weight) in enumerate(zip(lists, fusion.weights, strict=True)):
        if fusion.method is Method.RRF:
            scaled: Doubles = np.where(ranks[number] > 0, 1 / (RRF_K + ranks[number]), 0.0)
        else:
            scaled = _scaled(each.scores.astype(np.float64), each.top.astype(np.float64), fusion.method)
        parts[number] = weight * scaled
    return FusionResult((parts[0] + parts[1]).astype(np.float32), parts, ranks)


def _scaled(scores: Doubles, top: Doubles, method: Method) -> Doubles:
    if not len(top) or top.max() == top.min():
        return np.zeros(len(scores))
    begin, unit = (top.min(), top.max() - top.min()) if method is Method.MINMAX else (top.mean(), top.std())
    scaled: Doubles = (np.maximum(scores, top.min()) - begin) / unit
    return scaled


def _ranks(candidates: Ints, rows: Ints) -> Ints:
    """Return the place of each candidate among the rows, from 1; 0 where it is not among them."""
    places = {row: rank for rank, row in enumerate(rows.tolist(), start=1)}
    return np.array([places.get(row, 0) for row in candidates.tolist()], dtype=np.int64)


def _parsed(what: str, name: object, choices: type[_Choice]) -> _Choice:
    try:
        return choices(name)
    except ValueError as err:
        *names, last = (choice.value for choice in choices)
        raise QueryError(f"{what} is {name!r:.60}; expected {', '.join(names)} or {last}") from err
