"""The one harness for power cuts: record what operations write, cut the power at any call by every model of disk.py."""

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import mvindex
from mvindex import engines
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.index import embedded_store_of
from mvindex.ingest import pipeline
from tests.durability.checks import Fault, checks_of, compare_states, damages, stored_in, wrong_answers
from tests.durability.documents import State, document, given_views
from tests.durability.operations import CHUNK, Change, open_with_encoder
from tests.durability.power import child as power_child
from tests.durability.power.disk import Disk, Image, MetadataFirst, Scattered, Strict, digest, read_image, write_image
from tests.durability.power.operations import OPERATIONS
from tests.durability.power.strace import Call, Kind, read_calls, record
from tests.durability.processes import ROOT


class Case(NamedTuple):
    """One operation to record. breakage: a name of child.BREAKAGES."""

    operation: str
    breakage: str | None = None


@dataclass(frozen=True)
class Recording:
    """An operation's calls, from the folder as it was before. acknowledged: the state that already was."""

    operation: Change
    before: Image
    calls: Sequence[Call]
    acknowledged: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The disk after a power cut: behind how many calls, by which model, what is left, the last acknowledged state."""

    position: int
    model: str
    image: Image = field(repr=False)
    acknowledged: int


def record_cases(cases: Sequence[Case], scratch: Path) -> list[Recording]:
    """Record each case, all in one traced process. scratch: an empty folder."""
    befores = [_started(OPERATIONS[case.operation], _place(scratch, number)) for number, case in enumerate(cases)]
    found = zip(cases, befores, _recorded(cases, scratch), strict=True)
    return [Recording(OPERATIONS[case.operation], before, calls) for case, before, calls in found]


def record_again(operation: str, after: Sequence[Cut], scratch: Path) -> list[Recording]:
    """Record the operation when it is run again after each of the cuts. scratch: an empty folder."""
    for number, cut in enumerate(after):
        write_image(cut.image, _place(scratch, number))
    found = zip(after, _recorded([Case(operation)] * len(after), scratch), strict=True)
    return [Recording(OPERATIONS[operation], cut.image, calls, cut.acknowledged) for cut, calls in found]


def announced(cases: Sequence[Case], scratch: Path) -> list[list[str]]:
    """Return the marks of each case, without strace. scratch: an empty folder."""
    for number, case in enumerate(cases):
        _started(OPERATIONS[case.operation], _place(scratch, number))
    subprocess.run(_command(cases, scratch), check=True, cwd=ROOT)
    lines = power_child.marks_of(scratch / "work").read_text().splitlines()
    prefixes = [f"{number}/" for number in range(len(cases))]
    return [[line.removeprefix(start) for line in lines if line.startswith(start)] for start in prefixes]


def cuts(recording: Recording, seeds: Sequence[int], positions: Collection[int] | None = None) -> Iterator[Cut]:
    """Yield the disk after a cut at each position (None: all), by each model; by Scattered once per seed."""
    disk, acknowledged = Disk(recording.before), recording.acknowledged
    for position in range(len(recording.calls) + 1):
        call = recording.calls[position - 1] if position else None
        if call is not None:
            disk.apply(call)
            acknowledged = acknowledged_by(call, acknowledged)
        if positions is None or position in positions:
            for name, model in _models(position, seeds):
                yield Cut(position, name, disk.image(model), acknowledged)


def acknowledged_by(call: Call, before: int) -> int:
    """Return the state that is acknowledged after the call. Run again, an operation first repeats earlier ones."""
    word, _, rest = call.path.partition(" ")
    return max(before, int(rest)) if call.kind is Kind.MARK and word == "ack" else before


@dataclass(slots=True)
class Tally:
    """The result of cuts: how many there were, how many left something new, and what was wrong."""

    cuts: int = 0
    distinct: int = 0
    faults: list[tuple[Cut, Fault]] = field(default_factory=list)

    def counted(self, found: Iterable[Cut]) -> Iterator[Cut]:
        """Yield the cuts that leave something that no earlier one left, or had to leave more."""
        seen = set()
        for cut in found:
            self.cuts += 1
            key = (digest(cut.image), cut.acknowledged)
            if key not in seen:
                seen.add(key)
                self.distinct += 1
                yield cut


def tally_of(recording: Recording, found: Iterable[Cut], folder: Path) -> Tally:
    """Check these cuts. folder: a path for what they leave."""
    tally = Tally()
    for cut in tally.counted(found):
        tally.faults += [(cut, fault) for fault in faults_after(recording.operation, cut, folder)]
    return tally


def faults_after(operation: Change, cut: Cut, folder: Path) -> list[Fault]:
    """Return what is wrong after the cut: when it is opened, and when the operation is run again."""
    write_image(cut.image, folder)
    try:
        found = [
            *checks_of(operation, folder).left(cut.acknowledged).faults,
            *_missing(operation, folder, cut.acknowledged),
        ]
        if not found:
            operation.run(folder, lambda state: None)
            found = list(_faults_at_the_end(operation, folder))
        return found
    except Exception as err:  # noqa: BLE001 - any exception after a cut is a fault
        return [Fault("unreadable", f"{type(err).__name__}: {err}")]
    finally:
        shutil.rmtree(folder)


@contextmanager
def as_recorded() -> Iterator[None]:
    """Make this process commit the same chunks as the recorded one, and open an index fast, for the context.

    NumPy's scan needs no warming up; the installed engines are looked up once.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(engines, "find_kind", cache(engines.find_kind)))
        stack.enter_context(patch.object(pipeline, "CHUNK_DOCUMENTS", CHUNK))
        stack.enter_context(patch.object(engines, "open_scan", lambda *_: NumpyScan()))
        yield


