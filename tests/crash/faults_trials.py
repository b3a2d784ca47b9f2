"""Operations that meet with trouble: too little room, too few open files, a call that fails, a signal.

Each trial starts from a copy of the same index. The operation must succeed, or end as the trouble has it: with one
clear error, say. What was acknowledged must be there, whole; nothing new may lie around. Then, without the trouble, it
is run again, and must end as if there had been none. Every index is made, changed and read in children forked from a
process that opens none.
"""

import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kill_checks import After, Fault, after, differences, look_at
from kill_operations import Operation
from kill_processes import Child, Parent, asked, copied

from mvindex.errors import CorpusError, EngineError, StoreError

_OURS = (StoreError, EngineError, CorpusError)


class CommandFailed(Exception):
    """A command ended with another status than 0."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"status {status}: {said}")
        self.status, self.said = status, said


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended. error: what it said, None for success; status: of a command, or minus a signal.

    is_ours: the error is one of mvindex's; warnings: what was logged beside it, since the last acknowledgement.
    """

    error: str | None = None
    status: int = 0
    is_ours: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One kind of trouble, of many levels. begin, end: before and after the operation; limit: in its own process.

    judge: what is wrong with the way in which it ended, given the path that an error should name. ignored: True in that
    process when the trouble has come and the operation must not succeed. leaves: what matches the names of new files
    that may lie around until the operation is run again.
    """

    judge: Callable[[Outcome, Path], Iterator[Fault]]
    begin: Callable[[int], None] = lambda level: None
    limit: Callable[[int], None] = lambda level: None
    end: Callable[[], None] = lambda: None
    ignored: Callable[[], bool] = lambda: False
    leaves: re.Pattern[str] = re.compile("(?!)")


@dataclass(slots=True)
class Tally:
    """What became of an operation's trials. highest: the highest level at which it failed; messages: how often."""

    done: int = 0
    failed: int = 0
    highest: int = -1
    messages: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, Fault]] = field(default_factory=list)


class Sweep:
    """One operation, what it leaves without trouble, and its trials."""

    def __init__(self, operation: Operation, trouble: Trouble, start: Path, folder: Path) -> None:
        """start: where its starting index is made; folder: where each trial is."""
        self.operation, self.trouble, self.tally = operation, trouble, Tally()
        self._start, self._folder = start, folder
        start.mkdir(parents=True)
        if operation.start is not None:
            asked(lambda: operation.start(start) and None)
        with copied(self._start, self._folder):
            asked(lambda: operation.run(folder, _ignore))
            self._wanted = After(*asked(lambda: after(operation, folder)))
            wrong = asked(lambda: list(differences(operation, folder, self._wanted)))
        if wrong:
            raise RuntimeError(f"without trouble, the operation does not do what is expected of it: {wrong}")
        self._known = {name for name, _ in self._wanted.entries} | names_in(start)

    def upward(self, levels: Iterable[int], enough: int) -> None:
        """Nothing; it was tried at each level, until it succeeded at so many in a row."""
        in_a_row = 0
        for level in levels:
            in_a_row = in_a_row + 1 if self.succeeds(level) else 0
            if in_a_row == enough:
                return
        raise RuntimeError(f"it still failed at level {self.tally.highest}: the levels end too soon")

    def succeeds(self, level: int) -> bool:
        """True when the operation succeeded; what was wrong is noted."""
        with copied(self._start, self._folder):
            try:
                is_done, found = self._tried(level)
            except (RuntimeError, TimeoutError) as err:
                is_done, found = False, [Fault("unreadable", str(err))]
        self.tally.faults += [(f"level {level}", fault) for fault in found]
        self.tally.done += is_done
        self.tally.failed += not is_done
        if not is_done:
            self.tally.highest = max(self.tally.highest, level)
        return is_done

    def _tried(self, level: int) -> tuple[bool, list[Fault]]:
        """Whether it succeeded, and what was wrong."""
        self.trouble.begin(level)
        try:
            outcome, floor = self._run(level)
            is_done = outcome.error is None
            self._note(outcome)
            faults = [] if is_done else list(self.trouble.judge(outcome, self._folder))
            faults += self._looked_at(len(self.operation.states) - 1 if is_done else floor)
        finally:
            self.trouble.end()
        new = sorted(names_in(self._folder) - self._known)
        faults += [Fault("litter", name) for name in new if not self.trouble.leaves.match(name)]
        asked(lambda: self.operation.run(self._folder, _ignore))
        compared = (self.operation, self._folder, self._wanted)
        return is_done, faults + [Fault(*fault) for fault in asked(lambda: list(differences(*compared)))]

    def _looked_at(self, floor: int) -> list[Fault]:
        _, _, faults = asked(lambda: look_at(self.operation, self._folder, floor))
        return [Fault(*fault) for fault in faults]

    def _run(self, level: int) -> tuple[Outcome, int]:
        """How the operation ended, and the last state that it acknowledged."""
        with Child(lambda parent: self._work(parent, level)) as child:
            lines = list(child.lines())
            status = child.end()
        floor = max([0, *(line["acknowledged"] for line in lines if "acknowledged" in line)])
        ends = [line["outcome"] for line in lines if "outcome" in line]
        return Outcome(*ends[0]) if ends else Outcome(f"ended by status {status}", status), floor

    def _work(self, parent: Parent, level: int) -> None:
        def acknowledge(state: int) -> None:
            parent.say(acknowledged=state)
            kept.messages.clear()

        kept = _Kept()
        logging.getLogger("mvindex").addHandler(kept)
        self.trouble.limit(level)
        try:
            self.operation.run(self._folder, acknowledge)
            end: tuple[Any, ...] = ("it went on as if nothing had happened", 0) if self.trouble.ignored() else (None,)
        except CommandFailed as err:
            end = (err.said, err.status, True, kept.messages)
        except BaseException as err:  # noqa: BLE001 - whatever it is, the trouble's judge is told
            is_ours = isinstance(err, _OURS)
            end = (str(err) if is_ours else traceback.format_exc(), 0, is_ours, kept.messages)
        parent.say(outcome=end)

    def _note(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            error = "KeyboardInterrupt" if outcome.error.endswith("KeyboardInterrupt\n") else outcome.error
            plain = error.replace(str(self._folder), "...")
            said = re.sub(r"-[0-9a-f]{8}|\.\d+\.[0-9a-f]{8}|\(\d+ bytes[^)]*\)", "", plain)
            self.tally.messages[said] = self.tally.messages.get(said, 0) + 1


def names_in(folder: Path) -> set[str]:
    """The names of all that is in the folder, numbers left out; SQLite's own beside a catalog come and go."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {re.sub(r"\d{6,}", "N", name) for name in names if not name.endswith(("-wal", "-shm"))}


class _Kept(logging.Handler):
    """The warnings that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _ignore(state: int) -> None:
    """Nothing: the operation runs to its end."""
