"""Assembly of shards that were filled separately into one index, once they are found to belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.ingest.shards import open_run, runs_of
from mvindex.records import CountCallback, Ints, no_progress
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.shard_layout import (
    ShardPlace,
    Shards,
    new_index_id,
    open_shard,
    places_in,
    read_shards,
    shard_of,
    write_shards,
)

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
        write_shards(index, Shards(index_id=_index_id(index), shard_ids=shard_ids))
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
