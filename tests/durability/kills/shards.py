"""Operations on sharded indexes, killed by the same harness: filling, assembling and building shards.

Their states are not listed: what is acknowledged is the number of commits, when each is announced.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mvindex
from mvindex.durable import EVENT, file_checksum
from mvindex.errors import StoreError
from mvindex.index.factory import open_shard_index
from mvindex.ingest.shards import assemble
from mvindex.store.shard_layout import ShardPlace, shard_of
from mvindex.testing import brute_force
from tests.durability.checks import Checks, Fault, Left
from tests.durability.documents import ReversedViews, SentenceViews, State
from tests.durability.operations import CHUNK, INDEX, Acknowledge, Change, calling, documents
from tests.helpers.shard_examples import DIM, answers, corpus, fill_shard, stored

SHARDS, KIND, LISTS = 3, "ivf-pq", 4
ONE = ShardPlace(1, SHARDS)
FIRST, SECOND = corpus(70, seed=1), corpus(50, seed=2, prefix="e")
QUERIES = np.random.default_rng(3).standard_normal((4, DIM)).astype(np.float32)
_TEXTS = State().added(documents(0, 30))
# A build is saved after so many views, so that small ones are saved several times.
_SAVED_EVERY = 16


class ShardChecks(Checks):
    """Checks of a sharded index whose documents do not change: answers, and every byte."""

    def left(self, floor: int) -> Left:
        """Check what an interruption left."""
        return Left(0.0, floor, [Fault("partial", what) for what in self.wrong_content(floor)])

    def wrong_content(self, commits: int) -> Iterator[str]:
        """Yield what is wrong with the content after at least so many commits."""
        with mvindex.open(self.index) as index:
            yield from _wrong_answers(index)
        yield from map(str, mvindex.verify(self.index).problems)

    def result(self) -> dict[str, list[Any]]:
        """Return what the finished operation left: documents and runs of each shard, names, engines to the byte."""
        shards = []
        for number in range(SHARDS):
            with open_shard_index(self.index, ShardPlace(number, SHARDS)) as shard:
                settings = shard.settings
                engine = settings["engine"] and {**settings["engine"], "directory": ""}
                runs = [settings.get(key) for key in ("run", "runs", "next_ordinal")]
                shards.append([[list(each) for each in sorted(stored(shard).items())], engine, runs])
        lasting = [file for file in self.index.rglob("*") if not file.name.endswith(("-wal", "-shm"))]
        names = sorted(re.sub(r"-\d{6}\b", "-N", str(file.relative_to(self.index))) for file in lasting)
        trained = [file_checksum(file) for file in sorted(self.index.glob("trained-*"))]
        # In JSON types, because it is compared with a result from another process.
        return json.loads(json.dumps({"litter": names, "shards": shards, "trained": trained}))

    def differences(self, expected: dict[str, list[Any]]) -> Iterator[Fault]:
        """Yield where the finished operation differs from one that was never interrupted."""
        found = self.result()
        for name, wanted in expected.items():
            if found[name] != wanted:
                yield Fault(
                    "litter" if name == "litter" else "different", f"{name}: {found[name]}, not {wanted}"[:2000]
                )

    def undone(self, expected: dict[str, list[Any]]) -> Iterator[Fault]:
        """Yield nothing: the end is a commit like the others."""
        return iter(())

    def content(self, index: mvindex.Index) -> Any:
        """Return the answers of the index."""
        return answers(index, QUERIES)

    def seen(self, index: mvindex.Index, floor: int) -> Left:
        """Check the answers of a refreshed index, and of one opened anew."""
        with mvindex.open(self.index) as fresh:
            found = [*_wrong_answers(index), *_wrong_answers(fresh)]
        return Left(0.0, floor, [Fault("reader", what) for what in found])

    def wrong(self, index: mvindex.Index) -> Iterator[Fault]:
        """Yield the wrong answers of the index."""
        return (Fault("search", what) for what in _wrong_answers(index))


class OneShardChecks(ShardChecks):
    """Checks of one shard that is filled: as many chunks as were committed or more, from the first on."""

    def wrong_content(self, commits: int) -> Iterator[str]:
        if not (self.index / ONE.directory).exists():
            yield from ["the shard is gone, after a commit"] if commits else []
            return
        with open_shard_index(self.index, ONE) as shard:
            found = stored(shard)
        yield from _missing_chunks(found, _of_shard(FIRST, ONE.number), commits)


class AllShardsChecks(ShardChecks):
    """Checks of an ingest into all shards: old documents unchanged, and whole chunks of new ones in each shard."""

    def wrong_content(self, commits: int) -> Iterator[str]:
        with mvindex.open(self.index) as index:
            found, count = stored(index), len(index)
        before = {doc_id: row for number in range(SHARDS) for doc_id, row in _of_shard(FIRST, number).items()}
        if {doc_id: found.get(doc_id) for doc_id in before} != before:
            yield "what was there before changed"
        for number in range(SHARDS):
            later = {doc_id: (70 + row[0], *row[1:]) for doc_id, row in _of_shard(SECOND, number).items()}
            yield from _missing_chunks({key: found[key] for key in later if key in found}, later, 0)
        least = min(len(SECOND[0]), (commits - 2 * SHARDS) * CHUNK // 2)
        if count - len(before) < least:
            yield f"{count} documents after {commits} commits"


class AssembledChecks(ShardChecks):
    """Checks of shards that are not an index yet, or are all of it."""

    def wrong_content(self, commits: int) -> Iterator[str]:
        try:
            with mvindex.open(self.index) as index:
                yield from _wrong_answers(index)
        except StoreError as err:
            if "not assembled" not in str(err):
                yield str(err)


def _of_shard(given: Any, number: int) -> dict[str, tuple[int, str, Any, list[list[float]]]]:
    """Return what a shard stores of a corpus that is put into a new index, by id, in its order."""
    rows = enumerate(zip(*given, strict=True))
    mine = [(at, item, views) for at, (item, views) in rows if shard_of(item.id, SHARDS) == number]
    return {item.id: (at, item.text, dict(item.metadata), views.tolist()) for at, item, views in mine}


def _missing_chunks(found: dict[str, Any], expected: dict[str, Any], commits: int) -> Iterator[str]:
    first = dict(list(expected.items())[: len(found)])
    if found != first or (len(found) % CHUNK and len(found) != len(expected)):
        yield f"{sorted(found)} is not a whole number of chunks, or not what was given"
        return
    least = min(len(expected), CHUNK * commits)
    if len(found) < least:
        yield f"{len(found)} documents, {least} were committed"


def _wrong_answers(index: mvindex.Index) -> Iterator[str]:
    """Yield where an index of the first corpus differs from brute force."""
    views = {item.id: rows for item, rows in zip(*FIRST, strict=True)}
    ordinals = {item.id: at for at, item in enumerate(FIRST[0])}
    for query, result in zip(QUERIES, index.search(QUERIES, top_k=9, exact=True), strict=True):
        truth = [(doc_id, slot) for doc_id, _, slot in brute_force(views, query, 9, ordinals, dtype="fp16")]
        hits = [(hit.id, hit.slot) for hit in result.hits]
        if hits != truth:
            yield f"{hits}, not {truth}"
    for result in index.search(QUERIES, top_k=9):
        if len({hit.id for hit in result.hits}) != 9 or result.short_by:
            yield f"expected 9 hits from the engines, got {len(result.hits)}"


def _counting_commits(run: Callable[[Path], object]) -> Callable[[Path, Acknowledge], None]:
    """Return a run that acknowledges each commit when it is announced."""

    def counted(folder: Path, acknowledge: Acknowledge) -> None:
        from mvindex_connectors.engines import faiss_lists

        commits = 0

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal commits
            if event == EVENT and arguments[:2] == ("after", "commit"):
                commits += 1
                acknowledge(commits)

        faiss_lists.KEPT_EVERY = _SAVED_EVERY
        sys.addaudithook(hear)
        run(folder / INDEX)

    return counted


def _fill(numbers: Any) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        for number in numbers:
            fill_shard(folder / INDEX, ShardPlace(number, SHARDS), FIRST)

    return fill


def _assembled(folder: Path) -> None:
    _fill(range(SHARDS))(folder)
    assemble(folder / INDEX)


def _assembled_texts(folder: Path) -> None:
    with mvindex.create(folder / INDEX, encoder=SentenceViews(), shards=SHARDS, lexical="none") as index:
        index.add(documents(0, 30))
        index.admin.build("flat")


def _add_to_all(path: Path) -> None:
    with mvindex.open(path) as index:
        index.add_views(*SECOND)


def _build(path: Path) -> None:
    with mvindex.open(path) as index:
        index.admin.build(KIND, nlist=LISTS)


def _operation(start: Any, run: Any, checks: type[Checks], has_reader: bool = False) -> Change:
    return Change(start=start, run=_counting_commits(run), states=[], checks=checks, has_reader=has_reader)


SHARD_OPERATIONS = {
    "ingest --shard 1/3": _operation(_fill([0, 2]), lambda path: fill_shard(path, ONE, FIRST), OneShardChecks),
    "ingest into all shards": _operation(_assembled, _add_to_all, AllShardsChecks),
    "assemble": _operation(_fill(range(SHARDS)), assemble, AssembledChecks),
    "assemble again": _operation(_assembled, assemble, ShardChecks, has_reader=True),
    "re-embed shards": Change(
        start=_assembled_texts,
        run=calling(lambda index: index.admin.reembed(ReversedViews())),
        states=[_TEXTS, _TEXTS.reembedded()],
        has_reader=True,
    ),
    "build in shards": _operation(_assembled, _build, ShardChecks, has_reader=True),
}
