"""Cases of disks: one that fills up beside a reader, a read-only one, a full temporary folder, real mounts."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store import files as networks
from tests.durability.checks import stored_in, wrong_answers
from tests.durability.documents import doc_id
from tests.durability.faults.cases import outcome
from tests.durability.faults.trials import names_in
from tests.durability.mounts import SmallDisk, mount
from tests.durability.operations import INDEX, documents, made_of, open_with_encoder
from tests.durability.processes import ROOT, Child, Parent, in_child

_TEMPORARY_BYTES = 64 << 10
# More bytes of ids than SQLite keeps of a private database in memory.
_MANY, _ID_CHARS = 8000, 500


def behind_a_reader(folder: Path) -> dict:
    """Compact on a full disk while the transaction of a reader keeps the log from being checkpointed."""
    with SmallDisk(folder / "disk", 4 << 20) as disk:
        path = disk.point / INDEX
        in_child(lambda: made_of(documents(0, 24))(disk.point))
        before = names_in(disk.point)
        with Child(lambda parent: _read_on(parent, path)) as reader:
            reader.wait_for("reading")
            in_child(lambda: _replaced(path))
            disk.leave(80 << 10)
            tries = [in_child(lambda: outcome(lambda: _compacted(path))) for _ in range(3)]
            left = names_in(disk.point) - before - {"filler"}
            log_bytes = next(path.glob("*/catalog.sqlite-wal")).stat().st_size
            disk.free_up()
            reader.go_on()
            reader.wait_for("read")
        done = in_child(lambda: outcome(lambda: _compacted(path)))
        wrong = in_child(lambda: _wrong(path))
        return {"tries": tries, "left": sorted(left), "log_bytes": log_bytes, "done": done, "wrong": wrong}


def engine_cut_short(folder: Path) -> dict:
    """Build engines that are a few bytes longer than a file may be, while the commit has room."""
    in_child(lambda: _wide(folder / "wide.mvx"))
    found: dict[str, Any] = {}
    for kind in ("flat", "hnsw"):
        size = in_child(lambda kind=kind: _built(folder / "wide.mvx", kind, None))["result"]
        in_child(lambda: _built(folder / "wide.mvx", "exact", None))
        for short in (1, 100, 4095, 5000):
            build = in_child(lambda kind=kind, limit=size - short: _built(folder / "wide.mvx", kind, limit))
            state = in_child(lambda: outcome(lambda: _active(folder / "wide.mvx")))
            found[f"{kind} {short}"] = {"build": build, "state": state}
    return found


def on_a_read_only_disk(folder: Path) -> dict:
    """Read and write on a disk that is mounted read-only, with and without SQLite's own files."""
    with SmallDisk(folder / "disk", 8 << 20) as disk:
        for gone in ((), ("-shm",), ("-wal",), ("-wal", "-shm")):
            place = disk.point / f"without{''.join(gone)}"
            place.mkdir()
            in_child(lambda place=place: made_of(documents(0, 24), kind="flat")(place))
            for end in gone:
                next(place.glob(f"*/*/catalog.sqlite{end}")).unlink()
        mount(disk.point, "-o", "remount,ro")
        paths = sorted(disk.point.glob(f"*/{INDEX}"))
        found = {"reads": {path.parent.name: in_child(lambda path=path: _wrong(path)) for path in paths}}
        found["writes"] = {name: in_child(lambda c=call: outcome(c)) for name, call in _writes(paths[0]).items()}
        target = folder / "copy.mvx"
        found["snapshot"] = in_child(lambda: [_snapshot(paths[-1], target), *_wrong(target)])
        return found


def full_temporary_folder(folder: Path) -> dict:
    """Ingest many ids and salvage them, with room in SQLite's temporary folder and with none."""
    found = {}
    with SmallDisk(folder / "temporary", _TEMPORARY_BYTES) as disk:
        for name, temporary in (("room", folder), ("none", disk.point)):
            code = f"from tests.durability.faults import disks; disks.many_ids({str(folder)!r}, {name!r})"
            # SQLite looks for the folder once, when it is first used in a process.
            env = {**os.environ, "SQLITE_TMPDIR": str(temporary), "TMPDIR": str(temporary)}
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, cwd=ROOT
            )
            found[name] = json.loads(done.stdout)
    return found


