"""Read corpus files as one stream of rows and rejects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType

from mvindex.corpus.dataset_names import is_dataset, open_dataset
from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.paths import Paths, expand_paths, total_bytes
from mvindex.corpus.registry import find_format, open_rows
from mvindex.corpus.rows import Reject, Row, Source, SourceLocation
from mvindex.errors import CorpusError
from mvindex.records import Document


class Corpus:
    """The rows of one or more files, read once from first to last, one file open at a time.

    bytes_read and bytes_total count stored (compressed) bytes; the total is None when stdin or a pipe is among them.
    source: the file being read, None before the first. Iterating raises CorpusError where a file as a whole is
    wrong: no documents, a damaged or unknown format, a missing column.
    """

    def __init__(
        self, paths: list[str], options: CorpusOptions, on_source: Callable[[Source], None] | None = None
    ) -> None:
        self.paths = paths
        self.bytes_total = total_bytes(paths)
        self.source: Source | None = None
        self._sources: dict[str, Source] = {}
        self._options = options
        self._on_source = on_source
        self._done_bytes = 0
        self._file: Input | None = None
        self._is_closed = False
        self._rows = self._read_all()

    @property
    def bytes_read(self) -> int:
        """Return the stored bytes read so far, of all files."""
        return self._done_bytes + (self._file.bytes_read if self._file else 0)

    def source_of(self, location: SourceLocation) -> Source:
        """Return how the file of a row was read; also after other files were begun, when `source` is a later one."""
        return self._sources[location.path]

    def __iter__(self) -> Iterator[Row | Reject]:
        if self._is_closed:
            raise CorpusError(f"{', '.join(self.paths)}: was read already or closed; open the corpus again")
        return self._rows

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the open file; no more rows can be read."""
        self._is_closed = True
        self._rows.close()

    def _read_all(self) -> Generator[Row | Reject, None, None]:
        try:
            for path in self.paths:
                yield from self._read_file(path)
        finally:
            self._is_closed = True

    def _read_file(self, path: str) -> Iterator[Row | Reject]:
        if is_dataset(path):
            yield from self._rows_of(*open_dataset(path, self._options))
            return
        file = self._file = Input(path)
        try:
            yield from self._rows_of(*open_rows(file, self._options))
        finally:
            self._done_bytes, self._file = self._done_bytes + file.bytes_read, None
            file.close()

    def _rows_of(self, source: Source, rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
        self.source = self._sources[source.path] = source
        if self._on_source:
            self._on_source(source)
        first = next(rows, None)
        if first is None:
            raise CorpusError(f"{source.path}: has no documents{', only a header' if source.header else ''}")
        yield first
        yield from rows


def open_corpus(
    paths: Paths, options: CorpusOptions | None = None, on_source: Callable[[Source], None] | None = None
) -> Corpus:
    """Open the files as one corpus, in their order.

    Args:
        paths: Names, patterns such as `part-*.jsonl.gz`, addresses such as `s3://bucket/part-*.parquet`, datasets such
            as `datasets:NAME`, or "-" for stdin.
        options: Formats and fields; detected by default.
        on_source: Called with the format and fields of each file before its first row.

    Raises:
        CorpusError: A file is missing or cannot be read.
        ConfigError: The format has an unknown name.

    """
    options = options or CorpusOptions()
    if options.format is not None:
        find_format(options.format)
    return Corpus(expand_paths(paths), options, on_source)


def read_documents(paths: Paths, options: CorpusOptions | None = None) -> Iterator[Document]:
    """Yield the documents of these files; raise CorpusError with file and line at the first bad row."""
    with open_corpus(paths, options) as corpus:
        for row in corpus:
            if isinstance(row, Reject):
                raise CorpusError(f"{row.location}: {row.reason}")
            yield row.document
