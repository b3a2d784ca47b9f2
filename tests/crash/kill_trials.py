"""Trials: an operation is killed at a named step or at a random moment, looked at, run again and compared.

Every index is made, changed and read in processes of their own, forked from one that opens none.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kill_checks import After, Fault, Left, after, differences, held_by, judged, look_at, undone, wrong_answers
from kill_commands import become_command
from kill_operations import INDEX, Operation
from kill_processes import KILLED, Child, Parent, Steps, asked, copied

import mvindex
from mvindex.errors import MvindexError

Break = Callable[[], None]


class Seen(NamedTuple):
    """What may not be lost: the last state that was acknowledged or seen; and the end, where that was acknowledged."""

    floor: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """When to kill: at a step, by its number, or at a random moment: so long after a step, or after the start.

    is_writing: the delay counts from when the writer's lock was taken, or a new index begun.
    """

    step: int | None = None
    delay_s: float | None = None
    is_writing: bool = False

    @property
    def is_sudden(self) -> bool:
        """True when the process kills itself, at the step and nowhere else."""
        return self.delay_s is None


@dataclass(slots=True)
class Tally:
    """What became of an operation's kills. finished: it ended before the kill."""

    at_steps: int = 0
    at_random: int = 0
    finished: int = 0
    slowest_open_s: float = 0.0
    faults: list[tuple[str, Fault]] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return self.at_steps + self.at_random

    def count(self, *kinds: str) -> int:
        """Trials with a fault of these kinds."""
        return len({where for where, fault in self.faults if fault.kind in kinds})


