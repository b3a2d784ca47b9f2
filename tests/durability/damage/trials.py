"""The one harness for damage: copies of an index are damaged, then read, verified, salvaged, repaired and written to.

Damage is done before an index is opened, and each copy has its own path: a process trusts what it has once checked.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import mvindex
from mvindex.maintenance import Problem
from tests.durability.checks import stored_in
from tests.durability.damage.answers import Error, ask, error, wrong
from tests.durability.damage.cases import COPY, WRITES, Case, State
from tests.durability.damage.files import Role, role_of
from tests.durability.damage.kinds import Damage
from tests.durability.damage.marks import Marks, marks_of
from tests.durability.documents import Stored

Result = TypeVar("Result")
_FINE = ("bit flipped", "byte changed")
_BESIDE_CATALOG = (Role.LOG, Role.CURRENT, Role.ACKNOWLEDGED)


@dataclass(slots=True)
class Outcome:
    """The counts of a trial: queries answered right, refused (raised) or wrong; documents intact, saved, lost.

    lost: documents that were not saved; wrongly_lost: those of them that are intact. faults: the promises that were
    broken, and how.
    """

    case: str
    file: str
    kind: str
    seed: int
    did: str = ""
    write: str = ""
    right: int = 0
    raised: int = 0
    wrong: int = 0
    is_seen: bool = False
    must_be_seen: bool = False
    rebuilt: bool | None = None
    saved: int = 0
    intact: int = 0
    lost: int = 0
    wrongly_lost: int = 0
    wrongly_saved: int = 0
    came_back: int = 0
    has_written: bool | None = None
    faults: list[tuple[str, str]] = field(default_factory=list)


class Trial:
    """One damage to a case's index, tried in an empty folder. marks: once it is done; saved: the result of salvage."""

    def __init__(self, case: Case, damage: Damage, folder: Path) -> None:
        self.case, self.damage, self.folder = case, damage, folder
        self.random = random.Random(damage.seed)
        self.outcome = Outcome(case.kit.name, damage.role.value, damage.kind, damage.seed)
        self.saved: dict[str, Stored] = {}
        self.marks: Marks | None = None

    def run(self) -> dict[str, Any]:
        """Try the damage; return the outcome as JSON."""
        with self._damaged("read") as path:
            before = digests(path)
            self._ask("read", path, self.case.now)
            self._verify(path)
            self._salvage(path)
            if digests(path) != before:
                self._fault("read only", f"reading has changed {_changes(before, digests(path))}")
        with self._damaged("repair") as path:
            self._repair(path)
        with self._damaged("write") as path:
            self._write(path)
        return asdict(self.outcome)

    @contextmanager
    def _damaged(self, name: str) -> Iterator[Path]:
        """Make a damaged copy of the index in a new folder; the folder is removed afterwards."""
        path = self.folder / f"{name}-{self.damage.seed}-{os.urandom(4).hex()}" / "index.mvx"
        shutil.copytree(self.case.sound, path)
        self.outcome.did = self.damage.do(self.case, path)
        if self.marks is None:
            self.marks = marks_of(self.case, self.damage, path)
            self.outcome.must_be_seen = self.marks.must_be_seen
        yield path
        shutil.rmtree(path.parent)

    def _fault(self, kind: str, what: str) -> None:
        self.outcome.faults.append((kind, what[:400]))

    def _attempt(self, name: str, call: Callable[[], Result]) -> Result | Error:
        """Return the result of the call, or mvindex's own error; any other exception is a fault."""
        try:
            return call()
        except mvindex.MvindexError as err:
            return error(err)
        except Exception as err:  # noqa: BLE001 - any other exception is what the trials look for
            self._fault("exception", f"{name}: {type(err).__name__}: {err}")
            return Error(type(err).__name__, str(err))

    def _ask(self, name: str, path: Path, *states: State) -> list[str]:
        """Ask the index; return the refusals. A wrong answer, which none of the states gives, is a fault."""
        is_first = name == "read"
        found = self._attempt(name, lambda: ask(self.case.kit, path, self.random, few=not is_first))
        if isinstance(found, Error):
            return [found.message]
        mistaken = wrong(found, *(state.answers for state in states))
        if mistaken:
            self._fault("wrong answer", f"{name}: {mistaken[:5]}: {str(found[mistaken[0]])[:150]}")
        refused = [key for key, answer in found.items() if isinstance(answer, Error)]
        if is_first:
            self.outcome.wrong, self.outcome.raised = len(mistaken), len(refused)
            self.outcome.right = len(found) - len(mistaken) - len(refused)
        return [f"{key}: {found[key].message}" for key in refused]

    def _stored(self, name: str, path: Path) -> dict[str, Stored]:
        """Return the content of an index that must be sound."""

        def read() -> dict[str, Stored]:
            report = mvindex.verify(path)
            if report.problems:
                self._fault("unsound", f"{name}: {report.problems[0]}")
            with self.case.kit.open(path) as index:
                return stored_in(index)

        found = self._attempt(name, read)
        if isinstance(found, Error):
            self._fault("unsound", f"{name}: {found.message}")
            return {}
        return found

    def _verify(self, path: Path) -> None:
        """Check that verify reports what is damaged, and only that."""
        outcome, marks, role = self.outcome, self.marks, self.damage.role
        report = self._attempt("verify", lambda: mvindex.verify(path))
        outcome.is_seen = isinstance(report, Error) or bool(report.problems)
        if isinstance(report, Error):
            return
        shown = "; ".join(f"{problem.file}: {problem.what}" for problem in report.problems[:2])
        is_felt = bool(outcome.raised or outcome.wrong)
        if not report.problems and (is_felt or marks.must_be_seen):
            self._fault("unseen", f"{outcome.raised} refused, {outcome.wrong} wrong; verify reports no problem")
        if report.problems and not (is_felt or marks.may_be_seen):
            self._fault("false alarm", shown)
        if report.problems and not any(_names(problem, role) for problem in report.problems):
            self._fault("file not named", shown)
        # A damaged log loses whole commits, which are named by their versions.
        if self.damage.kind in _FINE and role is not Role.LOG:
            named = [problem.document or "" for problem in report.problems]
            for row in sorted(marks.changed):
                if not _is_named(row, named):
                    self._fault("document not named", f"row {row}, {self.case.rows[row].id!r}: {shown}")

    def _salvage(self, path: Path) -> None:
        """Check that salvage saves every intact document, nothing that never was, and reports what it lost."""
        outcome, case, marks = self.outcome, self.case, self.marks
        target = path.parent / "saved.mvx"
        report = self._attempt("salvage", lambda: mvindex.salvage(path, target))
        # Whatever stands in the place of SQLite's own file is never opened; salvage asks for it to be moved away.
        if (
            isinstance(report, Error)
            and self.damage.role is Role.LOG_INDEX
            and "catalog.sqlite-shm: " in report.message
        ):
            return
        if not isinstance(report, Error):
            self.saved = self._stored("salvaged", target)
        live = {number: row.id for number, row in case.rows.items() if row.is_alive}
        intact = {key for number, key in live.items() if number not in marks.touched}
        missing = intact - self.saved.keys()
        outcome.intact, outcome.saved, outcome.wrongly_lost = len(intact), len(self.saved), len(missing)
        outcome.lost = len(live) - len(self.saved.keys() & case.now.stored.keys())
        if missing:
            why = report.message if isinstance(report, Error) else ""
            self._fault("intact, not saved", f"{len(missing)} of {len(intact)}: {sorted(missing)[:3]}: {why}")
        for key, stored in self.saved.items():
            if stored != case.now.stored.get(key):
                self._judge_other(key, stored)
        if not isinstance(report, Error) and self.damage.kind in _FINE and marks.is_readable:
            names = [str(problem.document) for problem in report.lost]
            for number, key in live.items():
                if key not in self.saved and number in marks.changed and not _is_named(number, names):
                    self._fault("loss not reported", f"{key!r} (row {number}): {names[:3]}")

    def _judge_other(self, key: str, stored: Stored) -> None:
        """Judge a saved document that is not the live one: an older one, where the record of its end was destroyed."""
        rows = {number: row for number, row in self.case.rows.items() if row.id == key}
        if stored in self.case.older.get(key, ()):
            self.outcome.came_back += 1
            # A damaged log may have lost the order of its commits.
            is_log_damaged = self.damage.role is Role.LOG and self.marks.must_be_seen
            if not rows.keys() & self.marks.touched and not is_log_damaged:
                self._fault("came back", f"{key!r}, of which all rows are intact")
            return
        self.outcome.wrongly_saved += 1
        fields = Stored._fields
        never = [
            name for name in fields if all(getattr(stored, name) != getattr(row.stored, name) for row in rows.values())
        ]
        self._fault("wrongly saved", f"{key!r}: never were {never}: {str(stored)[:150]}")

    def _repair(self, path: Path) -> None:
        """Check that repair and build make again what is derived, and change nothing else."""
        role, before = self.damage.role, digests(path)
        report = self._attempt("repair", lambda: mvindex.repair(path))
        after = digests(path)
        if isinstance(report, Error) and after != before:
            self._fault("refused, but changed", f"repair: {report.message}: {_changes(before, after)}")
        elif not role.is_derived and after != before:
            self._fault("repair changed", f"{report}: {_changes(before, after)}")
        if not role.is_derived or not self.marks.must_be_seen:
            return
        built = report if isinstance(report, Error) else self._attempt("build", lambda: self._build(path))
        refused = [built.message] if isinstance(built, Error) else self._ask("after build", path, self.case.now)
        problems = [] if refused else [str(problem) for problem in mvindex.verify(path).problems]
        self.outcome.rebuilt = not refused and not problems
        if not self.outcome.rebuilt and not self._may_stay(" ".join(refused)):
            self._fault("not rebuilt", "; ".join([*refused[:2], *problems[:2]]))

    def _may_stay(self, message: str) -> bool:
        """Return whether this must not be removed without the user, or acknowledges commits that are nowhere."""
        is_foreign = self.damage.kind in ("directory", "pipe") and self.damage.role.value in message
        return is_foreign or (self.damage.role is Role.ACKNOWLEDGED and "was acknowledged" in message)

    def _build(self, path: Path) -> None:
        with self.case.kit.open(path) as index:
            self.case.kit.build(index)

    def _write(self, path: Path) -> None:
        """Check that a write is done wholly or not at all, copies no damage, and costs no other document."""
        name = self.outcome.write = self.damage.write or self.random.choice(sorted(WRITES))
        before = digests(path)

        def attempt() -> Any:
            with self.case.kit.open(path) as index:
                return WRITES[name](self.case.kit, index, path.parent)

        report = self._attempt(name, attempt)
        self.outcome.has_written = not isinstance(report, Error)
        after = self.case.after[name]
        if isinstance(report, Error):
            left = [entry.name for entry in path.parent.rglob("*") if entry.name.startswith(("unfinished-", "."))]
            if left:
                self._fault("litter", f"{name}: {left}")
            if digests(path) == before:
                return
            self._ask(f"after refused {name}", path, self.case.now, after)
        else:
            refused = self._ask(f"after {name}", path, after)
            if name == "snapshot":
                self._copy_is_sound(path.parent / COPY, after)
            if name == "compact" and report.dropped and self.damage.role is not Role.LOCK:
                if refused:
                    self._fault("damage copied", f"{name}: {refused[0]}")
                self._copy_is_sound(path, after)
        self._is_no_worse(path)

    def _copy_is_sound(self, path: Path, state: State) -> None:
        stored = self._stored(f"after {self.outcome.write}", path)
        if stored != state.stored:
            other = [key for key in {*stored, *state.stored} if stored.get(key) != state.stored.get(key)]
            self._fault("damage copied", f"{self.outcome.write}: {sorted(other)[:5]}")

    def _is_no_worse(self, path: Path) -> None:
        """Check that salvage saves after the write what it saved before, but for what the write has changed."""
        name, target = self.outcome.write, path.parent / "after.mvx"
        now, after = self.case.now.stored, self.case.after[name].stored
        expected = {key: each for key, each in self.saved.items() if now.get(key) == each == after.get(key)}
        report = self._attempt(f"salvage after {name}", lambda: mvindex.salvage(path, target))
        saved = {} if isinstance(report, Error) else self._stored(f"salvaged after {name}", target)
        worse = [key for key, each in expected.items() if saved.get(key) != each]
        if worse:
            why = report.message if isinstance(report, Error) else ""
            self._fault("made worse", f"{name}: {len(worse)} of {len(expected)}: {sorted(worse)[:3]}: {why}")


def _names(problem: Problem, role: Role) -> bool:
    """Return whether the problem names the file. Of the catalog and what must agree with it, either may be wrong."""
    found = role_of(Path(problem.file))
    return found is role or role.value in problem.what or (found is Role.CATALOG and role in _BESIDE_CATALOG)


def _is_named(row: int, names: list[str]) -> bool:
    """Return whether one of the names is of that document row."""
    return any(name == f"row {row}" or f"(row {row})" in name for name in names)


def digests(index: Path) -> dict[str, str]:
    """Return a digest of each entry of the index, except temporary ones of SQLite and of the lock."""
    found = {}
    for path in sorted(index.rglob("*")):
        role, name = role_of(path), str(path.relative_to(index))
        if role is not None and role.is_transient:
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and not (role is Role.LOG and path.stat().st_size == 0):
            found[name] = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found


def _changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
