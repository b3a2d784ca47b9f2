"""Kind graph: views that link to near ones of other documents, walked by document; see kernels.walk.

Beside the links stand codes of the views, of 4 bits a dimension, so that a walk reads nothing else. A walk
finds documents; the search loop scores them anew from the stored views. Built by own code: the graphs of hnswlib,
usearch and Faiss take as long to build, hold links to a document's own views, which a walk by document never follows,
and know nothing of documents.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mvindex.engines.graph_build import BEAM, BITS, DEGREE, SPARE, build_graph, code_bytes_of
from mvindex.engines.protocol import BuildOptions, EngineCapabilities, EngineKind, Parameter, Search, ViewBytes
from mvindex.errors import EngineError
from mvindex.kernels.loading import Loading
from mvindex.kernels.score import Aggregate, Scoring, for_loops
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.plugins import require
from mvindex.records import Bools, Floats
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedFile, check_mapped

if TYPE_CHECKING:
    from mvindex.kernels.walk import Graph, Steps

# The arrays of a graph: their types and dimensions.
_FORMS = {
    "codes": ("uint8", 2),
    "factors": ("float32", 2),
    "links": ("int32", 2),
    "owners": ("int32", 1),
    "starts": ("int64", 1),
    "entries": ("int32", 1),
}
# The documents of the beam for the first ten: measured in docs/decisions/010.
_DEFAULT: Search = {"beam": 400, "top_k": 10}
# Each a quarter more than the one before: a beam of twice as many documents takes nearly twice as long. A smaller one
# than the first saves a few hundredths of a millisecond, and may miss what stands apart from all that was measured.
_CHOICES = [{"beam": round(32 * 1.25**step)} for step in range(20)]
# The search parameter for a hundred documents, where it was measured too.
_OF_MANY, _MANY = "beam_100", 100
# Of the documents of the beam so many for each that is wanted, and so many at least, are scored from the stored views:
# measured in docs/decisions/010.
_RESCORED, _LEAST_RESCORED = 2, 32
# A table of what a walk has reached has so many places for each document of the beam.
_PLACES = 256
_LEAST_PLACES, _MOST_PLACES = 1 << 15, 1 << 26
# Queries that a thread takes at a time: so few that all threads end together.
_AT_ONCE = 2
# The mask of a search in which all documents are allowed.
_ALL = np.empty(0, dtype=bool)


class GraphEngine:
    """A graph of views as a DocumentEngine. Thread-safe."""

    def __init__(
        self, graph: Graph, files: Sequence[MappedFile], settings: Mapping[str, Any], loading: Loading | None = None
    ) -> None:
        from mvindex.kernels import walk

        self._files, self._loops = files, walk
        self._max_views = int(np.diff(graph.starts).max(initial=1))
        self._graph, self._settings = graph, settings
        self._loading = loading or Loading()
        self._search = {**_DEFAULT, **{name: int(value) for name, value in (settings.get("search") or {}).items()}}
        self._free: dict[int, list[Steps]] = {}
        self.num_rows = int(settings["built_rows"])
        self.capabilities = EngineCapabilities(is_exact=False, ranks_documents=True)

    @property
    def search_settings(self) -> Search:
        """See TunedEngine."""
        return self._search

    @property
    def measured(self) -> Mapping[str, Any] | None:
        """See DocumentEngine."""
        measured = self._settings.get("measured")
        return measured if measured is not None and "exact_ms_100" in measured else None

    def choices(self) -> Sequence[Search]:
        """See TunedEngine."""
        return _CHOICES

    def with_search(self, search: Search) -> GraphEngine:
        """See TunedEngine."""
        return GraphEngine(
            self._graph, self._files, {**self._settings, "search": dict(search), "measured": None}, self._loading
        )

    def is_ready(self) -> bool:
        """See DocumentEngine."""
        return self._loading.is_done(self._load_loops)

    def _load_loops(self) -> None:
        """Walk for no query, which loads or compiles the loops."""
        steps, found = self._taken(_LEAST_PLACES), np.empty((0, 1), dtype=np.int32)
        self._loops.walk_for_queries(
            self._graph, np.empty((0, 1), np.float32), 0.0, np.empty(0, dtype=bool), steps, found
        )

    def documents(self, queries: Floats, top_k: int, allowed: Bools | None, scoring: Scoring) -> npt.NDArray[np.int32]:
        """See DocumentEngine."""
        check_mapped(self._files)
        walk_for_queries = self._loops.walk_for_queries
        width = code_bytes_of(queries.shape[1])
        if self._graph.codes.shape[1] != width:
            raise EngineError(f"kind graph: expected codes of {width} bytes, got {self._graph.codes.shape[1]}")
        queries = for_loops(queries)
        beam = min(beam_of(self._search, _DEFAULT, top_k), self.num_rows)
        share = 1.0 if allowed is None else np.count_nonzero(allowed) / max(len(allowed), 1)
        mask = _ALL if allowed is None else allowed
        inverse = 1 / scoring.temperature if scoring.aggregate is Aggregate.DRPQ else 0.0
        found: npt.NDArray[np.int32] = np.empty((len(queries), beam), dtype=np.int32)
        places = _places(beam, share)

        def walk_part(begin: int, end: int) -> None:
            steps = self._taken(places)
            walk_for_queries(self._graph, queries[begin:end], inverse, mask, steps, found[begin:end])
            self._free.setdefault(places, []).append(steps)

        if len(queries) == 1:
            walk_part(0, 1)
        else:
            self._in_threads(walk_part, len(queries))
        return found[:, : max(_RESCORED * top_k, _LEAST_RESCORED)]

    def _in_threads(self, walk_part: Callable[[int, int], None], num_queries: int) -> None:
        parts = deque((at, min(at + _AT_ONCE, num_queries)) for at in range(0, num_queries, _AT_ONCE))

        def walk_parts() -> None:
            for begin, end in taken_from(parts):
                walk_part(begin, end)

        run_in_threads(walk_parts, min(default_threads(), len(parts)))

    def _taken(self, places: int) -> Steps:
        """Return working memory that no other thread uses, with a table of so many places."""
        try:
            steps = self._free[places].pop()
        except (KeyError, IndexError):
            return self._loops.new_steps(self._graph, places, self._max_views)
        self._loops.renew(steps)
        return steps


def beam_of(search: Search, default: Search, top_k: int) -> int:
    """Return the documents of the beam for top_k, from those that search["top_k"] was measured with.

    They grow with its square root, as measured where neighbours are spread; where a small beam was enough, as fast as
    top_k until the default is reached. Between search["top_k"] and a hundred documents they follow what was measured
    for both.
    """
    least, many = search["top_k"], search.get(_OF_MANY)
    if many is not None and least < _MANY:
        if top_k <= least:
            return search["beam"]
        if top_k >= _MANY:
            return max(round(many * math.sqrt(top_k / _MANY)), top_k)
        share = math.log(top_k / least) / math.log(_MANY / least)
        between: float = search["beam"] ** (1 - share) * many**share
        return max(round(between), top_k)
    times = top_k / search["top_k"]
    spread = max(search["beam"] * math.sqrt(times), default["beam"] * math.sqrt(top_k / default["top_k"]))
    grown = min(search["beam"] * times, spread) if times > 1 else search["beam"] * math.sqrt(times)
    return max(round(grown), top_k)


def _places(beam: int, share: float) -> int:
    """Return the places of the table for a beam, where so large a share of the documents is allowed."""
    wanted = int(beam * _PLACES / max(share, 1 / 64))
    return min(max(1 << (wanted - 1).bit_length(), _LEAST_PLACES), _MOST_PLACES)


def _build(snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
    require("numba", "fast", "kind graph")
    return build_graph(snapshot, directory, options)


def _open(directory: Path, settings: Mapping[str, Any], device: str | None) -> GraphEngine:
    """Map the arrays of a graph; EngineError when they do not fit each other."""
    require("numba", "fast", "kind graph")
    from mvindex.kernels.walk import Graph

    files = []

    def mapped(name: str) -> npt.NDArray[Any]:
        path = directory / f"{name}.npy"
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        files.append(MappedFile(path, array.base, array.base.size()))
        return np.ascontiguousarray(array.view(np.ndarray))

    bits = settings["parameters"].get("bits")
    if bits != BITS:
        raise EngineError(f"kind graph: expected codes of {BITS} bits a dimension, got {bits!r:.40}")
    graph = Graph(**{name: mapped(name) for name in _FORMS})
    for name, form in _FORMS.items():
        array = getattr(graph, name)
        if (array.dtype, array.ndim) != form or (name == "factors" and array.shape[1] != 2):
            raise EngineError(f"{directory}: {name} is {array.dtype} of shape {array.shape}")
    if not len(graph.starts):
        raise EngineError(f"{directory}: starts is empty")
    num_views, num_rows = len(graph.owners), len(graph.starts) - 1
    lengths = {len(graph.codes), len(graph.factors), len(graph.links), num_views, int(graph.starts[-1])}
    if lengths != {num_views} or num_rows != settings["built_rows"] or num_views != settings["num_views"]:
        raise EngineError(f"{directory}: expected arrays of {settings['num_views']} views, got {sorted(lengths)}")
    # Walks leave out what links and owners lead to beyond these.
    starts, entries = graph.starts, graph.entries
    is_rising = starts[0] == 0 and bool((starts[1:] > starts[:-1]).all())
    if not is_rising or not ((entries >= 0) & (entries < num_views)).all():
        raise EngineError(f"{directory}: its documents' first views do not rise from 0, or an entry is no view")
    return GraphEngine(graph, files, settings)


def _view_bytes(dim: int) -> ViewBytes:
    """Return a view's bytes: its code and factors, and beside them links, its document's row, a share of its start."""
    beside, spare = 4 * DEGREE + 4 + 1, 4 * DEGREE // SPARE
    code = code_bytes_of(dim) + 8
    return ViewBytes(code=code, beside=beside, building=code + beside + spare)


GRAPH = EngineKind(
    name="graph",
    help="Views linked to near ones, walked by document over small codes; the fastest for single queries.",
    build=_build,
    open=_open,
    parameters=(
        Parameter(name="degree", help="Links of a view.", default=DEGREE, least=4, most=256),
        Parameter(name="beam", help="Documents looked at when a view is linked.", default=BEAM, least=4, most=4096),
    ),
    view_bytes=_view_bytes,
    extends=True,
)
