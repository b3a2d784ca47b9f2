"""The operations during which the power is cut: those of the table, and some for what only a cut shows."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

import mvindex
from mvindex.index import embedded_store_of
from tests.durability.checks import stored_in
from tests.durability.documents import SentenceViews, State, doc_id, document
from tests.durability.operations import COPY, INDEX, Acknowledge, Change, documents, open_with_encoder
from tests.durability.operations import OPERATIONS as TABLE

NESTED = f"some/folders/{INDEX}"
# A call, and the change of the state that it makes.
Stage = tuple[Callable[[mvindex.Index], object], Callable[[State], State]]


def adding(*added: mvindex.Document) -> Stage:
    return lambda index: index.add(added), lambda state: state.added(added)


def deleting(*numbers: int) -> Stage:
    return lambda index: index.delete(ids=map(doc_id, numbers)), lambda state: state.without(numbers)


def updating(number: int) -> Stage:
    metadata = {"group": 7, "new": "ü"}
    return lambda index: index.update(doc_id(number), metadata=metadata), lambda state: state.updated(number, metadata)


def building(kind: str) -> Stage:
    return lambda index: index.admin.build(kind), lambda state: state


def compacting() -> Stage:
    return lambda index: index.admin.compact(), lambda state: state


def copying() -> Stage:
    """Take a snapshot; one that exists is whole."""

    def call(index: mvindex.Index) -> None:
        target = index.path.with_name(COPY)
        if not target.exists():
            index.admin.snapshot(target)

    return call, lambda state: state


def life(*stages: Stage, targets: tuple[str, ...] = (INDEX,), is_read: bool = False) -> Change:
    """Return the life of an index from its creation, in one process. is_read: beside the open transaction of a reader.

    State 1 is the empty index. Run again, it goes on from the first stage that may not have been reached.
    """
    first: list[State | None] = [None, State()]
    states = (
        first
        + list(accumulate([change for _, change in stages], lambda state, change: change(state), initial=State()))[1:]
    )

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        path = folder / targets[0]
        with ExitStack() as stack:
            index = stack.enter_context(
                open_with_encoder(path)
                if path.exists()
                else mvindex.create(path, encoder=SentenceViews(), lexical="none")
            )
            acknowledge(1)
            if is_read:
                reader = stack.enter_context(open_with_encoder(path))
                stack.enter_context(embedded_store_of(reader).reading(embedded_store_of(reader).snapshot))
            stored = stored_in(index)
            done = next(
                number for number, state in enumerate(states) if state is not None and state.documents == stored
            )
            for number, (call, _) in enumerate(stages[done - 1 :], start=done + 1):
                call(index)
                acknowledge(number)

    return Change(start=None, run=run, states=states, targets=targets)


def large(number: int, more: int = 0) -> mvindex.Document:
    """Return a document with so many views that eight fill a block of 1 MiB. more: characters after the last."""
    sentences = [f"{number} {part}" for part in range(9000)]
    return mvindex.Document(doc_id(number), "|".join([*sentences, "x" * more]), "large", {"group": 1})


# Run again, these go on from any of their states.
LIVES = {
    "a whole life": life(
        adding(*documents(0, 8)),
        adding(*documents(8, 16)),
        adding(*documents(6, 10, version=2), *documents(16, 20)),
        deleting(1, 7, 17),
        updating(12),
        building("flat"),
        adding(*documents(20, 26)),
        building("hnsw"),
        adding(document(1), document(2, version=3)),
        compacting(),
        adding(document(26), document(4)),
        building("exact"),
        deleting(0, 20),
        compacting(),
        copying(),
        targets=(INDEX, COPY),
    ),
    "in new folders": life(adding(*documents(0, 6)), targets=(NESTED,)),
    "beside a reader": life(
        adding(*documents(0, 8)),
        adding(*documents(4, 12, version=2)),
        deleting(1, 2),
        building("flat"),
        updating(9),
        is_read=True,
    ),
    # The last text is longer than SQLite lets its log grow before it empties it by itself.
    "large batches": life(
        adding(*documents(0, 8)),
        adding(*map(large, range(4, 11)), large(11, more=4_000_000)),
        adding(*documents(12, 20)),
    ),
}
OPERATIONS = {**TABLE, **LIVES}
