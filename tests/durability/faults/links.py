"""Cases of a hostile index: links, sockets and devices in place of its files, and names that lead out of it.

Beside the index is a folder of secrets, the files of another index, which must not be read through it or changed.
"""

import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store.schema import write_settings
from tests.durability.damage.files import Role, files_of
from tests.durability.documents import DIM, doc_id
from tests.durability.faults.cases import outcome
from tests.durability.operations import INDEX, documents, made_of, open_with_encoder
from tests.durability.processes import Child, Parent, in_child

SECRET = "secret"
_LIMIT_S = 60.0
_GENERATION = "generation-000001"


def in_place_of_files(folder: Path) -> dict:
    """Make each call with something else in the place of each file."""
    made = _made(folder)
    found = {}
    for role in files_of(made):
        for kind, place in _KINDS.items():
            with_it = _Trial(folder, made)
            place(with_it.file(role), with_it.secret(role))
            found[f"{role.value}: {kind}"] = with_it.outcomes(_CALLS)
    return found


def in_the_way(folder: Path) -> dict:
    """Make calls with links at the names that they write to or remove."""
    made = _made(folder)
    found = {}
    for name in _PLANTED:
        for call in ("write", "build", "compact", "snapshot"):
            trial = _Trial(folder, made)
            planted = trial.index / name
            planted.parent.mkdir(exist_ok=True)
            planted.symlink_to(trial.outside / ("empty" if planted.suffix else _GENERATION))
            found_there = trial.outcomes({call: _CALLS[call]})
            if os.path.islink(planted):
                planted.unlink()
            after = in_child(lambda trial=trial: _held_without_fault(trial.index))
            found[f"{name}: {call}"] = found_there | {"after": after}
    return found


def names_that_lead_out(folder: Path) -> dict:
    """Make each call with a name in the catalog that leads to another directory, and all checksums right."""
    made = _made(folder)
    found = {}
    for name, change in _CRAFTED.items():
        trial = _Trial(folder, made)
        in_child(lambda trial=trial, change=change: change(trial.index / _GENERATION / "catalog.sqlite"))
        found[name] = trial.outcomes(_CALLS)
    return found


class _Trial:
    """A copy of the index, and beside it the folder of secrets."""

    def __init__(self, folder: Path, made: Path) -> None:
        self.root = folder / "trial"
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(made.parent, self.root)
        self.index, self.outside = self.root / INDEX, self.root / "outside"
        self._before = dict(_state_of(self.outside))

    def file(self, role: Role) -> Path:
        return files_of(self.index)[role]

    def secret(self, role: Role) -> Path:
        return files_of(self.outside)[role]

    def outcomes(self, calls: dict[str, Callable[[Path], Any]]) -> dict:
        """Return the outcome of each call, and what changed in the folder beside the index."""
        found: dict[str, Any] = {}
        with Child(lambda parent: _report(parent, self.index, calls)) as child:
            try:
                for line in child.lines(_LIMIT_S):
                    found[line["call"]] = line
            except TimeoutError:
                found[next(name for name in calls if name not in found)] = {"error": "hangs", "message": ""}
        after = dict(_state_of(self.outside))
        return {"calls": found, "changed": sorted(set(self._before.items()) ^ set(after.items()))}


def _made(folder: Path) -> Path:
    """Make an index with an engine, and beside it another of the same documents with secret texts."""
    made = folder / "made"
    made.mkdir()
    secrets = [mvindex.Document(item.id, f"{SECRET}|{item.text}", SECRET) for item in documents(0, 16)]
    for texts, name in ((secrets, "outside"), (documents(0, 16), "own")):
        in_child(lambda texts=texts: _with_a_log(made, made_of(texts, kind="flat")))
        (made / INDEX).rename(made / name)
    (made / "own").rename(made / INDEX)
    (made / "outside" / "empty").touch()
    return made / INDEX


def _with_a_log(folder: Path, start: Callable[[Path], None]) -> None:
    """Make an index with the log and lock file of its catalog, as a killed writer leaves them."""
    start(folder)
    with (
        open_with_encoder(folder / INDEX) as index,
        embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader,
    ):
        reader.documents([0])
        with open_with_encoder(folder / INDEX) as writer:
            writer.update(doc_id(3), metadata={"late": True})
        shutil.copytree(folder / INDEX, folder / "copied")
    shutil.rmtree(folder / INDEX)
    (folder / "copied").rename(folder / INDEX)


