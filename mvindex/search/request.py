"""The request of a search, the engines that serve it, and its ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mvindex.engines.protocol import Engine, ScanEngine
from mvindex.records import Bools, Floats, Ints
from mvindex.scoring.aggregate import Scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The scan that is always there, and the ranking that is active (None: the scan answers)."""

    scan: ScanEngine
    ranking: Engine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request that all queries of a batch share.

    top_k documents of the allowed (num_rows,) bool, live ones only; depth: None, or how many view hits are looked
    at before aggregation, as in DRPQ section 3.3.
    """

    top_k: int
    allowed: Bools
    scoring: Scoring = Scoring()
    depth: int | None = None


class Ranking(NamedTuple):
    """The documents of one query in order: rows, scores and winning slots, (m,) each; see SearchResult for the rest.

    num_scored: documents that the one scoring function looked at.
    """

    rows: Ints
    scores: Floats
    slots: Ints
    exact: bool
    short_by: int
    rounds: int
    num_scored: int
