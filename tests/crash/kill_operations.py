"""The operations that are killed: what is there before, the calls, and the states that a reader may see.

A state is what the index holds after so many calls or chunks, None while there is no index. An operation acknowledges
state n when what leads to it has returned; from then on nobody may see an earlier one. Run again after a kill, it goes
on, and must end as if it had never been stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kill_documents import SentenceViews, State, document

import mvindex
import mvindex.ingest
from mvindex.ingest import IngestHooks

CHUNK = 8
INDEX = "index.mvx"
Acknowledge = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One kind of change. start: makes the folder's index, None for none; run: the calls, the same after a kill.

    targets: the indexes in the folder afterwards; has_reader: another process reads all the while. command: the run is
    this one of the command line, in the folder; its process is the one that is killed.
    """

    start: Callable[[Path], None] | None
    run: Callable[[Path, Acknowledge], None]
    states: list[State | None]
    targets: tuple[str, ...] = (INDEX,)
    has_reader: bool = False
    command: tuple[str, ...] | None = None

    def is_made(self, folder: Path) -> bool:
        """True when what the operation writes beside the index, whole or not at all, is there."""
        copies = self.targets[1:]
        return bool(copies) and all((folder / name).exists() for name in copies)


def small_chunks():
    """Nothing; this process and its children commit every eight documents, so that small runs have many chunks."""
    mvindex.ingest.CHUNK_DOCUMENTS = CHUNK


def opened(path: Path) -> mvindex.Index:
    """The index at the path, ready for texts."""
    return mvindex.open(path, encoder=SentenceViews())


def documents(first, end, version=1):
    return [document(number, version) for number in range(first, end)]


def chunks(items: list) -> list[list]:
    """The chunks that an ingest makes of them."""
    return [items[begin : begin + CHUNK] for begin in range(0, len(items), CHUNK)]


def states_of(before: State, added: list[mvindex.Document]) -> list[State]:
    """The states that an ingest of these documents goes through."""
    return list(accumulate(chunks(added), State.added, initial=before))


def add(index: mvindex.Index, added: list[mvindex.Document], acknowledge: Acknowledge, first: int = 0) -> None:
    """Nothing; the documents are in, each chunk acknowledged once the next one is begun: it is committed then."""
    done = iter(range(first, first + len(added)))
    hooks = IngestHooks(should_stop=lambda: acknowledge(next(done)) is not None)
    index.add(added, hooks=hooks)
    acknowledge(first + len(chunks(added)))


def of_texts(
    *parts: list[mvindex.Document], kind: str | None = None, then: Callable[[mvindex.Index], object] | None = None
) -> Callable[[Path], None]:
    """A start: an index of texts, its parts added one after the other, an engine built after the first; then a call."""

    def start(folder: Path) -> None:
        with mvindex.create(folder / INDEX, encoder=SentenceViews(), temperature=0.05) as index:
            for number, part in enumerate(parts):
                index.add(part)
                if kind is not None and number == 0:
                    index.build(kind=kind)
            if then is not None:
                then(index)

    return start


def adding(added: list[mvindex.Document]) -> Callable[[Path, Acknowledge], None]:
    """A run that adds documents to the folder's index."""

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        with opened(folder / INDEX) as index:
            add(index, added, acknowledge)

    return run


def calling(*calls: Callable[[mvindex.Index], object]) -> Callable[[Path, Acknowledge], None]:
    """A run of calls on the folder's index, each acknowledged when it has returned."""

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        with mvindex.open(folder / INDEX) as index:
            for number, call in enumerate(calls, start=1):
                call(index)
                acknowledge(number)

    return run
