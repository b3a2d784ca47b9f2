"""Search parameters by measurement: of given queries by `tune`, and of the index's own views by a build."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from mvindex.engines.protocol import Engine, Search, ranks_documents
from mvindex.errors import ConfigError
from mvindex.kernels import expect_work
from mvindex.records import Bools, Floats, Ints, ProgressCallback, no_progress
from mvindex.search.parts import Part, Parts
from mvindex.search.ranking import Ranking
from mvindex.search.views import FEW, MANY, rank_views
from mvindex.store.snapshot import Snapshot

# The number of queries that are measured at most.
_MAX_QUERIES = 256
_DRAW = 7


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
    drawn = np.random.default_rng(_DRAW)
    rows = drawn.choice(live, size=min(count, len(live)), replace=False)
    packed, starts = snapshot.views.fetch(np.sort(rows))
    picked = starts[:-1] + drawn.integers(0, np.diff(starts))
    chosen: Floats = packed[picked].astype(np.float32)
    return chosen


def sample_rows(queries: Floats, count: int) -> Floats:
    """Return so many random rows, (n, d), with a fixed seed; all if there are no more."""
    if len(queries) <= count:
        return queries
    return queries[np.sort(np.random.default_rng(_DRAW).choice(len(queries), size=count, replace=False))]


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
        exact = Parts([part._replace(engines=part.engines._replace(ranking=None)) for part in parts.all])
        self._exact, self.exact_ms_batch = self._batch(exact)
        is_long = self.exact_ms_batch * len(queries) > 1000 * _TIMED_S
        self.exact_ms = None if is_long else self._single_ms(exact)

    def measured(self, search: Search) -> TunePoint:
        """Measure these search parameters."""
        parts = Parts([_searched_by(part, search) for part in self._parts.all])
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


def _searched_by(part: Part, search: Search) -> Part:
    """Return the part, its engine searched with these settings; a part without documents has none."""
    ranking = part.engines.ranking
    return (
        part if ranking is None else part._replace(engines=part.engines._replace(ranking=ranking.with_search(search)))
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


# Half of the questions are stored views, whose own documents do not count. To the other half noise of so many times
# their norm is added: the sum and difference of so many other views, since questions leave a view in the directions in
# which views differ. Noise in all directions alike is far easier. The target is to be reached by each half.
_QUESTIONS, _NOISE, _OTHERS = 256, 1.0, 4
# Questions of people lie further from the views than these: the beam misses no more than so large a share of what the
# target allows to be missed. Measured by bench/peers.py.
_MISSED = 0.75
# Questions that are timed one by one, in turns with the exact scan.
_TIMED = 24
# Beams are tried so many steps apart until one is enough: a great one takes as long as all smaller ones together. Where
# a walk takes so many times as long as the exact scan, that answers, and will until documents are twice as many.
_STRIDE, _TOO_SLOW = 4, 4.0
_SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMeasured:
    """Hold what a build has measured of the engine that it made.

    Attributes:
        target_recall: The share of the exact documents that should be found.
        questions: How many questions were asked: stored views, and views with noise.
        documents: Live documents at that time.
        recall_10: The share found of the best 10, with the chosen search parameters.
        recall_100: The same of the best 100.
        ms_10: Median CPU milliseconds of the ranking of one question for its best 10.
        ms_100: The same for its best 100.
        exact_ms_10: The same of the exact scan, in turns with it; the faster one answers.
        exact_ms_100: The same for its best 100.

    """

    target_recall: float
    questions: int
    documents: int
    recall_10: float
    recall_100: float
    ms_10: float
    ms_100: float
    exact_ms_10: float
    exact_ms_100: float

    def as_json(self) -> dict[str, Any]:
        """Return the value that the engine's settings keep."""
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


def measure_itself(
    parts: Parts, target_recall: float, on_progress: ProgressCallback = no_progress
) -> tuple[Search, SelfMeasured] | None:
    """Return the search parameters that reach the target, and what was measured; None for a kind without a beam.

    parts: the whole index, opened with the engine. Nothing is changed.
    """
    engines = [part.engines.ranking for part in parts.all if part.engines.ranking is not None]
    if not engines or not ranks_documents(engines[0]):
        return None
    expect_work()
    wait_for(engines)
    beams = sorted({search["beam"] for search in engines[0].choices()})
    questions, own = _questions(parts)
    steps = iter(range(1, 4))
    goal = 1 - _MISSED * (1 - target_recall)
    found: dict[int, tuple[int, float]] = {}
    for top_k in (FEW, MANY):
        on_progress("measuring the engine", next(steps), 3)
        found[top_k] = _least_beam(_Measure(parts, questions, own, top_k), beams, goal)
        beams = [beam for beam in beams if beam >= found[top_k][0]]
    search = {"beam": found[FEW][0], "top_k": FEW, f"beam_{MANY}": found[MANY][0]}
    on_progress("measuring the engine", next(steps), 3)
    ms = {
        top_k: _timed(questions, [_with_search(parts, search, top_k), _with_search(parts, None, top_k)])
        for top_k in (FEW, MANY)
    }
    measured = SelfMeasured(
        target_recall=target_recall,
        questions=len(questions),
        documents=parts.num_allowed,
        recall_10=found[FEW][1],
        recall_100=found[MANY][1],
        ms_10=ms[FEW][0],
        ms_100=ms[MANY][0],
        exact_ms_10=ms[FEW][1],
        exact_ms_100=ms[MANY][1],
    )
    return search, measured


def wait_for(engines: Sequence[Engine]) -> None:
    """Wait until the compiled loops of the engines are loaded."""
    for engine in engines:
        while ranks_documents(engine) and not engine.is_ready():
            time.sleep(0.01)


