"""The protocol of a target: one call of the product on bytes, with its answer judged."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from mvindex.errors import MvindexError


class WrongAnswer(Exception):
    """The product took an input and answered it wrongly."""


class Target(Protocol):
    """One thing to fuzz.

    refusals: the errors that it may refuse an input with. tokens: what inputs are made of, for the mutator. extra_mib,
    bytes_per_byte: the memory that an input of n bytes may take is extra_mib plus n times bytes_per_byte. seconds: what
    an input may take.
    """

    name: str
    refusals: tuple[type[MvindexError], ...]
    tokens: tuple[bytes, ...]
    extra_mib: int
    bytes_per_byte: int
    seconds: float

    def seeds(self) -> list[bytes]:
        """Return inputs to begin with; nearly all of them are valid."""

    def check(self, data: bytes) -> None:
        """Read the input and judge the answer; raise one of refusals, WrongAnswer or any other error."""


class Limits:
    """The limits of most targets."""

    extra_mib = 64
    bytes_per_byte = 1024
    seconds = 5.0


class Choices:
    """Numbers drawn from the bytes of an input, zeros after its end: what a target builds by itself."""

    def __init__(self, data: bytes) -> None:
        self._data, self._pos = data, 0

    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1, of one byte, or two where the limit is above 256."""
        size = 1 if limit <= 256 else 2
        taken = self._data[self._pos : self._pos + size]
        self._pos += size
        return int.from_bytes(taken, "little") % limit

    def one_of(self, items):
        return items[self.below(len(items))]

    @property
    def is_spent(self) -> bool:
        return self._pos >= len(self._data)


@contextmanager
def scratch_folder():
    """Yield a new folder, in memory where possible, and remove it afterwards."""
    memory = "/dev/shm"
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mvindex-fuzz-", dir=where) as folder:
        yield Path(folder)


def require(is_right: bool, *what: object) -> None:
    """Raise WrongAnswer with what is wrong, unless is_right."""
    if not is_right:
        raise WrongAnswer(" ".join(f"{part}" if isinstance(part, str) else f"{part!r:.300}" for part in what))
