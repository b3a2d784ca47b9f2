"""The choice of search parameters by measuring an engine against the exact answer: `mvindex tune`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mvindex.engines.protocol import Search
from mvindex.errors import ConfigError
from mvindex.kernels import expect_work
from mvindex.records import Bools, Floats
from mvindex.search import Part, Ranking, search_parts
from mvindex.tuning.queries import sample_queries

# The number of queries that are timed one at a time, after all were searched in a batch.
# No further single queries are timed once they have taken this long: scans of 10^8 views.
_TIMED_S = 10.0
_TIMED_QUERIES = 32
# A setting is not tried when one that looks at less has this recall already.
_ENOUGH = 0.9995


@dataclass(frozen=True, slots=True, kw_only=True)
class TunePoint:
    """The measurement of one setting. recall: share of the exact top_k documents that are found, mean over queries.

    low: what the recall is at least, with 95 % confidence (its mean less 1.645 standard errors). ms: median time of
    single queries, ms_batch: a query's share of a batch; search and scoring, without encoding.
    """

    search: dict[str, int]
    recall: float
    low: float
    ms: float
    ms_batch: float
    documents_scored: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """The points that were measured, cheapest first; chosen: the fastest that reaches the target, None where none does.

    exact_ms, exact_ms_batch: the certified scan's, in the same run. are_own_views: the queries were views of the index.
    """

    kind: str
    top_k: int
    target_recall: float
    queries: int
    are_own_views: bool
    exact_ms: float
    exact_ms_batch: float
    points: tuple[TunePoint, ...]
    chosen: TunePoint | None

    @property
    def frontier(self) -> tuple[TunePoint, ...]:
        """The points than which none is both faster and better."""
        kept: list[TunePoint] = []
        for point in sorted(self.points, key=lambda point: (point.ms, -point.recall)):
            if not kept or point.recall > kept[-1].recall:
                kept.append(point)
        return tuple(kept)


class Tuning:
    """One engine measured with one set of queries against the exact answer, which is worked out once.

    The engines of several parts are one here: they are of the same kind, and searched with the same settings.
    """

    def __init__(self, parts: Sequence[Part], queries: Floats) -> None:
        """Find the exact answers. parts: scan and ranking of each; queries: (q, d) float32, else ConfigError."""
        rankings = [part.engines.ranking for part in parts if part.engines.ranking is not None]
        self._choices = list(rankings[0].choices()) if rankings else []
        if rankings and "top_k" in rankings[0].search_settings:
            # The engine scales its settings from the top_k that they were measured for.
            self._choices = [{**search, "top_k": parts[0].request.top_k} for search in self._choices]
        if not self._choices:
            raise ConfigError("there is nothing to tune: build an approximate kind first (hnsw, or one of ivf-*)")
        if not len(queries):
            raise ConfigError("tuning needs a query at least")
        self._parts, self._queries = parts, queries
        exact = [part._replace(engines=replace(part.engines, ranking=None)) for part in parts]
        self._exact, self.exact_ms_batch = self._batch(exact)
        self.exact_ms = self._single_ms(exact)

    def measured(self, search: Search) -> TunePoint:
        """Measure these search parameters."""
        parts = [_with_search(part, search) for part in self._parts]
        found, ms_batch = self._batch(parts)
        shares = np.array([_share(one, other) for one, other in zip(found, self._exact, strict=True)])
        spread = float(shares.std(ddof=1)) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
        return TunePoint(
            search=dict(search),
            recall=float(shares.mean()),
            low=float(shares.mean() - 1.645 * spread),
            ms=self._single_ms(parts),
            ms_batch=ms_batch,
            documents_scored=float(np.mean([ranking.num_scored for ranking in found])),
        )

    def run(self, on_progress: Callable[[str, int, int], None]) -> list[TunePoint]:
        """Measure all settings except those beyond ones that already find everything."""
        points: list[TunePoint] = []
        for number, search in enumerate(self._choices, start=1):
            if not any(_looks_at_no_more(point, search) for point in points):
                points.append(self.measured(search))
            on_progress("measuring", number, len(self._choices))
        return points

    def _batch(self, parts: Sequence[Part]) -> tuple[list[Ranking], float]:
        """Return the rankings of all queries at once, and milliseconds a query."""
        started = time.perf_counter()
        found = search_parts(parts, self._queries)
        return found, 1000 * (time.perf_counter() - started) / len(self._queries)

    def _single_ms(self, parts: Sequence[Part]) -> float:
        """Return the median milliseconds of single queries, of fewer where each takes long."""
        seconds: list[float] = []
        for query in self._queries[:_TIMED_QUERIES]:
            if sum(seconds) > _TIMED_S:
                break
            started = time.perf_counter()
            search_parts(parts, query[None])
            seconds.append(time.perf_counter() - started)
        return 1000 * float(np.median(seconds))


def _with_search(part: Part, search: Search) -> Part:
    """Return the part, its engine searched with these settings; a part without documents has none."""
    ranking = part.engines.ranking
    return (
        part if ranking is None else part._replace(engines=replace(part.engines, ranking=ranking.with_search(search)))
    )


def tune_search(
    parts: Sequence[Part],
    queries: Floats | None,
    target_recall: float,
    on_progress: Callable[[str, int, int], None],
) -> TuneReport:
    """Measure the parts' engine; nothing is changed. queries: (q, d) float32; None samples views of the index.

    ConfigError when there is nothing to tune.
    """
    expect_work()
    sample = sample_queries(parts, queries)
    tuning = Tuning(parts, sample)
    points = tuning.run(on_progress)
    return TuneReport(
        kind=next(part.snapshot.settings["engine"]["kind"] for part in parts if part.engines.ranking),
        top_k=parts[0].request.top_k,
        target_recall=target_recall,
        queries=len(sample),
        are_own_views=queries is None,
        exact_ms=tuning.exact_ms,
        exact_ms_batch=tuning.exact_ms_batch,
        points=tuple(points),
        chosen=choose(points, target_recall),
    )


def choose(points: Sequence[TunePoint], target_recall: float) -> TunePoint | None:
    """Return the fastest point, one query at a time, whose recall is at least the target."""
    reached = [point for point in points if point.recall >= target_recall]
    return min(reached, key=lambda point: (point.ms, point.ms_batch), default=None)


def checked_target(value: object) -> float:
    """Return the target recall as a float; raise ConfigError unless it is a share."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    raise ConfigError(f"target_recall is {value!r:.40}; expected a share above 0 and up to 1, such as 0.97")


def _share(found: Ranking, exact: Ranking) -> float:
    """Return the share of the exact documents that were found; one that ties with the last counts as found."""
    if not len(exact.rows):
        return 1.0
    is_right: Bools = np.isin(found.rows, exact.rows) | (found.scores >= exact.scores[-1])
    return min(int(np.count_nonzero(is_right)), len(exact.rows)) / len(exact.rows)


def _looks_at_no_more(point: TunePoint, search: Search) -> bool:
    """Return whether the point found everything, and the search looks at no less in each respect."""
    return point.recall >= _ENOUGH and all(point.search[name] <= value for name, value in search.items())
