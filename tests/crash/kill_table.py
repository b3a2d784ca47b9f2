"""The table of operations that are killed. A line here is a row of the report, and a test."""

from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from kill_documents import DIM, SentenceViews, State, doc_id, document, given_views
from kill_operations import (
    INDEX,
    Acknowledge,
    Operation,
    add,
    adding,
    calling,
    documents,
    of_texts,
    opened,
    states_of,
)

import mvindex

COPY = "copy.mvx"


def _create_and_add(folder: Path, acknowledge: Acknowledge) -> None:
    path = folder / INDEX
    with opened(path) if path.exists() else mvindex.create(path, encoder=SentenceViews(), temperature=0.05) as index:
        add(index, _FIRST, acknowledge, first=1)


def _start_of_vectors(folder: Path) -> None:
    with mvindex.create(folder / INDEX, dim=DIM, dtype="fp32") as index:
        index.add_views(_FEW, [given_views(item) for item in _FEW])


def _add_vectors(folder: Path, acknowledge: Acknowledge) -> None:
    with mvindex.open(folder / INDEX) as index:
        for number, part in enumerate(_GIVEN, start=1):
            index.add_views(part, [given_views(item) for item in part])
            acknowledge(number)


def _deleting(numbers: Iterable[int]) -> Callable[[mvindex.Index], object]:
    return lambda index: index.delete(ids=[doc_id(number) for number in numbers])


def _updating(number: int, metadata: dict) -> Callable[[mvindex.Index], object]:
    return lambda index: index.update(doc_id(number), metadata=metadata)


def _to_copy(call: Callable[[Path, Path], object]) -> Callable[[Path, Acknowledge], None]:
    """A run of a call that writes the copy of an index; the copy that is there is not written again."""

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        if not (folder / COPY).exists():
            call(folder / INDEX, folder / COPY)
        acknowledge(1)

    return run


def _snapshot(path: Path, target: Path) -> None:
    with mvindex.open(path) as index:
        index.snapshot(target)


_FIRST = documents(0, 28)
_START = State().added(_FIRST)
_OTHER = {"group": 1, "new": "ü"}
# Known ones unchanged, known ones with new metadata only, and new ones.
_MORE = [*documents(2, 8), *(document(number, metadata=_OTHER) for number in range(8, 12)), *documents(12, 26)]
_FEW = documents(0, 12)
_TWELVE = State().added(_FEW)
_REPLACED = documents(4, 28, version=2)
_GIVEN = [documents(12, 20), documents(2, 10, version=2), documents(20, 28)]
_VECTORS = State().added(_FEW, "fp32")
_DELETED = [range(0, 3), [7, 11, 23], range(18, 28)]
_UPDATES = [(number, {"group": 9, "version": 1, "step": number}) for number in (0, 13, 27)]
_AGED = _START.added(documents(4, 12, version=2))
_THIN = _AGED.without(range(12, 20))


OPERATIONS = {
    "ingest into a new index": Operation(start=None, run=_create_and_add, states=[None, *states_of(State(), _FIRST)]),
    "ingest more": Operation(start=of_texts(_FEW, kind="flat"), run=adding(_MORE), states=states_of(_TWELVE, _MORE)),
    "add given views": Operation(
        start=_start_of_vectors,
        run=_add_vectors,
        states=list(accumulate(_GIVEN, lambda state, part: state.added(part, "fp32"), initial=_VECTORS)),
    ),
    "replace": Operation(
        start=of_texts(_FIRST, kind="flat"), run=adding(_REPLACED), states=states_of(_START, _REPLACED), has_reader=True
    ),
    "delete by id": Operation(
        start=of_texts(_FIRST),
        run=calling(*map(_deleting, _DELETED)),
        states=list(accumulate(_DELETED, State.without, initial=_START)),
    ),
    "delete by filter": Operation(
        start=of_texts(_FIRST, kind="hnsw"),
        run=calling(*(lambda index, group=group: index.delete(filter={"group": group}) for group in (2, 0))),
        states=list(accumulate([range(2, 28, 4), range(0, 28, 4)], State.without, initial=_START)),
    ),
    "update metadata": Operation(
        start=of_texts(_FIRST),
        run=calling(*(_updating(*update) for update in _UPDATES)),
        states=list(accumulate(_UPDATES, lambda state, update: state.updated(*update), initial=_START)),
    ),
    "build flat": Operation(
        start=of_texts(_FIRST), run=calling(lambda index: index.build(kind="flat")), states=[_START, _START]
    ),
    "build hnsw over flat": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2), kind="flat"),
        run=calling(lambda index: index.build(kind="hnsw")),
        states=[_AGED, _AGED],
        has_reader=True,
    ),
    "build exact": Operation(
        start=of_texts(_FIRST, kind="hnsw"),
        run=calling(lambda index: index.build(kind="exact")),
        states=[_START, _START],
    ),
    "compact": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2), then=_deleting(range(12, 20))),
        run=calling(mvindex.Index.compact),
        states=[_THIN, _THIN],
    ),
    "compact with flat, beside a reader": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2), kind="flat", then=_deleting(range(12, 20))),
        run=calling(mvindex.Index.compact),
        states=[_THIN, _THIN],
        has_reader=True,
    ),
    "compact with hnsw": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2), kind="hnsw", then=_deleting(range(12, 20))),
        run=calling(mvindex.Index.compact),
        states=[_THIN, _THIN],
    ),
    "snapshot": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2), kind="flat"),
        run=_to_copy(_snapshot),
        states=[_AGED, _AGED],
        targets=(INDEX, COPY),
    ),
    "salvage": Operation(
        start=of_texts(_FIRST, documents(4, 12, version=2)),
        run=_to_copy(mvindex.salvage),
        states=[_AGED, _AGED],
        targets=(INDEX, COPY),
    ),
}
