"""Cases of an index made by an enemy: what leads elsewhere, or is no file, in the place of its files.

Beside the index stands a folder of secrets, which nobody may read through it or change: files of another index.
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
from damage_files import Role, files_of
from kill_documents import DIM, doc_id
from kill_operations import INDEX, documents, of_texts, opened
from kill_processes import Child, Parent, asked

import mvindex
from mvindex.errors import MvindexError
from mvindex.index import embedded_store_of
from mvindex.store.catalog import write_settings

SECRET = "secret"
_LIMIT_S = 60.0
_GENERATION = "generation-000001"


def in_place_of_files(folder: Path) -> dict:
    """What each call gives, by the file and by what stands in its place."""
    made = _made(folder)
    found = {}
    for role in files_of(made):
        for kind, place in _KINDS.items():
            with_it = _Trial(folder, made)
            place(with_it.file(role), with_it.secret(role))
            found[f"{role.value}: {kind}"] = with_it.outcomes(_CALLS)
    return found


def in_the_way(folder: Path) -> dict:
    """What each call gives where links stand at the names that it writes to, or that it removes."""
    made = _made(folder)
    found = {}
    for name in _PLANTED:
        for call in ("write", "build", "compact", "snapshot"):
            trial = _Trial(folder, made)
            planted = trial.index / name
            planted.parent.mkdir(exist_ok=True)
            planted.symlink_to(trial.outside / ("empty" if planted.suffix else _GENERATION))
            outcome = trial.outcomes({call: _CALLS[call]})
            if os.path.islink(planted):
                planted.unlink()
            after = asked(lambda trial=trial: _held_without_fault(trial.index))
            found[f"{name}: {call}"] = outcome | {"after": after}
    return found


def names_that_lead_out(folder: Path) -> dict:
    """What each call gives when a name in the catalog leads to another directory, with all checksums right."""
    made = _made(folder)
    found = {}
    for name, change in _CRAFTED.items():
        trial = _Trial(folder, made)
        asked(lambda trial=trial, change=change: change(trial.index / _GENERATION / "catalog.sqlite"))
        found[name] = trial.outcomes(_CALLS)
    return found


class _Trial:
    """A copy of the index, and beside it what is not its own."""

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
        """What each call gave, and what is another in the folder beside the index."""
        found: dict[str, Any] = {}
        with Child(lambda parent: _tell(parent, self.index, calls)) as child:
            try:
                for line in child.lines(_LIMIT_S):
                    found[line["call"]] = line
            except TimeoutError:
                found[next(name for name in calls if name not in found)] = {"error": "hangs", "message": ""}
        after = dict(_state_of(self.outside))
        return {"calls": found, "changed": sorted(set(self._before.items()) ^ set(after.items()))}


def _made(folder: Path) -> Path:
    """An index with an engine, and beside it another of the same documents with secret texts."""
    made = folder / "made"
    made.mkdir()
    secrets = [mvindex.Document(item.id, f"{SECRET}|{item.text}", SECRET) for item in documents(0, 16)]
    for texts, name in ((secrets, "outside"), (documents(0, 16), "own")):
        asked(lambda texts=texts: _with_a_log(made, of_texts(texts, kind="flat")))
        (made / INDEX).rename(made / name)
    (made / "own").rename(made / INDEX)
    (made / "outside" / "empty").touch()
    return made / INDEX


def _with_a_log(folder: Path, start: Callable[[Path], None]) -> None:
    """Nothing; the catalog has its log and lock file beside it, as a killed writer leaves them."""
    start(folder)
    with opened(folder / INDEX) as index, embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
        reader.documents([0])
        with opened(folder / INDEX) as writer:
            writer.update(doc_id(3), metadata={"late": True})
        shutil.copytree(folder / INDEX, folder / "copied")
    shutil.rmtree(folder / INDEX)
    (folder / "copied").rename(folder / INDEX)


def _tell(parent: Parent, index: Path, calls: dict[str, Callable[[Path], Any]]) -> None:
    for name, call in calls.items():
        try:
            parent.say(call=name, gave=call(index))
        except MvindexError as err:
            parent.say(call=name, error=type(err).__name__, message=str(err))
        except Exception as err:  # noqa: BLE001 - the test is told of what is none of ours
            parent.say(call=name, error=f"raw {type(err).__name__}", message=repr(err))


def _look(path: Path) -> list[str]:
    with opened(path) as index:
        index.search(np.ones(DIM), top_k=20)
        return [item.text for item in index]


def _write(path: Path) -> int:
    with opened(path) as index:
        return index.add(documents(20, 22)).added


def _build(path: Path) -> str:
    with opened(path) as index:
        return index.build("hnsw").kind


def _compact(path: Path) -> int:
    with opened(path) as index:
        index.delete(ids=doc_id(5))
        return index.compact().dropped


def _snapshot(path: Path) -> list[str]:
    copy = path.with_name("copy.mvx")
    with opened(path) as index:
        index.snapshot(copy)
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
# Where something is written or removed: names of one step, of the next generation and engine, of what is left over.
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
        record = mvindex.store.catalog.read_settings(connection)["engine"]
        write_settings(connection, {"engine": record | {"directory": f"../../outside/{_GENERATION}/{found[0]}"}})


def _rename_engine_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        record = mvindex.store.catalog.read_settings(connection)["engine"]
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
