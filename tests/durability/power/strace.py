"""The file operations of a process as strace records them, byte for byte: Python's, SQLite's and Faiss'."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.durability.processes import ROOT

_KNOWN = (
    "openat close read lseek dup dup2 dup3 fcntl write pwrite64 sendfile ftruncate fsync fdatasync mmap "
    "rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat"
).split()
# Calls that would change a file in a way that is not supported here.
_REFUSED = (
    "open creat truncate writev pwritev pwritev2 fallocate link linkat symlink symlinkat mknod mknodat splice msync "
    "copy_file_range sync syncfs sync_file_range"
).split()
# Calls that would do so without naming the file.
_REFUSED_ANYWHERE = "fork vfork clone clone3 io_uring_setup".split()
# The number of paths of these calls; strace prints them unresolved, so they must be absolute.
_NAMED = {"rename": 2, "unlink": 1, "rmdir": 1, "mkdir": 1}
_SAME = {"fdatasync": "fsync", "rmdir": "unlinkat", "unlink": "unlinkat", "mkdir": "mkdirat", "rename": "renameat"}
_LINE = re.compile(r"(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*))$")
_CALL = re.compile(r"(.*?)\) += (-?\d+|\?|0x[0-9a-f]+)([ <(].*)?$")
_UNFINISHED = " <unfinished ...>"


class LogError(Exception):
    """The log contains something that is not supported here."""


class Kind(Enum):
    """The effect of a call on its path."""

    CREATE = "create"
    MAKE_DIR = "mkdir"
    WRITE = "write"
    COPY = "copy"
    TRUNCATE = "truncate"
    SYNC = "fsync"
    RENAME = "rename"
    UNLINK = "unlink"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Call:
    """One call that had an effect on a path below the watched folder, which is "." itself.

    offset: of a write or copy, -1 for the end. size_bytes: of a truncate or copy. target: a rename's new path, or the
    file that a copy reads, from source_offset on. A mark's path is its text.
    """

    kind: Kind
    path: str
    target: str = ""
    offset: int = 0
    source_offset: int = 0
    size_bytes: int = 0
    data: bytes = b""


def record(command: Sequence[str], log: Path, timeout_s: float = 300) -> None:
    """Run the command under strace, which writes the log; raise LogError when it fails."""
    # ?: not every machine has every call.
    traced = ",".join(f"?{name}" for name in (*_KNOWN, *_REFUSED, *_REFUSED_ANYWHERE))
    options = ["-f", "--seccomp-bpf", "-y", "-xx", "-s", str(1 << 28), "-e", "signal=none", "-e", f"trace={traced}"]
    strace = ["strace", *options, "-o", str(log), *command]
    done = subprocess.run(strace, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, check=False)
    if done.returncode:
        raise LogError(f"{command}: exit {done.returncode}: {done.stderr[-2000:]}")


def read_calls(log: Path, folder: Path, marks: Path) -> list[Call]:
    """Return the effective calls below the folder in order, with the lines written to the file of marks."""
    reader = _Reader(str(folder), str(marks))
    with log.open() as lines:
        return [effect for call in _calls(lines) for effect in reader.read(*call)]


def _calls(lines: Iterator[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, arguments, result and note of each call, in the order of their ends."""
    unfinished: dict[str, str] = {}
    for line in lines:
        found = _LINE.match(line.rstrip("\n"))
        if not found:
            continue  # "+++ exited with 0 +++"
        thread, name, rest, resumed, ending = found.groups()
        if resumed:
            name, rest = resumed, unfinished.pop(thread) + ending
        elif rest.endswith(_UNFINISHED):
            unfinished[thread] = rest.removesuffix(_UNFINISHED)
            continue
        call = _CALL.match(rest)
        if not call:
            raise LogError(f"expected a call, got {line[:200]!r}")
        yield name, call[1], call[2], call[3] or ""


