"""Tiny indexes as the bytes of their files, which are put back after each input; and what each of them answers.

SQLite's pages are of 512 bytes, so that a whole catalog is an input. The documents are those of tests/durability.
"""

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import mvindex
from fuzz_parts.index_answers import Answer, asked
from fuzz_parts.target import require
from mvindex import engines, kernels
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.index import embedded_store_of

_ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(_ROOT))

from tests.durability.documents import DIM, doc_id, document, given_views  # noqa: E402 - after the path

PAGE_BYTES = 512
CATALOG = "catalog.sqlite"
# Their texts are short.
_FIRST, _LATER = (0, 1, 2, 3, 5), 6
# What SQLite makes for itself beside a catalog.
_TRANSIENT = f"{CATALOG}-shm"


@dataclass(frozen=True)
class Kit:
    """An index. files: their bytes by their names below it; answers: by question."""

    path: Path
    files: Mapping[str, bytes]
    answers: Mapping[str, Answer] = field(default_factory=dict)

    def name_of(self, beginning: str) -> str:
        """Return the one file whose own name begins so."""
        [found] = [name for name in self.files if Path(name).name.startswith(beginning)]
        return found

    def restore(self) -> None:
        """Restore the files of the index, and remove all others."""
        for folder, folders, names in os.walk(self.path):
            below = folder[len(str(self.path)) + 1 :]
            for name in [*folders, *names]:
                path = os.path.join(folder, name)
                is_kept = os.path.join(below, name) in (self._folders if name in folders else self.files)
                if not is_kept or stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                    _remove(path)
        for name in self._folders:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            _put(os.path.join(self.path, name), content)

    @cached_property
    def _folders(self) -> frozenset[str]:
        """Return the names of all directories below it."""
        return frozenset(str(parent) for name in self.files for parent in Path(name).parents if parent.name)


def make_kits(folder: Path) -> dict[str, Kit]:
    """Return kits by name: plain, with an engine, and with the last commits only in SQLite's log."""
    plain, engine, log = (folder / f"{name}.mvx" for name in ("plain", "engine", "log"))
    _fill(plain, "fp16")
    _shrink(plain)
    _fill(engine, "fp32")
    with mvindex.open(engine) as index:
        index.admin.build(kind="flat")
        _add(index, [_LATER], 1)
    _shrink(engine)
    _fill(log, "fp16")
    _shrink(log)
    _end_in_log(log)
    return {path.stem: opened_kit(path) for path in (plain, engine, log)}


def opened_kit(path: Path) -> Kit:
    """Return the kit of the index at the path, which has to be closed."""
    found = {entry: entry.read_bytes() for entry in sorted(path.rglob("*")) if entry.is_file()}
    files = {str(entry.relative_to(path)): data for entry, data in found.items() if entry.name != _TRANSIENT}
    with quick_engines():
        answers = asked(path)
    kit = Kit(path, files, answers)
    require(not any(isinstance(answer, mvindex.MvindexError) for answer in answers.values()), "a kit:", answers)
    kit.restore()
    return kit


@contextmanager
def quick_engines() -> Iterator[None]:
    """Use NumPy's scan inside the context where the compiled one does not run, and look up entry points once."""
    kernels.expect_work()  # else the compiled one would never be reached
    scan, points = engines.open_scan, engines.entry_points
    if not kernels.has_int8_products():
        engines.open_scan = _numpy_scan
    engines.entry_points = _entry_points
    try:
        yield
    finally:
        engines.open_scan, engines.entry_points = scan, points


def _numpy_scan(*_):
    return NumpyScan()


_entry_points = lru_cache(engines.entry_points)


def _fill(path: Path, dtype: str) -> None:
    with mvindex.create(path, dim=DIM, dtype=dtype, temperature=0.5) as index:
        _add(index, _FIRST, 1)
        _add(index, [1, 3], 2)
        index.delete(ids=[doc_id(5)])
        index.update(doc_id(2), metadata={"group": 3, "note": "größer"})


def _add(index: mvindex.Index, numbers, version: int) -> None:
    documents = [document(number, version) for number in numbers]
    index.add_views(documents, [given_views(each) for each in documents])


def _shrink(path: Path) -> None:
    """Give the catalog small pages and no log."""
    [catalog] = path.rglob(CATALOG)
    with closing(sqlite3.connect(catalog, isolation_level=None)) as connection:
        for step in ("journal_mode=DELETE", f"page_size={PAGE_BYTES}"):
            connection.execute(f"PRAGMA {step}").fetchall()
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode=WAL").fetchall()


def _end_in_log(path: Path) -> None:
    """Leave the last additions in the log, as after a writer that was killed while somebody read."""
    copy = path.with_name("copy")
    with (
        mvindex.open(path) as reader,
        embedded_store_of(reader).reading(embedded_store_of(reader).snapshot),
        mvindex.open(path) as index,
    ):
        _add(index, [_LATER, 2], 3)
        index.delete(ids=[doc_id(0)])
        shutil.copytree(path, copy)
    shutil.rmtree(path)
    copy.rename(path)


def _put(path: str, content: bytes) -> None:
    """Write the file unless it has this content already."""
    with open(path, "r+b" if os.path.exists(path) else "w+b") as file:
        if file.read(len(content) + 1) != content:
            file.seek(0)
            file.write(content)
            file.truncate()


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
