"""Runs: the corpora that a shard has read, and how it numbers documents as if all were in one index.

A new document's ordinal is the run's base plus its position in the whole corpus, whichever shard it belongs to. So
shards that are filled separately agree on the order of all documents. The catalog records an unfinished run as open,
with how far it came: the same corpus ingested again resumes it, with the same base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import xxhash

from mvindex.errors import ConfigError, DamagedIndex
from mvindex.store.embedded import EmbeddedStore

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

    def _can_go_on(self, opens: Sequence[Run]) -> bool:
        """Return whether the open runs are one, and no other shard is further than it."""
        base = opens[0].base
        others = [store for store in self._stores if store.directory not in self._open]
        return all(run.base == base for run in opens) and all(_is_at(store, base) for store in others)

    def observe(self, digest: CorpusDigest) -> None:
        """Take note of a document that was read: compare ids where an open run stopped."""
        if self.base is not None or digest.documents not in self._marks:
            return
        mark = self._marks.pop(digest.documents)
        if not mark.is_same(digest.run()):
            self.base = self._fresh
        elif not self._marks:
            self.base, self.is_resumed = mark.base, True

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
