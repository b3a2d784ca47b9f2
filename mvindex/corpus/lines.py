"""Lines of a file, and the documents that their fields make: what the formats of text share."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.corpus.rows import (
    METADATA,
    VIEW_TEXTS,
    FileIds,
    Reject,
    Roles,
    SourceLocation,
    cell_text,
    content_id,
    list_names,
    place_row,
    row_text,
)
from mvindex.errors import CorpusError, DocumentError
from mvindex.records import MAX_ID_CHARS, Document, ViewText, require_text, short_repr

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE_BYTES = 2**20
_MAX_BLANK_BYTES = 2**20
_PROBE_LINES = 1000
_PROBE_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"


class Lines:
    r"""The lines of a stream, ended by b"\n" and nothing else (texts hold U+2028, U+0085 and lone \r).

    number: the line taken last, counted from 1. is_cut: it is over max_bytes (its newline not counted), and only its
    first max_bytes + 1 bytes were taken. ids: makes the ids of the file's rows; by default those of stdin.
    """

    def __init__(self, stream: io.BufferedReader, path: str, max_bytes: int, ids: FileIds | None = None) -> None:
        self.path = path
        self.ids = ids or FileIds(file=path)
        self.max_bytes = max_bytes
        self.number = 0
        self._stream = stream
        self._replay: io.BytesIO | None = None
        self.is_cut = False
        self._has_rest = False

    @property
    def location(self) -> SourceLocation:
        """Return the location of the line taken last."""
        return SourceLocation(self.path, self.number)

    def take(self) -> bytes:
        """Return the next line with its end, b"" after the last.

        After a line that is_cut, what `rest` has not read of it is skipped. Raises CorpusError where the input cannot
        be read.
        """
        if self.is_cut:
            self._skip_rest()
        self.number += 1
        line = self._read(self.max_bytes + 1)
        if len(line) > self.max_bytes and not line.endswith(b"\n"):
            self.is_cut = self._has_rest = True
        return line

    def is_over(self, row: bytes | bytearray) -> bool:
        """Return whether a row of several lines is longer than max_bytes, or ends in a line that is cut."""
        return self.is_cut or len(row) - row.endswith(b"\n") > self.max_bytes

    def rest(self, number: int) -> Iterator[bytes]:
        """Yield the rest of line `number` in pieces, until a later line is taken."""
        while self._has_rest and self.number == number:
            piece = self._read(_PIECE_BYTES)
            self._has_rest = bool(piece) and not piece.endswith(b"\n")
            yield piece

    def push_back(self, taken: bytes, number: int) -> None:
        """Return the bytes taken last to the stream; their first line is taken next, as line number + 1."""
        self.number = number
        self.is_cut = self._has_rest = False
        if self._replay is None:
            self._replay = io.BytesIO(taken)
        else:  # all of it came from there, since _read drops what it has emptied
            self._replay.seek(-len(taken), io.SEEK_CUR)

    def has_returns(self, first: bytes) -> bool:
        r"""Return whether lines end in a lone \r, as on an old Mac: none ends in \n, and the parts look like lines.

        In a line without a header, such as MS MARCO's, a \r may be part of the text: its parts have no tab then.
        """
        if self.is_cut or b"\n" in first or b"\r" not in first.rstrip(b"\r"):
            return False
        begin, *rest = first.rstrip(b"\r").split(b"\r")
        return b"\t" not in begin or all(b"\t" in part for part in rest)

    def end_at_returns(self) -> None:
        r"""End lines at a lone \r from here on."""
        self._stream = io.BufferedReader(_Translated(self._replay, self._stream))
        self._replay = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes that no line has taken, in pieces; CorpusError where the input cannot be read."""
        if self._replay is not None:
            while piece := self._replay.read(_PIECE_BYTES):
                yield piece
            self._replay = None
        try:
            while piece := self._stream.read1(_PIECE_BYTES):
                yield piece
        except (OSError, EOFError) as err:
            raise CorpusError(f"{self.path}: cannot be read: {err}") from err

    def _skip_rest(self) -> None:
        for _ in self.rest(self.number):
            pass
        self.is_cut = False

    def _read(self, max_bytes: int) -> bytes:
        try:
            if self._replay is None:
                return self._stream.readline(max_bytes)
            line = self._replay.readline(max_bytes)
            if line.endswith(b"\n") or len(line) == max_bytes:
                return line
            self._replay = None
            return line + self._stream.readline(max_bytes - len(line))
        except (OSError, EOFError) as err:
            raise CorpusError(f"{self.path}:{self.number}: cannot be read: {err}") from err


class _Translated(io.RawIOBase):
    r"""A stream over others, one after the other, with \n for each \r."""

    def __init__(self, *streams: io.BufferedIOBase | None) -> None:
        self._streams = [stream for stream in streams if stream is not None]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while self._streams:
            if piece := self._streams[0].read1(len(view)):
                view[: len(piece)] = piece.replace(b"\r", b"\n")
                return len(piece)
            del self._streams[0]
        return 0


def without_line_end(line: bytes) -> bytes:
    r"""Return the line without its \n or \r\n, or without the \r that a file of \r\n lines may end with."""
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith((b"\n", b"\r")) else line


