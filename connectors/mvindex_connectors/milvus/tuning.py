"""Choose the search parameters of an index of Milvus by measuring them against the exact result."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from mvindex.errors import ConfigError
from mvindex.kernels.score import Scoring
from mvindex.records import Floats, ProgressCallback
from mvindex.search.ranking import Ranking
from mvindex.search.tuning import TuneGoal, TunePoint, TuneReport, choose
from mvindex.search.tuning.search_params import sample_rows
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.kinds import FLAT, choices
from mvindex_connectors.milvus.layout import LIGHT_FIELDS
from mvindex_connectors.milvus.records import light
from mvindex_connectors.milvus.search import CandidateRequest
from mvindex_connectors.milvus.store import MilvusStore

_QUERIES, _TIMED = 64, 16
# No wider setting is tried once one reaches this recall.
_ENOUGH = 0.9995
_SEED = 7
_LEFT_OUT = "wider than one that finds everything, or after the time limit"


def tune_index(
    store: MilvusStore,
    search_engine: MilvusEngine,
    queries: Floats | None,
    goal: TuneGoal,
    on_progress: ProgressCallback,
) -> TuneReport:
    """Measure search parameters, and keep the fastest that reach the goal; without queries, sample own views."""
    engine = store.settings["engine"]
    kind = engine["kind"] if engine else FLAT
    tried = choices(kind, engine["parameters"]) if engine else []
    if not tried:
        raise ConfigError(
            "tune: expected an approximate kind, got an exact one. There is nothing to tune: build hnsw or ivf-* first"
        )
    are_own_views = queries is None
    queries = sample_rows(_own_views(store) if queries is None else queries, _QUERIES)
    if not len(queries):
        raise ConfigError("tune: expected at least one query, got none")
    started = time.perf_counter()
    truth = search_engine.answers(queries, CandidateRequest(goal.top_k, Scoring(), exact=True))
    exact_ms = 1000 * (time.perf_counter() - started) / len(queries)
    points: list[TunePoint] = []
    for number, search in enumerate(tried, start=1):
        if time.monotonic() < goal.deadline and not any(point.recall >= _ENOUGH for point in points):
            points.append(_measured(search_engine, queries, truth, search, goal.top_k))
        on_progress("measuring", number, len(tried))
    chosen = choose(points, goal.recall)
    if chosen is not None:
        with store.writing() as writer:
            writer.change_settings(engine={**engine, "search": dict(chosen.search)})
    return TuneReport(
        kind=kind,
        top_k=goal.top_k,
        target_recall=goal.recall,
        queries=len(queries),
        are_own_views=are_own_views,
        # One pass answers all queries of a batch.
        exact_ms=exact_ms,
        exact_ms_batch=exact_ms,
        points=tuple(points),
        chosen=chosen,
        unmeasured={} if len(points) == len(tried) else {_LEFT_OUT: len(tried) - len(points)},
    )


def _measured(
    search_engine: MilvusEngine, queries: Floats, truth: Sequence[Ranking], search: dict[str, int], top_k: int
) -> TunePoint:
    started = time.perf_counter()
    found = search_engine.answers(queries, CandidateRequest(top_k, Scoring()), search)
    batch_ms = 1000 * (time.perf_counter() - started) / len(queries)
    seconds = []
    for query in queries[:_TIMED]:
        started = time.perf_counter()
        search_engine.answers(query[None], CandidateRequest(top_k, Scoring()), search)
        seconds.append(time.perf_counter() - started)
    shares = np.array([_recall(one, other) for one, other in zip(found, truth, strict=True)])
    spread = float(shares.std(ddof=1)) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
    return TunePoint(
        search=dict(search),
        recall=float(shares.mean()),
        low=float(shares.mean() - 1.645 * spread),
        ms=1000 * float(np.median(seconds)),
        ms_batch=batch_ms,
        documents_scored=float(np.mean([answer.num_scored for answer in found])),
    )


def _recall(found: Ranking, truth: Ranking) -> float:
    """Return the share of the exact documents that were found; a tie with the last of them counts as one of them."""
    if not len(truth.rows):
        return 1.0
    is_right = np.isin(found.rows, truth.rows) | (found.scores >= truth.scores[-1])
    return min(int(np.count_nonzero(is_right)), len(truth.rows)) / len(truth.rows)


def _own_views(store: MilvusStore) -> Floats:
    """Return a view of each of some random documents, with a fixed seed."""
    reader, drawn = store.reader, np.random.default_rng(_SEED)
    total = int(store.settings["next_document"])
    numbers = drawn.permutation(total)[: 4 * _QUERIES] if total else np.empty(0, dtype=np.int64)
    rows = list(reader.records(sorted(numbers.tolist()), LIGHT_FIELDS).values())[:_QUERIES]
    found = reader.views([light(row) for row in rows], int(store.dim or 1))
    picked = [views[int(drawn.integers(len(views)))] for _, views in found.values()]
    return np.array(picked, dtype=np.float32).reshape(-1, int(store.dim or 1))
