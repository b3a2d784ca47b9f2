"""Arrow IPC files: Feather (version 2) and the streams that datasets are saved as."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.rows import CorpusOptions, Reject, Row, Source
from mvindex.corpus.tables import Table, first_line, open_table
from mvindex.errors import CorpusError
from mvindex.plugins import require

ARROW = "arrow"
_FILE_MAGIC = b"ARROW1\0\0"
# Of the first message of a stream, its schema; the length follows.
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_MAX_SCHEMA_BYTES = 1 << 28


def open_arrow(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, by its schema, and its rows; raise CorpusError for a pipe or a damaged file."""
    if not file.is_seekable:
        raise CorpusError(f"{file.name}: is an Arrow file, which cannot be read from a pipe; name the file")
    arrow = require("pyarrow", "files", f"reading {file.name} (Arrow)")

    def open_reader() -> Any:
        file.file.seek(0)
        return arrow.ipc.open_file(file.file) if file.head == _FILE_MAGIC else arrow.ipc.open_stream(file.file)

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        done_rows = 0
        try:
            for batch in _record_batches(open_reader()):
                yield batch.select(list(columns))
                done_rows += batch.num_rows
                file.bytes_read = file.file.tell()
        except (arrow.ArrowException, OSError) as err:
            raise CorpusError(f"{file.name}: is damaged after row {done_rows}: {first_line(err)}") from err

    try:
        schema = open_reader().schema
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:
        raise CorpusError(f"{file.name}: is not a whole Arrow file: {first_line(err)}") from err
    table = Table(
        path=file.name, format=ARROW, schema=schema, batches=batches, ids=file.ids, size_bytes=file.size_bytes
    )
    return open_table(table, options)


def is_arrow(head: bytes) -> bool:
    """Return whether a file with these first bytes is an Arrow file or stream."""
    schema_bytes = int.from_bytes(head[4:8], "little")
    is_stream = head.startswith(_STREAM_MAGIC) and 0 < schema_bytes < _MAX_SCHEMA_BYTES and schema_bytes % 8 == 0
    return head == _FILE_MAGIC or is_stream


FORMATS = (BinaryFormat(name=ARROW, matches=is_arrow, open=open_arrow, suffixes=(".arrow", ".feather")),)


def _record_batches(reader: Any) -> Iterator[Any]:
    """Yield the record batches of a file or stream, each read when it is asked for."""
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)
