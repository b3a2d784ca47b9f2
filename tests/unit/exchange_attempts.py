"""What a process with limits tries to do; run by it, in place of the reader of a file."""

import faulthandler
import os
import resource
import socket
import subprocess
import sys

import numpy as np

from mvindex.io.confined import serve


def attempt(file, options):
    """Nothing that matters is given back: one of these must not come to its end."""
    what, place = file.read().decode().split("\n")
    {
        "write": lambda: open(place, "w"),
        "low write": lambda: os.open(place, os.O_CREAT | os.O_WRONLY),
        "read": lambda: open("/etc/hostname"),
        "run": lambda: subprocess.run(["touch", place], check=False),
        "system": lambda: os.system(f"touch {place}"),
        "fork": os.fork,
        "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
        "allocate": lambda: bytearray(8 << 30),
        "compute": _compute,
        "die": faulthandler._sigsegv,
        "lie": _lie,
        "lie in part": lambda: _tell(b'{"ids": %s, "shape": [9999, 999999], "dtype": "<f8"}' % _ids(9999)),
        "nest": lambda: _tell(b"[" * 100_000),
        "paint": lambda: _tell(b'{"refused": "no vectors\\u001b[2Jhere"}'),
        "leave": lambda: os._exit(3),
        "limits": lambda: None,
    }[what]()
    names = ("RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_CPU")
    limits = [f"{name} {resource.getrlimit(getattr(resource, name))}" for name in names]
    yield limits, np.zeros((len(limits), 1), dtype="f4")


def _compute():
    while True:
        pass


def _lie():
    """A frame whose bytes never come, of a size that no reader should make room for."""
    _tell(b'{"ids": ["1"], "shape": [1, 1000000000000], "dtype": "<f4"}')


def _tell(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _ids(count):
    return b"[" + b",".join([b"1"] * count) + b"]"


def main():
    serve(attempt)
