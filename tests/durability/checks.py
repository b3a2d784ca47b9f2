"""Checks of an index after an interruption, and after the operation was run again."""

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

import mvindex
from mvindex.index import store_of
from mvindex.store.embedded import EmbeddedStore
from mvindex.testing import brute_force
from tests.durability.documents import State, Stored, dumped
from tests.durability.operations import Change
from tests.helpers import lexical_reference

# An index of some dozens of documents opens in milliseconds; a fault that makes it wait, for a lock say, takes longer.
SLOWEST_OPEN_S = 2.0
_QUERIES = np.array([1, 0.5, -0.25, 0, 0, 1, -1, 0.125, -0.5, 0, 0.75], dtype=np.float32)
_QUESTIONS = ("oil", "war river embargo")


class Fault(NamedTuple):
    """A broken promise. kind: lost, partial, unreadable, search, reader, slow, damaged, stuck, litter or different."""

    kind: str
    what: str


class Left(NamedTuple):
    """The state after an interruption: seconds to open it, the last state it equals (-1: none), and its faults."""

    open_s: float
    position: int
    faults: list[Fault]


class Checks:
    """The checks of an operation's results. Those of sharded indexes are a subclass."""

    def __init__(self, operation: Change, folder: Path) -> None:
        self.operation, self.folder = operation, folder
        self.index = folder / operation.targets[0]

    def left(self, floor: int) -> Left:
        """Check what an interruption left. floor: the last state that was acknowledged or seen before."""
        started = time.monotonic()
        if not self.index.exists() and self.operation.states[0] is None:
            return compare_states(self.operation, None, floor)
        with mvindex.open(self.index) as index:
            open_s = time.monotonic() - started
            stored = stored_in(index)
            found = compare_states(self.operation, stored, floor)
            found.faults.extend(wrong_answers(index, stored))
        if open_s > SLOWEST_OPEN_S:
            found.faults.append(Fault("slow", f"{open_s:.2f} s to open"))
        found.faults.extend(damages(self.index))
        for name in self.operation.targets[1:]:
            found.faults.extend(self._wrong_copy(self.folder / name))
        return found._replace(open_s=open_s)

    def _wrong_copy(self, path: Path) -> Iterator[Fault]:
        """Yield the faults of a copy, which is written whole or not at all."""
        if path.exists():
            with mvindex.open(path) as index:
                stored = stored_in(index)
                yield from compare_states(self.operation, stored, 0).faults
                yield from wrong_answers(index, stored)
            yield from damages(path)

    def result(self) -> dict[str, list[Any]]:
        """Return what the finished operation left, as JSON: files, digests of views and rows, and `info()`."""
        # SQLite's own files beside a catalog come and go with whoever reads it.
        lasting = [path for path in sorted(self.folder.rglob("*")) if not path.name.endswith(("-wal", "-shm"))]
        entries = Counter(without_numbers(path.relative_to(self.folder)) for path in lasting)
        stored = [path for path in lasting if path.is_file() and path.name.startswith(("views-", "rows-"))]
        digests = [
            [without_numbers(path.relative_to(self.folder)), xxhash.xxh3_64_hexdigest(path.read_bytes())]
            for path in stored
        ]
        return {"litter": sorted(map(list, entries.items())), "different": sorted(digests), "info": self._info()}

    def _info(self) -> list[list[Any]]:
        found = []
        for path in (self.folder / name for name in self.operation.targets if (self.folder / name).exists()):
            with mvindex.open(path) as index:
                info = index.info()
            counts = [info.documents, info.views, info.num_deleted, info.fresh_documents]
            found.append([info.format_version, info.kind, *counts])
        return found

    def undone(self, expected: dict[str, list[Any]]) -> Iterator[Fault]:
        """Yield a fault where the end was acknowledged and is not in effect: an inactive engine, for example."""
        found = self._info()
        if found != expected["info"]:
            yield Fault("lost", f"all was acknowledged, but info() reports {_changes(found, expected['info'])}")

    def differences(self, expected: dict[str, list[Any]]) -> Iterator[Fault]:
        """Yield where the finished operation differs from one that was never interrupted."""
        yield from self.left(self.operation.last).faults
        found = self.result()
        for name, wanted in expected.items():
            if found[name] != wanted:
                yield Fault("litter" if name == "litter" else "different", f"{name}: {_changes(found[name], wanted)}")

    def content(self, index: mvindex.Index) -> Any:
        """Return what must not change for a reader that keeps the index open."""
        return stored_in(index)

    def seen(self, index: mvindex.Index, floor: int) -> Left:
        """Check what a reader sees that has just refreshed the index."""
        return compare_states(self.operation, stored_in(index), floor)

    def wrong(self, index: mvindex.Index) -> Iterator[Fault]:
        """Yield the wrong answers of the index."""
        return wrong_answers(index, stored_in(index))


def checks_of(operation: Change, folder: Path) -> Checks:
    """Return the checks of the operation for the folder in which it is run."""
    return (operation.checks or Checks)(operation, folder)


