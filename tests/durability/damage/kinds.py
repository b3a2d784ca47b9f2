"""The table of kinds of damage to one file of an index; a seed decides the particulars."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.durability.damage.cases import Case
from tests.durability.damage.files import Role, role_of
from tests.durability.damage.kits import EMPTIED, GENERATION, OLDER, OTHER

PAGE, SECTOR = 4096, 512


class Damage(NamedTuple):
    """One damage: its file, kind and seed. write: the write that is then tried, "" for any."""

    role: Role
    kind: str
    seed: int
    write: str = ""

    def do(self, case: Case, index: Path) -> str:
        """Damage this copy of the case's index; return a description."""
        generator = random.Random(repr((self.role.name, self.kind, self.seed)))
        path = index / case.file(self.role).relative_to(case.sound)
        return KINDS[self.kind](path, case, generator)


Kind = Callable[[Path, Case, random.Random], str]


def _truncate(choose: Callable[[int, random.Random], int]) -> Kind:
    def damage(path: Path, case: Case, generator: random.Random) -> str:
        size = choose(path.stat().st_size, generator)
        os.truncate(path, size)
        return f"cut to {size} bytes"

    return damage


def _page_boundary(size: int, generator: random.Random) -> int:
    return generator.randrange(-(-size // PAGE)) * PAGE if size else 0


def _extend(path: Path, case: Case, generator: random.Random) -> str:
    more = generator.choice((1, 7, 24, SECTOR, PAGE, 5000))
    garbage = bytes(more) if generator.random() < 0.3 else generator.randbytes(more)
    with open(path, "ab") as file:
        file.write(garbage)
    return f"{more} bytes behind its end"


def _overwrite(size_of: Callable[[int], int], is_aligned: bool, make: Callable[[bytes, random.Random], bytes]) -> Kind:
    """Return a damage of a stretch of bytes. size_of: its length in a file of a size; is_aligned: to that length."""

    def damage(path: Path, case: Case, generator: random.Random) -> str:
        size = path.stat().st_size
        length = min(size_of(size), size)
        if length == 0:
            return "unchanged: the file is empty"
        at = generator.randrange(-(-size // length)) * length if is_aligned else generator.randrange(size - length + 1)
        # Much of a catalog is free space.
        if length == 1 and role_of(path) in (Role.CATALOG, Role.LOG) and generator.random() < 0.7:
            at = generator.choice(np.flatnonzero(np.frombuffer(path.read_bytes(), dtype=np.uint8)).tolist() or [at])
        with open(path, "r+b") as file:
            file.seek(at)
            before = file.read(length)
            after = make(before, generator)
            file.seek(at)
            file.write(after)
        return f"bytes {at} to {at + len(before)}: {before[:8].hex()}.. is {after[:8].hex()}.."

    return damage


def _flip(before: bytes, generator: random.Random) -> bytes:
    return bytes([before[0] ^ 1 << generator.randrange(8)])


def _other_byte(before: bytes, generator: random.Random) -> bytes:
    return bytes([before[0] ^ generator.randrange(1, 256)])


def _noise(before: bytes, generator: random.Random) -> bytes:
    return generator.randbytes(len(before))


def _zeros(before: bytes, generator: random.Random) -> bytes:
    return bytes(len(before))


def _delete(path: Path, case: Case, generator: random.Random) -> str:
    path.unlink()
    return "deleted"


def _swap(donor: str) -> Kind:
    def damage(path: Path, case: Case, generator: random.Random) -> str:
        theirs = case.file(role_of(path), donor)
        if theirs is None:
            path.unlink()
            return f"deleted: the index {donor} has none"
        shutil.copyfile(theirs, path)
        return f"that of the index {donor} in its place"

    return damage


def _swap_set(path: Path, case: Case, generator: random.Random) -> str:
    """Swap the database together with the files of SQLite beside it, which fit it."""
    for role in (Role.CATALOG, Role.LOG, Role.LOG_INDEX):
        theirs = case.file(role, OLDER)
        beside = path.with_name(role.value)
        beside.unlink(missing_ok=True)
        if theirs is not None:
            shutil.copyfile(theirs, beside)
    return "the older catalog with its log in their place"


def _link(path: Path, case: Case, generator: random.Random) -> str:
    index = next(parent for parent in path.parents if parent.suffix == ".mvx")
    elsewhere = index.with_name(f"elsewhere-{path.name}")
    shutil.copyfile(path, elsewhere)
    path.unlink()
    path.symlink_to(elsewhere)
    return "a symbolic link to a copy in its place"


def _directory(path: Path, case: Case, generator: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a directory in its place"


def _pipe(path: Path, case: Case, generator: random.Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return "a pipe in its place"


KINDS: dict[str, Kind] = {
    "cut to 0": _truncate(lambda size, generator: 0),
    "cut at random": _truncate(lambda size, generator: generator.randrange(size) if size else 0),
    "last byte cut": _truncate(lambda size, generator: max(size - 1, 0)),
    "cut at a page": _truncate(_page_boundary),
    "extended": _extend,
    "bit flipped": _overwrite(lambda size: 1, False, _flip),
    "byte changed": _overwrite(lambda size: 1, False, _other_byte),
    "sector of noise": _overwrite(lambda size: SECTOR, True, _noise),
    "page zeroed": _overwrite(lambda size: PAGE, True, _zeros),
    "sector zeroed": _overwrite(lambda size: SECTOR, True, _zeros),
    "zeroed": _overwrite(lambda size: size, True, _zeros),
    "deleted": _delete,
    "older copy": _swap(OLDER),
    "older generation": _swap(GENERATION),
    "another index's": _swap(OTHER),
    "an emptied one's": _swap(EMPTIED),
    "older, with its log": _swap_set,
    "link": _link,
    "directory": _directory,
    "pipe": _pipe,
}

_OF_ANY_FILE = ("extended", "deleted", "older copy", "another index's", "link", "directory", "pipe")


def changed_bytes(case: Case, index: Path, role: Role) -> np.ndarray:
    """Return which bytes of the sound file have changed, (size,) bool; all where no plain file is left."""
    path = index / case.file(role).relative_to(case.sound)
    sound = np.frombuffer(case.file(role).read_bytes(), dtype=np.uint8)
    is_changed = np.ones(len(sound), dtype=bool)
    if path.is_file() and not path.is_symlink():
        found = np.frombuffer(path.read_bytes(), dtype=np.uint8)[: len(sound)]
        is_changed[: len(found)] = found != sound[: len(found)]
    return is_changed


def can_be_done(case: Case, role: Role, kind: str) -> bool:
    """Return whether the file exists, and has bytes where the kind changes bytes."""
    path = case.file(role)
    if path is None or (kind == "older, with its log" and role is not Role.CATALOG):
        return False
    return path.stat().st_size > 0 or kind in _OF_ANY_FILE
