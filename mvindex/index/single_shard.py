"""One shard that is filled alone: it reads the whole corpus and keeps its part, independent of all other shards."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mvindex.index import Index
from mvindex.index.options import new_settings
from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport
from mvindex.ingest.shards import Target, ingest_shards
from mvindex.store.shard_layout import ShardPlace, check_place, create_shard, open_shard


def create_shard_index(path: Path, place: ShardPlace, **chosen: Any) -> SingleShard:
    """A new empty shard of the index at path; chosen: encoder, dim and so on, as create() takes them.

    ConfigError when it is there, or the index has another count of shards.
    """
    check_place(path, place)
    settings, encoder = new_settings(**chosen)
    create_shard(path, place, settings)
    index = open_shard_index(path, place)
    index._encoder = encoder
    return index


def open_shard_index(path: Path, place: ShardPlace, device: str | None = None) -> SingleShard:
    """The shard of the index at path, for corpora. StoreError when it is missing, ConfigError for another count."""
    check_place(path, place)
    return SingleShard(path.absolute(), place, device)


def has_shard(path: Path, place: ShardPlace) -> bool:
    """True when the shard was begun."""
    return os.path.lexists(path / place.directory)


class SingleShard(Index):
    """One shard of an index. What is added must be a whole corpus, the same for all shards: its part is kept here."""

    def __init__(self, path: Path, place: ShardPlace, device: str | None) -> None:
        super().__init__(open_shard(path, place), None, device)
        self.place = place

    def _ingest(self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None) -> IngestReport:
        target = Target(stores={self.place.number: self.store}, count=self.place.count, encode=encode)
        return ingest_shards(target, entries, hooks)
