"""Kinds ivf-*: trained on a sample, filled in parts that outlive a crash, merged into one index.

In the directory of unfinished work: state.json, trained.faiss (the empty index), and part-NNNNN.faiss, each the views
of the documents whose first view lies in one stretch of view rows. What stands in a stretch never changes within a
generation, so parts stay good whatever is added, deleted or killed meanwhile.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.engines.base import BuildOptions, Kind
from mvindex.engines.lists import sample_size, usual_lists
from mvindex.errors import EngineError
from mvindex.store.durable import flush_to_disk, rename
from mvindex.store.segments import file_checksum
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms
from mvindex_connectors.engines.faiss_files import INDEX_NAME, blocks, read_index, translated, write_index
from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, sample_views, train

# A part of codes of 4 bits takes half a gigabyte at 384 dims.
PART_VIEWS = 1 << 22
_STATE = "state.json"
_TRAINED = "trained.faiss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The views of document rows [begin, end). is_whole: no later document can belong to it."""

    number: int
    begin: int
    end: int
    is_whole: bool


def build_lists(
    faiss: ModuleType, kind: Kind, snapshot: Snapshot, directory: Path, options: BuildOptions
) -> Mapping[str, Any]:
    """What open() needs; index.faiss stands in the directory."""
    work = _Work(faiss, kind, snapshot, options)
    index, max_norm = work.trained(), 0.0
    for part in parts_of(snapshot):
        held, norm = work.added(part)
        max_norm = max(max_norm, norm)
        # Merging moves codes; nothing is computed anew. (contrib.ivf_tools.add_preassigned corrupts fast-scan lists.)
        translated(ivf_of(faiss, index).merge_from, ivf_of(faiss, held), 0)
    index.ntotal = ivf_of(faiss, index).ntotal
    options.on_progress("writing", 0, 1)
    write_index(faiss, index, directory / INDEX_NAME)
    found = {"max_norm": max_norm, "faiss": faiss.__version__, "num_views": int(index.ntotal)}
    lists = {"lists": int(ivf_of(faiss, index).nlist)}
    return found | lists | ({} if options.prune_views is None else {"prune_views": options.prune_views})


def trained_lists(faiss: ModuleType, kind: Kind, snapshots: Sequence[Snapshot], options: BuildOptions) -> Any:
    """An empty index, trained on views of all the snapshots, as many of each as its share is."""
    num_views = sum(snapshot.views.num_views for snapshot in snapshots)
    lists = options.lists or usual_lists(num_views)
    options.on_progress("reading a sample", 0, 1)
    size = sample_size(lists, num_views)
    shares = [-(-size * snapshot.views.num_views // num_views) for snapshot in snapshots]
    sample = np.concatenate([sample_views(*pair) for pair in zip(snapshots, shares, strict=True)])
    lists = min(lists, len(sample))
    options.on_progress(f"training {lists} lists on {len(sample)} views", 0, 1)
    index = new_ivf(faiss, kind, snapshots[0].views.dim, lists)
    translated(train, faiss, index, sample)
    return index


def parts_of(snapshot: Snapshot) -> Iterator[Part]:
    """The parts in order."""
    views = snapshot.views
    stretches = np.arange(0, views.num_views, PART_VIEWS)
    cuts = [*np.searchsorted(views.starts, stretches).tolist(), snapshot.num_rows]
    for number, (begin, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        if begin < end:
            yield Part(number=number, begin=begin, end=end, is_whole=number < len(stretches) - 1)


class _Work:
    """An unfinished build: what of it is done already, and the rest."""

    def __init__(self, faiss: ModuleType, kind: Kind, snapshot: Snapshot, options: BuildOptions) -> None:
        self._faiss, self._snapshot, self._options = faiss, snapshot, options
        self._kind, self._folder = kind, options.work
        self._state = self._opened()

    def _opened(self) -> dict[str, Any]:
        """What was written by an earlier build of the same options; else a folder begun anew."""
        wanted = {
            "kind": self._kind.value,
            "dim": self._snapshot.views.dim,
            "generation": self._snapshot.generation,
            "lists_asked": self._options.lists,
            "prune_views": self._options.prune_views,
            "trained": None if self._options.trained is None else file_checksum(self._options.trained),
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
        """The empty index, trained."""
        index = self._empty()
        if index is None:
            index = trained_lists(self._faiss, self._kind, [self._snapshot], self._options)
            self._keep(_TRAINED, index, 0.0)
        return index

    def _empty(self) -> Any:
        """The empty index, read anew; None where none was trained yet. EngineError when it is of another kind."""
        if self._options.trained is None:
            return self._kept(_TRAINED)
        index = read_index(self._faiss, self._options.trained)
        wanted = new_ivf(self._faiss, self._kind, self._snapshot.views.dim, 1)
        kinds = {type(self._faiss.downcast_index(ivf_of(self._faiss, each))) for each in (index, wanted)}
        is_right = len(kinds) == 1 and index.d == wanted.d
        if not is_right or not index.is_trained or index.ntotal:
            raise EngineError(
                f"{self._options.trained}: is not trained for kind {self._kind.value!r} and views of {wanted.d} dims"
            )
        return index

    def added(self, part: Part) -> tuple[Any, float]:
        """An index of the part's views, and the largest norm of them."""
        name, total = f"part-{part.number:05d}.faiss", self._snapshot.views.num_views
        index = self._kept(name) if part.is_whole else None
        if index is not None:
            self._options.on_progress("adding views", int(self._snapshot.views.starts[part.end]), total)
            return index, float(self._state["files"][name]["max_norm"])
        index, max_norm = self._empty(), 0.0
        for rows, views in blocks(self._snapshot.views, (part.begin, part.end), self._options.prune_views):
            max_norm = max(max_norm, float(row_norms(views).max()))
            translated(index.add_with_ids, views, rows)
            self._options.on_progress("adding views", int(rows[-1]) + 1, total)
        if part.is_whole:
            self._keep(name, index, max_norm)
        return index, max_norm

    def _kept(self, name: str) -> Any:
        """The index in a file that was kept; None where there is none, or it was not written to its end."""
        known, path = self._state["files"].get(name), self._folder / name
        if known is None or not path.is_file() or file_checksum(path) != known["checksum"]:
            return None
        return read_index(self._faiss, path)

    def _keep(self, name: str, index: Any, max_norm: float) -> None:
        """Nothing; the file is durable, and then noted."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        write_index(self._faiss, index, path)
        flush_to_disk(path)
        self._state["files"][name] = {"checksum": file_checksum(path), "max_norm": max_norm}
        fresh = self._folder / f"{_STATE}.new"
        fresh.write_text(json.dumps(self._state), encoding="utf-8")
        flush_to_disk(fresh)
        rename(fresh, self._folder / _STATE)
