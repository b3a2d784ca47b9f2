"""Cases of permissions: an index that this user may read and not write, or not read in part."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mvindex
from mvindex.errors import StaleReader
from mvindex.index import embedded_store_of
from mvindex.ingest import pipeline
from tests.durability.documents import DIM, SentenceViews, doc_id
from tests.durability.faults.cases import outcome
from tests.durability.operations import INDEX, documents, made_of
from tests.durability.processes import Child, Parent, in_child

NOBODY = 65534
_QUERY = np.linspace(-1, 1, DIM, dtype=np.float32)
_LOOKS, _WITHOUT_LOG, _MOST_LOOKS = 100, 3, 1000


def reading_and_writing(folder: Path) -> dict:
    """Make each call as a user who may only read, with and without the files of SQLite beside the catalog."""
    path, own = _made(folder), _own(folder)
    truth = in_child(lambda: _look(path))
    copies = {}
    for gone in ((), ("-shm",), ("-wal",), ("-wal", "-shm")):
        copies[" ".join(gone)] = copy = _copied(path, folder / f"without{''.join(gone)}")
        for end in gone:
            _catalog(copy, end).unlink()
    copies["killed writer"] = _with_a_log(_copied(path, folder / "killed"))
    found: dict[str, Any] = {"truth": truth}
    found["reads"] = {name: _all_reads(copy, own) for name, copy in copies.items()}
    found["writes"] = {name: as_reader(folder, call) for name, call in _writes(path, folder).items()}
    found["truth afterwards"] = in_child(lambda: _look(path))
    return found


def unreadable_parts(folder: Path) -> dict:
    """Read and verify with one file or directory that may not be read, or not in part."""
    path = _made(folder)
    calls = {"look": lambda: _look(path), "verify": lambda: _bad(path)}
    modes = [(part, 0) for part in sorted([path, *path.rglob("*")])]
    modes += [(part, mode) for part in (path, path / "generation-000001") for mode in (0o444, 0o111)]
    found = {}
    for part, mode in modes:
        before = part.stat().st_mode
        part.chmod(mode)
        name = f"{part.relative_to(folder)}{f' {mode:o}' if mode else ''}"
        found[name] = {call: _as_it_is(work) for call, work in calls.items()}
        part.chmod(before)
    return found


def beside_a_writer(folder: Path) -> dict:
    """Read as a user who may only read, beside a writer that opens, replaces all documents and closes, repeatedly.

    Each document names its version; now and then another program closes the catalog last, which takes its log away.
    """
    path = _made(folder)
    with Child(lambda parent: _replace_for_ever(parent, path)) as writer:
        writer.wait_for("ready")
        _open_up(folder)
        with Child(lambda parent: _look_often(parent, path)) as reader:
            seen = next(line for line in reader.lines() if "seen" in line or "error" in line)
            reader.end()
        return seen | {"is_writing": not writer.has_ended()}


def written_while_read(folder: Path) -> dict:
    """Read an index without a log, as a user who may only read, while all of it is replaced."""
    path = folder / INDEX
    folder.chmod(0o755)
    in_child(lambda: _make_large(path))
    _close_last(path)
    with Child(lambda parent: _read_slowly(parent, path)) as reader:
        reader.wait_for("half")
        in_child(lambda: _make_large(path, version=2))
        _close_last(path)
        reader.go_on()
        return reader.wait_for("outcome")["outcome"]


def as_reader(folder: Path, work: Callable[[], Any]) -> dict:
    """Return the outcome of the work for a user who may only read what is in the folder."""
    _open_up(folder)
    return _as_it_is(work)


def _as_it_is(work: Callable[[], Any]) -> dict:
    with Child(lambda parent: parent.report(outcome=_outcome(work))) as child:
        return child.wait_for("outcome")["outcome"]


def _outcome(work: Callable[[], Any]) -> dict:
    _become_reader()
    return outcome(work)


def _become_reader() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _open_up(folder: Path) -> None:
    """Let others only read what is in the folder. A user who is not root is that other and may not write it either."""
    if os.geteuid() == 0:
        return
    for entry in folder.rglob("*"):
        if entry.name != "own" and entry.stat().st_mode & 0o222:
            entry.chmod(entry.stat().st_mode & ~0o222)


def _made(folder: Path) -> Path:
    """Make an index with an engine, replaced documents and a fresh tail."""
    folder.chmod(0o755)
    (folder / "made").mkdir()
    in_child(lambda: made_of(documents(0, 24), documents(4, 12, version=2), kind="flat")(folder / "made"))
    return folder / "made" / INDEX


def _own(folder: Path) -> Path:
    """Make a folder that everybody may write to."""
    own = folder / "own"
    own.mkdir()
    own.chmod(0o777)
    return own


def _copied(path: Path, target: Path) -> Path:
    return Path(shutil.copytree(path, target / INDEX))


def _catalog(path: Path, end: str = "") -> Path:
    return path / "generation-000001" / f"catalog.sqlite{end}"


def _with_a_log(path: Path) -> Path:
    """Leave a commit of a killed writer in the log of the index."""

    def write() -> None:
        store = embedded_store_of(mvindex.open(path))
        with store.writing() as writer:
            writer.set_metadata({0: '{"late": 1}'})
            os.kill(os.getpid(), signal.SIGKILL)

    with Child(lambda parent: write()) as child:
        child.end()
    return path


def _look(path: Path) -> list:
    """Return the number of documents, the three best, the ids of a filter, and the engine."""
    with mvindex.open(path) as index:
        hits = [[hit.id, hit.score] for hit in index.search(_QUERY, top_k=3).hits]
        filtered = [hit.id for hit in index.search(_QUERY, top_k=30, filter={"late": {"exists": True}}).hits]
        index.refresh()
        return [len(index), hits, filtered, index.info().kind]


def _bad(path: Path) -> list:
    return [[problem.file, problem.what] for problem in mvindex.verify(path).problems]


def _all_reads(path: Path, own: Path) -> dict:
    calls: dict[str, Callable[[], Any]] = {"look": lambda: _look(path), "verify": lambda: _bad(path)}
    calls["snapshot"] = lambda: _look(_snapshot(path, own / f"{path.parent.name}-snapshot.mvx"))
    calls["restore"] = lambda: _look(Path(mvindex.restore(path, own / f"{path.parent.name}-restored.mvx").path))
    calls["salvage"] = lambda: _look(Path(mvindex.salvage(path, own / f"{path.parent.name}-saved.mvx").target))
    return {name: as_reader(path.parent.parent, call) for name, call in calls.items()}


def _snapshot(path: Path, target: Path) -> Path:
    with mvindex.open(path) as index:
        return Path(index.admin.snapshot(target).path)


def _writes(path: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return every call that would write where this user may not."""

    def on_index(call: Callable[[mvindex.Index], Any]) -> Callable[[], Any]:
        return lambda: _closing(mvindex.open(path, encoder=SentenceViews()), call)

    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o700 if os.geteuid() == 0 else 0)
    unlisted = folder / "made"
    return {
        "add": on_index(lambda index: index.add(documents(24, 26))),
        "replace": on_index(lambda index: index.add(documents(0, 2, version=3))),
        "delete": on_index(lambda index: index.delete(ids=doc_id(1))),
        "update": on_index(lambda index: index.update(doc_id(1), metadata={})),
        "build": on_index(lambda index: index.admin.build("hnsw")),
        "compact": on_index(lambda index: index.admin.compact()),
        "repair": lambda: mvindex.repair(path),
        "create": lambda: mvindex.create(unlisted / "new.mvx", dim=3),
        "create deep": lambda: mvindex.create(unlisted / "a" / "new.mvx", dim=3),
        "create in a closed folder": lambda: mvindex.create(closed / "new.mvx", dim=3),
        "open in a closed folder": lambda: mvindex.open(closed / "new.mvx"),
        "snapshot": on_index(lambda index: index.admin.snapshot(unlisted / "s.mvx")),
        "snapshot to a closed folder": on_index(lambda index: index.admin.snapshot(closed / "s.mvx")),
        "restore": lambda: mvindex.restore(path, unlisted / "s.mvx"),
        "restore to a closed folder": lambda: mvindex.restore(path, closed / "s.mvx"),
        "salvage": lambda: mvindex.salvage(path, unlisted / "s.mvx"),
        "salvage to a closed folder": lambda: mvindex.salvage(path, closed / "s.mvx"),
        "create with a name too long": lambda: mvindex.create(folder / ("x" * 300), dim=3),
    }


