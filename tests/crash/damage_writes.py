"""What a write to a damaged index may do: nothing, or all of it; and what is compared to see that."""

import hashlib
import os
from pathlib import Path
from typing import Any

from damage_answers import Error
from damage_cases import COPY, WRITES, State
from damage_files import Role, role_of
from damage_trials import Trial

import mvindex


def write(trial: Trial, path: Path) -> None:
    """Nothing; a write that is half done, copies damage or costs a document that it did not change is a fault."""
    name = trial.outcome.write = trial.damage.write or trial.random.choice(sorted(WRITES))
    before = digests(path)

    def attempt() -> Any:
        with trial.case.kit.open(path) as index:
            return WRITES[name](trial.case.kit, index, path.parent)

    report = trial.attempt(name, attempt)
    trial.outcome.has_written = not isinstance(report, Error)
    after = trial.case.after[name]
    if isinstance(report, Error):
        left = [entry.name for entry in path.parent.rglob("*") if entry.name.startswith(("unfinished-", "."))]
        if left:
            trial.fault("litter", f"{name}: {left}")
        if digests(path) == before:
            return
        trial.ask(f"after refused {name}", path, trial.case.now, after)
    else:
        refused = trial.ask(f"after {name}", path, after)
        if name == "snapshot":
            _copy_is_sound(trial, path.parent / COPY, after)
        if name == "compact" and report.dropped and trial.damage.role is not Role.LOCK:
            if refused:
                trial.fault("damage copied", f"{name}: {refused[0]}")
            _copy_is_sound(trial, path, after)
    _is_no_worse(trial, path)


def _copy_is_sound(trial: Trial, path: Path, state: State) -> None:
    held = trial.held(f"after {trial.outcome.write}", path)
    if held != state.held:
        other = [key for key in {*held, *state.held} if held.get(key) != state.held.get(key)]
        trial.fault("damage copied", f"{trial.outcome.write}: {sorted(other)[:5]}")


def _is_no_worse(trial: Trial, path: Path) -> None:
    """Nothing; what salvage saved before the write it saves afterwards, but for what the write has changed."""
    name, target = trial.outcome.write, trial.folder / "after.mvx"
    now, after = trial.case.now.held, trial.case.after[name].held
    wanted = {key: held for key, held in trial.saved.items() if now.get(key) == held == after.get(key)}
    report = trial.attempt(f"salvage after {name}", lambda: mvindex.salvage(path, target))
    saved = {} if isinstance(report, Error) else trial.held(f"salvaged after {name}", target)
    worse = [key for key, held in wanted.items() if saved.get(key) != held]
    if worse:
        why = report.message if isinstance(report, Error) else ""
        trial.fault("made worse", f"{name}: {len(worse)} of {len(wanted)}: {sorted(worse)[:3]}: {why}")


def digests(index: Path) -> dict[str, str]:
    """A digest of each entry of the index, but those that SQLite and the lock make for the time being."""
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


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The entries that are others."""
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
