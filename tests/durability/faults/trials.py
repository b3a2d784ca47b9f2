"""The one harness for faults: run an operation under trouble, check how it ended, run it again without.

Each trial starts from a copy of the same index. The operation must succeed, or end as the trouble requires: with one
clear error, for example. What was acknowledged must be there, whole; no new file may be left. Then the operation is
run again without the trouble, and must end as if there had been none. Every index is made, changed and read in
children, forked from a process that opens no index.
"""

import logging
import re
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mvindex.errors import CorpusError, EngineError, StoreError
from tests.durability.checks import Fault, checks_of, without_numbers
from tests.durability.commands import INGEST, CommandFailed, command_operations, load_modules, small_ingest
from tests.durability.faults.troubles import Levels, Outcome, Trouble, levels_of
from tests.durability.kills import trials as kills
from tests.durability.operations import OPERATIONS, Change, ignore
from tests.durability.processes import Child, Parent, call, copied, in_child

_OURS = (StoreError, EngineError, CorpusError)


@dataclass(slots=True)
class Tally:
    """The counts of an operation's trials. highest: the highest level at which it failed; messages: counts."""

    done: int = 0
    failed: int = 0
    highest: int = -1
    messages: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, Fault]] = field(default_factory=list)


class Sweep:
    """One operation, what it leaves without trouble, and its trials."""

    def __init__(self, operation: Change, trouble: Trouble, start: Path, folder: Path) -> None:
        """Make the starting index in `start`; each trial runs in `folder`."""
        self.operation, self.trouble, self.tally = operation, trouble, Tally()
        self._start, self._folder, self._checks = start, folder, checks_of(operation, folder)
        start.mkdir(parents=True)
        if operation.start is not None:
            in_child(lambda: operation.start(start) and None)
        with copied(self._start, self._folder):
            in_child(lambda: operation.run(folder, ignore))
            self._expected = in_child(self._checks.result)
            wrong = self._differences()
        if wrong:
            raise RuntimeError(f"without trouble, the operation does not do what is expected of it: {wrong}")
        self._known = {name for name, _ in self._expected["litter"]} | names_in(start)

    def upward(self, levels: Iterable[int], enough: int) -> None:
        """Try each level until the operation has succeeded at so many in a row."""
        in_a_row = 0
        for level in levels:
            in_a_row = in_a_row + 1 if self.succeeds(level) else 0
            if in_a_row == enough:
                return
        raise RuntimeError(f"it still failed at level {self.tally.highest}: the levels end too soon")

    def succeeds(self, level: int) -> bool:
        """Return whether the operation succeeded at the level; add what was wrong to the tally."""
        with copied(self._start, self._folder):
            try:
                is_done, found = self._try(level)
            except (RuntimeError, TimeoutError) as err:
                is_done, found = False, [Fault("unreadable", str(err))]
        self.tally.faults += [(f"level {level}", fault) for fault in found]
        self.tally.done += is_done
        self.tally.failed += not is_done
        if not is_done:
            self.tally.highest = max(self.tally.highest, level)
        return is_done

    def _try(self, level: int) -> tuple[bool, list[Fault]]:
        self.trouble.begin(level)
        try:
            outcome, floor = self._run(level)
            is_done = outcome.error is None
            self._count_message(outcome)
            faults = [] if is_done else list(self.trouble.judge(outcome, self._folder))
            faults += self._left(self.operation.last if is_done else floor)
        finally:
            self.trouble.end()
        new = sorted(names_in(self._folder) - self._known)
        faults += [Fault("litter", name) for name in new if not self.trouble.leaves.match(name)]
        in_child(lambda: self.operation.run(self._folder, ignore))
        return is_done, faults + self._differences()

    def _left(self, floor: int) -> list[Fault]:
        _, _, faults = in_child(lambda: self._checks.left(floor))
        return [Fault(*fault) for fault in faults]

    def _differences(self) -> list[Fault]:
        return [Fault(*fault) for fault in in_child(lambda: list(self._checks.differences(self._expected)))]

    def _run(self, level: int) -> tuple[Outcome, int]:
        """Return how the operation ended, and the last state that it acknowledged."""
        with Child(lambda parent: self._work(parent, level)) as child:
            lines = list(child.lines())
            status = child.end()
        floor = max([0, *(line["acknowledged"] for line in lines if "acknowledged" in line)])
        ends = [line["outcome"] for line in lines if "outcome" in line]
        return Outcome(*ends[0]) if ends else Outcome(f"ended by status {status}", status), floor

    def _work(self, parent: Parent, level: int) -> None:
        def acknowledge(state: int) -> None:
            parent.report(acknowledged=state)
            warnings.messages.clear()

        warnings = _Warnings()
        logging.getLogger("mvindex").addHandler(warnings)
        self.trouble.limit(level)
        try:
            self.operation.run(self._folder, acknowledge)
            end: tuple[Any, ...] = ("it went on as if nothing had happened", 0) if self.trouble.ignored() else (None,)
        except CommandFailed as err:
            end = (err.stderr, err.status, True, warnings.messages)
        except BaseException as err:  # noqa: BLE001 - whatever it is, the trouble judges it
            is_ours = isinstance(err, _OURS)
            end = (str(err) if is_ours else traceback.format_exc(), 0, is_ours, warnings.messages)
        parent.report(outcome=end)

    def _count_message(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            error = "KeyboardInterrupt" if outcome.error.endswith("KeyboardInterrupt\n") else outcome.error
            plain = error.replace(str(self._folder), "...")
            message = re.sub(r"-[0-9a-f]{8}|\.\d+\.[0-9a-f]{8}|\(\d+ bytes[^)]*\)", "", plain)
            self.tally.messages[message] = self.tally.messages.get(message, 0) + 1


class _Warnings(logging.Handler):
    """Collect the warnings that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def names_in(folder: Path) -> set[str]:
    """Return the names of everything in the folder without numbers; SQLite's own files come and go."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {without_numbers(name) for name in names if not name.endswith(("-wal", "-shm"))}


def prepare() -> None:
    """Set up the process that forks."""
    kills.prepare()
    load_modules()


def swept(trouble: str, operations: list[str], folder: Path, step_bytes: int = 4096, every: int = 1) -> list[dict]:
    """Run the sweeps of a trouble in children of a prepared process; return a row of JSON for each operation.

    Args:
        trouble: A name of TROUBLES.
        operations: Names of the table, of commands, or INGEST.
        folder: Where the indexes are.
        step_bytes: Between levels of room and of file size.
        every: Of the open files, durable steps and calls.
    """
    name, prepared_by = f"{__name__}:sweep", f"{__name__}:prepare"
    settings = {"is_mounting": trouble == "full-disk", "prepared_by": prepared_by}
    return [
        call(name, trouble, each, str(folder), step_bytes=step_bytes, every=every, **settings) for each in operations
    ]


def sweep(trouble: str, name: str, folder: str, step_bytes: int, every: int) -> dict[str, Any]:
    """Try an operation at each level of a trouble; return what became of it, as JSON."""
    own = Path(folder, f"{trouble} {name}".replace(" ", "-"))
    own.mkdir()
    operation = small_ingest(own) if name == INGEST else (OPERATIONS | command_operations(is_process=False))[name]
    with levels_of(trouble, step_bytes, every, own) as (levels, trial):
        tally = _swept(operation, levels, own / "start", trial)
    return asdict(tally) | {"operation": name, "faults": [(where, *fault) for where, fault in tally.faults]}


def _swept(operation: Change, levels: Levels, start: Path, trial: Path) -> Tally:
    found = Sweep(operation, levels.trouble, start, trial)
    found.upward(levels.levels, levels.enough)
    return found.tally
