"""The table of operations that kills, power cuts and faults interrupt. An entry is a row of each report, and a test.

A state is the content of the index after so many calls or chunks, None while there is no index. An operation
acknowledges state n when the call that leads to it has returned; from then on no reader may see an earlier one. Run
again after an interruption, it goes on, and must end as if it had never been interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
from fsspec.implementations.local import LocalFileSystem

import mvindex
from mvindex.engines import extend
from mvindex.ingest import IngestHooks, pipeline
from tests.durability.documents import DIM, ReversedViews, SentenceViews, State, doc_id, document, given_views
from tests.helpers import lexical_reference

if TYPE_CHECKING:
    from tests.durability.checks import Checks

CHUNK = 8
INDEX, COPY, UPLOAD = "index.mvx", "copy.mvx", "upload"
Acknowledge = Callable[[int], None]
Run = Callable[[Path, Acknowledge], None]
Start = Callable[[Path], None]
Call = Callable[[mvindex.Index], object]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One kind of change to an index.

    start: makes the index in the folder, None for no index; run: the calls, the same after an interruption. targets:
    the indexes in the folder at the end; has_reader: another process reads meanwhile. command: the arguments of the
    program that does the same in the folder; its process is then the one that is killed. checks: how results are
    checked, None for an index of one directory.
    """

    start: Start | None
    run: Run
    states: list[State | None]
    targets: tuple[str, ...] = (INDEX,)
    has_reader: bool = False
    command: tuple[str, ...] | None = None
    checks: type[Checks] | None = None

    @property
    def last(self) -> int:
        """Return the number of the last state."""
        return len(self.states) - 1

    def has_copies(self, folder: Path) -> bool:
        """Return whether the operation writes copies beside the index and all of them exist."""
        copies = self.targets[1:]
        return bool(copies) and all((folder / name).exists() for name in copies)


def small_chunks() -> None:
    """Make this process and its children commit every eight documents, so that small runs have many chunks.

    A graph takes in as few.
    """
    pipeline.CHUNK_DOCUMENTS = extend.LEAST_DOCUMENTS = CHUNK


def ignore(state: int) -> None:
    """Ignore an acknowledgement: the operation runs to its end."""


def open_with_encoder(path: Path) -> mvindex.Index:
    """Open the index at the path for texts."""
    return mvindex.open(path, encoder=SentenceViews())


def documents(first: int, end: int, version: int = 1) -> list[mvindex.Document]:
    """Return the documents of a range of numbers."""
    return [document(number, version) for number in range(first, end)]


def _chunks(items: list[mvindex.Document]) -> list[list[mvindex.Document]]:
    return [items[begin : begin + CHUNK] for begin in range(0, len(items), CHUNK)]


def _states_of(before: State, added: list[mvindex.Document]) -> list[State]:
    """Return the states that an ingest of these documents goes through."""
    return list(accumulate(_chunks(added), State.added, initial=before))


def _add(index: mvindex.Index, added: list[mvindex.Document], acknowledge: Acknowledge, first: int = 0) -> None:
    """Add documents; acknowledge each chunk once the next one is begun, because it is committed by then."""
    done = iter(range(first, first + len(added)))
    hooks = IngestHooks(should_stop=lambda: acknowledge(next(done)) is not None)
    index.add(added, hooks=hooks)
    acknowledge(first + len(_chunks(added)))


def made_of(*parts: list[mvindex.Document], kind: str | None = None, then: Call | None = None) -> Start:
    """Return a start: an index of texts, its parts added in turn, an engine built after the first; then a call."""

    def start(folder: Path) -> None:
        with mvindex.create(folder / INDEX, encoder=SentenceViews(), temperature=0.05, lexical="none") as index:
            for number, part in enumerate(parts):
                index.add(part)
                if kind is not None and number == 0:
                    index.admin.build(kind=kind)
            if then is not None:
                then(index)

    return start


def _adding(added: list[mvindex.Document]) -> Run:
    def run(folder: Path, acknowledge: Acknowledge) -> None:
        with open_with_encoder(folder / INDEX) as index:
            _add(index, added, acknowledge)

    return run


def calling(*calls: Call) -> Run:
    """Return a run of calls on the index in the folder, each acknowledged when it has returned."""

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        with mvindex.open(folder / INDEX) as index:
            for number, call in enumerate(calls, start=1):
                call(index)
                acknowledge(number)

    return run


