"""Codes and links that a graph takes over from the one that it goes on from, of documents that are still there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.engines.graph_codes import OldCodes, load
from mvindex.engines.protocol import Base
from mvindex.errors import EngineError
from mvindex.records import Bools, Ints
from mvindex.store.views import MappedViews

if TYPE_CHECKING:
    from mvindex.kernels.walk import Graph


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
    arrays: dict[str, npt.NDArray[Any]] = {name: load(base.directory / f"{name}.npy") for name in ("links", "starts")}
    counts, is_there = np.diff(arrays["starts"]), base.rows >= 0
    rows = base.rows[is_there]
    if not np.array_equal(counts[is_there], np.diff(views.starts)[rows]):
        raise EngineError(f"{base.directory}: expected a graph of the documents in the index, got one of others")
    # From a document's first view then to its first view now.
    shifts = np.where(is_there, views.starts[base.rows] - arrays["starts"][:-1], 0)
    numbers = np.arange(len(arrays["links"]), dtype=np.int64) + np.repeat(shifts, counts)
    moved = np.where(np.repeat(is_there, counts), numbers, -1).astype(np.int32)
    old_numbers: npt.NDArray[np.int32] = np.full(views.num_views, -1, dtype=np.int32)
    old_numbers[moved[moved >= 0]] = np.flatnonzero(moved >= 0)
    return Carried(arrays["links"], moved, OldCodes(base.directory, old_numbers), rows)
