"""Graphs: the codes that they are built by, their links, and what a build takes over from an older graph.

The views of a batch are linked to those of the batches before, in threads; then back. So the graph is the same
whatever the number of threads. What is linked is kept now and then in the directory of unfinished work. A build that
goes on from a graph takes over its links, and links the documents that it lacks.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.durable import file_checksum, flush_to_disk, rename
from mvindex.engines.protocol import Base, BuildOptions
from mvindex.errors import ConfigError, EngineError
from mvindex.kernels.score import decode
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Floats, Ints, ProgressCallback
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

if TYPE_CHECKING:
    from mvindex.kernels.linking import Room
    from mvindex.kernels.walk import Graph, Steps

BITS = 4
CODES, FACTORS, MEAN = "codes.npy", "factors.npy", "mean.npy"
_READ_VIEWS = 65_536
_CHUNK_DIMS, _CHUNK_BYTES = 64, 32


def code_bytes_of(dim: int) -> int:
    """Return the bytes of the code of a view, whole vectors of 32 bytes."""
    return -(-dim // _CHUNK_DIMS) * _CHUNK_BYTES


def mean_of(views: MappedViews) -> Floats:
    """Return the mean of all views, (d,) float32."""
    mean = np.zeros(views.dim)
    for begin in range(0, views.num_views, _READ_VIEWS):
        rows = decode(views.read_views(begin, min(begin + _READ_VIEWS, views.num_views)))
        mean += rows.sum(axis=0, dtype=np.float64) / views.num_views
    return mean.astype(np.float32)


def load(path: Path) -> npt.NDArray[Any]:
    """Map an array."""
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return array


class OldCodes(NamedTuple):
    """The codes of a graph that is there; numbers: (n,) int32, the number in it of each view now, -1 for new ones."""

    directory: Path
    numbers: npt.NDArray[np.int32]


def write_codes(
    views: MappedViews, directory: Path, mean: Floats, old: OldCodes | None, on_progress: ProgressCallback
) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Write codes and factors of all views; return the codes, mapped, and factors, (n, 2) float32.

    A view's second factor is the square of the norm of its rest beside the mean. Codes in `old` are copied.
    """
    from mvindex.kernels.walk import encode_packed

    shape = (views.num_views, code_bytes_of(views.dim))
    factors: npt.NDArray[np.float32] = np.zeros((views.num_views, 2), dtype=np.float32)
    old_codes, old_factors = (load(old.directory / name) if old is not None else factors for name in (CODES, FACTORS))
    # Written, not mapped: a full disk is an error then, and no signal.
    with open(directory / CODES, "xb") as file:
        _write_header(file, np.dtype(np.uint8), shape)
        for begin in range(0, views.num_views, _READ_VIEWS):
            end = min(begin + _READ_VIEWS, views.num_views)
            codes: npt.NDArray[np.uint8] = np.empty((end - begin, shape[1]), dtype=np.uint8)
            fresh = np.arange(end - begin)
            if old is not None:
                numbers = old.numbers[begin:end]
                codes[:], factors[begin:end] = old_codes[numbers], old_factors[numbers]
                fresh = np.flatnonzero(numbers < 0)
            if len(fresh):
                rows = decode(views.read_views(begin + int(fresh[0]), begin + int(fresh[-1]) + 1)[fresh - fresh[0]])
                own_codes, own_factors = (
                    np.empty((len(fresh), shape[1]), np.uint8),
                    np.empty((len(fresh), 2), np.float32),
                )
                encode_packed(rows, mean, own_codes, own_factors)
                codes[fresh], factors[begin + fresh] = own_codes, own_factors
            file.write(codes.data)
            on_progress("packing codes", end, views.num_views)
    save(directory / FACTORS, factors)
    return load(directory / CODES), factors


def save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array to a new file; np.save() may miss that the disk did not take the last bytes."""
    with open(path, "xb") as file:
        _write_header(file, array.dtype, array.shape)
        file.write(array.data.cast("B") if array.size else b"")


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


class Carried(NamedTuple):
    """A graph that is there, and where its views are now.

    links: (n, degree) int32, its own; moved: (n,) int32, the number of each of its views now, -1 for one that is gone;
    codes: its codes; rows: the rows of its documents that are still there.
    """

    links: npt.NDArray[np.int32]
    moved: npt.NDArray[np.int32]
    codes: OldCodes
    rows: Ints

    def write_links(self, links: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Write the links that are left under the views' numbers now; return the old numbers of views that lost one."""
        from mvindex.kernels.linking import carry_links

        has_lost = np.zeros(len(self.moved), dtype=bool)
        carry_links(self.links, self.moved, links, has_lost)
        return np.flatnonzero(has_lost).astype(np.int32)

    def find_linked(self, graph: Graph) -> Bools:
        """Return which documents, (m,), can stay as they are linked; the links of others that are there are taken away.

        Where documents are gone, another may have a view without links, or none that any link leads to.
        """
        is_linked = np.zeros(len(graph.starts) - 1, dtype=bool)
        is_linked[self.rows] = True
        if not (self.moved < 0).any():
            return is_linked
        from mvindex.kernels.linking import mark_targets

        links, starts = graph.links, graph.starts[:-1]
        is_target = np.zeros(len(links), dtype=bool)
        mark_targets(links, is_target)
        is_linked &= np.logical_or.reduceat(is_target, starts)
        is_linked &= np.logical_and.reduceat(links[:, 0] >= 0, starts)
        links[~is_linked[graph.owners]] = -1
        return is_linked