def _report(parent: Parent, index: Path, calls: dict[str, Callable[[Path], Any]]) -> None:
    for name, call in calls.items():
        parent.report(call=name, **outcome(lambda call=call: call(index)))


def _look(path: Path) -> list[str]:
    with open_with_encoder(path) as index:
        index.search(np.ones(DIM), top_k=20)
        return [item.text for item in index]


def _write(path: Path) -> int:
    with open_with_encoder(path) as index:
        return index.add(documents(20, 22)).added


def _build(path: Path) -> str:
    with open_with_encoder(path) as index:
        return index.admin.build("hnsw").kind


def _compact(path: Path) -> int:
    with open_with_encoder(path) as index:
        index.delete(ids=doc_id(5))
        return index.admin.compact().dropped


def _snapshot(path: Path) -> list[str]:
    copy = path.with_name("copy.mvx")
    with open_with_encoder(path) as index:
        index.admin.snapshot(copy)
    return _look(copy)


def _salvage(path: Path) -> list[str]:
    saved = path.with_name("saved.mvx")
    mvindex.salvage(path, saved)
    return _look(saved)


_CALLS: dict[str, Callable[[Path], Any]] = {
    "look": _look,
    "verify": lambda path: [str(problem) for problem in mvindex.verify(path).problems],
    "salvage": _salvage,
    "snapshot": _snapshot,
    "build": _build,
    "write": _write,
    "compact": _compact,
    "repair": lambda path: list(mvindex.repair(path).made_again),
}


def _link(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def _dangling(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret.with_name("new"))


def _socket(path: Path, secret: Path) -> None:
    path.unlink()
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's name may have a hundred characters
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(path.name)
    os.chdir(before)


def _device(path: Path, secret: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.stat("/dev/zero").st_rdev)


_KINDS = {"a link": _link, "a link to nothing": _dangling, "a socket": _socket}
if os.geteuid() == 0:
    _KINDS["a device"] = _device
# Names that are written or removed: of one step, of the next generation and engine, of leftovers.
_PLANTED = [
    "current.json.new",
    "unfinished-generation-000002",
    "unfinished-generation-000002/views-000002.f16",
    "generation-000002",
    "gone-generation-00000000",
    f"{_GENERATION}/unfinished-engine-hnsw-000005",
    f"{_GENERATION}/engine-hnsw-000005",
    f"{_GENERATION}/gone-engine-flat-000001",
]


def _rename_segment(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        names = [name for (name,) in connection.execute("SELECT name FROM files")]
        for name in names:
            for table in ("files", "blocks"):
                statement = f"UPDATE {table} SET name = ? WHERE name = ?"  # noqa: S608 - fixed names
                connection.execute(statement, (f"../../outside/{_GENERATION}/{name}", name))


def _move_engine(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        (found,) = connection.execute("SELECT json_extract(value, '$.directory') FROM settings WHERE key = 'engine'")
        record = mvindex.store.schema.read_settings(connection)["engine"]
        write_settings(connection, {"engine": record | {"directory": f"../../outside/{_GENERATION}/{found[0]}"}})


def _rename_engine_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        record = mvindex.store.schema.read_settings(connection)["engine"]
        outside = {f"../../../outside/{_GENERATION}/{record['directory']}/{name}" for name in record["checksums"]}
        checksums = dict.fromkeys(outside, next(iter(record["checksums"].values())))
        write_settings(connection, {"engine": record | {"checksums": checksums}})


_CRAFTED = {"segments": _rename_segment, "engine directory": _move_engine, "engine file": _rename_engine_file}


def _held_without_fault(path: Path) -> dict:
    texts = _look(path)
    return {"documents": len(texts), "problems": [str(each) for each in mvindex.verify(path).problems]}


def _state_of(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for path in folder.rglob("*"):
        found = path.lstat()
        # A directory's time changes with its entries, which are there by name.
        yield str(path.relative_to(folder)), (found.st_mtime_ns, found.st_size) if path.is_file() else (0, 0)
