"""An ingest into shards: how each numbers documents as if all were in one index, and how one is made of them.

A new document's ordinal is the run's base plus its position in the whole corpus, whichever shard it belongs to. So
shards that are filled separately agree on the order of all documents. The catalog records an unfinished run as open,
with how far it came: the same corpus ingested again resumes it, with the same base.

Each shard has chunks of its own, which are its units of commit; a shard that is filled separately has the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from mvindex.encoder.function import DEVICE_CHUNKS
from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.ingest.pipeline import Chunk, Entry, IngestHooks, IngestReport, SeenIds, ingest_chunk, within_length
from mvindex.ingest.views import Encode
from mvindex.records import CountCallback, Ints, no_progress
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.shard_layout import (
    ShardPlace,
    Shards,
    new_index_id,
    open_shard,
    places_in,
    read_shards,
    shard_error_context,
    shard_of,
    write_shards,
)
from mvindex.store.sharded import writing_shards

# The number of runs recorded in full; of earlier ones there are a count and a digest.
_KEPT_RUNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The first `documents` documents of a corpus: a digest of their ids in order, and the ordinal of the first."""

    base: int
    documents: int
    ids: str

    @property
    def end(self) -> int:
        """The first ordinal behind it."""
        return self.base + self.documents

    def is_same(self, other: Run) -> bool:
        """Return whether both are of the same corpus."""
        return (self.documents, self.ids) == (other.documents, other.ids)

    def __str__(self) -> str:
        return f"{self.documents:,} documents from ordinal {self.base:,} on, ids {self.ids[:8]}"


class CorpusDigest:
    """A running digest of the ids of a corpus, and their number."""

    def __init__(self) -> None:
        self._ids = xxhash.xxh3_128()
        self.documents = 0

    def add(self, doc_id: str) -> int:
        """Add a document, and return its position."""
        data = doc_id.encode()
        self._ids.update(len(data).to_bytes(4, "little"))
        self._ids.update(data)
        self.documents += 1
        return self.documents - 1

    def run(self, base: int = 0) -> Run:
        """Return the run of the documents added so far."""
        return Run(base=base, documents=self.documents, ids=self._ids.hexdigest())


