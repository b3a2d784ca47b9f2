"""Check of the files that the product opens, makes or removes, by Python's audit events."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from fuzz_parts.target import WrongAnswer

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack", ".joblib")
# Of a whole number of their first arguments: paths.
_PATHS = {"open": 1, "sqlite3.connect": 1, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1,
          "os.rename": 2, "os.link": 2, "os.symlink": 2, "shutil.rmtree": 1, "shutil.copyfile": 2}  # fmt: skip
_RUNS = ("pickle.find_class", "os.system", "subprocess.Popen", "socket.connect", "os.exec")
# Beside a database that SQLite opens by itself.
_OF_SQLITE = ("", "-wal", "-shm", "-journal")
# Python's own modules and what packages read when they are imported.
_LIBRARIES = tuple({os.path.realpath(path) for path in (*sys.path[1:], sys.prefix, sys.base_prefix, os.__file__[:-5])})
# What the kernel says of the machine, such as how much memory a container has.
_OF_THE_KERNEL = ("/proc/", "/sys/fs/cgroup/")
_open: list[list] = []


def _hook(event: str, arguments: tuple) -> None:
    if not _open:
        return
    if event in _RUNS:
        _open[-1].append((event, f"{arguments!r:.200}"))
    elif event in _PATHS:
        _open[-1] += [(event, path) for path in _named(event, arguments)]


def _named(event: str, arguments: tuple) -> Iterator[str]:
    """Yield the named paths; for links that would be followed, their targets too."""
    names = [name for name in arguments[: _PATHS[event]] if isinstance(name, str | bytes | os.PathLike)]
    for name in names:
        path = os.fsdecode(name)
        if event == "sqlite3.connect":
            path = unquote(urlparse(path).path) if path.startswith("file:") else path
            if path not in ("", ":memory:"):
                yield from (found for end in _OF_SQLITE for found in _followed(path + end))
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_NOFOLLOW:
            yield os.path.abspath(path)
        elif event == "open":
            yield from _followed(path)
        else:
            yield os.path.abspath(path)


def _followed(path: str) -> Iterator[str]:
    path = os.path.abspath(path)
    yield path
    if os.path.islink(path):
        yield f"link:{os.path.realpath(path)}"


@contextmanager
def only_below(*folders: Path, follows_links: bool = True) -> Iterator[None]:
    """Raise WrongAnswer when the block touches a file outside the folders, or opens one that may hold a pickle.

    Or when it runs anything, or connects to anything. follows_links: links inside may lead out.
    """
    if not getattr(sys, "_fuzz_hooked", False):
        sys._fuzz_hooked = True
        sys.addaudithook(_hook)
    _open.append([])
    try:
        yield
    finally:
        events = _open.pop()
    for event, path in events:
        if not (follows_links and path.startswith("link:")):
            _check(event, path.removeprefix("link:"), [os.path.realpath(folder) for folder in folders])


def _is_own(path: str) -> bool:
    """Return whether a file of an index has this name: of text records, or of copies of views."""
    return "/rows-" in path or "/copies-" in path


def _check(event: str, path: str, folders: list[str]) -> None:
    if event in _RUNS:
        raise WrongAnswer(f"{event} {path}")
    if path.startswith(_LIBRARIES + _OF_THE_KERNEL):
        return
    if event == "open" and path.endswith(_PICKLES) and not _is_own(path):
        raise WrongAnswer(f"a pickle was opened: {path}")
    if not any(f"{path}/".startswith(f"{folder}/") for folder in folders):
        raise WrongAnswer(f"a file outside was touched, by {event}: {path}")
