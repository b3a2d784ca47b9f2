"""A sharded index on disk: shards.json and a directory for each shard, which is an ordinary store of its own.

A document's id determines its shard: replacing or deleting it concerns that shard only, and no id is in two.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from mvindex.durable import replace_text
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, StoreError
from mvindex.records import plain_value
from mvindex.store.create import atomic_directory, create_store
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import CURRENT, check_directory, check_regular, read_current, read_small
from mvindex.store.shard_switch import SHARD_DIRECTORY

SHARDS = "shards.json"
MAX_SHARDS = 1024
_FORMAT = 1
_MAX_BYTES = 1 << 20
_INDEX_ID = re.compile(r"[0-9a-f]{32}")
_WAY_OUT = "`mvindex assemble` makes it again from the shards"


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """One of `count` shards, from 0."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def directory(self) -> str:
        """The name of its directory inside the index."""
        return f"shard-{self.number:05d}-of-{self.count:05d}"

    def as_setting(self) -> dict[str, int]:
        """Return the setting in the shard's catalog."""
        return {"number": self.number, "count": self.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The content of shards.json: the index's own id, and that of each shard."""

    index_id: str
    shard_ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of shards."""
        return len(self.shard_ids)

    def places(self) -> Iterator[ShardPlace]:
        """Yield the shards in order."""
        return (ShardPlace(number, self.count) for number in range(self.count))


def shard_of(doc_id: str, count: int) -> int:
    """Return the number of the shard that a document belongs to."""
    return int(xxhash.xxh3_64_intdigest(doc_id.encode())) % count


def parse_place(text: str) -> ShardPlace:
    """Parse a shard such as "3/16", numbered from 0 like the tasks of a Slurm array job; ConfigError otherwise."""
    number, _, count = text.partition("/")
    if number.isdecimal() and count.isdecimal() and int(number) < checked_count(int(count)):
        return ShardPlace(int(number), int(count))
    raise ConfigError(f"shard: expected NUMBER/COUNT, the number from 0 to COUNT - 1, such as 3/16; got {text!r}")


def checked_count(value: object) -> int:
    """Return the number of shards; ConfigError when it is out of range."""
    count = plain_value(value)
    if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_SHARDS:
        return count
    raise ConfigError(f"shards: expected a whole number from 1 to {MAX_SHARDS}, got {value!r:.40}")


def is_sharded(directory: Path) -> bool:
    """Return whether the directory holds shards, assembled or not."""
    return os.path.lexists(directory / SHARDS) or bool(places_in(directory))


def places_in(directory: Path) -> list[ShardPlace]:
    """Return the shards whose directories exist, whatever is in them."""
    try:
        matches = [SHARD_DIRECTORY.fullmatch(entry.name) for entry in directory.iterdir()]
    except OSError:
        return []
    return sorted((ShardPlace(int(m[1]), int(m[2])) for m in matches if m), key=lambda place: place.number)


def read_shards(directory: Path) -> Shards:
    """Return the content of shards.json; StoreError when the shards are not assembled, DamagedIndex for damage."""
    path = directory / SHARDS
    content = read_small(path, _MAX_BYTES)
    if content is None:
        raise StoreError(
            f"{directory}: its shards are not assembled; run `mvindex assemble {directory}` once all are there"
        )
    try:
        record = json.loads(content)
        found = Shards(index_id=record["index_id"], shard_ids=tuple(entry["index_id"] for entry in record["shards"]))
        is_sound = record == _record(found) and all(map(_INDEX_ID.fullmatch, (found.index_id, *found.shard_ids)))
        version = record["format_version"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise DamagedIndex(f"{path}: it does not hold what mvindex writes; {_WAY_OUT}") from err
    if isinstance(version, int) and version != _FORMAT:
        raise StoreError(
            f"{path}: expected format version {_FORMAT}, got format version {version}. "
            "Make the index again with this version of mvindex"
        )
    if not is_sound or not 1 <= found.count <= MAX_SHARDS:
        raise DamagedIndex(f"{path}: its values do not match its checksum; {_WAY_OUT}")
    return found


def write_shards(directory: Path, shards: Shards) -> None:
    """Write shards.json, durably, or leave it as it was."""
    fresh = directory / f"{SHARDS}.new"
    check_regular(fresh)
    replace_text(directory / SHARDS, json.dumps(_record(shards)) + "\n", fresh)


def new_index_id() -> str:
    """Return a new unique index id."""
    return secrets.token_hex(16)


def create_shards(directory: Path, count: int, settings: Mapping[str, Any]) -> None:
    """Make an index of `count` empty shards at the directory, complete or not at all.

    ConfigError when the path exists.
    """
    if os.path.lexists(directory):
        raise ConfigError(f"{directory} exists already; open it by mvindex.open(), or remove it first")
    whole_id = new_index_id()
    with atomic_directory(directory) as building:
        ids = []
        for number in range(count):
            place = ShardPlace(number, count)
            own = {**settings, "shard": place.as_setting(), "whole_id": whole_id}
            create_store(building / place.directory, own)
            ids.append(_current_id(building / place.directory))
        write_shards(building, Shards(index_id=whole_id, shard_ids=tuple(ids)))


def create_shard(directory: Path, place: ShardPlace, settings: Mapping[str, Any]) -> None:
    """Make one empty shard of an index in the directory; ConfigError when it exists."""
    create_store(directory / place.directory, {**settings, "shard": place.as_setting()})


def check_place(directory: Path, place: ShardPlace) -> None:
    """Check that the shard may be made in the directory; ConfigError for an index of another number of shards."""
    if os.path.lexists(directory / CURRENT):
        raise ConfigError(f"{directory} is an index without shards; shard {place} of one needs another directory")
    counts = {found.count for found in places_in(directory)} - {place.count}
    if os.path.lexists(directory / SHARDS):
        counts |= {read_shards(directory).count} - {place.count}
    if counts:
        raise ConfigError(
            f"{directory} holds shards of an index of {min(counts)}, got shard {place}: give the same count"
        )


def open_shard(directory: Path, place: ShardPlace, index_id: str | None = None) -> EmbeddedStore:
    """Open the store of a shard; errors name the shard.

    index_id: its id in shards.json. StoreError when it is missing, or another index is in its place.
    """
    path = directory / place.directory
    with shard_error_context(path, place):
        check_directory(path)
        if not path.exists():
            raise StoreError(f"{path}: is missing")
        store = EmbeddedStore(path)
        try:
            check_shard(store, place)
            found = store.snapshot.settings["index_id"]
            if index_id not in (None, found):
                raise StoreError(f"{path}: its index_id is {found}; {SHARDS} names {index_id}: {_WAY_OUT}")
        except BaseException:
            store.close()
            raise
    return store


def check_shard(store: EmbeddedStore, place: ShardPlace) -> None:
    """Check that the store was made as this shard; raise StoreError otherwise."""
    found = store.snapshot.settings.get("shard")
    if found != place.as_setting():
        is_one = isinstance(found, dict) and "number" in found and "count" in found
        made = f"as shard {found['number']}/{found['count']}" if is_one and found else "as no shard"
        raise StoreError(
            f"{store.directory}: expected shard {place}, got an index made {made}: was the directory renamed?"
        )


@contextmanager
def shard_error_context(path: Path, place: ShardPlace) -> Iterator[None]:
    """Make errors of the store inside the block name the shard."""
    try:
        yield
    except StoreError as err:
        raise type(err)(f"shard {place.number} of {place.count}: {_with_path(path, err)}") from err


def _with_path(path: Path, err: MvindexError) -> str:
    """Return the error's message, with the path if it does not name it."""
    return str(err) if path.name in str(err) else f"{path}: {err}"


def _current_id(path: Path) -> str:
    current = read_current(path)
    if current is None:
        raise StoreError(f"{path}: there is no mvindex index here")
    return current.index_id


def _record(shards: Shards) -> dict[str, Any]:
    entries: Sequence[dict[str, str]] = [
        {"directory": place.directory, "index_id": shard_id}
        for place, shard_id in zip(shards.places(), shards.shard_ids, strict=True)
    ]
    record = {
        "mvindex": "shards",
        "format_version": _FORMAT,
        "count": shards.count,
        "index_id": shards.index_id,
        "shards": entries,
    }
    return record | {"checksum": xxhash.xxh3_64_hexdigest(json.dumps(record, sort_keys=True).encode())}
