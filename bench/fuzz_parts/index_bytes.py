"""Index directories with the bytes of a file changed, or something else in its place: answered rightly, or refused.

An input's first byte chooses the index, the second the file, the third what becomes of it (see _FATES); the rest is
its content, or patches to it (see patches.py). One search in five kinds is asked, and salvage or repair tried, as a
checksum of the input decides.
"""

import os
import shutil
import zlib
from pathlib import Path

import mvindex
from fuzz_parts.index_answers import asked, bare, content, refusals
from fuzz_parts.index_kits import CATALOG, Kit, make_kits, quick_engines
from fuzz_parts.patches import patch, patched, resealed
from fuzz_parts.target import Limits, require
from mvindex.errors import MvindexError
from mvindex.index import embedded_store_of

# One input in so many is followed by what writes: salvage, repair, build.
_SAMPLED = 20
_LONG_BYTES = 1 << 22
_FATES = ("patched", "patched", "content", "sealed", "link", "link to itself", "folder", "pipe", "gone", "long")
_BINARY = (b"\r", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x81\x80\x80\x80\x80\0", b"SQLite format 3\0", b"\x10\0\1\1",
           b"\0\x01", b"\0\0", b"\x05", b"\x0a", b"\x02", b"\x0d\0\0\0", b"engine", b"dim", b"null", b"-1")  # fmt: skip


def open_target(name: str, folder: Path):
    return {"index-catalog": IndexCatalog, "index-files": IndexFiles}[name](folder)


class _IndexBytes(Limits):
    """Shared by both targets. A subclass has kits, and the beginnings of the names of files that it changes."""

    refusals = (MvindexError,)
    extra_mib = 48
    tokens = _BINARY
    beginnings: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kits = self.make(folder)
        self.places = [(kit, name) for kit in kits.values() for name in kit.files if self._is_changed(name)]
        self.held = {kit.path: self.contents(kit) for kit in kits.values()}
        (folder / "outside").write_bytes(b"outside")

    def make(self, folder: Path) -> dict[str, Kit]:
        return make_kits(folder)

    def contents(self, kit: Kit) -> set:
        """Return what salvage may save: live documents, and those that were replaced or deleted."""
        return set(kit.answers["documents"])

    def _is_changed(self, name: str) -> bool:
        return Path(name).name.startswith(self.beginnings)

    def seeds(self) -> list[bytes]:
        found = []
        for number, (kit, name) in enumerate(self.places):
            whole = kit.files[name]
            found += [bytes([number, 0]) + patch(place, b"\xff") for place in range(0, len(whole), 211)]
            found += [bytes([number, 3]) + patch(place, b"\1\2") for place in range(40, len(whole), 997)]
            found += [bytes([number, fate]) for fate in range(len(_FATES))]
            found.append(bytes([number, 2]) + whole)
        return found

    def check(self, data: bytes) -> None:
        number, fate = (*data[:2], 0, 0)[:2]
        kit, name = self.places[number % len(self.places)]
        fate = _FATES[fate % len(_FATES)]
        try:
            with quick_engines():
                self._change(kit, name, fate, data[2:])
                before = _digest(kit)
                found = self._answers(kit, data)
                require(_digest(kit) == before, "reading has changed files")
                if zlib.crc32(data) % _SAMPLED == 0:
                    self.follow(kit, name, fate)
        finally:
            kit.restore()
        if refused := refusals(found):
            raise refused[0]

    def _change(self, kit: Kit, name: str, fate: str, data: bytes) -> None:
        path = kit.path / name
        if fate in ("patched", "sealed", "content"):
            changed = data if fate == "content" else patched(kit.files[name], data)
            path.write_bytes(resealed(changed) if fate == "sealed" else changed)
        elif fate == "long":
            os.truncate(path, _LONG_BYTES)
        else:
            path.unlink()
            _replace(path, fate, self.folder / "outside")

    def _answers(self, kit: Kit, data: bytes) -> dict:
        found = asked(kit.path, zlib.crc32(data))
        self.judge(kit, found)
        refused = refusals(found)
        if not refused and zlib.crc32(data) % 4:
            return found
        try:
            problems = mvindex.verify(kit.path).problems
        except MvindexError as err:
            problems = (bare(err),)
        require(bool(problems) or not refused, "verify finds nothing;", f"{refused[:1]}")
        return found

    def judge(self, kit: Kit, found: dict) -> None:
        for name, answer in found.items():
            is_right = isinstance(answer, MvindexError) or answer == kit.answers[name]
            require(is_right, name, "is", answer, "wanted", kit.answers.get(name))

    def follow(self, kit: Kit, name: str, fate: str) -> None:
        """Check that salvage saves only what there was."""
        target = self.folder / "saved.mvx"
        try:
            mvindex.salvage(kit.path, target)
        except MvindexError:
            require(not target.exists(), "salvage has left a part")
            return
        try:
            with mvindex.open(target) as index:
                for document in index:
                    require(content(document) in self.held[kit.path], "saved:", content(document))
            require(not mvindex.verify(target).problems, "saved damage:", mvindex.verify(target).problems)
        finally:
            shutil.rmtree(target)


class IndexCatalog(_IndexBytes):
    """catalog.sqlite and its log."""

    name = "index-catalog"
    beginnings = (CATALOG,)

    def contents(self, kit: Kit) -> set:
        return super().contents(kit) | _older(kit)


class IndexFiles(_IndexBytes):
    """All the other files; what is derived is made again."""

    name = "index-files"
    beginnings = ("current", "acknowledged", "rows-", "views-", "index.faiss", "writer.lock")
    tokens = (*_BINARY, b"00000000000000000006", b'"generation": 1', b'"format_version": 2', b'"checksum"', b"\n",
              b"nan", b"true", b"{}", b"[")  # fmt: skip

    def follow(self, kit: Kit, name: str, fate: str) -> None:
        if Path(name).name.startswith(("views-", "writer")) or fate == "folder":
            super().follow(kit, name, fate)
            return
        try:
            mvindex.repair(kit.path)
            if name.endswith(".faiss"):
                with mvindex.open(kit.path) as index:
                    index.admin.build(kind="flat")
        except MvindexError as err:
            require("acknowledged" in f"{err}", "not made again:", f"{err}")
            return
        found = asked(kit.path)
        require(not refusals(found), "made again, but refused:", refusals(found))
        self.judge(kit, found)


def _older(kit: Kit) -> set:
    """Return the documents that were replaced or deleted, whose rows are still there."""
    with mvindex.open(kit.path) as index, embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
        stored = reader.documents(range(embedded_store_of(index).snapshot.num_rows)).values()
        return {(each.id, each.title, each.text, repr(each.metadata)) for each in stored}


def _replace(path: Path, fate: str, outside: Path) -> None:
    if fate == "folder":
        path.mkdir()
    elif fate == "pipe":
        os.mkfifo(path)
    elif fate != "gone":
        path.symlink_to(outside if fate == "link" else path)


def _digest(kit: Kit) -> dict[str, tuple]:
    """Return size and time of each entry, without SQLite's temporary files."""
    found = {}
    for folder, _, names in os.walk(kit.path):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            if not name.endswith("-shm") and (status.st_size or not name.endswith("-wal")):
                found[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return found
