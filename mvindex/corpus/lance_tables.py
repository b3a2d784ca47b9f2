"""Tables of Lance by their folder or address, streamed: `corpus.lance`, `s3://bucket/corpus.lance`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.remote import shown_address
from mvindex.corpus.rows import Reject, Row, Source
from mvindex.corpus.tables import BATCH_ROWS, Table, first_line, open_table
from mvindex.errors import CorpusError
from mvindex.plugins import require

SUFFIX = ".lance"


def is_lance(path: str) -> bool:
    """Return whether a path names a table of Lance, a folder of files, by its ending."""
    return path.rstrip("/").endswith(SUFFIX)


def open_lance(path: str, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the latest version of a table is read, by its schema, and its rows in their order.

    Args:
        path: A folder, or an address that Lance knows, with credentials from the environment.
        options: The fields.

    Raises:
        CorpusError: There is no table, or it cannot be read.
        ExtraMissing: Lance is not installed.

    """
    shown = shown_address(path)
    library = require("lance", "lance", f"reading {shown}")
    # Its errors are these three; what follows the first comma is a place in its own source.
    errors = (OSError, RuntimeError, ValueError)
    try:
        dataset = library.dataset(path)
    except errors as err:
        raise CorpusError(f"{shown}: expected a table of Lance: {_reason(err)}") from err

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        done_rows = 0
        try:
            for batch in dataset.to_batches(columns=list(columns), batch_size=BATCH_ROWS):
                yield batch
                done_rows += batch.num_rows
        except errors as err:
            raise CorpusError(f"{shown}: cannot be read after row {done_rows}: {_reason(err)}") from err

    return open_table(Table(path=shown, format="lance", schema=dataset.schema, batches=batches), options)


def _reason(err: Exception) -> str:
    return first_line(err).partition(", /")[0]
