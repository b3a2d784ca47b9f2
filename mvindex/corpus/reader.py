"""Corpus files -> one stream of rows and rejects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType

from mvindex.corpus.detect import detect
from mvindex.corpus.inputs import Input
from mvindex.corpus.jsonl import read_jsonl
from mvindex.corpus.lines import Lines
from mvindex.corpus.options import CorpusFormat, CorpusOptions
from mvindex.corpus.parquet import ParquetRows
from mvindex.corpus.paths import Paths, expand_paths, total_bytes
from mvindex.corpus.rows import Place, Reject, Row, Source
from mvindex.corpus.tsv import read_tsv
from mvindex.errors import CorpusError
from mvindex.records import Document

_TEXT_READERS = {
    CorpusFormat.DPR: read_tsv,
    CorpusFormat.MSMARCO: read_tsv,
    CorpusFormat.BEIR: read_jsonl,
    CorpusFormat.JSONL: read_jsonl,
}


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
        """Stored bytes read so far, of all files."""
        return self._done_bytes + (self._file.bytes_read if self._file else 0)

    def source_of(self, place: Place) -> Source:
        """How the file of a row was read; also after other files were begun, when `source` is a later one."""
        return self._sources[place.path]

    def __iter__(self) -> Iterator[Row | Reject]:
        if self._is_closed:
            raise CorpusError(f"{', '.join(self.paths)}: was read already or closed; open the corpus again")
        return self._rows

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file that is open; nothing more can be read."""
        self._is_closed = True
        self._rows.close()

    def _read_all(self) -> Generator[Row | Reject, None, None]:
        try:
            for path in self.paths:
                yield from self._read_file(path)
        finally:
            self._is_closed = True

    def _read_file(self, path: str) -> Iterator[Row | Reject]:
        file = self._file = Input(path)
        try:
            self.source, rows = _open_rows(file, self._options)
            self._sources[file.name] = self.source
            if self._on_source:
                self._on_source(self.source)
            first = next(rows, None)
            if first is None:
                raise CorpusError(f"{file.name}: has no documents{', only a header' if self.source.header else ''}")
            yield first
            yield from rows
        finally:
            self._done_bytes, self._file = self._done_bytes + file.bytes_read, None
            file.close()


def open_corpus(
    paths: Paths, options: CorpusOptions | None = None, on_source: Callable[[Source], None] | None = None
) -> Corpus:
    """The corpus that these files make, in their order.

    paths: names, patterns such as `part-*.jsonl.gz`, or "-" for stdin. on_source is called with each file's format
    and fields before its first row. Raises CorpusError when a file is missing or cannot be read.
    """
    return Corpus(expand_paths(paths), options or CorpusOptions(), on_source)


def read_documents(paths: Paths, options: CorpusOptions | None = None) -> Iterator[Document]:
    """The documents of these files; CorpusError with file and line at the first bad row."""
    with open_corpus(paths, options) as corpus:
        for row in corpus:
            if isinstance(row, Reject):
                raise CorpusError(f"{row.place}: {row.reason}")
            yield row.document


def _open_rows(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    if file.is_parquet:
        return _open_parquet(file, options)
    lines = Lines(file.stream(), file.name, options.max_row_bytes)
    source = detect(lines, options)
    return source, _TEXT_READERS[source.format](lines, source)


def _open_parquet(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    if options.format not in (None, CorpusFormat.PARQUET):
        raise CorpusError(f"{file.name}: is Parquet, not {options.format.value}; leave --format out")
    if file.size_bytes is None:
        raise CorpusError(f"{file.name}: is Parquet, which cannot be read from a pipe; name the file")
    rows = ParquetRows(file, options)
    return rows.source, iter(rows)
