"""Choose the search parameters of an index in Milvus by measuring them against the exact answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Floats, ProgressCallback
from mvindex.scoring.aggregate import Scoring
from mvindex.tuning import TunePoint, TuneReport, choose
from mvindex.tuning.queries import sample_rows
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.kinds import FLAT, choices
from mvindex_connectors.milvus.layout import LIGHT_FIELDS
from mvindex_connectors.milvus.records import light
from mvindex_connectors.milvus.search import Answer, CandidateRequest
from mvindex_connectors.milvus.store import MilvusStore

_QUERIES, _TIMED = 64, 16
# A setting is not tried when one that looks at less already finds all but so much.
_ENOUGH = 0.9995
_SEED = 7


def tune_index(
    store: MilvusStore,
    searched: MilvusEngine,
    given: Floats | None,
    wanted: tuple[int, float],
    on_progress: ProgressCallback,
) -> TuneReport:
    """Measure settings, and keep the fastest that reaches the target; wanted: top_k and target recall."""
    top_k, target = wanted
    engine = store.settings["engine"]
    kind = engine["kind"] if engine else FLAT
    tried = choices(kind, engine["parameters"]) if engine else []
    if not tried:
        raise ConfigError("there is nothing to tune: build an approximate kind first (hnsw, or one of ivf-*)")
    queries = sample_rows(_sample_own_views(store) if given is None else given, _QUERIES)
    if not len(queries):
        raise ConfigError("tuning needs a query at least")
    started = time.perf_counter()
    truth = searched.answers(queries, CandidateRequest(top_k, Scoring(), exact=True))
    exact_ms = 1000 * (time.perf_counter() - started) / len(queries)
    points: list[TunePoint] = []
    for number, search in enumerate(tried, start=1):
        if not any(point.recall >= _ENOUGH for point in points):
            points.append(_measured(searched, queries, (top_k, truth), search))
        on_progress("measuring", number, len(tried))
    chosen = choose(points, target)
    if chosen is not None:
        with store.writing():
            store.change_settings(engine={**engine, "search": dict(chosen.search)})
    return TuneReport(
        kind=kind,
        top_k=top_k,
        target_recall=target,
        queries=len(queries),
        are_own_views=given is None,
        # One pass answers all queries of a batch.
        exact_ms=exact_ms,
        exact_ms_batch=exact_ms,
        points=tuple(points),
        chosen=chosen,
    )


def _measured(
    searched: MilvusEngine, queries: Floats, wanted: tuple[int, Sequence[Answer]], search: dict[str, int]
) -> TunePoint:
    top_k, truth = wanted
    started = time.perf_counter()
    found = searched.answers(queries, CandidateRequest(top_k, Scoring()), search)
    batch_ms = 1000 * (time.perf_counter() - started) / len(queries)
    seconds = []
    for query in queries[:_TIMED]:
        started = time.perf_counter()
        searched.answers(query[None], CandidateRequest(top_k, Scoring()), search)
        seconds.append(time.perf_counter() - started)
    shares = np.array([_share(one, other) for one, other in zip(found, truth, strict=True)])
    spread = float(shares.std(ddof=1)) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
    return TunePoint(
        search=dict(search),
        recall=float(shares.mean()),
        low=float(shares.mean() - 1.645 * spread),
        ms=1000 * float(np.median(seconds)),
        ms_batch=batch_ms,
        documents_scored=float(np.mean([answer.best.num_scored for answer in found])),
    )


def _share(found: Answer, wanted: Answer) -> float:
    """Return the share of the exact documents that were found; one that ties with the last of them counts."""
    if not len(wanted.best.documents):
        return 1.0
    is_right = np.isin(found.best.documents, wanted.best.documents) | (found.best.scores >= wanted.best.scores[-1])
    return min(int(np.count_nonzero(is_right)), len(wanted.best.documents)) / len(wanted.best.documents)


def _sample_own_views(store: MilvusStore) -> Floats:
    """Return a view of each of some documents sampled with a fixed seed."""
    reader, drawn = store.reader, np.random.default_rng(_SEED)
    total = int(store.settings["next_document"])
    numbers = drawn.permutation(total)[: 4 * _QUERIES] if total else np.empty(0, dtype=np.int64)
    rows = list(reader.records(sorted(numbers.tolist()), LIGHT_FIELDS).values())[:_QUERIES]
    found = reader.views([light(row) for row in rows], int(store.dim or 1))
    picked = [views[int(drawn.integers(len(views)))] for _, views in found.values()]
    return np.array(picked, dtype=np.float32).reshape(-1, int(store.dim or 1))
