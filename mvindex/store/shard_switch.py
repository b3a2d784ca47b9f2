"""One commit of all shards: switch.json names the generation that each shard moves to, until their current.json do.

The generations are whole before the file is written, by one rename. From then on they are the active ones, also where
the writer was killed before it had written every current.json; the next writer completes that, and removes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import xxhash

from mvindex.durable import audit_step, flush_to_disk, replace_text
from mvindex.errors import DamagedIndex
from mvindex.store.files import Current, check_regular, read_current, read_small

SWITCH = "switch.json"
SHARD_DIRECTORY = re.compile(r"shard-([0-9]{5})-of-([0-9]{5})")
_MAX_BYTES = 1 << 20


def active_current(index: Path) -> Current | None:
    """Return the content of current.json, of a shard with the generation of a switch that it does not name yet.

    None without a current.json; DamagedIndex when a file is not as it was written.
    """
    current = read_current(index)
    if current is None or SHARD_DIRECTORY.fullmatch(index.name) is None:
        return current
    generation = read_switch(index.parent).get(index.name, 0)
    return current if generation <= current.generation else replace(current, generation=generation)


def read_switch(directory: Path) -> Mapping[str, int]:
    """Return the generations that shards move to, by the names of their directories; empty without a switch."""
    path = directory / SWITCH
    content = read_small(path, _MAX_BYTES)
    if content is None:
        return {}
    try:
        record = json.loads(content)
        found = dict(record["generations"])
        is_sound = record == _record(found) and all(type(number) is int for number in found.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise _damaged(path) from err
    if not is_sound:
        raise _damaged(path)
    return found


def write_switch(directory: Path, generations: Mapping[str, int]) -> None:
    """Make these generations the active ones, durably, or change nothing."""
    fresh = directory / f"{SWITCH}.new"
    check_regular(fresh)
    replace_text(directory / SWITCH, json.dumps(_record(generations)) + "\n", fresh)


def end_switch(directory: Path) -> None:
    """Remove switch.json once every current.json says the same. Call as the writer of all shards."""
    named = read_switch(directory)
    current = {name: read_current(directory / name) for name in named}
    if named and all(each is not None and each.generation >= named[name] for name, each in current.items()):
        with audit_step("remove", directory / SWITCH):
            (directory / SWITCH).unlink()
        flush_to_disk(directory)


def _record(generations: Mapping[str, int]) -> dict[str, object]:
    record: dict[str, object] = {"mvindex": "switch", "generations": dict(sorted(generations.items()))}
    return record | {"checksum": xxhash.xxh3_64_hexdigest(json.dumps(record).encode())}


def _damaged(path: Path) -> DamagedIndex:
    return DamagedIndex(f"{path}: it does not hold what mvindex writes; restore a snapshot (mvindex restore)")
