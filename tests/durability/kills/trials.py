"""The one harness for kills: run an operation, kill it, check what is left, run it again and compare.

Every index is made, changed and read in processes of their own, forked from one that opens no index.
"""

import gc
import os
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import mvindex
from mvindex import engines
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.errors import MvindexError
from tests.durability.checks import Fault, Left, checks_of
from tests.durability.commands import become_command
from tests.durability.kills.broken import BROKEN
from tests.durability.kills.shards import SHARD_OPERATIONS
from tests.durability.operations import INDEX, Change, ignore, small_chunks
from tests.durability.operations import OPERATIONS as INDEX_OPERATIONS
from tests.durability.processes import KILLED, Child, Parent, Steps, copied, in_child

OPERATIONS = INDEX_OPERATIONS | SHARD_OPERATIONS
Break = Callable[[], None]


class Seen(NamedTuple):
    """The state that must not be lost: the last acknowledged or seen, and whether the end was acknowledged."""

    floor: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """When to kill: at a step, by its number, or after a delay from a step or from the start.

    is_writing: the delay counts from when the writer's lock was taken, or a new index begun.
    """

    step: int | None = None
    delay_s: float | None = None
    is_writing: bool = False

    @property
    def is_sudden(self) -> bool:
        """Return whether the process kills itself, exactly at the step."""
        return self.delay_s is None


@dataclass(slots=True)
class Tally:
    """The counts of an operation's kills. finished: runs that ended before the kill."""

    at_steps: int = 0
    at_random: int = 0
    finished: int = 0
    slowest_open_s: float = 0.0
    faults: list[tuple[str, Fault]] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Return the number of killed processes."""
        return self.at_steps + self.at_random

    def count(self, *kinds: str) -> int:
        """Return the number of trials with a fault of these kinds."""
        return len({where for where, fault in self.faults if fault.kind in kinds})

    def row(self) -> dict[str, Any]:
        """Return the tally as JSON."""
        return asdict(self) | {"faults": [(where, *fault) for where, fault in self.faults]}


class Trials:
    """One operation with its starting index, and what it leaves when it is not interrupted."""

    def __init__(self, operation: Change, folder: Path, breaking: Break | None = None) -> None:
        self.operation, self._breaking = operation, breaking
        self._start, self._folder = folder / "start", folder / "trial"
        self._checks = checks_of(operation, self._folder)
        self._start.mkdir(parents=True)
        if operation.start is not None:
            in_child(lambda: operation.start(self._start) and None)
        self.tally = Tally()
        with copied(self._start, self._folder):
            in_child(lambda: operation.run(self._folder, ignore))
            self._expected = in_child(self._checks.result)
            wrong = in_child(lambda: list(self._checks.differences(self._expected)))
            if wrong:
                raise RuntimeError(f"without interruption, the operation does not do what is expected of it: {wrong}")
        with copied(self._start, self._folder):
            self._record()

    def kill(self, *kills: Kill) -> None:
        """Run the operation and kill it, once per kill, checking each time; then run it to its end."""
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

    def kill_at_steps(self, count: int, generator: random.Random) -> None:
        """Kill at so many of the named steps, or at all of them."""
        numbers = range(len(self.steps))
        for number in generator.sample(numbers, min(count, len(numbers))):
            self.kill(Kill(number))

    def kill_at_each_name(self, generator: random.Random) -> None:
        """Kill at one of all the steps that have the same name without numbers."""
        named = defaultdict(list)
        for number, name in enumerate(self.steps):
            named[re.sub(r"\d+", "N", name)].append(number)
        for numbers in named.values():
            self.kill(Kill(generator.choice(numbers)))

    def kill_at_random(self, count: int, generator: random.Random) -> None:
        """Kill at random moments, up to three times in a row before the operation may end."""
        left = count
        while left:
            in_a_row = min(left, generator.choice((1, 1, 2, 3)))
            self.kill(*(self._random_moment(generator) for _ in range(in_a_row)))
            left -= in_a_row

    def _random_moment(self, generator: random.Random) -> Kill:
        """Draw a moment: any, or between a step and the next, or for a command while it writes."""
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
        """Kill once; return what must not be lost from then on, and what is left. After the last, run it again."""
        with self._reader() as reader, Child(lambda parent: self._run(parent, kill, self._breaking)) as child:
            if kill.delay_s is not None:
                self._await_moment(child, kill)
                time.sleep(kill.delay_s)
                child.kill()
            list(child.lines())
            status = child.end()
            self._count(kill, status, child.reported)
            met = [] if reader is None else _faults_of(reader)
        last = self.operation.last
        reached = [last] * (status == 0)
        reached += [line["acknowledged"] for line in child.reported if "acknowledged" in line]
        seen = Seen(max([seen.floor, *reached]), seen.is_done or last in reached)
        left = Left(*in_child(lambda: self._left(seen, is_last)))
        left = left._replace(faults=[*(Fault(*fault) for fault in left.faults), *met])
        return seen._replace(floor=max(seen.floor, left.position)), left

    def _left(self, seen: Seen, is_last: bool) -> Left:
        left = self._checks.left(seen.floor)
        if seen.is_done:
            left.faults.extend(self._checks.undone(self._expected))
        if is_last:
            left.faults.extend(self._faults_of_second_run())
        return left

    def _faults_of_second_run(self) -> list[Fault]:
        """Run the operation again and return what is wrong with it, and with what it leaves."""
        try:
            self.operation.run(self._folder, ignore)
        except (MvindexError, RuntimeError) as err:
            return [Fault("stuck", f"{type(err).__name__}: {err}")]
        return list(self._checks.differences(self._expected))

    def _count(self, kill: Kill, status: int, lines: list[dict]) -> None:
        errors = [line["error"] for line in lines if "error" in line]
        if errors:
            raise RuntimeError(errors[0])
        if status == 0 and kill.is_sudden:
            raise RuntimeError(f"expected at least {kill.step + 1} steps, got fewer; they must not depend on the run")
        if status == 0 or any("done" in line for line in lines):
            self.tally.finished += 1
        elif status != KILLED:
            raise RuntimeError(f"expected SIGKILL, got exit status {status}")
        elif kill.is_sudden:
            self.tally.at_steps += 1
        else:
            self.tally.at_random += 1

    def _record(self) -> None:
        """Run the operation once to learn its named steps and how long it takes."""
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
        expected = {f"after acknowledging {state}" for state in range(1, self.operation.last + 1)}
        if self.operation.command is None and not expected <= set(self.steps):
            raise RuntimeError(f"expected the operation to acknowledge each of its states, got {self.steps}")
        self.duration_s, self.writing_s = ended - started, ended - locked
        moments = [moment for _, moment in taken]
        self._gaps_s = [after - before for before, after in pairwise([*moments, ended])]

    @contextmanager
    def _reader(self) -> Iterator[Child | None]:
        """Run a reader in another process for the duration of the context, where the operation has one."""
        if not self.operation.has_reader:
            yield None
            return
        with Child(self._read) as reader:
            reader.wait_for("reading")
            yield reader

    def _await_moment(self, child: Child, kill: Kill) -> None:
        """Wait until the child is where the delay begins, or has ended."""
        child.wait_for("go")
        if kill.is_writing:
            self._await_writing(child)
        if kill.step is not None:
            next((line for line in child.lines() if "there" in line), None)

    def _await_writing(self, child: Child) -> None:
        """Wait until the child has taken the writer's lock, begun a new index, or ended."""
        lock, before = self._folder / INDEX / "writer.lock", set(self._folder.iterdir())
        while not child.has_ended() and set(self._folder.iterdir()) <= before:
            if lock.exists() and lock.read_text().startswith(f"process {child.pid} on"):
                return
            time.sleep(0.001)

    def _run(self, parent: Parent, kill: Kill, breaking: Break | None) -> None:
        """Run the operation, in a child."""
        if breaking is not None:
            breaking()
        steps = Steps(parent, kill.step, kill.is_sudden)
        if self.operation.command is not None and not self.operation.has_copies(self._folder):
            parent.report(go=True)
            become_command(self.operation.command, self._folder)
        steps.watch()
        parent.report(go=True)
        self.operation.run(self._folder, steps.acknowledge)
        parent.report(done=steps.taken)

    def _read(self, parent: Parent) -> None:
        """Read in a child: one index must keep the state it opened, another may only move on."""
        checks, path = self._checks, self._checks.index
        with mvindex.open(path) as fixed, mvindex.open(path) as moving:
            before, faults = checks.content(fixed), []
            position = checks.seen(fixed, 0).position
            parent.report(reading=True)
            is_last = False
            while not is_last and not faults:
                is_last = parent.is_waiting()
                time.sleep(0.001)
                moving.refresh()
                left = checks.seen(moving, position)
                position = max(position, left.position)
                faults += left.faults
            if checks.content(fixed) != before:
                faults.append(Fault("reader", "the state that it had opened changed"))
            faults += checks.wrong(fixed)
        parent.report(faults=faults)


