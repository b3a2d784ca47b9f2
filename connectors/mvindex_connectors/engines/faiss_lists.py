"""Kinds ivf-*: trained on a sample, then filled; what is filled is kept now and then, so that a crash costs little.

In the directory of unfinished work: state.json, trained.faiss (the empty index), and filled-NNN.faiss (the index of all
documents up to some row). Document rows never change within a generation, so what was filled stays good whatever is
added, deleted or killed meanwhile. Parts are not built apart and merged: Faiss 1.15.1 writes beyond its buffers when it
merges packed lists (BlockInvertedLists::add_entries takes a length in codes for one in bytes), and says nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.durable import file_checksum, flush_to_disk, rename
from mvindex.engines.auto import default_nlist, sample_size
from mvindex.engines.protocol import Base, BuildOptions
from mvindex.errors import EngineError
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews, row_norms
from mvindex_connectors.engines.faiss_files import INDEX_NAME, blocks, read_index, translated, write_index
from mvindex_connectors.engines.faiss_gpu import list_finder
from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, sample_views, train
from mvindex_connectors.engines.faiss_mapped import write_lists

# After so many views what was filled is kept: ten times for 1.7 x 10^8, whose codes take up to 33 GB each time.
KEPT_EVERY = 1 << 24
_STATE = "state.json"
_TRAINED = "trained.faiss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """An index that holds the views of document rows [0, rows), and the base's, of norms up to max_norm."""

    index: Any
    rows: int
    max_norm: float


def build_lists(
    faiss: ModuleType, kind: str, snapshot: Snapshot, directory: Path, options: BuildOptions
) -> Mapping[str, Any]:
    """Build the index, write index.faiss to the directory, and return the settings for open()."""
    work = _Work(faiss, kind, snapshot, options)
    filled = work.filled()
    for end in work.ends(filled.rows):
        filled = work.filled_up_to(end, filled)
    index, max_norm = filled.index, filled.max_norm
    options.on_progress("writing", 0, 1)
    write_index(faiss, index, directory / INDEX_NAME)
    if kind == "ivf-pq":
        write_lists(faiss, index, directory)
    found = {"max_norm": max_norm, "faiss": faiss.__version__, "num_views": int(index.ntotal)}
    return found | {"parameters": {"nlist": int(ivf_of(faiss, index).nlist)}}


def trained_lists(faiss: ModuleType, kind: str, snapshots: Sequence[Snapshot], options: BuildOptions) -> Any:
    """Return an empty index, trained on views of all the snapshots, from each in proportion to its views."""
    num_views = sum(snapshot.views.num_views for snapshot in snapshots)
    nlist = options.parameters.get("nlist") or default_nlist(num_views)
    options.on_progress("reading a sample", 0, 1)
    sample = sample_views(snapshots, sample_size(nlist, num_views))
    nlist = min(nlist, len(sample))
    options.on_progress(f"training {nlist} lists on {len(sample)} views", 0, 1)
    index = new_ivf(faiss, kind, snapshots[0].views.dim, nlist)
    translated(train, faiss, index, sample, options.on_progress)
    return index


def carried_over(faiss: ModuleType, base: Base, views: MappedViews) -> Any:
    """Return the index of the base with the views' rows as they are now, and without those that are gone.

    Lists and codes stay as they were trained.
    """
    index = read_index(faiss, base.directory / INDEX_NAME)
    moved = base.moved_views(views)
    lists = faiss.downcast_InvertedLists(ivf_of(faiss, index).invlists)
    if (is_gone := moved < 0).any():
        translated(index.remove_ids, faiss.IDSelectorBitmap(np.packbits(is_gone, bitorder="little")))
        if isinstance(lists, faiss.BlockInvertedLists):
            _clear_ends(faiss, lists)
    for number in range(lists.nlist):
        if size := lists.list_size(number):
            # Where Faiss holds them, in its memory.
            rows = faiss.rev_swig_ptr(lists.get_ids(number), size)
            rows[:] = moved[rows]
    return index