def _create_and_add(folder: Path, acknowledge: Acknowledge) -> None:
    path = folder / INDEX
    is_new = not path.exists()
    create = {"encoder": SentenceViews(), "temperature": 0.05, "lexical": "none"}
    with mvindex.create(path, **create) if is_new else open_with_encoder(path) as index:
        _add(index, _FIRST, acknowledge, first=1)


def _start_of_vectors(folder: Path) -> None:
    with mvindex.create(folder / INDEX, dim=DIM, dtype="fp32") as index:
        index.add_views(_FEW, [given_views(item) for item in _FEW])


def _add_vectors(folder: Path, acknowledge: Acknowledge) -> None:
    with mvindex.open(folder / INDEX) as index:
        for number, part in enumerate(_GIVEN, start=1):
            index.add_views(part, [given_views(item) for item in part])
            acknowledge(number)


def _start_of_lexical(folder: Path) -> None:
    with mvindex.create(folder / INDEX, dim=DIM, lexical="unicode") as index:
        index.add_views(_TERMS, [given_views(item) for item in _TERMS])


def _adding_vectors(added: list[mvindex.Document]) -> Call:
    return lambda index: index.add_views(added, [given_views(item) for item in added])


def _deleting(numbers: Iterable[int]) -> Call:
    return lambda index: index.delete(ids=[doc_id(number) for number in numbers])


def _updating(number: int, metadata: dict) -> Call:
    return lambda index: index.update(doc_id(number), metadata=metadata)


def _copying(call: Callable[[Path, Path], object]) -> Run:
    """Return a run that writes a copy of the index; a copy that exists is whole and is not written again."""

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        if not (folder / COPY).exists():
            call(folder / INDEX, folder / COPY)
        acknowledge(1)

    return run


def _snapshot(path: Path, target: Path) -> None:
    with mvindex.open(path) as index:
        index.admin.snapshot(target)


class _Disk(LocalFileSystem):
    """Files of this machine behind an address, as those of a server are."""

    protocol = "disk"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("disk://"))


fsspec.register_implementation("disk", _Disk, clobber=True)


def _start_of_upload(folder: Path) -> None:
    made_of(_FIRST, _SECOND, kind="flat")(folder)
    with mvindex.open(folder / INDEX) as index:
        index.admin.snapshot(f"disk://{folder / UPLOAD}")


def _restore_upload(path: Path, target: Path) -> None:
    mvindex.restore(f"disk://{path.with_name(UPLOAD)}", target)


_FIRST = documents(0, 28)
_START = State().added(_FIRST)
_OTHER = {"group": 1, "new": "ü"}
# Known documents unchanged, known ones with new metadata only, and new ones.
_MORE = [*documents(2, 8), *(document(number, metadata=_OTHER) for number in range(8, 12)), *documents(12, 26)]
_FEW = documents(0, 12)
_TWELVE = State().added(_FEW)
_REPLACED = documents(4, 28, version=2)
_GIVEN = [documents(12, 20), documents(2, 10, version=2), documents(20, 28)]
_VECTORS = State().added(_FEW, "fp32")
_DELETED = [range(0, 3), [7, 11, 23], range(18, 28)]
DELETED_IDS = [doc_id(number) for part in _DELETED for number in part]
_UPDATES = [(number, {"group": 9, "version": 1, "step": number}) for number in (0, 13, 27)]
_SECOND = documents(4, 12, version=2)
_AGED = _START.added(_SECOND)
_THIN = _AGED.without(range(12, 20))
_THIN_GRAPH = _START.added(_SECOND[:7]).without(range(12, 16))
# Documents of few terms, some of them replaced, and new ones.
_TERMS, _NEW_TERMS = lexical_reference.corpus(12, seed=1)[0], lexical_reference.corpus(16, seed=2)[0][8:]
_LEXICAL = [State().added(_TERMS, "fp16"), State().added(_TERMS, "fp16").added(_NEW_TERMS[:4], "fp16")]
_LEXICAL += [_LEXICAL[1], _LEXICAL[1].without_ids(["d1", "d5"]), _LEXICAL[1].without_ids(["d1", "d5"])]
_LEXICAL += [_LEXICAL[4].added(_NEW_TERMS, "fp16")]


