"""What is looked at in a trial: answers, verify, salvage, repair and build; then a write."""

from pathlib import Path
from typing import Any

from damage_answers import Error
from damage_files import Role, role_of
from damage_trials import Trial
from damage_writes import changes, digests, write
from kill_documents import Held

import mvindex
from mvindex.maintenance import Problem

_FINE = ("bit flipped", "byte changed")
_BY_SQLITE = (Role.CATALOG, Role.LOG)
_BESIDE_CATALOG = (Role.LOG, Role.CURRENT, Role.ACKNOWLEDGED)


def run(trial: Trial) -> dict[str, Any]:
    """The outcome of the trial."""
    with trial.damaged() as path:
        before = digests(path)
        trial.ask("read", path, trial.case.now)
        verify(trial, path)
        salvage(trial, path)
        if digests(path) != before:
            trial.fault("read only", f"reading has changed {changes(before, digests(path))}")
    with trial.damaged() as path:
        repair(trial, path)
    with trial.damaged() as path:
        write(trial, path)
    return trial.row()


def verify(trial: Trial, path: Path) -> None:
    """Nothing; what verify does not name, or names though it is nothing, is a fault."""
    outcome, marks = trial.outcome, trial.marks
    report = trial.attempt("verify", lambda: mvindex.verify(path))
    outcome.is_seen = isinstance(report, Error) or bool(report.problems)
    if isinstance(report, Error):
        return
    shown = "; ".join(f"{problem.file}: {problem.what}" for problem in report.problems[:2])
    is_felt = bool(outcome.raised or outcome.wrong)
    if not report.problems and (is_felt or marks.must_be_seen):
        trial.fault("unseen", f"{outcome.raised} refused, {outcome.wrong} wrong; verify finds nothing")
    if report.problems and not (is_felt or marks.may_be_seen):
        trial.fault("false alarm", shown)
    if report.problems and not any(_names(problem, trial.damage.role) for problem in report.problems):
        trial.fault("file not named", shown)
    is_fine = trial.damage.kind in _FINE and trial.damage.role in (Role.CATALOG, Role.VIEWS)
    # A bit of the catalog may mean nothing, such as the type of a value that stands elsewhere.
    if is_fine and (marks.must_be_seen or trial.damage.role is Role.VIEWS):
        named = [problem.document or "" for problem in report.problems]
        for row in sorted(marks.touched):
            if not _is_told(row, named):
                trial.fault("document not named", f"row {row}, {trial.case.rows[row].id!r}: {shown}")


def _names(problem: Problem, role: Role) -> bool:
    """True when it names the file. Of the catalog and what must agree with it, nobody can tell which is wrong."""
    found = role_of(Path(problem.file))
    return found is role or role.value in problem.what or (found is Role.CATALOG and role in _BESIDE_CATALOG)


def _is_told(row: int, names: list[str]) -> bool:
    """True when one of them is of that document row."""
    return any(name == f"row {row}" or f"(row {row})" in name for name in names)


def salvage(trial: Trial, path: Path) -> None:
    """Nothing; the trial has what was saved. An intact document that was not, or what never was, is a fault."""
    outcome, case = trial.outcome, trial.case
    target = trial.folder / "saved.mvx"
    report = trial.attempt("salvage", lambda: mvindex.salvage(path, target))
    if not isinstance(report, Error):
        trial.saved = trial.held("salvaged", target)
    living = {number: row.id for number, row in case.rows.items() if row.is_alive}
    intact = {key for number, key in living.items() if number not in trial.marks.touched}
    missing = intact - trial.saved.keys()
    outcome.intact, outcome.saved = len(intact), len(trial.saved)
    outcome.lost = len(living.keys()) - len(trial.saved.keys() & case.now.held.keys())
    # Of a damaged catalog salvage gives what SQLite can read; that it says what it could not is checked below.
    if missing and trial.damage.role not in _BY_SQLITE:
        outcome.wrongly_lost = len(missing)
        why = report.message if isinstance(report, Error) else f"{len(report.lost)} lost"
        trial.fault("intact, not saved", f"{len(missing)} of {len(intact)}: {sorted(missing)[:3]}: {why}")
    # An older state, or one whose deletions are in doubt.
    is_in_doubt = not isinstance(report, Error) and any(problem.document is None for problem in report.lost)
    for key, held in trial.saved.items():
        if held != case.now.held.get(key):
            _judge_other(trial, key, held, is_in_doubt)
    is_fine = trial.damage.kind in _FINE or trial.damage.role in _BY_SQLITE
    if not isinstance(report, Error) and is_fine and not is_in_doubt:
        names = [str(problem.document) for problem in report.lost]
        for number, key in living.items():
            if key not in trial.saved and not _is_told(number, names):
                trial.fault("loss not told", f"{key!r} (row {number}): {names[:3]}")


def _judge_other(trial: Trial, key: str, held: Held, is_in_doubt: bool) -> None:
    """A saved document is not the living one: it may be an older one, where the trace of its end was destroyed."""
    rows = {number: row for number, row in trial.case.rows.items() if row.id == key}
    if held in trial.case.older.get(key, ()):
        trial.outcome.came_back += 1
        if not rows.keys() & trial.marks.touched and not is_in_doubt:
            trial.fault("came back", f"{key!r}, of which all rows are intact")
        return
    trial.outcome.wrongly_saved += 1
    never = [
        name for name in Held._fields if all(getattr(held, name) != getattr(row.held, name) for row in rows.values())
    ]
    trial.fault("wrongly saved", f"{key!r}: never were {never}: {str(held)[:150]}")


def repair(trial: Trial, path: Path) -> None:
    """Nothing; what is derived and not made again, and any other change, is a fault."""
    before = digests(path)
    report = trial.attempt("repair", lambda: mvindex.repair(path))
    after = digests(path)
    if isinstance(report, Error) and after != before:
        trial.fault("refused, but changed", f"repair: {report.message}: {changes(before, after)}")
    elif not trial.damage.role.is_derived and after != before:
        trial.fault("repair changed", f"{report}: {changes(before, after)}")
    if not trial.damage.role.is_derived or not trial.marks.must_be_seen:
        return
    built = report if isinstance(report, Error) else trial.attempt("build", lambda: _build(trial, path))
    refused = [built.message] if isinstance(built, Error) else trial.ask("after build", path, trial.case.now)
    problems = [] if refused else [str(problem) for problem in mvindex.verify(path).problems]
    trial.outcome.rebuilt = not refused and not problems
    if not trial.outcome.rebuilt and not _may_be_left(trial, " ".join(refused)):
        trial.fault("not rebuilt", "; ".join([*refused[:2], *problems[:2]]))


def _may_be_left(trial: Trial, told: str) -> bool:
    """True for what nobody may remove unasked, and an acknowledgement of commits that are nowhere, once told."""
    is_foreign = trial.damage.kind in ("directory", "pipe") and trial.damage.role.value in told
    return is_foreign or (trial.damage.role is Role.ACKNOWLEDGED and "was acknowledged" in told)


def _build(trial: Trial, path: Path) -> None:
    with trial.case.kit.open(path) as index:
        trial.case.kit.build(index)