class _Measure:
    """The recall of one engine by its beam, at one top_k."""

    def __init__(self, parts: Parts, questions: Floats, own: Ints, top_k: int) -> None:
        """Find the exact answers. own: (q,) the row of a question's own document, -1 for none."""
        self._parts, self._questions, self._own, self._top_k = parts, questions, own, top_k
        # One more, since the own document does not count.
        exact = rank_views(_with_search(parts, None, top_k + 1), questions)
        self._true = [self._others(ranking, row) for ranking, row in zip(exact, own.tolist(), strict=True)]
        [self._exact_ms] = _timed(questions, [_with_search(parts, None, top_k)])

    def recall(self, beam: int) -> tuple[float, bool]:
        """Return the share of the exact documents that are found, of the half of the questions that finds less.

        One that ties with the last counts as found. And whether it takes far longer than the exact scan.
        """
        search = {"beam": beam, "top_k": self._top_k + 1}
        begun = time.process_time()
        found = rank_views(_with_search(self._parts, search, self._top_k + 1), self._questions)
        ms = 1000 * (time.process_time() - begun) / len(self._questions)
        shares = []
        for ranking, row, (rows, scores) in zip(found, self._own.tolist(), self._true, strict=True):
            own_rows, own_scores = self._others(ranking, row)
            is_right = np.isin(own_rows, rows) | (own_scores >= scores.min(initial=np.inf))
            shares.append(min(int(np.count_nonzero(is_right)), len(rows)) / len(rows) if len(rows) else 1.0)
        is_noisy = self._own < 0
        share = min(np.mean(np.array(shares)[half]) for half in (is_noisy, ~is_noisy) if half.any())
        is_slow = ms > _TOO_SLOW * self._exact_ms
        if is_slow:
            # Other threads of the process may have been busy: the median of single searches decides.
            [ms] = _timed(self._questions, [_with_search(self._parts, search, self._top_k)])
            is_slow = ms > _TOO_SLOW * self._exact_ms
        return float(share), is_slow

    def _others(self, ranking: Ranking, own: int) -> tuple[Ints, Floats]:
        kept = np.flatnonzero(ranking.rows != own)[: self._top_k]
        return ranking.rows[kept], ranking.scores[kept]


def _least_beam(measure: _Measure, beams: Sequence[int], target: float) -> tuple[int, float]:
    """Return the least beam whose recall reaches the target, and its recall.

    The greatest that pays where none does.
    """
    low, high, last = 0, 0, len(beams) - 1
    recall, is_slow = measure.recall(beams[high])
    while recall < target and high < last and not is_slow:
        low, high = high + 1, min(high + _STRIDE, last)
        recall, is_slow = measure.recall(beams[high])
    while low < high and recall >= target:
        middle = (low + high) // 2
        found, _ = measure.recall(beams[middle])
        if found >= target:
            high, recall = middle, found
        else:
            low = middle + 1
    return beams[high], recall


def _questions(parts: Parts) -> tuple[Floats, Ints]:
    """Return questions, (q, d) float32, and the row of each one's own document, (q,), -1 for those with noise."""
    drawn = np.random.default_rng(_SEED)
    total = sum(part.snapshot.num_documents for part in parts.all)
    views, rows = [], []
    for part, first in zip(parts.all, parts.firsts.tolist(), strict=True):
        live = np.flatnonzero(part.snapshot.alive)
        count = min(len(live), -(-_QUESTIONS * len(live) // max(total, 1)))
        if not count:
            continue
        chosen = np.sort(drawn.choice(live, size=count, replace=False))
        packed, starts = part.snapshot.views.fetch(chosen)
        picked = starts[:-1] + drawn.integers(0, np.diff(starts))
        views.append(packed[picked].astype(np.float32))
        rows.append(first + chosen)
    questions, own = np.concatenate(views), np.concatenate(rows)
    is_noisy = np.arange(len(questions)) % 2 == 1
    signs = np.where(np.arange(_OTHERS) % 2, -1, 1).astype(np.float32)[:, None, None]
    noise = (signs * questions[drawn.integers(0, len(questions), (_OTHERS, len(questions)))]).sum(axis=0)
    norms = np.linalg.norm(questions, axis=1, keepdims=True)
    noise *= _NOISE * norms / np.maximum(np.linalg.norm(noise, axis=1, keepdims=True), 1e-30)
    questions[is_noisy] += noise[is_noisy]
    return questions, np.where(is_noisy, -1, own)


def _with_search(parts: Parts, search: Mapping[str, int] | None, top_k: int) -> Parts:
    """Return the parts for a top_k, their engines searched with these parameters; None: scanned."""

    def changed(part: Part) -> Part:
        engine = part.engines.ranking
        ranking = None if engine is None or search is None else engine.with_search(dict(search))
        return part._replace(engines=part.engines._replace(ranking=ranking), request=part.request._replace(top_k=top_k))

    return Parts([changed(part) for part in parts.all])


def _timed(questions: Floats, ways: Sequence[Parts]) -> list[float]:
    """Return the median CPU milliseconds of one question by each way, asked in turns."""
    asked = questions[:: max(1, len(questions) // _TIMED)][:_TIMED]
    seconds: list[list[float]] = [[] for _ in ways]
    for query in [asked[0], *asked]:
        for each, way in zip(seconds, ways, strict=True):
            begun = time.process_time()
            rank_views(way, query[None])
            each.append(time.process_time() - begun)
    # The first call loads what the others find.
    return [1000 * float(np.median(each[1:])) for each in seconds]
