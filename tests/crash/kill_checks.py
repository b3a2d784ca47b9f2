"""What is wrong with an index after a kill, and after the operation was run again."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from kill_documents import Held, State, dumped
from kill_operations import Operation

import mvindex
from mvindex.testing import brute_force

# An index of some dozens of documents opens in milliseconds; a fault that makes it wait, for a lock say, takes longer.
SLOWEST_OPEN_S = 2.0
_QUERIES = np.array([1, 0.5, -0.25, 0, 0, 1, -1, 0.125, -0.5, 0, 0.75], dtype=np.float32)


class Fault(NamedTuple):
    """Something wrong. kind: lost, partial, unreadable, search, reader, slow, damaged, stuck, litter or different."""

    kind: str
    what: str


class Left(NamedTuple):
    """What a kill left: seconds to open it, the last state that it equals (-1: none), and what is wrong."""

    open_s: float
    position: int
    faults: list[Fault]


def look_at(operation: Operation, folder: Path, floor: int) -> Left:
    """What was found; floor: the state that was acknowledged or seen before."""
    path = folder / operation.targets[0]
    started = time.monotonic()
    if not path.exists() and operation.states[0] is None:
        return judged(operation, None, floor, time.monotonic() - started)
    with mvindex.open(path) as index:
        open_s = time.monotonic() - started
        held = held_by(index)
        left = judged(operation, held, floor, open_s)
        left.faults.extend(wrong_answers(index, held))
    left.faults.extend(damages(path))
    for name in operation.targets[1:]:
        left.faults.extend(wrong_copy(operation, folder / name))
    return left


def wrong_copy(operation: Operation, path: Path) -> Iterator[Fault]:
    """What is wrong with an index that is written whole or not at all."""
    if path.exists():
        with mvindex.open(path) as index:
            held = held_by(index)
            yield from judged(operation, held, 0).faults
            yield from wrong_answers(index, held)
        yield from damages(path)


def judged(operation: Operation, held: dict[str, Held] | None, floor: int, open_s: float = 0.0) -> Left:
    """What these documents are: a whole state that was not passed yet, or what is wrong with them."""
    found = [number for number, state in enumerate(operation.states) if _documents(state) == held]
    position = max(found, default=-1)
    faults = []
    if position == -1:
        faults = list(_mixed(operation.states, held or {}, floor))
    elif position < floor:
        faults = [Fault("lost", f"state {position} is there, {floor} was acknowledged")]
    if open_s > SLOWEST_OPEN_S:
        faults.append(Fault("slow", f"{open_s:.2f} s to open"))
    return Left(open_s, position, faults)


def held_by(index: mvindex.Index) -> dict[str, Held]:
    """All that the index holds, read document by document."""
    snapshot = index.store.snapshot
    rows = np.flatnonzero(snapshot.alive)
    if not len(rows):
        return {}
    with index.store.reading(snapshot) as reader:
        stored = reader.documents(rows.tolist())
    packed, starts = snapshot.views.fetch(rows)
    ordinals = snapshot.views.ordinals(rows).tolist()
    held = {}
    for place, row in enumerate(rows.tolist()):
        item = stored[row]
        if item.id in held:
            raise ValueError(f"{item.id!r} is there twice")
        views = packed[starts[place] : starts[place + 1]].tobytes()
        spans = tuple(map(tuple, item.spans.tolist())) or ((-1, -1),) * int(starts[place + 1] - starts[place])
        held[item.id] = Held(ordinals[place], item.title, item.text, dumped(item.metadata), spans, views)
    return held


def wrong_answers(index: mvindex.Index, held: dict[str, Held]) -> Iterator[Fault]:
    """Where searches differ from brute force over what is there; approximate kinds are asked for exact answers."""
    info = index.info()
    numbers = np.dtype("<f2" if info.dtype == "fp16" else "<f4")
    packed = {key: np.frombuffer(item.views, numbers) for key, item in held.items()}
    views = {key: rows.reshape(-1, info.dim).astype(np.float32) for key, rows in packed.items()}
    ordinals = {key: item.ordinal for key, item in held.items()}
    queries = np.resize(_QUERIES, (2, info.dim or 1))
    for scoring, exact in (("max", info.kind == "hnsw"), ("drpq", True)):
        found = index.search(queries, top_k=7, scoring=scoring, exact=exact) if held else []
        options = {"scoring": scoring, "temperature": index.temperature, "dtype": info.dtype}
        for query, result in zip(queries, found, strict=False):
            truth = [(key, float(s), slot) for key, s, slot in brute_force(views, query, 7, ordinals, **options)]
            hits = [(hit.id, hit.score, hit.slot) for hit in result.hits]
            if hits != truth:
                yield Fault("search", f"{scoring}: {hits}, not {truth}")


class After(NamedTuple):
    """What a finished operation left of each index: files, digests of views and rows, and what info() says."""

    entries: list[list[Any]]
    digests: list[list[str]]
    infos: list[list[Any]]


def after(operation: Operation, folder: Path) -> After:
    """What is there. Numbers in names are left out: a second attempt has the next one."""
    # SQLite's own beside a catalog come and go with whoever reads it.
    lasting = [path for path in sorted(folder.rglob("*")) if not path.name.endswith(("-wal", "-shm"))]
    entries = Counter(_unnumbered(path.relative_to(folder)) for path in lasting)
    stored = [path for path in lasting if path.is_file() and path.name.startswith(("views-", "rows-"))]
    digests = [[_unnumbered(path.relative_to(folder)), xxhash.xxh3_64_hexdigest(path.read_bytes())] for path in stored]
    return After(sorted(map(list, entries.items())), sorted(digests), infos(operation, folder))


def infos(operation: Operation, folder: Path) -> list[list[Any]]:
    """What each index says of itself; nothing of one that is not there."""
    said = []
    for path in (folder / name for name in operation.targets if (folder / name).exists()):
        with mvindex.open(path) as index:
            info = index.info()
        said.append(
            [info.format_version, info.documents, info.views, info.num_deleted, info.kind, info.fresh_documents]
        )
    return said


def undone(operation: Operation, folder: Path, wanted: After) -> Iterator[Fault]:
    """What is not as it is to be, though the end was acknowledged: an engine that is not the active one, say."""
    found = infos(operation, folder)
    if found != wanted.infos:
        yield Fault("lost", f"all was acknowledged, but info() says {_changes(found, wanted.infos)}")


def differences(operation: Operation, folder: Path, wanted: After) -> Iterator[Fault]:
    """Where the finished operation differs from one that was never stopped."""
    yield from look_at(operation, folder, len(operation.states) - 1).faults
    found = after(operation, folder)
    for name, mine, theirs in zip(After._fields, found, wanted, strict=True):
        if mine != theirs:
            yield Fault("litter" if name == "entries" else "different", f"{name}: {_changes(mine, theirs)}")


def damages(path: Path) -> Iterator[Fault]:
    """What `verify` finds in the index."""
    for problem in mvindex.verify(path).problems:
        yield Fault("damaged", f"verify: {problem}")


def _mixed(states: list[State | None], held: dict[str, Held], floor: int) -> Iterator[Fault]:
    """What is wrong with documents that are no state: those that no state from the floor on has, lost or torn."""
    later = [_documents(state) or {} for state in states[floor:]]
    known = [_documents(state) or {} for state in states]
    for key in sorted(set().union(*known, held)):
        found = held.get(key)
        if all(state.get(key) != found for state in later):
            is_old = any(state.get(key) == found for state in known)
            yield Fault("lost" if is_old else "partial", f"{key}: {'an earlier state' if is_old else found}")
            return
    yield Fault("partial", f"{len(held)} documents, a batch in part: each is whole, together they are no state")


def _documents(state: State | None) -> dict[str, Held] | None:
    return None if state is None else state.documents


def _unnumbered(path: Path) -> str:
    return re.sub(r"\d{6,}", "N", str(path))


def _changes(mine: Iterable[Any], theirs: Iterable[Any]) -> str:
    mine, theirs = list(mine), list(theirs)
    return f"{[x for x in mine if x not in theirs]} instead of {[x for x in theirs if x not in mine]}"
