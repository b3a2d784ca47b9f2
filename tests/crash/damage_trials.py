"""One trial: a damage is done to copies of an index, which are read, verified, salvaged, repaired and written to."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from damage_answers import Error, ask, error, wrong
from damage_cases import Case, State
from damage_kinds import Damage
from damage_marks import Marks, marks_of
from kill_checks import held_by
from kill_documents import Held

import mvindex

Result = TypeVar("Result")


@dataclass(slots=True)
class Outcome:
    """What became of a trial: questions answered right, refused (raised) or wrong; documents intact, saved, lost.

    lost: living documents that were not saved; wrongly_lost: those of them that are intact. faults: what promise was
    broken, and how.
    """

    case: str
    file: str
    kind: str
    seed: int
    did: str = ""
    area: str = ""
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
    """A damage of a case's index, tried in an empty folder. marks: once it is done; saved: what salvage made of it."""

    def __init__(self, case: Case, damage: Damage, folder: Path) -> None:
        self.case, self.damage, self.folder = case, damage, folder
        self.random = random.Random(damage.seed)
        self.outcome = Outcome(case.kit.name, damage.role.value, damage.kind, damage.seed)
        self.saved: dict[str, Held] = {}
        self.marks: Marks | None = None

    @contextmanager
    def damaged(self) -> Iterator[Path]:
        """A copy of the index with the damage; the folder is empty again afterwards."""
        path = self.folder / "index.mvx"
        shutil.copytree(self.case.sound, path)
        self.outcome.did = self.damage.do(self.case, path)
        if self.marks is None:
            self.marks = marks_of(self.case, self.damage, path)
            self.outcome.area, self.outcome.must_be_seen = self.marks.area, self.marks.must_be_seen
        yield path
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def fault(self, kind: str, what: str) -> None:
        """Nothing; it is noted."""
        self.outcome.faults.append((kind, what[:400]))

    def attempt(self, name: str, call: Callable[[], Result]) -> Result | Error:
        """What the call gives, or mvindex's own error; any other exception is a fault."""
        try:
            return call()
        except mvindex.MvindexError as err:
            return error(err)
        except Exception as err:  # noqa: BLE001 - whatever else escapes is what is looked for
            self.fault("exception", f"{name}: {type(err).__name__}: {err}")
            return Error(type(err).__name__, str(err))

    def ask(self, name: str, path: Path, *states: State) -> list[str]:
        """The refusals; wrong answers, those of none of the states, are a fault. All is asked of what is first read."""
        is_first = name == "read"
        found = self.attempt(name, lambda: ask(self.case.kit, path, self.random, few=not is_first))
        if isinstance(found, Error):
            return [found.message]
        mistaken = wrong(found, *(state.answers for state in states))
        if mistaken:
            self.fault("wrong answer", f"{name}: {mistaken[:5]}: {str(found[mistaken[0]])[:150]}")
        refused = [key for key, answer in found.items() if isinstance(answer, Error)]
        if is_first:
            self.outcome.wrong, self.outcome.raised = len(mistaken), len(refused)
            self.outcome.right = len(found) - len(mistaken) - len(refused)
        return [f"{key}: {found[key].message}" for key in refused]

    def held(self, name: str, path: Path) -> dict[str, Held]:
        """What an index holds that has to be sound."""

        def read() -> dict[str, Held]:
            report = mvindex.verify(path)
            if report.problems:
                self.fault("unsound", f"{name}: {report.problems[0]}")
            with self.case.kit.open(path) as index:
                return held_by(index)

        found = self.attempt(name, read)
        if isinstance(found, Error):
            self.fault("unsound", f"{name}: {found.message}")
            return {}
        return found

    def row(self) -> dict[str, Any]:
        """The outcome as JSON has it."""
        return asdict(self.outcome)