class _Reader:
    """Turn lines of the log into calls; track the position of every open file of the one process."""

    def __init__(self, folder: str, marks: str) -> None:
        self._folder = folder
        self._marks = marks
        self._watched = (_hex(folder), _hex(marks))
        self._positions: dict[int, list[int]] = {}  # a list of one, which a dup shares

    def read(self, name: str, arguments: str, result: str, said: str) -> list[Call]:
        """Return the effects of a call; none where it failed or concerns other files."""
        if name in _REFUSED_ANYWHERE and "CLONE_THREAD" not in arguments:
            raise LogError(f"{name}: only the calls of one process are supported")
        has_failed = result.startswith("-") or result == "?"
        if has_failed or not any(part in arguments or part in said for part in self._watched):
            return []
        args = arguments.split(", ")
        if name in _NAMED:
            args = [item for path in args[: _NAMED[name]] for item in ("", path)]
        read = getattr(self, f"_{_SAME.get(name, name)}", None)
        if name in _REFUSED or read is None:
            raise LogError(f"{name} is not supported: {arguments[:300]}")
        return list(read(args, int(result, 0)))

    def _openat(self, args: list[str], fd: int) -> Iterator[Call]:
        path, flags = self._at(args[0], args[1]), args[2]
        self._positions[fd] = [-1 if "O_APPEND" in flags else 0]
        if path and "O_CREAT" in flags:
            yield Call(Kind.CREATE, path)
        if path and "O_TRUNC" in flags:
            yield Call(Kind.TRUNCATE, path)

    def _close(self, args: list[str], result: int) -> Iterator[Call]:
        self._positions.pop(_number(args[0]), None)
        yield from ()

    def _dup(self, args: list[str], fd: int) -> Iterator[Call]:
        self._positions[fd] = self._positions[_number(args[0])]
        yield from ()

    _dup2 = _dup3 = _dup

    def _fcntl(self, args: list[str], result: int) -> Iterator[Call]:
        return self._dup(args, result) if "F_DUPFD" in args[1] else iter(())

    def _lseek(self, args: list[str], position: int) -> Iterator[Call]:
        self._positions[_number(args[0])][0] = position
        yield from ()

    def _read(self, args: list[str], count: int) -> Iterator[Call]:
        self._advance(args[0], count)
        yield from ()

    def _write(self, args: list[str], count: int) -> Iterator[Call]:
        data, offset = _bytes(args[1])[:count], self._advance(args[0], count)
        if _path(args[0]) == self._marks:
            yield from (Call(Kind.MARK, line) for line in data.decode().splitlines())
        elif path := self._open_path(args[0]):
            yield Call(Kind.WRITE, path, offset=offset, data=data)

    def _pwrite64(self, args: list[str], count: int) -> Iterator[Call]:
        if path := self._open_path(args[0]):
            yield Call(Kind.WRITE, path, offset=int(args[3]), data=_bytes(args[1])[:count])

    def _sendfile(self, args: list[str], count: int) -> Iterator[Call]:
        source, path = self._open_path(args[1]), self._open_path(args[0])
        # [0] => [8192]: where it began and where it ended.
        begin = self._advance(args[1], count) if args[2] == "NULL" else int(args[2].lstrip("[").split("]")[0])
        offset = self._advance(args[0], count)
        if path and count:
            if source is None:
                raise LogError(f"{path} is copied from {_path(args[1])}, whose bytes are not in the log")
            yield Call(Kind.COPY, path, source, offset, begin, count)

    def _ftruncate(self, args: list[str], result: int) -> Iterator[Call]:
        if path := self._open_path(args[0]):
            yield Call(Kind.TRUNCATE, path, size_bytes=int(args[1]))

    def _fsync(self, args: list[str], result: int) -> Iterator[Call]:
        if path := self._open_path(args[0]):
            yield Call(Kind.SYNC, path)

    def _renameat(self, args: list[str], result: int) -> Iterator[Call]:
        path, target = self._at(args[0], args[1]), self._at(args[2], args[3])
        if path is None or target is None or "RENAME_EXCHANGE" in args[-1]:
            raise LogError(f"such a rename is not supported: {args}")
        yield Call(Kind.RENAME, path, target)

    _renameat2 = _renameat

    def _unlinkat(self, args: list[str], result: int) -> Iterator[Call]:
        if path := self._at(args[0], args[1]):
            yield Call(Kind.UNLINK, path)

    def _mkdirat(self, args: list[str], result: int) -> Iterator[Call]:
        if path := self._at(args[0], args[1]):
            yield Call(Kind.MAKE_DIR, path)

    def _mmap(self, args: list[str], result: int) -> Iterator[Call]:
        path = self._open_path(args[4])
        # SQLite's -shm is of no account after a power cut: it is made anew.
        if path and "PROT_WRITE" in args[2] and "MAP_SHARED" in args[3] and not path.endswith("-shm"):
            raise LogError(f"{path} is written through a memory map; its bytes are not in the log")
        yield from ()

    def _advance(self, argument: str, count: int) -> int:
        """The position from which count bytes were read or written; -1 for the end of the file."""
        position = self._positions[_number(argument)]
        begin = position[0]
        position[0] += count if begin >= 0 else 0
        return begin

    def _open_path(self, argument: str) -> str | None:
        """The file that an open handle stands for; None when it is deleted or not below the folder."""
        return None if argument.endswith("(deleted)") else self._relative(_path(argument))

    def _at(self, handle: str, name: str) -> str | None:
        path = _bytes(name).decode()
        return self._relative(path if path.startswith("/") else f"{_path(handle)}/{path}")

    def _relative(self, path: str) -> str | None:
        if path == self._folder:
            return "."
        return path[len(self._folder) + 1 :] if path.startswith(f"{self._folder}/") else None


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _bytes(argument: str) -> bytes:
    """Return the bytes of a string argument, which strace prints in hex."""
    if argument.endswith("..."):
        raise LogError("strace cut a string short")
    return bytes.fromhex(argument.strip('"').replace("\\x", ""))


def _path(argument: str) -> str:
    """Return the path that strace prints of an open handle: 7<path>."""
    begin, end = argument.find("<"), argument.rfind(">")
    return _bytes(argument[begin + 1 : end]).decode() if begin >= 0 else ""


def _number(argument: str) -> int:
    return int(argument.split("<")[0])