def carried_from(base: Base, views: MappedViews) -> Carried:
    """Return what the documents in these views take over; EngineError where a document's views are not as many."""
    moved = base.moved_views(views)
    old_numbers: npt.NDArray[np.int32] = np.full(views.num_views, -1, dtype=np.int32)
    old_numbers[moved[moved >= 0]] = np.flatnonzero(moved >= 0)
    links = load(base.directory / "links.npy")
    if links.max(initial=-1) >= len(moved):
        raise EngineError(f"{base.directory}: links.npy leads to views that there are not")
    return Carried(links, moved, OldCodes(base.directory, old_numbers), base.rows[base.rows >= 0])


DEGREE, BEAM = 32, 64
# While a graph is built a view has room for half as many links again, so that the best are seldom chosen anew.
SPARE = 2
# A batch is this share of what this build has linked already, and no more than so many documents: new documents that
# are near to each other find each other.
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
class _Manner:
    """How views are linked."""

    beam: int
    degree: int
    dim: int


def build_graph(snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
    """Write the arrays of the graph to the directory, and return the settings for open()."""
    views, base = snapshot.views, options.base
    if views.num_views > _MOST_VIEWS:
        raise ConfigError(
            f"kind graph: expected up to {_MOST_VIEWS} views, got {views.num_views}; split the index into shards"
        )
    degree = options.parameters.get("degree", DEGREE)
    beam = options.parameters.get("beam", BEAM)
    carried = None if base is None else carried_from(base, views)
    mean = mean_of(views) if base is None else np.array(load(base.directory / MEAN))
    old_codes = None if carried is None else carried.codes
    graph = _unlinked(views, *write_codes(views, directory, mean, old_codes, options.on_progress), degree)
    linker = _Linker(graph, _Manner(beam, degree, views.dim))
    is_linked = np.zeros(views.num_rows, dtype=bool) if carried is None else linker.carry_over(carried)
    # Nothing has to lead to documents that are deleted.
    drawn = np.random.default_rng(_SEED).permutation(views.num_rows)
    drawn = drawn[snapshot.alive[drawn]]
    before, fresh = drawn[is_linked[drawn]], drawn[~is_linked[drawn]]
    _link(linker, before, fresh, _Work(snapshot, options))
    for name, array in (("owners", graph.owners), ("starts", graph.starts), ("entries", linker.entries(drawn))):
        save(directory / f"{name}.npy", array)
    save(directory / MEAN, mean)
    save(directory / "links.npy", np.ascontiguousarray(graph.links[:, :degree]))
    return {"num_views": views.num_views, "parameters": {"degree": degree, "beam": beam, "bits": BITS}}


def _unlinked(views: MappedViews, codes: npt.NDArray[np.uint8], factors: Floats, degree: int) -> Graph:
    """Return a graph without links; factors get the coordinate by which all rests have the same norm."""
    from mvindex.kernels.walk import Graph

    squares = factors[:, 1]
    return Graph(
        codes=codes,
        factors=np.column_stack([factors[:, 0], np.sqrt(squares.max(initial=np.float32(0)) - squares)]),
        links=np.full((views.num_views, degree + degree // SPARE), -1, dtype=np.int32),
        owners=np.repeat(np.arange(views.num_rows, dtype=np.int32), np.diff(views.starts)),
        starts=views.starts,
        entries=np.empty(0, dtype=np.int32),
    )


def _link(linker: _Linker, before: Ints, fresh: Ints, work: _Work) -> None:
    """Link the fresh documents to those that are linked before, from where an earlier build has kept its work on."""
    entries = linker.entries(np.concatenate([before[:_ENTRIES], fresh[:_ENTRIES]]))
    begin, kept = work.resume(linker.links), time.monotonic()
    while begin < len(fresh):
        end = min(begin + min(max(1, begin // _BATCH_SHARE), _MOST_BATCH), len(fresh))
        # The first document of all has nothing to link to.
        linker.link(fresh[begin:end], entries[: len(before) + begin])
        begin = end
        work.on_progress("linking documents", begin, len(fresh))
        if time.monotonic() - kept > KEPT_EVERY_S and begin < len(fresh):
            work.keep(linker.links, begin)
            kept = time.monotonic()
    linker.trim()


class _Linker:
    """Links the views of a graph, in threads; each has working memory of its own."""

    def __init__(self, graph: Graph, manner: _Manner) -> None:
        self._graph, self._manner = graph, manner
        self._places = [_Place(graph, manner) for _ in range(default_threads())]

    @property
    def links(self) -> npt.NDArray[np.int32]:
        """The links, (n, degree and what is spare) int32."""
        links: npt.NDArray[np.int32] = self._graph.links
        return links

    def entries(self, documents: Ints) -> npt.NDArray[np.int32]:
        """Return a view of each of the first documents, a different one in turn."""
        starts, first = self._graph.starts, np.arange(min(_ENTRIES, len(documents)))
        rows = documents[first]
        entries: npt.NDArray[np.int32] = (starts[rows] + first % (starts[rows + 1] - starts[rows])).astype(np.int32)
        return entries

    def carry_over(self, carried: Carried) -> Bools:
        """Take over the links of a graph that is there; return which documents are linked."""
        from mvindex.kernels.linking import mend_links

        harmed = carried.write_links(self.links)

        def mend(place: _Place, at: slice) -> None:
            mend_links(self._graph, carried.links, carried.moved, harmed[at], place.room)

        self._share_out(_slices(len(harmed)), mend)
        views = carried.moved[harmed]
        self._link_back(views, self.links[views])
        return carried.find_linked(self._graph)

    def link(self, documents: Ints, entries: npt.NDArray[np.int32]) -> None:
        """Link the documents to those that walks from the entries find, and these back."""
        from mvindex.kernels.linking import find_links
        from mvindex.kernels.walk import renew

        graph, manner = self._graph._replace(entries=entries), self._manner
        views = _views_of(graph, documents)
        found = np.full((len(views), manner.degree // 2), -1, dtype=np.int32)

        def find(place: _Place, at: slice) -> None:
            renew(place.steps)
            find_links(graph, views[at], manner.beam, place.steps, place.room, found[at])

        self._share_out(_slices(len(views)), find)
        self.links[views, : found.shape[1]] = found
        self._link_back(views, found)

    def _link_back(self, views: npt.NDArray[np.int32], found: npt.NDArray[np.int32]) -> None:
        """Link what the views' links, (m, n) int32, lead to back to these."""
        from mvindex.kernels.linking import add_back_links

        sources, targets = _pairs(views, found)

        def link_back(place: _Place, at: slice) -> None:
            add_back_links(self._graph, targets[at], sources[at], place.room)

        self._share_out(_groups(targets), link_back)

    def trim(self) -> None:
        """Leave each view no more links than the degree."""
        from mvindex.kernels.linking import trim

        every = np.arange(len(self._graph.links), dtype=np.int32)
        self._share_out(_slices(len(every)), lambda place, at: trim(self._graph, every[at], place.room))

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

    def __init__(self, graph: Graph, manner: _Manner) -> None:
        from mvindex.kernels.copies import aligned_bytes
        from mvindex.kernels.linking import MOST_CANDIDATES, Room
        from mvindex.kernels.walk import new_steps

        pitch, most = graph.codes.shape[1], max(MOST_CANDIDATES, manner.beam)
        max_views = int(np.diff(graph.starts).max(initial=1))
        self.steps: Steps = new_steps(graph, _PLACES, max_views)
        self.room: Room = Room(
            own=aligned_bytes(2 * pitch).view(np.int8),
            other=aligned_bytes(2 * pitch).view(np.int8),
            similar=np.empty(most, dtype=np.float32),
            views=np.empty(most, dtype=np.int32),
            chosen=np.empty(manner.degree, dtype=np.int32),
            dim=manner.dim,
        )


class _Work:
    """The directory of unfinished work: links.npy, and state.json, which says what they are the links of."""

    def __init__(self, snapshot: Snapshot, options: BuildOptions) -> None:
        self._folder, self.on_progress = options.work, options.on_progress
        self._key = {
            "kind": "graph",
            "dim": snapshot.views.dim,
            "generation": snapshot.generation,
            "rows": snapshot.num_rows,
            "deleted": snapshot.settings["deleted"],
            "base": None if options.base is None else options.base.directory.name,
            "parameters": dict(options.parameters),
        }

    def resume(self, links: npt.NDArray[np.int32]) -> int:
        """Fill in the links of an earlier build of the same; return how many documents of the order have theirs."""
        try:
            state: dict[str, Any] = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            if state["key"] == self._key and file_checksum(self._folder / _LINKS) == state["checksum"]:
                kept = np.load(self._folder / _LINKS, mmap_mode="r", allow_pickle=False)
                if kept.max(initial=-1) < len(links):
                    links[:] = kept
                    return int(state["done"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            pass  # there is none, or it is of something else
        shutil.rmtree(self._folder, ignore_errors=True)
        return 0

    def keep(self, links: npt.NDArray[np.int32], done: int) -> None:
        """Write the links durably; those kept before stay until then."""
        self.on_progress("keeping what is linked", 0, 1)
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
