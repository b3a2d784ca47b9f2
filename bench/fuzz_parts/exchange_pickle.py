"""DPR's pickles: whatever they name, nothing is run; what is read as vectors are the numbers that NumPy reads.

The reader runs in a process of its own (this file), as it does in the product, since a pickle may ask for memory or
nest so deep that the process dies; here one process reads many files, and says when any of them did more than compute.
"""

import argparse
import codecs
import contextlib
import importlib
import io
import json
import os
import pickle  # noqa: TID251 - seeds are written by it, and what was accepted is read a second time
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

# Above what the process takes at its start; an input is of a few KiB.
_ROOM_BYTES = 256 << 20
_HEADER_BYTES = 8
# Of Python itself; whatever else happens while a file is read, the file has brought about.
_HARMLESS = {"pickle.find_class", "object.__getattr__", "sys._getframe"}
_TOKENS = (
    b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n",
    b"cnumpy._core.multiarray\nscalar\n", b"cnumpy._core.numeric\n_frombuffer\n", b"cos\nsystem\n",
    b"cbuiltins\neval\n", b"cbuiltins\ngetattr\n", b"cnumpy\nload\n", b"\x8c\x05numpy\x8c\x07ndarray\x93",
    b"\x8c\x02os\x8c\x06system\x93", b"(ios\nsystem\n", b"(S'true'\n", b"S'true'\n", b"\x8c\x04true", b"(", b")",
    b"t", b"\x85", b"\x86", b"\x87", b"R", b"b", b"\x81", b"\x92", b"o", b"]", b"}", b"a", b"e", b"s", b"u", b"0",
    b"1", b"2", b".", b"N", b"\x88", b"\x89", b"h\0", b"q\0", b"\x94", b"r\xff\xff\xff\x7f", b"j\0\0\0\0", b"K\2",
    b"M\0\1", b"J\xff\xff\xff\xff", b"I4\n", b"L9\n", b"F0.5\n", b"C\4abcd", b"B\4\0\0\0abcd",
    b"\x8e\4\0\0\0\0\0\0\0abcd", b"\x96\4\0\0\0\0\0\0\0abcd", b"\x97", b"\x98", b"\x82\1", b"Pid\n", b"Q", b"U\2f4",
    b"\x8c\2f4", b"\x8c\2f8", b"\x8c\2O8", b"\x8c\1<", b"\x8c\1>", b"\x80\5", b"\x95\x10\0\0\0\0\0\0\0",
    b"\x95\2\0\0\0\0\0\0\0", b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f", b"q\xff", b"r\0\0\0\1", b"NNt", b"b", b"(K\1e",
    b"\x8c\2f4)R", b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
)  # fmt: skip


def open_target(name: str, folder: Path):
    return Pickles()


class Pickles:
    """Files of pairs (id, vector), of all protocols, dtypes and kinds of ids, and some that would run something."""

    name = "exchange-pickle"
    tokens = _TOKENS
    extra_mib = 64
    bytes_per_byte = 1024
    seconds = 5.0
    # A module that the reading process imports first, and where it lies.
    prelude: tuple[str, str] | None = None

    def __init__(self) -> None:
        from mvindex.errors import CorpusError

        self.refusals = (CorpusError,)
        self._child: subprocess.Popen[bytes] | None = None

    def seeds(self) -> list[bytes]:
        rows = np.arange(12, dtype="f4").reshape(3, 4)
        pairs = [(f"wiki:{number}", row) for number, row in enumerate(rows, start=1)]
        by_protocol = [pickle.dumps(pairs, protocol=protocol) for protocol in (2, 3, 4, 5)]
        kinds = [
            pickle.dumps([(name, rows[0].astype(dtype)) for name in names])
            for dtype, names in (("f2", [7, -8]), ("f8", [b"a", "é"]), (">f4", [np.int64(3), np.str_("日本")]))
        ]
        older = [data.replace(b"numpy._core", b"numpy.core") for data in by_protocol[:2]]
        hostile = [
            b"cos\nsystem\n(S'true'\ntR.",
            b"(S'true'\nios\nsystem\n.",
            b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
            pickle.dumps([("1", np.array([None]))]),
            b"\x80\x04\x95\x03\0\0\0\0\0\0\0](J\xff\xff\xff\x7fe.",
            b"](K\1q\0r\xff\xff\xff\x7fe.",
            b"]cnumpy\nndarray\n(NNtba.",
        ]
        return [*by_protocol, *kinds, *older, *hostile]

    def check(self, data: bytes) -> None:
        """Read vectors; raise the reader's own error otherwise."""
        from fuzz_parts.target import WrongAnswer
        from mvindex.errors import CorpusError

        how, what = self._ask(data)
        if how == "accepted":
            return
        raise {"refused": CorpusError, "wrong": WrongAnswer}.get(how, RuntimeError)(what)

    def _ask(self, data: bytes) -> tuple[str, str]:
        if self._child is None:
            self._child = self._start()
        child = self._child
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(len(data).to_bytes(_HEADER_BYTES, "little") + data)
                child.stdin.flush()
                line = child.stdout.readline()
        finally:
            if not line:  # it died, or took too long
                self.close()
        if not line:
            return "crash", f"the reading process ended with status {child.returncode}"
        how, what = json.loads(line)
        return how, what

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fuzz_parts.exchange_pickle"]
        if self.prelude:
            command += ["--prelude", *self.prelude]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        bench = Path(__file__).parents[1]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=bench)

    def close(self) -> None:
        """End the reading process."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()

    def __del__(self) -> None:
        self.close()


class _Ran(BaseException):
    """A file did more than be read. No Exception, so that no reader takes it for a damage of the file."""


class _Watcher:
    """Raises _Ran at whatever a file brings about while it is read."""

    def __init__(self) -> None:
        self.is_on = False
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event not in _HARMLESS:
            self.is_on = False
            raise _Ran(f"{event} {arguments!r:.100}")


class _Plain(pickle.Unpickler):
    """NumPy's own reading of what NumPy wrote; an array's first shape, which its state replaces, asks for no memory."""

    def find_class(self, module, name):
        if name == "_reconstruct":
            return lambda kind, *_: np.ndarray.__new__(np.ndarray, (0,), "b")
        return super().find_class(module, name)


def _judged(data: bytes, watcher: _Watcher) -> tuple[str, str]:
    from mvindex.io.safe_pickle import RefusedPickle, read_blocks

    try:
        watcher.is_on = True
        blocks = list(read_blocks(io.BytesIO(data), len(data)))
    except RefusedPickle as err:
        return "refused", f"{err}"
    except _Ran as err:
        return "wrong", f"a file brought about {err}"
    except Exception as err:  # noqa: BLE001 - it is told as what it is: a crash
        return "crash", f"{type(err).__name__}: {err}"[:500]
    finally:
        watcher.is_on = False
    return _compared_apart([(one, row) for ids, rows in blocks for one, row in zip(ids, rows, strict=True)], data)


def _compared_apart(found, data: bytes) -> tuple[str, str]:
    """Run _compared in a process that may die: NumPy's classes take any state, and some end in SIGSEGV."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        with open(send, "wb") as out:
            out.write(json.dumps(_compared(found, data)).encode())
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as told:
        line = told.read()
    os.waitpid(child, 0)
    how, what = json.loads(line) if line else ("accepted", "alone")
    return how, what


