"""A disk that forgets: what a folder may look like after the power fails in the middle of a list of calls.

Every file and folder has a durable state, that of its last fsync, and changes since then. Three models decide which of
the changes survive the cut: Strict, MetadataFirst, Scattered.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import xxhash

from tests.durability.power.strace import Call, Kind, LogError

# The content of a folder: the bytes of each file by its relative path, None for a folder.
Image = Mapping[str, bytes | None]


@dataclass(slots=True)
class File:
    """durable: the bytes at the last fsync; changes: writes and truncates since."""

    durable: bytes = b""
    current: bytearray = field(default_factory=bytearray)
    changes: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Folder:
    """Entries by name; a change sets some names and removes others (None) in one step."""

    durable: dict[str, Node] = field(default_factory=dict)
    current: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)


Node = File | Folder


class Loss(Protocol):
    """A model of which changes survive the cut."""

    def entries(self, folder: Folder) -> Mapping[str, Node]:
        """Return the entries of the folder afterwards."""
        ...

    def content(self, file: File) -> bytes:
        """Return the bytes of the file afterwards."""
        ...

    def unlogged(self, file: File) -> bytes | None:
        """Return the bytes of a file written through a memory map (SQLite's -shm), None if it is gone."""
        ...


class Disk:
    """The state of the watched folder, changed by `apply`."""

    def __init__(self, initial: Image | None = None) -> None:
        self.root = Folder()
        for path, data in sorted((initial or {}).items()):
            folder, name = self._place(path)
            node = Folder() if data is None else File(data, bytearray(data))
            folder.durable[name] = folder.current[name] = node

    def apply(self, call: Call) -> None:
        """Apply the call; only an fsync makes changes durable."""
        if call.kind is Kind.SYNC:
            self._sync(self.find(call.path))
        elif call.kind in (Kind.WRITE, Kind.COPY, Kind.TRUNCATE):
            self._change_file(call)
        elif call.kind is not Kind.MARK:
            self._change_entries(call)

    def image(self, loss: Loss) -> Image:
        """Return what a power cut now leaves."""
        return dict(_left(self.root, loss, ""))

    def find(self, path: str) -> Node:
        """Return what is at the path now."""
        if path == ".":
            return self.root
        folder, name = self._place(path)
        return folder.current[name]

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Yield every file and folder that exists now, with its path."""
        yield ".", self.root
        yield from _below(self.root, "")

    def _place(self, path: str) -> tuple[Folder, str]:
        *parents, name = path.split("/")
        folder: Node = self.root
        for parent in parents:
            if isinstance(folder, Folder):
                folder = folder.current[parent]
        if not isinstance(folder, Folder):
            raise LogError(f"{path}: expected to be in a folder")
        return folder, name

    def _sync(self, node: Node) -> None:
        if isinstance(node, File):
            node.durable = bytes(node.current)
        else:
            node.durable = dict(node.current)
        node.changes.clear()

    def _change_file(self, call: Call) -> None:
        file = self.find(call.path)
        if not isinstance(file, File):
            raise LogError(f"{call.path}: expected a file to be written to")
        if call.kind is Kind.COPY:
            source = self.find(call.target)
            data = bytes(source.current[call.source_offset :][: call.size_bytes])
            call = replace(call, kind=Kind.WRITE, data=data)
        if call.offset < 0:
            call = replace(call, offset=len(file.current))
        _write(file.current, call)
        file.changes.append(call)

    def _change_entries(self, call: Call) -> None:
        folder, name = self._place(call.path)
        if call.kind is Kind.CREATE and name in folder.current:
            return
        if call.kind is Kind.RENAME:
            target_folder, target = self._place(call.target)
            if target_folder is not folder:
                raise LogError(f"{call.path} -> {call.target}: a rename between folders is not supported")
            change: dict[str, Node | None] = {name: None, target: folder.current[name]}
        else:
            change = {name: {Kind.CREATE: File, Kind.MAKE_DIR: Folder}.get(call.kind, lambda: None)()}
        _enter(folder.current, change)
        folder.changes.append(change)


class Strict:
    """Keep only what was fsynced: bytes by the fsync of the file, names by that of the folder."""

    def entries(self, folder: Folder) -> Mapping[str, Node]:
        return folder.durable

    def content(self, file: File) -> bytes:
        return file.durable

    def unlogged(self, file: File) -> bytes | None:
        return None


@dataclass(frozen=True)
class MetadataFirst:
    """Keep all names and truncations, as a journal of metadata does, and no byte that was not fsynced.

    is_grown: lengths are metadata too, so that lost bytes are zeros.
    """

    is_grown: bool

    def entries(self, folder: Folder) -> Mapping[str, Node]:
        return folder.current

    def content(self, file: File) -> bytes:
        data = bytearray(file.durable)
        for change in file.changes:
            if change.kind is Kind.TRUNCATE:
                _write(data, change)
            elif self.is_grown:
                data.extend(bytes(max(change.offset + len(change.data) - len(data), 0)))
        return bytes(data)

    def unlogged(self, file: File) -> bytes | None:
        return bytes(len(file.current))


class Scattered:
    """Keep any of the changes: each page of a write, each truncation and each change of names survives by chance.

    A change of names is whole (a rename never leaves both or neither). Pages are of 512 or 4,096 bytes.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._names_odds = self._random.choice([0.0, 0.2, 0.5, 0.8, 1.0])
        self._bytes_odds = self._random.choice([0.0, 0.2, 0.5, 0.8, 1.0])
        self._page = self._random.choice([512, 4096])

    def entries(self, folder: Folder) -> Mapping[str, Node]:
        entries = dict(folder.durable)
        for change in folder.changes:
            if self._random.random() < self._names_odds:
                _enter(entries, change)
        return entries

    def content(self, file: File) -> bytes:
        data = bytearray(file.durable)
        for change in file.changes:
            for part in _pages(change, self._page):
                if self._random.random() < self._bytes_odds:
                    _write(data, part)
        return bytes(data)

    def unlogged(self, file: File) -> bytes | None:
        return self._random.randbytes(len(file.current))


def read_image(folder: Path) -> Image:
    """Read a real folder."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in found}


def write_image(image: Image, folder: Path) -> None:
    """Write the image to a new folder."""
    folder.mkdir(parents=True)
    for path, data in sorted(image.items()):
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)


def digest(image: Image) -> bytes:
    """Return a digest, the same for equal images."""
    hashed = xxhash.xxh3_128()
    for path, data in sorted(image.items()):
        hashed.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
        hashed.update(data or b"")
    return hashed.digest()


def _left(folder: Folder, loss: Loss, prefix: str) -> Iterator[tuple[str, bytes | None]]:
    for name, node in loss.entries(folder).items():
        path = f"{prefix}{name}"
        if isinstance(node, Folder):
            yield path, None
            yield from _left(node, loss, f"{path}/")
        elif name.endswith("-shm"):
            yield from ((path, data) for data in [loss.unlogged(node)] if data is not None)
        else:
            yield path, loss.content(node)


def _below(folder: Folder, prefix: str) -> Iterator[tuple[str, Node]]:
    for name, node in folder.current.items():
        yield f"{prefix}{name}", node
        if isinstance(node, Folder):
            yield from _below(node, f"{prefix}{name}/")


def _enter(entries: dict[str, Node], change: Mapping[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _write(data: bytearray, call: Call) -> None:
    """Apply a write or truncate to the bytes."""
    end = call.size_bytes if call.kind is Kind.TRUNCATE else call.offset
    data.extend(bytes(max(end - len(data), 0)))
    if call.kind is Kind.TRUNCATE:
        del data[end:]
    else:
        data[end : end + len(call.data)] = call.data


def _pages(call: Call, page: int) -> Iterable[Call]:
    """Split a write at the boundaries of pages; return any other call unchanged."""
    if call.kind is not Kind.WRITE:
        return [call]
    begin, end = call.offset, call.offset + len(call.data)
    bounds = [begin, *range((begin // page + 1) * page, end, page), end]
    return [
        replace(call, offset=first, data=call.data[first - begin : last - begin])
        for first, last in zip(bounds, bounds[1:], strict=False)
    ]
