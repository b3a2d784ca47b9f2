"""Fusion of two rankings: scores put on a common scale, weighted and added; or reciprocal ranks.

zscore: (s - mean) / standard deviation over the best `depth` scores of the list for the question (100 by default);
minmax: (s - lowest) / (highest - lowest) of these; rrf: 1 / (constant + rank), 60 by default (Cormack, Clarke and
Buettcher 2009). A list without spread adds 0. A score below the best counts as the last of them: how far below says
nothing of the document (in a large corpus the best 100 lie close together, and a term that only one document has could
never lift it).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from mvindex.errors import QueryError

# Of the larger weight: far beyond, fused scores would be infinite, or all 0, in float32.
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-6, 1e6
# The numbers of a fusion beside its weights, from and to.
_RANGES: dict[str, tuple[float, float]] = {
    "depth": (1, 10_000),
    "constant": (0, 1e6),
    "k1": (0, 100),
    "b": (0, 1),
}

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
    """How views and terms make one ranking. Raises QueryError for a number out of range.

    Attributes:
        method: The scale on which both are added.
        weights: Of the views' and of the terms' scores.
        depth: How many of the best documents of each list are candidates, and set the scale of their list.
        constant: What rrf adds to a rank.
        k1: Of BM25: how soon more occurrences of a term stop counting.
        b: Of BM25: how much the length of a document counts, 0 to 1.

    """

    method: Method = Method.ZSCORE
    weights: tuple[float, float] = (1.0, 1.0)
    depth: int = 100
    constant: float = 60.0
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            is_number = isinstance(value, int if name == "depth" else int | float) and not isinstance(value, bool)
            if not is_number or not least <= value <= most:
                kind = "a whole number" if name == "depth" else "a number"
                raise QueryError(f"{name}: expected {kind} from {least:g} to {most:g}, got {value!r:.60}")
        is_right = len(self.weights) == 2 and all(math.isfinite(weight) and weight >= 0 for weight in self.weights)
        if not is_right or not _LEAST_WEIGHT <= max(self.weights) <= _MOST_WEIGHT:
            raise QueryError(
                f"weights are {self.weights!r}; expected two numbers from 0 on (dense, lexical), the larger from "
                f"{_LEAST_WEIGHT:g} to {_MOST_WEIGHT:g}"
            )

    def as_setting(self) -> dict[str, Any]:
        """Return the JSON value that an index stores: beside method and weights only what is not the default."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self) if each.name in _RANGES}
        changed = {name: value for name, value in numbers.items() if value != getattr(_DEFAULT, name)}
        return {"method": self.method.value, "weights": list(self.weights)} | changed


_DEFAULT = Fusion()


def parse_choice(what: str, name: object, choices: type[_Choice]) -> _Choice:
    """Return the choice of that name; QueryError for another. what: the option."""
    try:
        return choices(name)
    except ValueError as err:
        *names, last = (choice.value for choice in choices)
        raise QueryError(f"{what} is {name!r:.60}; expected {', '.join(names)} or {last}") from err


def parse_fusion(method: object, weights: object, default: Fusion = _DEFAULT) -> Fusion:
    """Return the fusion of that method and weights; raise QueryError for an unknown one.

    Missing values are those of the default; weights of another method become equal.
    """
    chosen = default.method if method is None else parse_choice("fusion", method, Method)
    if weights is None:
        return default if chosen is default.method else replace(default, method=chosen, weights=(1.0, 1.0))
    # Of "12" letters would be taken, of a set numbers in no order.
    ordered: Any = None if isinstance(weights, str | bytes | Set | Mapping) else weights
    try:
        pair = tuple(float(weight) for weight in ordered)
        return replace(default, method=chosen, weights=pair)  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError, OverflowError) as err:
        raise QueryError(f"weights are {weights!r:.60}; expected two numbers (dense, lexical)") from err


def make_fusion(numbers: Mapping[str, float]) -> Fusion:
    """Return the default fusion with these numbers; QueryError for an unknown name, or one out of range."""
    for name in numbers:
        if name not in _RANGES:
            raise QueryError(f"fusion: expected {', '.join(_RANGES)}, got {name!r:.60}")
    return Fusion(**numbers)  # type: ignore[arg-type]  # checked there


def parse_setting(setting: object) -> Fusion | None:
    """Return the fusion of a value that as_setting() returns; None for another value."""
    if not isinstance(setting, dict) or not {"method", "weights"} <= set(setting) <= {"method", "weights", *_RANGES}:
        return None
    weights = setting["weights"]
    if not isinstance(weights, list) or not all(type(weight) is float for weight in weights):
        return None
    try:
        numbers = {name: value for name, value in setting.items() if name in _RANGES}
        return parse_fusion(setting["method"], weights, Fusion(**numbers))
    except QueryError:
        return None


def is_fusion(setting: object) -> bool:
    """Return whether a value is one that as_setting() returns."""
    return parse_setting(setting) is not None
