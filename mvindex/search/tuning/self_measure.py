"""A built engine measures itself: the beam that reaches the target, and whether the exact scan is faster anyway."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mvindex.engines.protocol import Engine, Search, ranks_documents
from mvindex.kernels import expect_work
from mvindex.records import Floats, Ints, ProgressCallback, no_progress
from mvindex.search.parts import Part, Parts
from mvindex.search.ranking import Ranking
from mvindex.search.views import FEW, MANY, rank_views

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
        return part._replace(engines=replace(part.engines, ranking=ranking), request=replace(part.request, top_k=top_k))

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
