"""The JSON objects of a file, one after the other: of one huge array, or of one object a line."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from mvindex.corpus.streams import UTF8_MARK, open_bytes, read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.plugins import require
from mvindex_train.data.entries import Entry, load_entry
from mvindex_train.data.records import MAX_ROW_BYTES

GLIMPSE_BYTES = 64 << 10


def read_objects(path: str) -> Iterator[Entry]:
    """The objects of a file that is a JSON array, or of one that holds an object a line; told by the first character.

    An array is parsed piece by piece: memory holds one object, however large the file. CorpusError names the entry's
    number, or the line.
    """
    return read_items(path, "item", "entry") if glimpse(path)[:1] == b"[" else _read_lines(path)


def read_items(path: str, prefix: str, noun: str) -> Iterator[Entry]:
    """The objects at an ijson prefix of a file that is one JSON value; noun: what messages call one of them."""
    name, number = stream_name(path), 0
    with open_text(path) as stream, _json_errors(name, lambda: f"after {noun} {number}"):
        for number, value in enumerate(_ijson().items(stream, prefix, use_float=True), start=1):
            if not isinstance(value, dict):
                raise CorpusError(f"{name}: {noun} {number}: is {value!r:.60}; wanted an object")
            yield Entry(cast(dict[str, Any], value), f"{name}: {noun} {number}")


def glimpse(path: str) -> bytes:
    """The first bytes of a file's content, from the first visible one; empty when only white space begins it."""
    with open_text(path) as stream:
        return stream.read(GLIMPSE_BYTES).lstrip()


def top_level_names(path: str) -> tuple[str, ...]:
    """The names of the first JSON object of a file, up to a name that holds a list of objects called `data`."""
    names: list[str] = []
    with open_text(path) as stream, _json_errors(stream_name(path), lambda: "at its beginning"):
        for prefix, event, value in _ijson().parse(stream, multiple_values=True):
            if prefix == "" and event == "map_key":
                names.append(value)
            if (prefix, event) in (("", "end_map"), ("data", "start_array")):
                break
    return tuple(names)


@contextmanager
def open_text(path: str) -> Iterator[io.BufferedReader]:
    """The uncompressed bytes of a file behind its byte-order mark, if it has one."""
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
    """Turns the parser's errors into CorpusErrors that name the file and how far it was read."""
    try:
        yield
    except _ijson().JSONError as err:
        # The parser gives some messages as bytes inside the exception, and all of them with a drawing over lines.
        message = err.args[0].decode(errors="replace") if isinstance(err.args[0], bytes) else str(err)
        raise CorpusError(f"{name}: {where()}: is not JSON: {' '.join(message.split())}") from err


def _ijson() -> Any:
    return require("ijson", "train", "reading training data in JSON")
