"""One pass over a corpus into all shards of an index, or into one of them: each document into the shard of its id.

Each shard has chunks of its own, which are its units of commit; a shard that is filled separately has the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from mvindex.encoder.base import DEVICE_CHUNKS
from mvindex.errors import StoreError
from mvindex.ingest.pipeline import (
    Chunk,
    Entry,
    IngestHooks,
    IngestReport,
    SeenIds,
    ingest_chunk,
    within_length,
)
from mvindex.ingest.reuse import Encode
from mvindex.ingest.shard_runs import CorpusDigest, Numbering, Run, runs_of
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.shard_layout import ShardPlace, shard_error_context, shard_of
from mvindex.store.sharded import writing_shards

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
            store = self._target.stores[cut.shard]
            known = self._writers[cut.shard].known([entry.document.id for entry in cut.entries])
            new = [entry for entry in cut.entries if entry.document.id not in known]
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

    def _flush_waiting(self) -> None:
        """Commit all chunks that wait; the base is known."""
        while self._waiting and not self._report.stopped:
            if self._hooks.should_stop():
                self._report.stopped = True
            else:
                self._commit(self._waiting.popleft(), self._numbering.base or 0)

    def _commit(self, cut: _Cut, base: int) -> None:
        store, before = self._target.stores[cut.shard], self._report.added
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