def take_first_line(lines: Lines) -> tuple[bytes, bytes]:
    """Take the first line that is not blank, without a byte order mark; return it and the blank lines before it."""
    blank, line = bytearray(), lines.take().removeprefix(_BOM)
    while line.isspace() and not lines.is_cut:
        blank += line
        if len(blank) > _MAX_BLANK_BYTES:
            raise CorpusError(f"{lines.path}: begins with over {_MAX_BLANK_BYTES:,} bytes of blank lines: no documents")
        line = lines.take()
    if not line:
        raise CorpusError(f"{lines.path}: is empty: no documents")
    return line, bytes(blank)


def take_probe(lines: Lines, first: bytes) -> list[bytes]:
    """Take the next lines, enough to see a file's fields even if some rows are bad; return them below the first."""
    probe, num_bytes = [first], len(first)
    while len(probe) < _PROBE_LINES and num_bytes < _PROBE_BYTES:
        # A line that was cut off must stay the last one taken, so that its rest can still be read.
        if lines.is_cut or not (line := lines.take()):
            break
        probe.append(line)
        num_bytes += len(line)
    return probe


_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def decode_utf8(raw: bytes) -> str:
    """Decode UTF-8; raise DocumentError with the position of the first byte that is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as err:
        raise DocumentError(
            f"invalid UTF-8 at byte {err.start} of the row (0x{raw[err.start]:02x}); "
            "convert the file, for example: iconv -f latin1 -t utf-8"
        ) from err


def document_of(fields: Mapping[str, Any], roles: Roles, ids: FileIds | None = None, number: int = 0) -> Document:
    """Return the document that the fields of a JSON object or a row of a table make; DocumentError for a bad row.

    A null text or title is empty; "view_texts" are strings or objects of text and span; fields without a role become
    metadata.

    Args:
        fields: The values by name.
        roles: Which of them are id, text and title.
        ids: Makes the ids of the file; None for rows of no file.
        number: The number of the row, or of its line.

    """
    metadata = _merge_metadata(fields.get(METADATA), {n: value for n, value in fields.items() if n not in roles.taken})
    if roles.is_row:
        title = "" if roles.title is None else cell_text(fields.get(roles.title))
        text = row_text((name, value) for name, value in fields.items() if name not in (METADATA, VIEW_TEXTS))
        metadata = metadata if ids is None else place_row(metadata, file=ids.file, line=number)
    else:
        title = "" if roles.title is None else _read_text(fields, roles.title)
        text = roles.join_text([_read_text(fields, name) for name in roles.text])
    if roles.id is None:
        doc_id = (ids and ids.of_row(number)) or content_id(title, text)
    else:
        doc_id = _read_id(fields, roles.id) if ids is None else ids.of_key(_read_id(fields, roles.id))
    return require_text(Document(doc_id, text, title, metadata, _read_view_texts(fields.get(VIEW_TEXTS))))


def reject_oversize(lines: Lines, begin: bytes) -> Reject:
    """Return the reject of the line that begins with `begin`; the rest of its raw bytes is read on demand."""
    reason = f"the row is over {lines.max_bytes:,} bytes (max_row_bytes)"
    return Reject(lines.location, reason, itertools.chain((begin,), lines.rest(lines.number)))


def json_name(value: object) -> str:
    """Return what JSON calls a value of this type."""
    return "a number" if type(value) in (int, float) else _JSON_NAMES.get(type(value), type(value).__name__)


def _wrong(name: str, value: object, expected: str) -> DocumentError:
    got = "" if value is None else f", got {short_repr(value)}"
    return DocumentError(f'"{name}" is {json_name(value)}; expected {expected}{got}')


def _read_id(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        raise DocumentError(f'no field "{name}"; the row has {list_names(tuple(fields)) or "none"}')
    value = fields[name]
    if isinstance(value, str):
        return value
    # Python refuses to write integers far longer than an id.
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 4 * MAX_ID_CHARS:
        return str(value)
    raise _wrong(name, value, "a string or an integer")


def _read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _wrong(name, value, "a string")


def _read_view_texts(value: object) -> tuple[str | ViewText, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple | np.ndarray):
        raise DocumentError(f'"{VIEW_TEXTS}" is {json_name(value)}; expected an array')
    return tuple(_read_view_text(item) for item in value)


def _read_view_text(item: object) -> str | ViewText:
    if isinstance(item, str | ViewText):
        return item
    if isinstance(item, dict) and isinstance(item.get("text"), str) and item.keys() <= {"text", "span"}:
        span = item.get("span")
        if span is None or isinstance(span, list | np.ndarray):
            return ViewText(item["text"], None if span is None else tuple(span))
    raise DocumentError(f'"{VIEW_TEXTS}": expected strings, or objects of text and span, got {short_repr(item)}')


def _merge_metadata(metadata: object, extra: dict[str, Any]) -> dict[str, Any]:
    if metadata is None:
        return extra
    if not isinstance(metadata, Mapping):
        raise _wrong(METADATA, metadata, "an object")
    for name in extra:
        if name in metadata:
            raise DocumentError(f'"{name:.60}" occurs both beside "{METADATA}" and in it; keep one')
    return {**metadata, **extra}