def _make_large(path: Path, version: int = 1) -> None:
    """Store more text in the index than SQLite keeps in memory."""
    pipeline.CHUNK_DOCUMENTS = 1024
    texts = [mvindex.Document(str(number), f"version {version} " * 200, "", {"v": version}) for number in range(3000)]
    with mvindex.open(path) if path.exists() else mvindex.create(path, dim=1) as index:
        index.add_views(texts, np.ones((len(texts), 1, 1), dtype=np.float32))


def _read_slowly(parent: Parent, path: Path) -> None:
    def read() -> int:
        with mvindex.open(path) as index, embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
            first = {item.text for item in reader.documents(range(10)).values()}
            parent.report(half=True)
            while not parent.is_waiting():
                time.sleep(0.01)
            rest = {item.text for item in reader.documents(range(10, 3000)).values()}
            return len(first | rest)

    parent.report(outcome=_outcome(read))


def _closing(index: mvindex.Index, call: Callable[[mvindex.Index], Any]) -> Any:
    with index:
        return call(index)


def _replace_for_ever(parent: Parent, path: Path) -> None:
    """Replace all documents by the next version in one commit, for ever."""
    pipeline.CHUNK_DOCUMENTS = 1024
    version = 2
    while True:
        version += 1
        with mvindex.open(path, encoder=SentenceViews()) as index:
            index.add(documents(0, 24, version=version))
            if version % 20 == 0:
                index.admin.compact()
        _close_last(path)
        if version == 4:
            parent.report(ready=True)
        time.sleep(0.02 * (version % 4))