def many_ids(folder: str, name: str) -> None:
    """Print the outcomes of an ingest and a salvage of many documents, and their number."""
    path, saved = Path(folder, "many.mvx"), Path(folder, f"saved-{name}.mvx")

    def ingest() -> int:
        with mvindex.open(path) if path.exists() else mvindex.create(path, dim=1) as index:
            texts = [mvindex.Document(f"{number} ".ljust(_ID_CHARS, "x"), "t") for number in range(_MANY)]
            report = index.add_views(texts, np.ones((_MANY, 1, 1), dtype=np.float32))
            return report.added + report.unchanged

    calls = (ingest, lambda: mvindex.salvage(path, saved).documents, lambda: len(mvindex.open(path)))
    print(json.dumps([outcome(call) for call in calls]))


def real_mounts(folder: Path) -> dict:
    """Create indexes on mounts that are bound elsewhere, hidden, or oddly named; ramfs stands in for a network."""
    networks._NETWORKS = frozenset({"ramfs"})  # type: ignore[misc] - a constant of the module
    for name in ("net", "with space", "bound", "covered/deep", "over/deep"):
        (folder / name).mkdir(parents=True)
    for name, kind in (("net", "ramfs"), ("with space", "ramfs"), ("covered/deep", "ramfs"), ("over/deep", "tmpfs")):
        mount(folder / name, "-t", kind, "none")
    for name in ("net/part", "net/local"):
        (folder / name).mkdir()
    mount(folder / "net/local", "-t", "tmpfs", "none")
    mount(folder / "bound", "--bind", str(folder / "net/part"))
    # A mount over a folder hides the mounts below it.
    mount(folder / "covered", "-t", "tmpfs", "none")
    mount(folder / "over", "-t", "ramfs", "none")
    for name in ("covered/deep", "over/deep"):
        (folder / name).mkdir()
    names = ("net", "net/part", "net/local", "with space", "bound", "covered", "covered/deep", "over", "over/deep", ".")
    return {name: in_child(lambda n=name: outcome(lambda: _created(folder / n / "a.mvx"))) for name in names}


def _wrong(path: Path) -> list:
    """Return where searches differ from brute force, and the problems that verify finds."""
    with mvindex.open(path) as index:
        stored = stored_in(index)
        found = [fault.what for fault in wrong_answers(index, stored)]
    problems = [problem.what for problem in mvindex.verify(path).problems]
    return found + problems + ([] if len(stored) == 24 else [f"{len(stored)} documents"])


def _read_on(parent: Parent, path: Path) -> None:
    with mvindex.open(path) as index, embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
        reader.documents([0])
        parent.report(reading=True)
        while not parent.is_waiting():
            time.sleep(0.01)
    parent.report(read=True)


def _replaced(path: Path) -> int:
    with open_with_encoder(path) as index:
        return index.add(documents(0, 12, version=2)).replaced


def _compacted(path: Path) -> int:
    with mvindex.open(path) as index:
        return index.admin.compact().dropped


def _wide(path: Path) -> None:
    """Make an index whose engines are larger than the log of its catalog."""
    views = np.random.default_rng(0).standard_normal((1000, 1, 64))
    with mvindex.create(path, dim=64) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(1000)], views)


def _built(path: Path, kind: str, limit: int | None) -> dict:
    def build() -> int:
        with mvindex.open(path) as index:
            return index.admin.build(kind).engine_bytes

    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return outcome(build)


def _active(path: Path) -> list:
    with mvindex.open(path) as index:
        hits = index.search(np.ones(64), top_k=3).hits
        return [index.info().kind, [hit.id for hit in hits], len(mvindex.verify(path).problems)]


def _writes(path: Path) -> dict[str, Callable[[], Any]]:
    def on_index(call: Callable[[mvindex.Index], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with open_with_encoder(path) as index:
                return call(index)

        return run

    return {
        "add": on_index(lambda index: index.add(documents(24, 26))),
        "delete": on_index(lambda index: index.delete(ids=doc_id(1))),
        "update": on_index(lambda index: index.update(doc_id(1), metadata={})),
        "build": on_index(lambda index: index.admin.build("hnsw")),
        "compact": on_index(lambda index: index.admin.compact()),
        "snapshot": on_index(lambda index: index.admin.snapshot(path.parent / "s.mvx")),
        "salvage": lambda: mvindex.salvage(path, path.parent / "s.mvx"),
        "create": lambda: mvindex.create(path.parent / "new.mvx", dim=3),
        "create deep": lambda: mvindex.create(path.parent / "a" / "b" / "new.mvx", dim=3),
    }


def _snapshot(path: Path, target: Path) -> int:
    with mvindex.open(path) as index:
        return index.admin.snapshot(target).documents


def _created(path: Path) -> bool:
    mvindex.create(path, dim=3).close()
    return True
