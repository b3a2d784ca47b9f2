"""Which files the product opens while an input is checked, told by Python's audit events."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz_parts.target import WrongAnswer

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack", ".joblib")
_EVENTS = ("open", "pickle.find_class", "marshal.loads", "os.system", "subprocess.Popen", "socket.connect", "os.exec")
# Python's own modules and what packages read when they are imported.
_LIBRARIES = tuple({os.path.realpath(path) for path in (*sys.path[1:], sys.prefix, sys.base_prefix, os.__file__[:-5])})
_open: list[list] = []


def _hook(event: str, arguments: tuple) -> None:
    if _open and event in _EVENTS:
        _open[-1].append((event, arguments))


@contextmanager
def only_below(*folders: Path) -> Iterator[None]:
    """WrongAnswer when the block opens a file outside the folders, by any name, or one that may hold a pickle; or runs
    anything, or connects to anything.
    """  # noqa: D205 - the first sentence takes two lines
    if not getattr(sys, "_fuzz_hooked", False):
        sys._fuzz_hooked = True
        sys.addaudithook(_hook)
    _open.append([])
    try:
        yield
    finally:
        events = _open.pop()
    for event, arguments in events:
        _check(event, arguments, [os.path.realpath(folder) for folder in folders])


def _check(event: str, arguments: tuple, folders: list[str]) -> None:
    if event != "open":
        if event == "marshal.loads":  # a module's compiled code
            return
        raise WrongAnswer(f"{event} {arguments!r:.200}")
    name = arguments[0]
    if not isinstance(name, str | bytes | os.PathLike):
        return
    path = os.path.abspath(os.fsdecode(name))
    if path.startswith(_LIBRARIES) or path.startswith("/proc/"):
        return
    if path.endswith(_PICKLES):
        raise WrongAnswer(f"a pickle was opened: {path}")
    if not any(path.startswith(f"{folder}/") for folder in folders):
        raise WrongAnswer(f"a file outside the checkpoint was opened: {path}")