def _faults_of(reader: Child) -> list[Fault]:
    """Return what a reader saw up to the kill and after it."""
    reader.go_on()
    return [Fault("reader", what) for _, what in reader.wait_for("faults")["faults"]]


@lru_cache
def prepare() -> None:
    """Set up the process that forks: small chunks, one thread, and all modules that its children need."""
    # All scans give the same results; NumPy's needs no second of imports in each process.
    os.environ["MVINDEX_KERNELS"] = "off"
    small_chunks()
    engines.open_scan = lambda *_: NumpyScan()
    engines.entry_points = lru_cache(engines.entry_points)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("replace", "build hnsw over flat"):
            operation, path = OPERATIONS[name], Path(folder, name)
            path.mkdir()
            operation.start(path)
            operation.run(path, ignore)
            with mvindex.open(path / INDEX) as index:
                if list(checks_of(operation, path).wrong(index)):
                    raise RuntimeError("searches are wrong without any kill")
    gc.freeze()  # children share its pages


def killed(
    operations: list[str], folder: str, *, steps: int | None, at_random: int, seed: int = 1, broken: str | None = None
) -> list[dict[str, Any]]:
    """Kill operations and return one row of JSON each.

    Args:
        operations: Names of the table.
        folder: Where the indexes are.
        steps: At how many of the named steps, by chance; None for one of each name.
        at_random: At how many random moments.
        seed: Of all choices.
        broken: A fault of the killed processes, which must be found: a name of BROKEN.
    """
    rows = []
    for name in operations:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            trials = Trials(OPERATIONS[name], Path(own), BROKEN.get(broken))
            generator = random.Random(seed)
            if steps is None:
                trials.kill_at_each_name(generator)
            else:
                trials.kill_at_steps(steps, generator)
            trials.kill_at_random(at_random, generator)
        rows.append({"operation": name, **trials.tally.row(), "steps": trials.steps})
    return rows