def _clear_ends(faiss: ModuleType, lists: Any) -> None:
    """Clear what stands behind the last code of each packed list: Faiss 1.15.1 would add new codes to its bits."""
    packer, nothing = lists.packer, np.zeros(lists.packer.code_size, dtype=np.uint8)
    for number in range(lists.nlist):
        size = lists.list_size(number)
        if first := size % packer.nvec:
            num_bytes = (size // packer.nvec + 1) * packer.block_size
            last_block = faiss.rev_swig_ptr(lists.get_codes(number), num_bytes)[-packer.block_size :].reshape(1, -1)
            for place in range(first, packer.nvec):
                packer.pack_1(nothing, place, last_block)


class _Work:
    """An unfinished build: what of it is done already, and the rest."""

    def __init__(self, faiss: ModuleType, kind: str, snapshot: Snapshot, options: BuildOptions) -> None:
        self._faiss, self._snapshot, self._options = faiss, snapshot, options
        self._kind, self._folder = kind, options.work
        self._state = self._opened()
        # The documents that the base lacks.
        self._wanted = np.ones(snapshot.num_rows, dtype=bool)
        if options.base is not None:
            self._wanted[options.base.rows[options.base.rows >= 0]] = False

    def ends(self, first: int) -> list[int]:
        """Return the document rows from `first` on at which the index is saved as it is filled; the last covers all."""
        views, ends, added = self._snapshot.views, [first], 0
        stretches = np.arange(views.view_start(first) + KEPT_EVERY, views.num_views, KEPT_EVERY)
        cuts = np.searchsorted(views.starts, stretches).tolist()
        for begin, end in pairwise([first, *cuts]):
            added += int(views.counts(begin, end)[self._wanted[begin:end]].sum())
            if added > KEPT_EVERY // 2:
                ends.append(end)
                added = 0
        return sorted({*ends[1:], self._snapshot.num_rows} - {first})

    def _opened(self) -> dict[str, Any]:
        """Return the state of an earlier build of the same options; start an empty folder if there is none."""
        wanted = {
            "kind": self._kind,
            "dim": self._snapshot.views.dim,
            "generation": self._snapshot.generation,
            "parameters": dict(self._options.parameters),
            "trained": None if self._options.trained is None else file_checksum(self._options.trained),
            "base": None if self._options.base is None else self._options.base.directory.name,
            "faiss": self._faiss.__version__,
        }
        try:
            found: dict[str, Any] = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            if {name: found.get(name) for name in wanted} == wanted and isinstance(found.get("files"), dict):
                return found
        except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
            pass
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        return wanted | {"files": {}}

    def trained(self) -> Any:
        """Return the empty index, trained."""
        index = self._empty()
        if index is None:
            index = trained_lists(self._faiss, self._kind, [self._snapshot], self._options)
            self._keep(_TRAINED, index)
        return index

    def _empty(self) -> Any:
        """Return the empty index from its file, None if it is not trained yet; raise EngineError for another kind."""
        if self._options.trained is None:
            return self._kept(_TRAINED)
        index = read_index(self._faiss, self._options.trained)
        wanted = new_ivf(self._faiss, self._kind, self._snapshot.views.dim, 1)
        kinds = {type(self._faiss.downcast_index(ivf_of(self._faiss, each))) for each in (index, wanted)}
        is_right = len(kinds) == 1 and index.d == wanted.d
        if not is_right or not index.is_trained or index.ntotal:
            raise EngineError(
                f"{self._options.trained}: is not trained for kind {self._kind!r} and views of {wanted.d} dims"
            )
        return index

    def filled(self) -> Filled:
        """Return the index as an earlier build has filled it; else that of the base, or the empty index."""
        known = self._state["files"].get(self._state.get("filled"))
        index = None if known is None else self._kept(self._state["filled"])
        if known is not None and index is not None:
            return Filled(index=index, rows=int(known["rows"]), max_norm=float(known["max_norm"]))
        base = self._options.base
        if base is None:
            return Filled(index=self.trained(), rows=0, max_norm=0.0)
        carried = carried_over(self._faiss, base, self._snapshot.views)
        return Filled(index=carried, rows=0, max_norm=float(base.settings["max_norm"]))

    def filled_up_to(self, end: int, before: Filled) -> Filled:
        """Return the index with the views of rows up to `end` added; save it unless these are all."""
        views, max_norm = self._snapshot.views, before.max_norm
        finder = list_finder(self._faiss, self._kind, before.index)
        for rows, block in blocks(views, (before.rows, end), self._wanted):
            max_norm = max(max_norm, float(row_norms(block).max()))
            if finder is None:
                translated(before.index.add_with_ids, block, rows)
            else:
                finder.add(block, rows)
            self._options.on_progress("adding views", int(rows[-1]) + 1, views.num_views)
        after = Filled(index=before.index, rows=end, max_norm=max_norm)
        if end < self._snapshot.num_rows:
            self._keep_filled(after)
        return after

    def _keep_filled(self, filled: Filled) -> None:
        """Save the index durably, and delete the one saved before it."""
        older = self._state.get("filled")
        name = f"filled-{filled.rows}.faiss"
        self._state["filled"] = name
        self._keep(name, filled.index, rows=filled.rows, max_norm=filled.max_norm)
        if older is not None and older != name:
            del self._state["files"][older]
            (self._folder / older).unlink(missing_ok=True)

    def _kept(self, name: str) -> Any:
        """Return the index in a saved file; None if there is none, or it was not written to its end."""
        known, path = self._state["files"].get(name), self._folder / name
        if known is None or not path.is_file() or file_checksum(path) != known["checksum"]:
            return None
        return read_index(self._faiss, path)

    def _keep(self, name: str, index: Any, **noted: float) -> None:
        """Write the file durably, then record it in the state with its checksum and `noted`."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        write_index(self._faiss, index, path)
        flush_to_disk(path)
        self._state["files"][name] = {"checksum": file_checksum(path), **noted}
        fresh = self._folder / f"{_STATE}.new"
        fresh.write_text(json.dumps(self._state), encoding="utf-8")
        flush_to_disk(fresh)
        rename(fresh, self._folder / _STATE)