OPERATIONS = {
    "ingest into a new index": Change(start=None, run=_create_and_add, states=[None, *_states_of(State(), _FIRST)]),
    "ingest more": Change(start=made_of(_FEW, kind="flat"), run=_adding(_MORE), states=_states_of(_TWELVE, _MORE)),
    "ingest more beside a graph": Change(
        start=made_of(_FEW, kind="graph"), run=_adding(_MORE), states=_states_of(_TWELVE, _MORE)
    ),
    "add given views": Change(
        start=_start_of_vectors,
        run=_add_vectors,
        states=list(accumulate(_GIVEN, lambda state, part: state.added(part, "fp32"), initial=_VECTORS)),
    ),
    "replace": Change(
        start=made_of(_FIRST, kind="flat"),
        run=_adding(_REPLACED),
        states=_states_of(_START, _REPLACED),
        has_reader=True,
    ),
    "delete by id": Change(
        start=made_of(_FIRST),
        run=calling(*map(_deleting, _DELETED)),
        states=list(accumulate(_DELETED, State.without, initial=_START)),
    ),
    "delete by filter": Change(
        start=made_of(_FIRST, kind="hnsw"),
        run=calling(*(lambda index, group=group: index.delete(filter={"group": group}) for group in (2, 0))),
        states=list(accumulate([range(2, 28, 4), range(0, 28, 4)], State.without, initial=_START)),
    ),
    "update metadata": Change(
        start=made_of(_FIRST),
        run=calling(*(_updating(*update) for update in _UPDATES)),
        states=list(accumulate(_UPDATES, lambda state, update: state.updated(*update), initial=_START)),
    ),
    "change a lexical index": Change(
        start=_start_of_lexical,
        run=calling(
            _adding_vectors(_NEW_TERMS[:4]),
            lambda index: index.admin.enable_lexical("unicode"),
            lambda index: index.delete(ids=["d1", "d5"]),
            lambda index: index.admin.compact(),
            _adding_vectors(_NEW_TERMS),
        ),
        states=_LEXICAL,
    ),
    "build flat": Change(
        start=made_of(_FIRST), run=calling(lambda index: index.admin.build(kind="flat")), states=[_START, _START]
    ),
    "build hnsw over flat": Change(
        start=made_of(_FIRST, _SECOND, kind="flat"),
        run=calling(lambda index: index.admin.build(kind="hnsw")),
        states=[_AGED, _AGED],
        has_reader=True,
    ),
    "build exact": Change(
        start=made_of(_FIRST, kind="hnsw"),
        run=calling(lambda index: index.admin.build(kind="exact")),
        states=[_START, _START],
    ),
    "compact": Change(
        start=made_of(_FIRST, _SECOND, then=_deleting(range(12, 20))),
        run=calling(lambda index: index.admin.compact()),
        states=[_THIN, _THIN],
    ),
    "compact with flat, beside a reader": Change(
        start=made_of(_FIRST, _SECOND, kind="flat", then=_deleting(range(12, 20))),
        run=calling(lambda index: index.admin.compact()),
        states=[_THIN, _THIN],
        has_reader=True,
    ),
    "compact with hnsw": Change(
        start=made_of(_FIRST, _SECOND, kind="hnsw", then=_deleting(range(12, 20))),
        run=calling(lambda index: index.admin.compact()),
        states=[_THIN, _THIN],
    ),
    "compact a graph that lacks documents": Change(
        start=made_of(_FIRST, _SECOND[:7], kind="graph", then=_deleting(range(12, 16))),
        run=calling(lambda index: index.admin.compact()),
        states=[_THIN_GRAPH, _THIN_GRAPH],
        has_reader=True,
    ),
    "re-embed with flat, beside a reader": Change(
        start=made_of(_FIRST, _SECOND, kind="flat", then=_deleting(range(12, 20))),
        run=calling(lambda index: index.admin.reembed(ReversedViews())),
        states=[_THIN, _THIN.reembedded()],
        has_reader=True,
    ),
    "snapshot": Change(
        start=made_of(_FIRST, _SECOND, kind="flat"),
        run=_copying(_snapshot),
        states=[_AGED, _AGED],
        targets=(INDEX, COPY),
    ),
    "restore": Change(
        start=made_of(_FIRST, _SECOND, kind="flat"),
        run=_copying(mvindex.restore),
        states=[_AGED, _AGED],
        targets=(INDEX, COPY),
    ),
    "restore an upload": Change(
        start=_start_of_upload, run=_copying(_restore_upload), states=[_AGED, _AGED], targets=(INDEX, COPY)
    ),
    "salvage": Change(
        start=made_of(_FIRST, _SECOND), run=_copying(mvindex.salvage), states=[_AGED, _AGED], targets=(INDEX, COPY)
    ),
}
