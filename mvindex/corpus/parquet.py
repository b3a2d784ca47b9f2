"""Parquet files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.rows import Reject, Row, Source
from mvindex.corpus.tables import Table, batch_rows, first_line, open_table
from mvindex.errors import CorpusError
from mvindex.plugins import require

PARQUET = "parquet"
_MAGIC = b"PAR1"
_BUFFER_BYTES = 2**20
# Texts are compressed to a twentieth at best; what is smaller repeats itself.
_MOST_COMPRESSION = 100
# Of a column of a row group in memory, which takes more than so many times the file only in a trap; of a value in it.
_MOST_SWELLING, _MOST_CHUNK_BYTES = 1_000, 2**26
_VALUE_BYTES = 4


def open_parquet(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, by its schema, and its rows; raise CorpusError for a pipe or a damaged file."""
    if not file.is_seekable:
        raise CorpusError(f"{file.name}: is Parquet, which cannot be read from a pipe; name the file")
    parquet = require("pyarrow.parquet", "files", f"reading {file.name} (Parquet)")
    arrow = require("pyarrow", "files", "reading Parquet")
    try:
        # Pages are read as they are needed: the default would fetch whole row groups ahead.
        stored = parquet.ParquetFile(
            file.file, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
        )
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:  # the last for a column's name
        raise CorpusError(f"{file.name}: is not a whole Parquet file: {first_line(err)}") from err

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        num_rows = max(1, stored.metadata.num_rows)
        size_bytes = file.size_bytes or 0
        done_rows = 0
        check_sizes(file.name, stored.metadata, columns, size_bytes)
        try:
            # Columns in turn: side by side they seek to and fro, and fetch ranges of a remote file again.
            for batch in stored.iter_batches(
                batch_rows(_most_row_bytes(stored.metadata)), columns=columns, use_threads=False
            ):
                yield batch
                done_rows += batch.num_rows
                file.bytes_read = size_bytes * done_rows // num_rows
        except (arrow.ArrowException, OSError) as err:
            raise CorpusError(f"{file.name}: is damaged after row {done_rows}: {first_line(err)}") from err

    table = Table(
        path=file.name,
        format=PARQUET,
        schema=stored.schema_arrow,
        batches=batches,
        ids=file.ids,
        size_bytes=file.size_bytes,
    )
    return open_table(table, options)


def check_sizes(path: str, metadata: Any, columns: Sequence[str], size_bytes: int) -> None:
    """Raise CorpusError where a column is far larger in memory than in the file: one row may have all of it."""
    names, most_bytes = frozenset(columns), max(_MOST_CHUNK_BYTES, _MOST_SWELLING * size_bytes)
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        for chunk in _chunks(metadata, group):
            name = chunk.path_in_schema.partition(".")[0]
            num_bytes = max(chunk.total_uncompressed_size, (chunk.num_values - num_rows) * _VALUE_BYTES)
            if name in names and num_bytes > most_bytes:
                raise CorpusError(
                    f"{path}: column {name!r} unpacks to {num_bytes:,} bytes; expected at most {most_bytes:,}, "
                    f"{_MOST_SWELLING:,} times the size of the file or {_MOST_CHUNK_BYTES >> 20} MiB"
                )


def _chunks(metadata: Any, group: int) -> Iterator[Any]:
    return (metadata.row_group(group).column(column) for column in range(metadata.num_columns))


def _most_row_bytes(metadata: Any) -> int:
    """Return how many bytes one row may have of a column that is stored in far fewer; 0 where there is none."""
    chunks = (chunk for group in range(metadata.num_row_groups) for chunk in _chunks(metadata, group))
    sizes = ((chunk.total_uncompressed_size, chunk.total_compressed_size) for chunk in chunks)
    return max((size for size, stored in sizes if size > stored * _MOST_COMPRESSION), default=0)


def is_parquet(head: bytes) -> bool:
    """Return whether a file with these first bytes is Parquet."""
    # An id may be "PAR1" too, but then a tab or a printable character follows.
    return head.startswith(_MAGIC) and head[4:5] < b" " and head[4:5] != b"\t"


FORMATS = (BinaryFormat(name=PARQUET, matches=is_parquet, open=open_parquet),)
