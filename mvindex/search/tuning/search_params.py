"""Queries for tuning: those of the caller, or views of the index."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mvindex.engines.protocol import Search
from mvindex.errors import ConfigError
from mvindex.kernels import expect_work
from mvindex.records import Bools, Floats, ProgressCallback, no_progress
from mvindex.search.parts import Part, Parts
from mvindex.search.ranking import Ranking
from mvindex.search.views import rank_views
from mvindex.store.snapshot import Snapshot

# The number of queries that are measured at most.
_MAX_QUERIES = 256
_SEED = 7


def sample_queries(parts: Parts, queries: Floats | None) -> Floats:
    """Return up to 256 of the queries, (q, d) float32, at random; of the parts' views for None."""
    if queries is None:
        queries = sample_own_views([part.snapshot for part in parts.all], _MAX_QUERIES)
    return sample_rows(queries, _MAX_QUERIES)


def sample_own_views(snapshots: Sequence[Snapshot], count: int) -> Floats:
    """Return so many random views of live documents, (n, d) float32, with a fixed seed.

    They lie among the documents' views, as questions of people do not: measure with real ones where there are any.
    """
    total = sum(snapshot.num_documents for snapshot in snapshots)
    filled = [snapshot for snapshot in snapshots if snapshot.num_documents]
    drawn = [_sample_views(each, -(-count * each.num_documents // total)) for each in filled]
    return np.concatenate(drawn) if drawn else np.empty((0, snapshots[0].views.dim), dtype=np.float32)


def _sample_views(snapshot: Snapshot, count: int) -> Floats:
    """Return a view of each of so many live documents."""
    live = np.flatnonzero(snapshot.alive)
    drawn = np.random.default_rng(_SEED)
    rows = drawn.choice(live, size=min(count, len(live)), replace=False)
    packed, starts = snapshot.views.fetch(np.sort(rows))
    picked = starts[:-1] + drawn.integers(0, np.diff(starts))
    chosen: Floats = packed[picked].astype(np.float32)
    return chosen


def sample_rows(queries: Floats, count: int) -> Floats:
    """Return so many random rows, (n, d), with a fixed seed; all if there are no more."""
    if len(queries) <= count:
        return queries
    return queries[np.sort(np.random.default_rng(_SEED).choice(len(queries), size=count, replace=False))]


# Queries that are timed one at a time, after all were searched in a batch, and the seconds after which no more are.
_TIMED_QUERIES, _TIMED_S = 32, 10.0
# Why a setting was not measured, in the order in which the reasons are looked for.
_REACHED = "they look at no less than one that reaches the target"
_SLOWER = "they look at no less than one that is slower than the chosen one, or than the certified scan"
_LATE = "the time limit was reached"


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

    exact_ms, exact_ms_batch: the certified scan's, in the same run; exact_ms is None where the batch took more than ten
    seconds. are_own_views: the queries were views of the index. unmeasured: how many settings were left out, by reason.
    """

    kind: str
    top_k: int
    target_recall: float
    queries: int
    are_own_views: bool
    exact_ms: float | None
    exact_ms_batch: float
    points: tuple[TunePoint, ...]
    chosen: TunePoint | None
    unmeasured: dict[str, int] = field(default_factory=dict)

    @property
    def frontier(self) -> tuple[TunePoint, ...]:
        """The points than which none is both faster and better."""
        kept: list[TunePoint] = []
        for point in sorted(self.points, key=lambda point: (point.ms, -point.recall)):
            if not kept or point.recall > kept[-1].recall:
                kept.append(point)
        return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneGoal:
    """The share of the exact top_k to be found, and the time.monotonic() after which no further setting is measured."""

    top_k: int
    recall: float
    deadline: float = np.inf


class Tuning:
    """One engine measured with one set of queries against the exact answer, which is worked out once.

    The engines of several parts are one here: they are of the same kind, and searched with the same settings.
    """

    def __init__(self, parts: Parts, queries: Floats) -> None:
        """Find the exact answers. parts: scan and ranking of each; queries: (q, d) float32, else ConfigError."""
        rankings = [part.engines.ranking for part in parts.all if part.engines.ranking is not None]
        self._choices = list(rankings[0].choices()) if rankings else []
        if rankings and "top_k" in rankings[0].search_settings:
            # The engine scales its settings from the top_k that they were measured for.
            [top_k, *_] = [part.request.top_k for part in parts.all]
            self._choices = [{**search, "top_k": top_k} for search in self._choices]
        if not self._choices:
            raise ConfigError("nothing to tune: build an approximate kind first (graph, hnsw, or one of ivf-*)")
        if not len(queries):
            raise ConfigError("tuning needs a query at least")
        self._parts, self._queries = parts, queries
        exact = Parts([part._replace(engines=replace(part.engines, ranking=None)) for part in parts.all])
        self._exact, self.exact_ms_batch = self._batch(exact)
        is_long = self.exact_ms_batch * len(queries) > 1000 * _TIMED_S
        self.exact_ms = None if is_long else self._single_ms(exact)

    def measured(self, search: Search) -> TunePoint:
        """Measure these search parameters."""
        parts = Parts([_with_search(part, search) for part in self._parts.all])
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

    def run(
        self, goal: TuneGoal, on_progress: ProgressCallback = no_progress
    ) -> tuple[list[TunePoint], dict[str, int]]:
        """Measure the settings that may be chosen, and count the others by the reason for which they are left out."""
        points: list[TunePoint] = []
        unmeasured: Counter[str] = Counter()
        for number, search in enumerate(self._choices, start=1):
            reason = self._reason_against(search, points, goal)
            if reason is None:
                points.append(self.measured(search))
            else:
                unmeasured[reason] += 1
            on_progress("measuring", number, len(self._choices))
        return points, dict(unmeasured)

    def _reason_against(self, search: Search, points: Sequence[TunePoint], goal: TuneGoal) -> str | None:
        """Return why the setting need not be measured, or must not; None where it is to be."""
        if time.monotonic() > goal.deadline:
            return _LATE
        chosen = choose(points, goal.recall)
        less = [point for point in points if all(point.search[name] <= value for name, value in search.items())]
        if any(point.recall >= goal.recall for point in less):
            return _REACHED
        too_slow = np.inf if chosen is None else chosen.ms
        # Where a batch takes seconds all settings are measured: of few views the scan is faster than most.
        most = max(self.exact_ms_batch, 1000 * _TIMED_S / len(self._queries))
        if any(point.ms > too_slow or point.ms_batch > most for point in less):
            return _SLOWER
        return None

    def _batch(self, parts: Parts) -> tuple[list[Ranking], float]:
        """Return the rankings of all queries at once, and milliseconds a query."""
        started = time.perf_counter()
        found = rank_views(parts, self._queries)
        return found, 1000 * (time.perf_counter() - started) / len(self._queries)

    def _single_ms(self, parts: Parts) -> float:
        """Return the median milliseconds of single queries, of fewer where each takes long."""
        seconds: list[float] = []
        for query in self._queries[:_TIMED_QUERIES]:
            if sum(seconds) > _TIMED_S:
                break
            started = time.perf_counter()
            rank_views(parts, query[None])
            seconds.append(time.perf_counter() - started)
        return 1000 * float(np.median(seconds))


def _with_search(part: Part, search: Search) -> Part:
    """Return the part, its engine searched with these settings; a part without documents has none."""
    ranking = part.engines.ranking
    return (
        part if ranking is None else part._replace(engines=replace(part.engines, ranking=ranking.with_search(search)))
    )


def tune_search(parts: Parts, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
    """Measure the parts' engine; nothing is changed. queries: (q, d) float32; None samples views of the index.

    ConfigError when there is nothing to tune.
    """
    expect_work()
    sample = sample_queries(parts, queries)
    on_progress("certified scan", 0, 1)
    tuning = Tuning(parts, sample)
    points, unmeasured = tuning.run(goal, on_progress)
    return TuneReport(
        kind=next(part.snapshot.settings["engine"]["kind"] for part in parts.all if part.engines.ranking),
        top_k=goal.top_k,
        target_recall=goal.recall,
        queries=len(sample),
        are_own_views=queries is None,
        exact_ms=tuning.exact_ms,
        exact_ms_batch=tuning.exact_ms_batch,
        points=tuple(points),
        chosen=choose(points, goal.recall),
        unmeasured=unmeasured,
    )


def choose(points: Sequence[TunePoint], target_recall: float) -> TunePoint | None:
    """Return the fastest point, one query at a time, whose recall is at least the target."""
    reached = [point for point in points if point.recall >= target_recall]
    return min(reached, key=lambda point: (point.ms, point.ms_batch), default=None)


def check_time_limit(seconds: float) -> None:
    """Check a time limit; raise ConfigError unless it is above 0."""
    if not seconds > 0:
        raise ConfigError(f"time_limit_s: expected seconds above 0, got {seconds!r}")


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
