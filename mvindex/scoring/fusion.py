"""Two rankings of documents made into one: scores put on a common scale, weighted and added; or ranks.

zscore: (s - mean) / standard deviation over the list's own best 100 scores for the question; minmax: (s - lowest) /
(highest - lowest) of these; rrf: 1 / (60 + rank) (Cormack, Clarke and Buettcher 2009). A list without spread adds 0.
A score below the best 100 counts as the last of them: how far below says nothing of the document (in a large corpus the
best 100 lie close together, and a word that one document alone has could never lift it).
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
    """What finds documents: their views, their words, or both."""

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
    """How much views and words count, and on which scale. QueryError for weights that are none, or out of range."""

    method: Method = Method.ZSCORE
    weights: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        is_right = len(self.weights) == 2 and all(math.isfinite(weight) and weight >= 0 for weight in self.weights)
        if not is_right or not _LEAST_WEIGHT <= max(self.weights) <= _MOST_WEIGHT:
            raise QueryError(
                f"weights are {self.weights!r}; wanted two numbers from 0 on (dense, lexical), the larger from "
                f"{_LEAST_WEIGHT:g} to {_MOST_WEIGHT:g}"
            )

    def as_setting(self) -> dict[str, Any]:
        """As an index keeps it."""
        return {"method": self.method.value, "weights": list(self.weights)}


class Scored(NamedTuple):
    """One list for one question.

    rows: of its best documents, in order. top: the scores of its best DEPTH documents. scores: of the candidates of
    both lists, (u,), whether they are in this one or not.
    """

    rows: Ints
    top: Floats
    scores: Floats


class Fused(NamedTuple):
    """Of each candidate the fused score, (u,); and of each list its part in that and its rank, (lists, u).

    A rank of 0 is of a document that is not in the list.
    """

    scores: Floats
    parts: Doubles
    ranks: Ints


def parse_mode(name: object) -> Mode:
    """The mode of that name; QueryError for another."""
    return _parsed("mode", name, Mode)


def parse_fusion(method: object, weights: object, usual: Fusion = Fusion()) -> Fusion:  # noqa: B008 - is not changed
    """The fusion that is asked for; QueryError for what is none.

    What is not given is the usual's, but weights that were found for another method: these are equal then.
    """
    chosen = usual.method if method is None else _parsed("fusion", method, Method)
    if weights is None:
        return usual if chosen is usual.method else Fusion(chosen)
    # Of "12" letters would be taken, of a set numbers in no order.
    ordered: Any = None if isinstance(weights, str | bytes | Set | Mapping) else weights
    try:
        return Fusion(chosen, tuple(float(weight) for weight in ordered))  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError, OverflowError) as err:
        raise QueryError(f"weights are {weights!r:.60}; wanted two numbers (dense, lexical)") from err


def is_fusion(setting: object) -> bool:
    """True for what as_setting() gives."""
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


def fuse(candidates: Ints, lists: Sequence[Scored], fusion: Fusion) -> Fused:
    """What both lists say of the candidates, (u,) rows, together."""
    ranks = np.array([_ranks(candidates, each.rows) for each in lists])
    parts = np.empty(ranks.shape)
    for number, (each, weight) in enumerate(zip(lists, fusion.weights, strict=True)):
        if fusion.method is Method.RRF:
            scaled: Doubles = np.where(ranks[number] > 0, 1 / (RRF_K + ranks[number]), 0.0)
        else:
            scaled = _scaled(each.scores.astype(np.float64), each.top.astype(np.float64), fusion.method)
        parts[number] = weight * scaled
    return Fused((parts[0] + parts[1]).astype(np.float32), parts, ranks)


def _scaled(scores: Doubles, top: Doubles, method: Method) -> Doubles:
    if not len(top) or top.max() == top.min():
        return np.zeros(len(scores))
    begin, unit = (top.min(), top.max() - top.min()) if method is Method.MINMAX else (top.mean(), top.std())
    scaled: Doubles = (np.maximum(scores, top.min()) - begin) / unit
    return scaled


def _ranks(candidates: Ints, rows: Ints) -> Ints:
    """The place of each candidate among the rows, from 1; 0 where it is not among them."""
    places = {row: rank for rank, row in enumerate(rows.tolist(), start=1)}
    return np.array([places.get(row, 0) for row in candidates.tolist()], dtype=np.int64)


def _parsed(what: str, name: object, choices: type[_Choice]) -> _Choice:
    names = [choice.value for choice in choices]
    if name not in names:
        raise QueryError(f"{what} is {name!r:.60}; wanted {', '.join(names[:-1])} or {names[-1]}")
    return choices(name)
