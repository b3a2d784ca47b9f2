"""A ranking of documents: what is asked for, the engines that serve it, and documents with their scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from mvindex.engines.protocol import Engine, ScanEngine
from mvindex.kernels.score import Scoring
from mvindex.records import Bools, Floats, Ints

# A shard has more of the best than their mean and so many standard deviations once in 700 times.
_DEVIATIONS = 3


class Engines(NamedTuple):
    """The scan that is always there, and the ranking that is active (None: the scan answers)."""

    scan: ScanEngine
    ranking: Engine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part that one of num_shards shards has in a search for the top_k documents of all.

    An approximate engine looks at as many view hits as one engine of all views would, in all shards together. See
    find_cut_short() for what is done where a shard has more than its share of the best.
    """

    num_shards: int
    top_k: int

    def of(self, count: int, bunch: int = 1) -> int:
        """Return how many of the best `count` of all shards one looks at, where documents are spread by chance.

        The mean and some standard deviations of a binomial distribution. bunch: so many come together, at most, as
        the views of a document do.
        """
        mean = count / self.num_shards
        deviation = math.sqrt(bunch * mean * (1 - 1 / self.num_shards))
        return min(count, math.ceil(mean + _DEVIATIONS * deviation))


class Request(NamedTuple):
    """The request that all queries of a batch share.

    top_k of the num_allowed documents that are allowed, (num_rows,) bool, live ones only; depth: None, or how many view
    hits are looked at before aggregation, as in DRPQ section 3.3. share: given where an approximate engine may look at
    less than all that top_k documents need, since other shards are searched as well.
    """

    top_k: int
    allowed: Bools
    num_allowed: int
    scoring: Scoring = Scoring()
    depth: int | None = None
    share: Share | None = None


class ViewHits(NamedTuple):
    """The view hits of one query that a shard has looked at for its share.

    scores: (m,) float32, the engine's, falling. lowest: documents without a view hit above it were not scored; -inf
    where the engine found no more. limit: view hits that one engine of all shards would look at.
    """

    scores: Floats
    lowest: float
    limit: int


class Ranking(NamedTuple):
    """The documents of one query in order: rows, scores and winning slots, (m,) each; see SearchResult for the rest.

    num_scored: documents that the one scoring function looked at. view_hits: of a shard that was searched for its
    share; None where it was searched in full.
    """

    rows: Ints
    scores: Floats
    slots: Ints
    exact: bool
    short_by: int
    rounds: int
    num_scored: int
    view_hits: ViewHits | None = None

    def page(self, offset: int) -> Ranking:
        """Return the ranking without its first documents, not short of more than its page could have."""
        rows = self.rows[offset:]
        short_by = max(0, min(self.short_by, len(self.rows) + self.short_by - offset))
        return self._replace(rows=rows, scores=self.scores[offset:], slots=self.slots[offset:], short_by=short_by)

    def after(self, before: Ranking) -> Ranking:
        """Return the ranking with the work of a search before it counted as well."""
        return self._replace(rounds=self.rounds + before.rounds, num_scored=self.num_scored + before.num_scored)


class Pairs(NamedTuple):
    """Documents to be scored: document rows (m,), and for each the number of its query, (m,)."""

    doc_rows: Ints
    which: Ints


class ScoredPairs(NamedTuple):
    """Documents with their scores, (m,) each: which query, document row, score, winning slot and ordinal."""

    which: Ints
    rows: Ints
    scores: Floats
    slots: Ints
    ordinals: Ints
