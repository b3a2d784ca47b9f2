"""Streaming of the JSON objects of a file: of one large array, or of one object a line."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from mvindex.corpus.inputs import UTF8_MARK, open_bytes, read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.plugins import require
from mvindex_train.data.entries import Entry, load_entry
from mvindex_train.data.records import MAX_ROW_BYTES

PEEK_BYTES = 64 << 10


def read_objects(path: str) -> Iterator[Entry]:
    """Yield the objects of a JSON array or of JSONL, whichever the first character says.

    An array is parsed incrementally: one object is in memory at a time. Raises CorpusError with the entry's number or
    the line.
    """
    return read_items(path, "item", "entry") if peek(path)[:1] == b"[" else _read_lines(path)


def read_items(path: str, prefix: str, noun: str) -> Iterator[Entry]:
    """Yield the objects at an ijson prefix of a file of one JSON value; noun: the term for one of them in messages."""
    name, number = stream_name(path), 0
    with open_text(path) as stream, _json_errors(name, lambda: f"after {noun} {number}"):
        for number, value in enumerate(_ijson().items(stream, prefix, use_float=True), start=1):
            if not isinstance(value, dict):
                raise CorpusError(f"{name}: {noun} {number}: expected an object, got {value!r:.60}")
            yield Entry(cast(dict[str, Any], value), f"{name}: {noun} {number}")


def peek(path: str) -> bytes:
    """Return the first bytes of a file without leading white space; empty when there is nothing else."""
    with open_text(path) as stream:
        return stream.read(PEEK_BYTES).lstrip()


def first_object_keys(path: str) -> tuple[str, ...]:
    """Return the keys of the first JSON object of a file, up to and including `data` where that is a list."""
    keys: list[str] = []
    with open_text(path) as stream, _json_errors(stream_name(path), lambda: "at its beginning"):
        for prefix, event, value in _ijson().parse(stream, multiple_values=True):
            if prefix == "" and event == "map_key":
                keys.append(value)
            if (prefix, event) in (("", "end_map"), ("data", "start_array")):
                break
    return tuple(keys)


@contextmanager
def open_text(path: str) -> Iterator[io.BufferedReader]:
    """Open a file for its uncompressed bytes, without a byte-order mark."""
    with open_bytes(path) as opened:
        stream = cast(io.BufferedReader, opened)
        if stream.peek(len(UTF8_MARK)).startswith(UTF8_MARK):
            stream.read(len(UTF8_MARK))
        yield stream


def _read_lines(path: str) -> Iterator[Entry]:
    name = stream_name(path)
    for number, line in read_lines(path, MAX_ROW_BYTES):
        if line.strip():
            yield load_entry(line, f"{name}:{number}")


@contextmanager
def _json_errors(name: str, where: Callable[[], str]) -> Iterator[None]:
    """Turn the parser's errors into CorpusErrors with the file and how far it was read."""
    try:
        yield
    except _ijson().JSONError as err:
        # Some of the parser's messages are bytes, and all contain a drawing that spans several lines.
        message = err.args[0].decode(errors="replace") if isinstance(err.args[0], bytes) else str(err)
        raise CorpusError(f"{name}: {where()}: invalid JSON: {' '.join(message.split())}") from err


def _ijson() -> Any:
    return require("ijson", "train", "reading training data in JSON")