class Runs:
    """The complete runs of a shard: the last in full, of earlier ones a count and a digest of them all."""

    def __init__(self, setting: Mapping[str, Any] | None) -> None:
        self._earlier: Mapping[str, Any] = (setting or {}).get("earlier") or {"count": 0, "digest": ""}
        self.last: tuple[Run, ...] = tuple(Run(**run) for run in (setting or {}).get("last") or ())

    @property
    def count(self) -> int:
        """The number of complete runs."""
        return int(self._earlier["count"]) + len(self.last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and (self._earlier, self.last) == (other._earlier, other.last)

    def __hash__(self) -> int:
        return hash(self.last)

    def __str__(self) -> str:
        return f"{self.count} corpora seen" + (f", the last of {self.last[-1]}" if self.last else "")

    def __contains__(self, run: Run) -> bool:
        return any(run.is_same(known) for known in self.last)

    def with_run(self, run: Run) -> dict[str, Any]:
        """Return the setting with one more run."""
        kept, earlier = [*self.last, run], dict(self._earlier)
        for first in kept[:-_KEPT_RUNS]:
            text = f"{earlier['digest']} {first.base} {first.documents} {first.ids}"
            earlier = {"count": earlier["count"] + 1, "digest": xxhash.xxh3_128_hexdigest(text.encode())}
        return {"earlier": earlier, "last": [asdict(run) for run in kept[-_KEPT_RUNS:]]}


def runs_of(store: EmbeddedStore) -> Runs:
    """Return the complete runs of a shard; raise DamagedIndex for a setting that is none."""
    try:
        return Runs(store.snapshot.settings.get("runs"))
    except (TypeError, KeyError, ValueError, AttributeError) as err:
        raise DamagedIndex(f"{store.directory}: setting 'runs' is not what mvindex writes ({err})") from err


def open_run(store: EmbeddedStore) -> Run | None:
    """Return the unfinished run of a shard; None where there is none."""
    setting = store.snapshot.settings.get("run")
    try:
        return None if setting is None else Run(**setting)
    except TypeError as err:
        raise DamagedIndex(f"{store.directory}: setting 'run' is not what mvindex writes ({err})") from err


class Numbering:
    """Finds the base of a run that begins: that of an open run of the same corpus, else one beyond all ordinals.

    Where there is an open run, base is None until as many documents were read as it had.
    """

    def __init__(self, stores: Sequence[EmbeddedStore]) -> None:
        self._stores = stores
        self._open = {store.directory: run for store in stores if (run := open_run(store)) is not None}
        opens = list(self._open.values())
        self._fresh = max(
            [int(store.snapshot.settings["next_ordinal"]) for store in stores] + [run.end for run in opens]
        )
        self._marks = {run.documents: run for run in opens}
        self.base: int | None = self._fresh if not opens or not self._can_go_on(opens) else None
        self.is_resumed = False
        # Runs from the same ordinal that shards have ended, until they are known to be of the same corpus.
        ends = {store.directory: run for store in stores for run in runs_of(store).last[-1:]}
        self.ended = {place: run for place, run in ends.items() if self.base is None and run.base == opens[0].base}

    def _can_go_on(self, opens: Sequence[Run]) -> bool:
        """Return whether the open runs are one, and no other shard is further than it."""
        first, *more = {run.base for run in opens}
        return not more and all(_is_at(store, first) for store in self._stores if store.directory not in self._open)

    def observe(self, digest: CorpusDigest) -> None:
        """Take note of a document that was read: compare ids where an open run stopped, and where one has ended."""
        if self.base is None and digest.documents in self._marks:
            mark = self._marks.pop(digest.documents)
            if not mark.is_same(digest.run()):
                self.base = self._fresh
            elif not self._marks:
                self.base, self.is_resumed = mark.base, True
        for directory, run in [*self.ended.items()]:
            if run.documents == digest.documents and run.is_same(digest.run()):
                del self.ended[directory]
            elif run.documents <= digest.documents:
                self.refuse_new(directory, run.documents - 1)

    def refuse_new(self, directory: Path, position: int) -> None:
        """Raise ConfigError if an open run goes on, but this shard has ended it without the document at this place."""
        run = self.ended.get(directory)
        if self.is_resumed and run is not None and position < run.documents:
            where, unfinished = next(iter(self._open.items()))
            raise ConfigError(
                f"{directory}: has read another corpus, {run}, than {where} in its unfinished run, {unfinished}, or "
                "was deleted from: finish that run by --shard, or remove the shard of another corpus and fill it again"
            )

    def refuse_other_corpus(self) -> None:
        """Raise ConfigError if a single shard has an open run of another corpus, which would shift its ordinals."""
        if self._open and not self.is_resumed:
            ((directory, run),) = self._open.items()
            raise ConfigError(
                f"{directory}: has an unfinished run of another corpus, {run}: give that corpus again, with the same "
                "rows before the place where it stopped, or remove this directory and begin it anew"
            )

    def is_new_before(self, store: EmbeddedStore, position: int) -> bool:
        """Return whether a new document at this position shows that the corpus is not that of the store's open run."""
        run = self._open.get(store.directory)
        return run is not None and position < run.documents

    def give_up(self) -> None:
        """Begin a new run: this is another corpus than that of the open run."""
        self.base = self._fresh


def _is_at(store: EmbeddedStore, base: int) -> bool:
    """Return whether a shard without an open run stands before the run of this base, or has just ended it."""
    last = runs_of(store).last
    return int(store.snapshot.settings["next_ordinal"]) <= base or bool(last and last[-1].base == base)


# Chunks of a shard that may wait until an open run is recognised: a stopped run left each shard within its last ones,
# and may have committed as many at once as a GPU does.
_WAITING_CHUNKS = 4 * DEVICE_CHUNKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The shards to fill, by number, of `count` in all. encode: None where entries bring their views."""

    stores: Mapping[int, EmbeddedStore]
    count: int
    encode: Encode | None

    @property
    def is_single(self) -> bool:
        """Whether only some of the shards are filled."""
        return len(self.stores) < self.count


class _Cut(NamedTuple):
    """A chunk of a shard, whose entries' ordinals are positions in the corpus. until: the corpus up to its end."""

    shard: int
    entries: Sequence[Entry]
    until: Run


def ingest_shards(target: Target, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
    """Store the entries that belong to the shards of the target, and return the counts; the others are only counted.

    Takes the writer locks of these shards for the whole run. After an error, the chunks before it are committed.
    """
    with writing_shards(target.stores, target.count) as writers, SeenIds() as seen:
        hooks = hooks or IngestHooks()
        return _Ingest(target, writers, seen, hooks).run(within_length(entries, hooks.max_document_chars))


class _Ingest:
    """One run of entries into the shards of a target."""

    def __init__(
        self, target: Target, writers: Mapping[int, EmbeddedWriter], seen: SeenIds, hooks: IngestHooks
    ) -> None:
        self._target, self._writers, self._seen, self._hooks = target, writers, seen, hooks
        self._stores = [target.stores[number] for number in sorted(target.stores)]
        self._numbering = Numbering(self._stores)
        self._digest = CorpusDigest()
        self._filling = {number: Chunk(hooks.chunks_at_once) for number in sorted(target.stores)}
        self._waiting: deque[_Cut] = deque()
        self._has_numbered = False
        self._report = IngestReport()

    def run(self, entries: Iterable[Entry]) -> IngestReport:
        """Store the entries and return the counts."""
        for entry in entries:
            self._take(entry)
            if self._report.stopped:
                return self._report
        for shard, filling in self._filling.items():
            if chunk := filling.take():
                self._queue(shard, chunk)
        if self._numbering.base is None:
            self._numbering.give_up()
        self._flush_waiting()
        if not self._report.stopped:
            self._complete()
        return self._report

    def _take(self, entry: Entry) -> None:
        """Count the entry, and add it to the chunk of its shard."""
        shard = shard_of(entry.document.id, self._target.count)
        position = self._digest.add(entry.document.id)
        was_open = self._numbering.base is None
        self._numbering.observe(self._digest)
        if shard not in self._filling:
            self._report.elsewhere += 1
            self._hooks.on_progress(1)
        elif chunk := self._filling[shard].add(entry._replace(ordinal=position)):
            self._queue(shard, chunk)
            if self._numbering.base is None:
                self._commit_known_chunks()
            else:
                self._flush_waiting()
        if was_open and self._numbering.base is not None:
            self._flush_waiting()

    def _queue(self, shard: int, chunk: Sequence[Entry]) -> None:
        """Queue the chunk until its documents can be numbered and those before it are stored."""
        firsts = self._seen.drop_repeats(chunk, self._hooks.on_duplicate, self._report)
        self._waiting.append(_Cut(shard, firsts, self._digest.run()))

    def _commit_known_chunks(self) -> None:
        """Commit the chunks before the first with a new document: known documents keep their ordinals."""
        while self._waiting and self._numbering.base is None:
            cut = self._waiting[0]
            new, store = self._new_entries(cut), self._target.stores[cut.shard]
            if any(self._numbering.is_new_before(store, entry.ordinal or 0) for entry in new):
                self._numbering.give_up()
            elif new:
                break
            else:
                self._commit(self._waiting.popleft(), 0)
        if self._numbering.base is not None:
            self._flush_waiting()
        elif len(self._waiting) > _WAITING_CHUNKS * self._target.count:
            raise StoreError(
                f"{self._stores[0].directory.parent}: its shards have come to very different places of a run that did "
                "not end; finish it shard by shard: mvindex ingest --shard NUMBER/COUNT, then mvindex assemble"
            )

    def _new_entries(self, cut: _Cut) -> list[Entry]:
        known = self._writers[cut.shard].known([entry.document.id for entry in cut.entries])
        return [entry for entry in cut.entries if entry.document.id not in known]

    def _flush_waiting(self) -> None:
        """Commit all chunks that wait; the base is known."""
        while self._waiting and not self._report.stopped:
            if self._hooks.should_stop():
                self._report.stopped = True
            else:
                self._commit(self._waiting.popleft(), self._numbering.base or 0)

    def _commit(self, cut: _Cut, base: int) -> None:
        store, before = self._target.stores[cut.shard], self._report.added
        for entry in self._new_entries(cut) if store.directory in self._numbering.ended else ():
            self._numbering.refuse_new(store.directory, entry.ordinal or 0)
        entries = [entry._replace(ordinal=base + (entry.ordinal or 0)) for entry in cut.entries]
        until = {"run": asdict(replace(cut.until, base=base))}
        with shard_error_context(store.directory, ShardPlace(cut.shard, self._target.count)):
            hooks = replace(self._hooks, note=lambda: self._allowed(until))
            ingest_chunk(self._writers[cut.shard], entries, self._target.encode, self._report, hooks)
        self._has_numbered |= self._report.added > before

    def _allowed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the changes of settings that record the run; raise ConfigError where that would lose another run."""
        if self._target.is_single:
            self._numbering.refuse_other_corpus()
        return changes

    def _complete(self) -> None:
        """Record in the shards that the whole corpus was read; later documents are numbered beyond it."""
        run = self._digest.run(self._numbering.base or 0)
        is_numbered = self._has_numbered or self._numbering.is_resumed
        for number, store in sorted(self._target.stores.items()) if run.documents else ():
            runs = runs_of(store)
            changes: dict[str, Any] = {} if run in runs else {"runs": runs.with_run(run)}
            if changes or is_numbered:
                changes["next_ordinal"] = max(run.end, int(store.snapshot.settings["next_ordinal"]))
                self._writers[number].change_settings(**self._allowed(changes | {"run": None}))


_CHECKED_IDS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembleReport:
    """The shards that were assembled, and their live documents and views."""

    path: str
    shards: int
    documents: int
    views: int


def assemble(path: str | Path, on_progress: CountCallback = no_progress) -> AssembleReport:
    """Assemble the shards at path, all of which must be there and have read the same corpora. It may be repeated.

    Args:
        path: The directory of the index.
        on_progress: Called with the number of documents checked since the last call.

    Raises:
        ConfigError: Naming the shard, where shards are missing or do not fit together.
        DamagedIndex: Naming the shard, where ids or ordinals cannot be right.

    """
    index = Path(path).absolute()
    places = _all_places(index)
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_shard(index, place))) for place in places]
        _check_alike(places, stores)
        for place, store in zip(places, stores, strict=True):
            _check_routing(place, store, on_progress)
        _check_ordinals(places, stores)
        shard_ids = tuple(str(store.snapshot.settings["index_id"]) for store in stores)
        whole_id = _index_id(index)
        write_shards(index, Shards(index_id=whole_id, shard_ids=shard_ids))
        for store in stores:
            if store.snapshot.settings.get("whole_id") != whole_id:
                with store.writing() as writer:
                    writer.change_settings(whole_id=whole_id)
        return AssembleReport(
            path=str(index),
            shards=len(stores),
            documents=sum(store.snapshot.num_documents for store in stores),
            views=sum(store.snapshot.num_live_views for store in stores),
        )


def _all_places(index: Path) -> list[ShardPlace]:
    """Return the places of all shards; raise ConfigError when one is missing, or when they are of several counts."""
    found = places_in(index)
    counts = sorted({place.count for place in found})
    if not counts:
        raise ConfigError(f"{index}: there is no shard here; expected directories such as {ShardPlace(0, 4).directory}")
    if len(counts) > 1:
        raise ConfigError(f"{index}: expected shards of one count, got some of {counts[0]} and some of {counts[1]}")
    places = [ShardPlace(number, counts[0]) for number in range(counts[0])]
    missing = [place for place in places if place not in found]
    if missing:
        raise ConfigError(
            f"{index}: {len(missing)} of {counts[0]} shards are missing, the first of them {missing[0].directory}: "
            f"mvindex ingest CORPUS --index {index.name} --shard {missing[0]} makes it"
        )
    return places


def _check_alike(places: list[ShardPlace], stores: list[EmbeddedStore]) -> None:
    """Raise ConfigError unless all shards were made alike and have read the same corpora to their ends."""
    traits: dict[str, tuple[ShardPlace, Any]] = {}
    for place, store in zip(places, stores, strict=True):
        unfinished = open_run(store)
        if unfinished is not None:
            raise ConfigError(
                f"shard {place}: its run is not complete, it has come to {unfinished}; give the same command again"
            )
        for name, value in _traits(store):
            other, expected = traits.setdefault(name, (place, value))
            if value != expected:
                raise ConfigError(f"shard {place}: {name} is {value}; shard {other} has {expected}")


def _traits(store: EmbeddedStore) -> Iterator[tuple[str, Any]]:
    """Yield what must be the same in all shards, by name; a shard without documents has no dim."""
    settings = store.snapshot.settings
    encoder = settings["encoder"]
    yield "encoder", repr(encoder["fingerprint"] if encoder else None)
    for name in ("dtype", "temperature", "prune_views", "lexical", "filter_fields"):
        yield name, repr(settings.get(name))
    if store.snapshot.dim is not None:
        yield "dim", store.snapshot.dim
    yield "its history", runs_of(store)


def _check_routing(place: ShardPlace, store: EmbeddedStore, on_progress: CountCallback) -> None:
    """Raise DamagedIndex unless every id belongs to this shard, so that none is in two."""
    with store.snapshot.source.catalog.reading() as connection:
        store.snapshot.source.check_ids(connection)
        rows = connection.execute("SELECT id FROM documents WHERE alive")
        while chunk := rows.fetchmany(_CHECKED_IDS):
            for (doc_id,) in chunk:
                owner = shard_of(doc_id, place.count)
                if owner != place.number:
                    raise DamagedIndex(f"shard {place}: document {doc_id!r} is in it, but belongs to shard {owner}")
            on_progress(len(chunk))


def _check_ordinals(places: list[ShardPlace], stores: list[EmbeddedStore]) -> None:
    """Raise DamagedIndex when two documents have the same ordinal; takes 8 bytes of memory a document."""
    ordinals: Ints = np.empty(sum(store.snapshot.num_documents for store in stores), dtype=np.int64)
    end = 0
    for store in stores:
        for part in _ordinals(store):
            ordinals[end : end + len(part)] = part
            end += len(part)
    ordinals.sort()
    twice = np.flatnonzero(ordinals[1:] == ordinals[:-1])
    if len(twice):
        ordinal = int(ordinals[twice[0]])
        pairs = zip(places, stores, strict=True)
        owners = [str(place) for place, store in pairs if any((part == ordinal).any() for part in _ordinals(store))]
        raise DamagedIndex(
            f"shard {owners[0]}: ordinal {ordinal} belongs to two documents, in shards {' and '.join(owners)}: they "
            "were filled from different corpora; remove the shards that were and ingest them again"
        )


def _ordinals(store: EmbeddedStore) -> Iterator[Ints]:
    """Yield the ordinals of all live documents, piece by piece."""
    alive = store.snapshot.alive
    for begin in range(0, len(alive), _CHECKED_IDS):
        yield store.snapshot.views.ordinals(begin + np.flatnonzero(alive[begin : begin + _CHECKED_IDS]))


def _index_id(index: Path) -> str:
    """Return the id that the index has already, or a new one."""
    try:
        return read_shards(index).index_id
    except StoreError:
        return new_index_id()