def compare_states(operation: Change, stored: dict[str, Stored] | None, floor: int) -> Left:
    """Find the state that the documents are; it must not be earlier than `floor`."""
    found = [number for number, state in enumerate(operation.states) if _documents(state) == stored]
    position = max(found, default=-1)
    faults = []
    if position == -1:
        faults = [_mixed(operation.states, stored or {}, floor)]
    elif position < floor:
        faults = [Fault("lost", f"state {position} is there, {floor} was acknowledged")]
    return Left(0.0, position, faults)


def stored_in(index: mvindex.Index) -> dict[str, Stored]:
    """Read everything that the index stores, document by document."""
    found: dict[str, Stored] = {}
    for part in store_of(index).all_parts():
        _read_stored(part.store, found)
    return found


def _read_stored(store: EmbeddedStore, found: dict[str, Stored]) -> None:
    """Add everything that one store has to what was found, by id."""
    snapshot = store.snapshot
    rows = np.flatnonzero(snapshot.alive)
    if not len(rows):
        return
    with store.reading(snapshot) as reader:
        documents = reader.documents(rows.tolist())
    packed, starts = snapshot.views.fetch(rows)
    ordinals = snapshot.views.ordinals(rows).tolist()
    for place, row in enumerate(rows.tolist()):
        item = documents[row]
        if item.id in found:
            raise ValueError(f"expected one document {item.id!r}, got two")
        views = packed[starts[place] : starts[place + 1]].tobytes()
        spans = tuple(map(tuple, item.spans.tolist())) or ((-1, -1),) * int(starts[place + 1] - starts[place])
        found[item.id] = Stored(ordinals[place], item.title, item.text, dumped(item.metadata), spans, views)


def wrong_answers(index: mvindex.Index, stored: dict[str, Stored]) -> Iterator[Fault]:
    """Yield where searches differ from brute force over what is stored; approximate kinds search exactly."""
    info = index.info()
    numbers = np.dtype("<f2" if info.dtype == "fp16" else "<f4")
    packed = {key: np.frombuffer(item.views, numbers) for key, item in stored.items()}
    views = {key: rows.reshape(-1, info.dim).astype(np.float32) for key, rows in packed.items()}
    ordinals = {key: item.ordinal for key, item in stored.items()}
    queries = np.resize(_QUERIES, (2, info.dim or 1))
    for scoring, exact in (("max", info.kind == "hnsw"), ("drpq", True)):
        found = index.search(queries, top_k=7, scoring=scoring, exact=exact) if stored else []
        options = {"scoring": scoring, "temperature": index.temperature, "dtype": info.dtype}
        for query, result in zip(queries, found, strict=False):
            truth = [(key, float(s), slot) for key, s, slot in brute_force(views, query, 7, ordinals, **options)]
            hits = [(hit.id, hit.score, hit.slot) for hit in result.hits]
            if hits != truth:
                yield Fault("search", f"{scoring}: {hits}, not {truth}")
    if info.lexical is not None and stored:
        yield from _wrong_lexical_answers(index)


def _wrong_lexical_answers(index: mvindex.Index) -> Iterator[Fault]:
    documents = list(index)
    for question in _QUESTIONS:
        truth = {key: score for key, score in lexical_reference.bm25(documents, question).items() if score > 0}
        found = {hit.id: hit.score for hit in index.search(question, 1000, mode="lexical").hits}
        is_same = found.keys() == truth.keys() and all(
            math.isclose(found[key], score, rel_tol=2.0**-22) for key, score in truth.items()
        )
        if not is_same:
            yield Fault("search", f"lexical, {question!r}: {found}, not {truth}")


def damages(path: Path) -> Iterator[Fault]:
    """Yield what `verify` reports of the index."""
    # The settings in a shard's current.json are those before the switch until the next write.
    is_switched = (path / "switch.json").exists()
    for problem in mvindex.verify(path).problems:
        if not (is_switched and problem.is_derived and problem.file.endswith("current.json")):
            yield Fault("damaged", f"verify: {problem}")


def without_numbers(path: Path | str) -> str:
    """Return the name with long numbers replaced: a second attempt has the next ones."""
    return re.sub(r"\d{6,}", "N", str(path))


def _mixed(states: list[State | None], stored: dict[str, Stored], floor: int) -> Fault:
    """Explain documents that are no state: one that no state from the floor on has, or whole ones of several states."""
    later = [_documents(state) or {} for state in states[floor:]]
    known = [_documents(state) or {} for state in states]
    for key in sorted(set().union(*known, stored)):
        found = stored.get(key)
        if all(state.get(key) != found for state in later):
            is_old = any(state.get(key) == found for state in known)
            return Fault("lost" if is_old else "partial", f"{key}: {'an earlier state' if is_old else found}")
    return Fault("partial", f"{len(stored)} documents, part of a batch: each is whole, together they are no state")


def _documents(state: State | None) -> dict[str, Stored] | None:
    return None if state is None else state.documents


def _changes(found: Iterable[Any], expected: Iterable[Any]) -> str:
    found, expected = list(found), list(expected)
    return f"{[x for x in found if x not in expected]} instead of {[x for x in expected if x not in found]}"