def _place(scratch: Path, number: int) -> Path:
    """Return the folder of a case."""
    return scratch / "work" / str(number)


def _started(operation: Change, place: Path) -> Image:
    """Make what the operation starts from."""
    place.mkdir(parents=True)
    if operation.start is not None:
        operation.start(place)
    return read_image(place)


def _command(cases: Sequence[Case], scratch: Path) -> list[str]:
    """Return the command that runs the cases."""
    todo = scratch / "cases.json"
    todo.write_text(json.dumps([case._asdict() for case in cases]))
    return [sys.executable, "-m", power_child.__name__, str(scratch / "work"), str(todo)]


def _recorded(cases: Sequence[Case], scratch: Path) -> list[list[Call]]:
    """Return the calls of each case, from the one process that made them."""
    folder, log = scratch / "work", scratch / "log"
    record(_command(cases, scratch), log)
    calls = read_calls(log, folder, power_child.marks_of(folder))
    log.unlink()
    return [_below(calls, f"{number}/") for number in range(len(cases))]


def _below(calls: Sequence[Call], prefix: str) -> list[Call]:
    """Return the calls on paths with the prefix, without it; the folder itself is "."."""
    mine = (call for call in calls if f"{call.path}/".startswith(prefix))
    return [
        replace(
            call,
            path=call.path.removeprefix(prefix.rstrip("/")).lstrip("/") or ".",
            target=call.target.removeprefix(prefix),
        )
        for call in mine
    ]


def _models(position: int, seeds: Sequence[int]) -> Iterator[tuple[str, Strict | MetadataFirst | Scattered]]:
    yield "strict", Strict()
    yield "metadata first", MetadataFirst(is_grown=False)
    yield "metadata first, zeros", MetadataFirst(is_grown=True)
    for seed in seeds:
        yield f"scattered, seed {seed}", Scattered(f"{seed} {position}")


def _missing(operation: Change, folder: Path, acknowledged: int) -> Iterator[Fault]:
    """Yield the indexes that are missing though the whole operation was acknowledged."""
    if acknowledged == len(operation.states) - 1:
        yield from (Fault("lost", f"{name} is gone") for name in operation.targets if not (folder / name).exists())


def _faults_at_the_end(operation: Change, folder: Path) -> Iterator[Fault]:
    """Yield what is wrong after the operation has ended, and after one more document was added."""
    for name in operation.targets:
        with mvindex.open(folder / name) as index:
            stored, is_encoded, dtype = stored_in(index), bool(index.info().encoder), index.info().dtype
            yield from compare_states(operation, stored, len(operation.states) - 1).faults
        # The reference of lexical search splits plain words only.
        more = replace(document(900), text="the price of oil rose in the war .")
        with open_with_encoder(folder / name) if is_encoded else mvindex.open(folder / name) as index:
            ordinal = embedded_store_of(index).snapshot.settings["next_ordinal"]
            index.add([more]) if is_encoded else index.add_views([more], [given_views(more)])
            expected = State(ordinal, stored).added([more], None if is_encoded else dtype)
            if stored_in(index) != expected.documents:
                yield Fault("different", "a document added at the end is not what was given, or others changed")
            yield from wrong_answers(index, expected.documents)
        yield from damages(folder / name)
