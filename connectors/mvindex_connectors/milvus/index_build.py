"""Build Milvus' own indexes over the views, each used once it covers every row, and tune their search parameters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.engines.build import BuildReport
from mvindex.errors import ConfigError, EngineUnavailable, StaleReader
from mvindex.kernels.score import Scoring
from mvindex.records import Floats, ProgressCallback
from mvindex.search.ranking import Ranking
from mvindex.search.tuning import TuneGoal, TunePoint, TuneReport, choose
from mvindex.search.tuning.search_params import sample_rows
from mvindex_connectors.milvus.connection import Connection, views_of
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.kinds import FLAT, build_parameters, choices, milvus_name, parse_kind
from mvindex_connectors.milvus.layout import LIGHT_FIELDS
from mvindex_connectors.milvus.reader import light
from mvindex_connectors.milvus.search import CandidateRequest
from mvindex_connectors.milvus.store import MilvusStore
from mvindex_connectors.milvus.writer import MilvusWriter

# Up to this number of views the exact search of FLAT takes some hundred milliseconds at most.
_FLAT_VIEWS = 200_000
_POLL_S, _LAST_POLL_S = 0.2, 5.0
# A server that indexes no row for this long fails to build, and tries again for ever.
_STALLED_S = 600.0
_QUERIES, _TIMED = 64, 16
# No wider setting is tried once one reaches this recall.
_ENOUGH = 0.9995
_SEED = 7
_LEFT_OUT = "wider than one that finds everything, or after the time limit"


def build_index(store: MilvusStore, kind: str | None, nlist: int | None, on_progress: ProgressCallback) -> BuildReport:
    """Build an index of Milvus' own and make it the active one; EngineUnavailable when the server does not finish."""
    features = store.connection.features
    with store.writing() as writer:
        num_views, dim = int(store.snapshot.settings["views"]), int(store.snapshot.dim or 2)
        chosen, why = _chosen(kind, num_views, features.kinds, features.server)
        if nlist is not None and not chosen.startswith("ivf"):
            raise ConfigError(f"nlist: expected an ivf kind, got kind {chosen!r}")
        parameters = build_parameters(chosen, num_views, dim, nlist)
        if store.has_views:
            _replace_index(store, writer, chosen, parameters, on_progress)
        engine = {"kind": chosen, "parameters": {**parameters, "views": num_views}, "search": {}}
        writer.change_settings(engine=None if chosen == FLAT else engine)
        documents = store.reader.count()
    return BuildReport(
        kind=chosen,
        documents=documents,
        views=num_views,
        engine_bytes=0,
        stored_bytes=num_views * dim * 4,
        why=why,
    )


def _chosen(kind: str | None, num_views: int, kinds: tuple[str, ...], server: str) -> tuple[str, str]:
    if kind is not None:
        return parse_kind(kind, kinds, server), "as requested"
    if num_views <= _FLAT_VIEWS:
        return FLAT, f"{num_views:,} views: up to {_FLAT_VIEWS:,}, Milvus' exact search is fast enough"
    return "hnsw", f"{num_views:,} views: above {_FLAT_VIEWS:,}, a graph finds nearly all in a few milliseconds"


def _replace_index(
    store: MilvusStore, writer: MilvusWriter, kind: str, parameters: dict[str, int], on_progress: ProgressCallback
) -> None:
    """Replace the index by one of this kind; meanwhile the settings name the one that proves less."""
    connection, name = store.connection, views_of(store.connection.address.collection)
    if kind == FLAT:
        before = store.snapshot.settings["engine"]
    else:
        # From here on nothing is proven by a ranking, whatever becomes of this process.
        before = {"kind": kind, "parameters": {**parameters, "views": 1}, "search": {}}
    writer.change_settings(engine=before)
    on_progress("flushing", 0, 1)
    connection.ask("flushing", "flush", name)
    on_progress("flushing", 1, 1)
    fields = connection.ask("looking for the index", "list_indexes", name)
    connection.ask("releasing", "release_collection", name)
    for index in fields:
        connection.ask("dropping the index", "drop_index", name, index)
    _create(connection, name, kind, parameters)
    _wait(connection, name, on_progress)
    try:
        connection.load(name)
    except EngineUnavailable:
        # A 2.3 server may fail to load a segment whose old index it is still removing, and then never tries again.
        connection.ask("releasing", "release_collection", name)
        connection.load(name)


def _create(connection: Connection, name: str, kind: str, parameters: dict[str, int]) -> None:
    def create(client: Any, **options: Any) -> None:
        index = client.prepare_index_params()
        index.add_index(
            field_name="vec",
            index_type=milvus_name(kind),
            metric_type="IP",
            index_name="vec",
            params=dict(parameters),
        )
        # Lite builds in this call; a server would block in it for ever where a build fails: that is waited for below.
        if not connection.features.is_lite:
            client.create_index(name, index, sync=False, **options)
        else:
            client.create_index(name, index)

    connection.call(f"creating the index {milvus_name(kind)}", create)


def _wait(connection: Connection, name: str, on_progress: ProgressCallback) -> None:
    """Wait until every row is indexed; EngineUnavailable when the number stalls."""
    best, since, pause = -1, time.monotonic(), _POLL_S
    while True:
        found = connection.ask("asking how much is indexed", "describe_index", name, index_name="vec")
        indexed, total = int(found.get("indexed_rows", 0)), int(found.get("total_rows", 0))
        on_progress("indexing", indexed, total)
        if indexed >= total and str(found.get("state", "Finished")) == "Finished":
            return
        if indexed > best:
            best, since = indexed, time.monotonic()
        if time.monotonic() - since > _STALLED_S:
            raise EngineUnavailable(
                f"{connection.address.shown}: building the index: {indexed:,} of {total:,} rows are indexed, and no "
                f"more for {_STALLED_S:g} s; see the server's log. mvindex build --kind flat undoes it"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LAST_POLL_S)


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
            points.append(_measured(search_engine, queries, truth, {**engine, "search": dict(search)}, goal.top_k))
        on_progress("measuring", number, len(tried))
    chosen = choose(points, goal.recall)
    if chosen is not None:
        with store.writing() as writer:
            _check_same(engine, writer.settings["engine"], store.where)
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


def _check_same(measured: Mapping[str, Any], now: Mapping[str, Any] | None, where: str) -> None:
    """Raise StaleReader unless the index that was measured is the one of now."""
    before, after = ({name: (each or {}).get(name) for name in ("kind", "parameters")} for each in (measured, now))
    if before != after:
        raise StaleReader(
            f"{where}: tune: expected the index that was measured, {before}, got {after}, which was built meanwhile. "
            "Nothing was changed; tune again"
        )


def _measured(
    search_engine: MilvusEngine, queries: Floats, truth: Sequence[Ranking], engine: Mapping[str, Any], top_k: int
) -> TunePoint:
    started = time.perf_counter()
    found = search_engine.answers(queries, CandidateRequest(top_k, Scoring()), engine)
    batch_ms = 1000 * (time.perf_counter() - started) / len(queries)
    seconds = []
    for query in queries[:_TIMED]:
        started = time.perf_counter()
        search_engine.answers(query[None], CandidateRequest(top_k, Scoring()), engine)
        seconds.append(time.perf_counter() - started)
    shares = np.array([_recall(one, other) for one, other in zip(found, truth, strict=True)])
    spread = float(shares.std(ddof=1)) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
    return TunePoint(
        search=engine["search"],
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