def _close_last(path: Path) -> None:
    """Open and close the catalog as another program does; the log is removed if nothing else has it open."""
    import sqlite3

    connection = sqlite3.connect(max(path.glob("generation-*/catalog.sqlite")))
    connection.execute("SELECT count(*) FROM documents").fetchone()
    connection.close()


def _look_often(parent: Parent, path: Path) -> None:
    """Report what was seen by indexes opened for one look and by one that is refreshed."""
    _become_reader()
    seen: dict[str, Any] = {"answers": 0, "stale": 0, "without a log": 0, "versions": set(), "wrong": []}
    newest, kept = 0, None
    for number in range(_MOST_LOOKS):
        if number >= _LOOKS and seen["without a log"] >= _WITHOUT_LOG:
            break
        time.sleep(0.002 * (number % 16))  # without a reader, the log goes when the writer does
        seen["without a log"] += not any(path.glob("generation-*/catalog.sqlite-wal"))
        try:
            if number % 50 == 49:
                kept = mvindex.open(path)
            elif number % 50 == 25 and kept is not None:
                kept = kept.close()
            if kept is None:
                with mvindex.open(path) as index:
                    found = _versions(index)
            else:
                kept.refresh()
                found = _versions(kept)
        except StaleReader:
            seen["stale"] += 1
            continue
        except Exception as err:  # noqa: BLE001 - whatever it is, it is wrong
            seen["wrong"].append(f"{type(err).__name__}: {err}")
            continue
        seen["answers"] += 1
        seen["versions"] |= found
        if len(found) != 1 or min(found) < newest:
            seen["wrong"].append(f"versions {found}, {newest} was seen before")
        newest = max([newest, *found])
    parent.report(seen={**seen, "versions": len(seen["versions"])})


def _versions(index: mvindex.Index) -> set[int]:
    """Return the versions that metadata and texts of all documents name."""
    hits = index.search(_QUERY, top_k=24).hits
    return {hit.metadata["version"] for hit in hits} | {int(hit.text.split("version ")[1].split()[0]) for hit in hits}