def _compared(found, data: bytes) -> tuple[str, str]:
    """Return whether NumPy reads the same from an accepted file, which can name nothing but NumPy's."""
    try:
        wanted = [(_as_id(one), np.asarray(row)) for one, row in _Plain(io.BytesIO(data), encoding="bytes").load()]
    except Exception:  # noqa: BLE001 - NumPy is stricter with flags that no vector needs
        return "accepted", "alone"
    if not all(row.dtype.kind == "f" and row.ndim == 1 for _, row in wanted):
        return "wrong", "NumPy reads something else than vectors"
    is_same = len(found) == len(wanted) and all(
        one == other and row.shape == want.shape and row.astype("<f8").tobytes() == want.astype("<f8").tobytes()
        for (one, row), (other, want) in zip(found, wanted, strict=True)
    )
    return ("accepted", "") if is_same else ("wrong", "NumPy reads other ids or numbers")


def _as_id(value) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def main() -> None:
    """Judge each file named on standard input in a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prelude", nargs=2)
    options = parser.parse_args()
    if options.prelude:
        sys.path.insert(0, options.prelude[1])
        importlib.import_module(options.prelude[0])
    with open("/proc/self/statm", "rb") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    from mvindex.io import safe_pickle as pickled  # noqa: F401 - imported before anything is watched

    for codec in ("ascii", "latin-1", "utf-8", "utf-32-le"):
        codecs.lookup(codec)
    watcher = _Watcher()
    while header := sys.stdin.buffer.read(_HEADER_BYTES):
        data = sys.stdin.buffer.read(int.from_bytes(header, "little"))
        sys.stdout.buffer.write(json.dumps(_judged(data, watcher)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
