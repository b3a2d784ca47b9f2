"""How a graph is built: document by document in an order drawn by chance, a batch at a time.

The views of a batch are linked to those of the batches before, in threads; then back. So the graph is the same
whatever the number of threads. What is linked is kept now and then in the directory of unfinished work.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mvindex.durable import file_checksum, flush_to_disk, rename
from mvindex.engines.graph_codes import BITS, BUILT_BITS, replace_by_packed, save, write_bytes
from mvindex.engines.protocol import BuildOptions
from mvindex.errors import ConfigError
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Ints, ProgressCallback
from mvindex.store.snapshot import Snapshot

if TYPE_CHECKING:
    from mvindex.kernels.linking import Room
    from mvindex.kernels.walk import Graph, Steps

DEGREE, BEAM = 32, 64
# While a graph is built a view has room for half as many links again, so that the best are seldom chosen anew.
SPARE = 2
# A batch is this share of what is linked already, and no more than so many documents.
_BATCH_SHARE, _MOST_BATCH = 32, 4096
_ENTRIES = 256
_SEED = 1
# Seconds after which unfinished work is kept.
KEPT_EVERY_S = 120.0
_STATE, _LINKS = "state.json", "links.npy"
_MOST_VIEWS = (1 << 31) - 1
_PLACES = 1 << 16
# Views that a thread takes at a time.
_VIEWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class _Plan:
    """Documents in the order in which they are linked, and how they are."""

    order: Ints
    beam: int
    degree: int
    square: np.float32


def build_graph(snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
    """Write the arrays of the graph to the directory, and return the settings for open()."""
    num_views = snapshot.views.num_views
    if num_views > _MOST_VIEWS:
        raise ConfigError(
            f"kind graph: expected up to {_MOST_VIEWS} views, got {num_views}; split the index into shards"
        )
    degree = options.parameters.get("degree", DEGREE)
    beam = options.parameters.get("beam", BEAM)
    graph, square = _unlinked(snapshot, directory, degree, options.on_progress)
    order = np.random.default_rng(_SEED).permutation(snapshot.num_rows)
    first = np.arange(min(_ENTRIES, len(order)))
    # One view each of the documents that are linked first, a different one in turn.
    counts = graph.starts[order[first] + 1] - graph.starts[order[first]]
    entries = (graph.starts[order[first]] + first % counts).astype(np.int32)
    graph = graph._replace(entries=entries)
    _linked(graph, _Plan(order, beam, degree, square), _Work(snapshot, options), options)
    for name, array in (("owners", graph.owners), ("starts", graph.starts), ("entries", graph.entries)):
        save(directory / f"{name}.npy", array)
    save(directory / "links.npy", np.ascontiguousarray(graph.links[:, :degree]))
    replace_by_packed(snapshot.views, directory, options.on_progress)
    return {"num_views": num_views, "parameters": {"degree": degree, "beam": beam, "bits": BITS}}


def _unlinked(
    snapshot: Snapshot, directory: Path, degree: int, on_progress: ProgressCallback
) -> tuple[Graph, np.float32]:
    """Return a graph without links, whose codes and factors are written, and the square of all norms."""
    from mvindex.kernels.walk import Graph

    views = snapshot.views
    codes, factors, square = write_bytes(views, directory, on_progress)
    graph = Graph(
        codes=codes,
        factors=factors,
        links=np.full((views.num_views, degree + degree // SPARE), -1, dtype=np.int32),
        owners=np.repeat(np.arange(views.num_rows, dtype=np.int32), np.diff(views.starts)),
        starts=views.starts,
        entries=np.empty(0, dtype=np.int32),
        bits=BUILT_BITS,
    )
    return graph, square


def _linked(graph: Graph, plan: _Plan, work: _Work, options: BuildOptions) -> None:
    """Link all documents, from where an earlier build has kept its work on."""
    linker = _Linker(graph, plan)
    begin, kept = work.resume(graph.links), time.monotonic()
    while begin < len(plan.order):
        end = min(begin + min(max(1, begin // _BATCH_SHARE), _MOST_BATCH), len(plan.order))
        linker.link(begin, end)
        begin = end
        options.on_progress("linking documents", begin, len(plan.order))
        if time.monotonic() - kept > KEPT_EVERY_S and begin < len(plan.order):
            work.keep(graph.links, begin)
            kept = time.monotonic()
    linker.trim()


class _Linker:
    """Links the views of a graph, in threads; each has working memory of its own."""

    def __init__(self, graph: Graph, plan: _Plan) -> None:
        self._graph, self._plan = graph, plan
        self._places = [_Place(graph, plan) for _ in range(default_threads())]

    def link(self, begin: int, end: int) -> None:
        """Link the documents [begin, end) of the order to those before, and these back."""
        from mvindex.kernels.linking import add_back_links, find_links

        plan, graph = self._plan, self._graph
        views = _views_of(graph, plan.order[begin:end])
        # The first document has nothing to link to.
        before = graph._replace(entries=graph.entries[:begin])
        found = np.full((len(views), plan.degree // 2), -1, dtype=np.int32)

        def find(place: _Place, at: slice) -> None:
            find_links(before, views[at], plan.beam, plan.square, place.steps, place.room, found[at])

        self._share_out(_slices(len(views)), find)
        graph.links[views, : found.shape[1]] = found
        sources, targets = _pairs(views, found)

        def link_back(place: _Place, at: slice) -> None:
            add_back_links(graph, targets[at], sources[at], plan.square, place.room)

        self._share_out(_groups(targets), link_back)

    def trim(self) -> None:
        """Leave each view no more links than the degree."""
        from mvindex.kernels.linking import trim

        every = np.arange(len(self._graph.links), dtype=np.int32)
        self._share_out(
            _slices(len(every)), lambda place, at: trim(self._graph, every[at], self._plan.square, place.room)
        )

    def _share_out(self, parts: Iterator[slice], call: Callable[[_Place, slice], None]) -> None:
        """Call for each part in one of the threads."""
        waiting, free = deque(parts), deque(self._places)

        def work() -> None:
            place = free.pop()
            for at in taken_from(waiting):
                call(place, at)

        run_in_threads(work, min(len(free), len(waiting)))


def _slices(count: int) -> Iterator[slice]:
    for begin in range(0, count, _VIEWS_AT_ONCE):
        yield slice(begin, min(begin + _VIEWS_AT_ONCE, count))


def _groups(targets: Ints) -> Iterator[slice]:
    """Yield slices of sorted targets, of which none is in two."""
    begin = 0
    while begin < len(targets):
        last = targets[min(begin + _VIEWS_AT_ONCE, len(targets)) - 1]
        end = int(np.searchsorted(targets, last, side="right"))
        yield slice(begin, end)
        begin = end


def _views_of(graph: Graph, documents: Ints) -> npt.NDArray[np.int32]:
    """Return the views of the documents, one document after the other."""
    begins = graph.starts[documents]
    counts = graph.starts[documents + 1] - begins
    first = np.repeat(begins - np.cumsum(counts) + counts, counts)
    return (first + np.arange(counts.sum())).astype(np.int32)


def _pairs(views: npt.NDArray[np.int32], found: npt.NDArray[np.int32]) -> tuple[Any, Any]:
    """Return sources and targets of the links, sorted by target."""
    sources, targets = np.repeat(views, found.shape[1]), found.reshape(-1)
    is_link = targets >= 0
    sources, targets = sources[is_link], targets[is_link]
    order = np.argsort(targets, kind="stable")
    return sources[order], targets[order]


class _Place:
    """The working memory of one thread."""

    def __init__(self, graph: Graph, plan: _Plan) -> None:
        from mvindex.kernels.aligned import aligned_bytes
        from mvindex.kernels.linking import MOST_CANDIDATES, Room
        from mvindex.kernels.walk import new_steps

        pitch, most = graph.codes.shape[1], max(MOST_CANDIDATES, plan.beam)
        max_views = int(np.diff(graph.starts).max(initial=1))
        self.steps: Steps = new_steps(graph, _PLACES, max_views)
        self.room: Room = Room(
            own=aligned_bytes(pitch).view(np.int8),
            other=aligned_bytes(pitch).view(np.int8),
            similar=np.empty(most, dtype=np.float32),
            views=np.empty(most, dtype=np.int32),
            chosen=np.empty(plan.degree, dtype=np.int32),
        )


class _Work:
    """The directory of unfinished work: links.npy, and state.json, which says what they are the links of."""

    def __init__(self, snapshot: Snapshot, options: BuildOptions) -> None:
        self._folder, self._on_progress = options.work, options.on_progress
        self._key = {
            "kind": "graph",
            "dim": snapshot.views.dim,
            "generation": snapshot.generation,
            "rows": snapshot.num_rows,
            "parameters": dict(options.parameters),
        }

    def resume(self, links: npt.NDArray[np.int32]) -> int:
        """Fill in the links of an earlier build of the same; return how many documents of the order have theirs."""
        try:
            state: dict[str, Any] = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            if state["key"] == self._key and file_checksum(self._folder / _LINKS) == state["checksum"]:
                links[:] = np.load(self._folder / _LINKS, mmap_mode="r", allow_pickle=False)
                return int(state["done"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            pass  # there is none, or it is of something else
        shutil.rmtree(self._folder, ignore_errors=True)
        return 0

    def keep(self, links: npt.NDArray[np.int32], done: int) -> None:
        """Write the links durably; those kept before stay until then."""
        self._on_progress("keeping what is linked", 0, 1)
        self._folder.mkdir(exist_ok=True)
        fresh = self._folder / f"new-{_LINKS}"
        fresh.unlink(missing_ok=True)
        save(fresh, links)
        flush_to_disk(fresh)
        state = {"key": self._key, "done": done, "checksum": file_checksum(fresh)}
        fresh_state = self._folder / f"new-{_STATE}"
        fresh_state.write_text(json.dumps(state), encoding="utf-8")
        flush_to_disk(fresh_state)
        # Between the two renames the old state does not match the new links: then the build begins anew.
        rename(fresh, self._folder / _LINKS)
        rename(fresh_state, self._folder / _STATE)