class Bench:
    """One operation with its starting index, and what it leaves when nobody stops it."""

    def __init__(self, operation: Operation, folder: Path, breaking: Break | None = None) -> None:
        self.operation, self._breaking = operation, breaking
        self._start, self._folder = folder / "start", folder / "trial"
        self._start.mkdir(parents=True)
        if operation.start is not None:
            asked(lambda: operation.start(self._start) and None)
        self.tally = Tally()
        with copied(self._start, self._folder):
            asked(lambda: operation.run(self._folder, _ignore))
            self._wanted = After(*asked(lambda: after(operation, self._folder)))
            wrong = asked(lambda: list(differences(operation, self._folder, self._wanted)))
            if wrong:
                raise RuntimeError(f"uninterrupted, the operation does not do what is expected of it: {wrong}")
        with copied(self._start, self._folder):
            self._record()

    def kill(self, *kills: Kill) -> None:
        """Nothing; the operation was started and killed so many times, looked at each time, and run to its end."""
        where = ", ".join(self._name(kill) for kill in kills)
        with copied(self._start, self._folder):
            try:
                seen = Seen()
                for number, kill in enumerate(kills, start=1):
                    seen, left = self._killed(kill, seen, number == len(kills))
                    self.tally.slowest_open_s = max(self.tally.slowest_open_s, left.open_s)
                    self.tally.faults += [(where, fault) for fault in left.faults]
            except (RuntimeError, TimeoutError) as err:
                self.tally.faults.append((where, Fault("unreadable", str(err))))

    def at_every_step(self) -> Iterator[Kill]:
        """A kill at each step that the operation takes."""
        return map(Kill, range(len(self.steps)))

    def at_random(self, generator: random.Random) -> Kill:
        """A kill at a moment of the operation: any, or between a step and the next, or of a command while it writes."""
        is_close, share = generator.random() < 0.7, generator.uniform(0, 1.05)
        if is_close and self.operation.command is not None:
            return Kill(delay_s=share * self.writing_s, is_writing=True)
        if is_close:
            step = generator.randrange(len(self.steps))
            return Kill(step=step, delay_s=share * self._gaps_s[step])
        return Kill(delay_s=share * self.duration_s)

    def _name(self, kill: Kill) -> str:
        moment = "" if kill.delay_s is None else f"{kill.delay_s * 1000:.3f} ms"
        place = "" if kill.step is None else f"step {kill.step}, {self.steps[kill.step]}"
        return " after ".join(filter(None, (moment, place)))

    def _killed(self, kill: Kill, seen: Seen, is_last: bool) -> tuple[Seen, Left]:
        """What a kill left, and what may not be lost from then on; after the last one the operation is run again."""
        with self._reader() as reader, Child(lambda parent: self._run(parent, kill, self._breaking)) as child:
            if kill.delay_s is not None:
                self._await_moment(child, kill)
                time.sleep(kill.delay_s)
                child.kill()
            list(child.lines())
            status = child.end()
            self._count(kill, status, child.said)
            met = [] if reader is None else _met(reader)
        last = len(self.operation.states) - 1
        told = [last] * (status == 0) + [line["acknowledged"] for line in child.said if "acknowledged" in line]
        seen = Seen(max([seen.floor, *told]), seen.is_done or last in told)
        left = Left(*asked(lambda: self._looked_at(seen, is_last)))
        left = left._replace(faults=[*(Fault(*fault) for fault in left.faults), *met])
        return seen._replace(floor=max(seen.floor, left.position)), left

    def _looked_at(self, seen: Seen, is_last: bool) -> Left:
        left = look_at(self.operation, self._folder, seen.floor)
        if seen.is_done:
            left.faults.extend(undone(self.operation, self._folder, self._wanted))
        if is_last:
            left.faults.extend(self._resumed())
        return left

    def _resumed(self) -> list[Fault]:
        """What is wrong with the operation run again, and with what it leaves."""
        try:
            self.operation.run(self._folder, _ignore)
        except (MvindexError, RuntimeError) as err:
            return [Fault("stuck", f"{type(err).__name__}: {err}")]
        return list(differences(self.operation, self._folder, self._wanted))

    def _count(self, kill: Kill, status: int, lines: list[dict]) -> None:
        errors = [line["error"] for line in lines if "error" in line]
        if errors:
            raise RuntimeError(errors[0])
        if status == 0 and kill.is_sudden:
            raise RuntimeError(f"it took fewer than {kill.step + 1} steps; they must not depend on the run")
        if status == 0 or any("done" in line for line in lines):
            self.tally.finished += 1
        elif status != KILLED:
            raise RuntimeError(f"exit status {status}")
        elif kill.is_sudden:
            self.tally.at_steps += 1
        else:
            self.tally.at_random += 1

    def _record(self) -> None:
        """Nothing; the named steps of the operation are known, and how long all of it takes."""
        with self._reader(), Child(lambda parent: self._run(parent, Kill(), None)) as child:
            child.wait_for("go")
            started = time.monotonic()
            if self.operation.command is not None:
                self._await_writing(child)
            locked = time.monotonic()
            taken = [step for line in child.lines() for step in line.get("done", [])]
            while not child.has_ended():
                time.sleep(0.001)
            ended = time.monotonic()
        self.steps = [name for name, _ in taken]
        self.duration_s, self.writing_s = ended - started, ended - locked
        moments = [moment for _, moment in taken]
        self._gaps_s = [after - before for before, after in pairwise([*moments, ended])]

    @contextmanager
    def _reader(self) -> Iterator[Child | None]:
        """Inside it, another process reads, where the operation has a reader."""
        if not self.operation.has_reader:
            yield None
            return
        with Child(self._read) as reader:
            reader.wait_for("reading")
            yield reader

    def _await_moment(self, child: Child, kill: Kill) -> None:
        """Nothing; the child is where the delay begins, or has ended."""
        child.wait_for("go")
        if kill.is_writing:
            self._await_writing(child)
        if kill.step is not None:
            next((line for line in child.lines() if "there" in line), None)

    def _await_writing(self, child: Child) -> None:
        """Nothing; the child has taken the writer's lock, or begun a new index, or has ended."""
        lock, before = self._folder / INDEX / "writer.lock", set(self._folder.iterdir())
        while not child.has_ended() and set(self._folder.iterdir()) <= before:
            if lock.exists() and lock.read_text().startswith(f"process {child.pid} on"):
                return
            time.sleep(0.001)

    def _run(self, parent: Parent, kill: Kill, breaking: Break | None) -> None:
        """The operation, in a child."""
        if breaking is not None:
            breaking()
        steps = Steps(parent, kill.step, kill.is_sudden)
        if self.operation.command is not None and not self.operation.is_made(self._folder):
            parent.say(go=True)
            become_command(self.operation.command, self._folder)
        steps.watch()
        parent.say(go=True)
        self.operation.run(self._folder, steps.acknowledge)
        parent.say(done=steps.taken)

    def _read(self, parent: Parent) -> None:
        """A reader, in a child: one index keeps the state it had, another moves on; neither may see less than one."""
        path = self._folder / INDEX
        with mvindex.open(path) as kept, mvindex.open(path) as moving:
            before, faults = held_by(kept), []
            position = judged(self.operation, before, 0).position
            parent.say(reading=True)
            is_last = False
            while not is_last and not faults:
                is_last = parent.is_waiting()
                time.sleep(0.001)
                moving.refresh()
                left = judged(self.operation, held_by(moving), position)
                position = max(position, left.position)
                faults += left.faults
            if held_by(kept) != before:
                faults.append(Fault("reader", "the state that it had opened changed"))
            faults += wrong_answers(kept, before)
        parent.say(faults=faults)


def _met(reader: Child) -> list[Fault]:
    """What the reader saw that nobody may see, up to the kill and after it."""
    reader.tell()
    return [Fault("reader", what) for _, what in reader.wait_for("faults")["faults"]]


def _ignore(state: int) -> None:
    """Nothing: the operation runs to its end."""
