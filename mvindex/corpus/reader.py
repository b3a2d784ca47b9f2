"""A corpus as a stream of documents and rejects, and the files that rejected rows are written to."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeAlias

from mvindex.corpus.folder import Folder, FolderFile, FolderOptions, LeftOut
from mvindex.corpus.inputs import Input
from mvindex.corpus.paths import Paths, beir_corpus, expand_paths, names_of, refuse_repeats, total_bytes
from mvindex.corpus.registry import find_format, has_reader, open_rows
from mvindex.corpus.rows import PASSAGE_WORDS, CorpusOptions, Reject, Row, Source, SourceLocation
from mvindex.errors import CorpusError, DocumentError, ExtraMissing
from mvindex.records import Document

logger = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, bytes | None, str | None, tuple[str, ...], str | None]


class RejectsWriter:
    """Writes rejects to STEM.rejects.tsv or .jsonl, and the reasons to STEM.rejects.reasons.jsonl.

    Rows are written as in their file, uncompressed, below their header (Parquet rows as JSON), so that the file can be
    corrected and read with the same options; give its format, since bad rows may not show it. A file is created
    with the first reject that needs it, one per format, header and fields; none is overwritten: a number is added.
    """

    def __init__(self, stem: str | os.PathLike[str]) -> None:
        self.count = 0
        self._stem = os.fspath(stem)
        self._files: dict[_Key, _RejectsFile] = {}
        self._reasons: BinaryIO | None = None

    @property
    def paths(self) -> list[Path]:
        """Return the files of rows written so far, without the file of reasons."""
        return list(self.formats)

    @property
    def formats(self) -> dict[Path, str]:
        """Return the files of rows written so far, each with the format to give when it is read again."""
        return {Path(file.path): key[0] for key, file in self._files.items()}

    @property
    def sources(self) -> dict[Path, Source]:
        """Return the files of rows written so far, each with how its rows were read."""
        return {Path(file.path): file.source for file in self._files.values()}

    @property
    def reasons_path(self) -> Path | None:
        """Return the file of reasons, one {path, line, reason} a reject; None while there is none."""
        return Path(self._reasons.name) if self._reasons else None

    def __enter__(self) -> RejectsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, reject: Reject, source: Source | None) -> None:
        """Write one reject of this source; None where a whole file is rejected, which has no rows to write.

        Raises CorpusError when a file cannot be written.
        """
        try:
            if source is not None:
                self._rows_file(source).write(reject)
            self._write_reason(reject)
        except OSError as err:
            raise CorpusError(f"{self._stem}: the rejects cannot be written: {err}") from err
        self.count += 1

    def flush(self) -> None:
        """Flush the files to the disk."""
        for file in self._open_files():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close all files."""
        for file in self._open_files():
            file.close()

    def _open_files(self) -> list[BinaryIO]:
        return [file.file for file in self._files.values()] + ([self._reasons] if self._reasons else [])

    def _rows_file(self, source: Source) -> _RejectsFile:
        key = (
            source.rejects_format or source.format,
            source.header,
            source.id_field,
            source.roles.text,
            source.title_field,
        )
        if key not in self._files:
            file = _create(f"{self._stem}.rejects", source.rejects_suffix)
            self._files[key] = _RejectsFile(file, source)
        return self._files[key]

    def _write_reason(self, reject: Reject) -> None:
        self._reasons = self._reasons or _create(f"{self._stem}.rejects", ".reasons.jsonl")
        entry = {"path": reject.location.path, "line": reject.location.line, "reason": reject.reason}
        # A file name may hold bytes that are not UTF-8; they are written as the escapes \udcXX.
        self._reasons.write((json.dumps(entry, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))


class _RejectsFile:
    """One file of rows, all with the same header."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self.file, self.source = file, source
        self.path = file.name
        self._header = header = source.header
        self._has_quote = False
        self._next_location: tuple[str, int] | None = None
        if header:
            file.write(header)

    def write(self, reject: Reject) -> None:
        location = (reject.location.path, reject.location.line)
        # A quote left open must not run on into rows that did not follow it in the source. The reader ends it at a
        # repeat of the header, and skips that.
        if self._header and self._has_quote and location != self._next_location:
            self.file.write(self._header)
            self._has_quote = False
        num_lines, last = 0, b""
        for piece in reject.raw:
            self.file.write(piece)
            self._has_quote |= b'"' in piece
            num_lines += piece.count(b"\n")
            last = piece or last
        if not last.endswith(b"\n"):
            self.file.write(b"\n")
        self._next_location = (reject.location.path, reject.location.line + num_lines)


def _create(stem: str, suffix: str) -> BinaryIO:
    """Create a file, numbered when the plain name is taken; exclusive creation never overwrites one."""
    number = 1
    while True:
        try:
            return open(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}", "xb")
        except FileExistsError:
            number += 1


class Corpus:
    """The rows of one or more files, read once from first to last, one file open at a time.

    bytes_read and bytes_total count stored (compressed) bytes; the total is None when stdin or a pipe is among them.
    source: the file being read, None before the first. Iterating raises CorpusError where a file as a whole is
    wrong: no documents, a damaged or unknown format, a missing column. left_out: the files of folders that are not
    read, counted. A file of a folder that is wrong becomes a reject; others do where rejects_files is set. on_warning:
    called with what is wrong in a file that is read all the same, num_warnings times; by default it is logged.
    """

    def __init__(
        self,
        files: Sequence[str | FolderFile],
        options: CorpusOptions,
        on_source: Callable[[Source], None] | None = None,
        *,
        left_out: LeftOut | None = None,
        unreadable: Mapping[str, str] | None = None,
    ) -> None:
        self.files = files
        self.paths = [file.path if isinstance(file, FolderFile) else file for file in files]
        self._folder_paths = {file.path for file in files if isinstance(file, FolderFile)}
        # A file of a folder may have been removed since it was listed; it is a reject then.
        self.bytes_total = total_bytes(
            path for path in self.paths if path not in self._folder_paths or os.path.exists(path)
        )
        self.left_out = LeftOut() if left_out is None else left_out
        self.rejects_files = False
        self.on_warning: Callable[[str], None] = logger.warning
        self.num_warnings = 0
        self._unreadable = unreadable or {}
        self.source: Source | None = None
        self._sources: dict[str, Source] = {}
        self._options = options
        self._on_source = on_source
        self._done_bytes = 0
        self._file: Input | None = None
        self._is_closed = False
        self._rows = self._read_all()

    @property
    def max_document_chars(self) -> int:
        """Return how many characters a document may have."""
        return self._options.max_document_chars

    @property
    def named_in_ids(self) -> list[str]:
        """Return the files read so far, of no folder, whose name makes the ids of their rows."""
        return [
            path
            for path, source in self._sources.items()
            if source.id_field is None and not source.makes_content_ids and path not in self._folder_paths
        ]

    @property
    def bytes_read(self) -> int:
        """Return the stored bytes read so far, of all files."""
        return self._done_bytes + (self._file.bytes_read if self._file else 0)

    def is_of_folder(self, location: SourceLocation) -> bool:
        """Return whether a row is of a file of a folder, where one bad row or file does not stop the rest."""
        return location.path in self._folder_paths

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
            for path, reason in self._unreadable.items():
                yield Reject(SourceLocation(path, 1), reason, (), is_file=True)
            for file in self.files:
                yield from map(self._of_allowed_length, self._read_or_reject(file))
        finally:
            self._is_closed = True

    def _of_allowed_length(self, row: Row | Reject) -> Row | Reject:
        """Return a row, or its reject where its document is too long."""
        if isinstance(row, Row):
            try:
                row.document.check_length(self._options.max_document_chars)
            except DocumentError as err:
                return Reject(row.location, str(err), (row.raw,))
        return row

    def _read_or_reject(self, file: str | FolderFile) -> Iterator[Row | Reject]:
        rows: Iterator[Row | Reject]
        if isinstance(file, FolderFile):
            rows = (_in_folder(row, file) for row in self._read_file(file.path, file))
        elif self.rejects_files:
            rows = self._read_file(file, None)
        else:
            yield from self._read_file(file, None)
            return
        path = file.path if isinstance(file, FolderFile) else file
        try:
            yield from rows
        except (CorpusError, ExtraMissing) as err:
            yield _file_reject(path, str(err))
        except Exception as err:  # noqa: BLE001 - what a reader does not expect in a damaged file must not cost the others
            logger.debug("%s", path, exc_info=True)
            yield _file_reject(path, f"cannot be read: {type(err).__name__}: {err}".partition("\n")[0])

    def _read_file(self, path: str, in_folder: FolderFile | None) -> Iterator[Row | Reject]:
        file = self._file = Input(path, in_folder)
        file.on_warning = self._warn
        try:
            yield from self._rows_of(*open_rows(file, self._options), in_folder)
        finally:
            self._done_bytes, self._file = self._done_bytes + file.bytes_read, None
            file.close()

    def _warn(self, message: str) -> None:
        self.num_warnings += 1
        self.on_warning(message)

    def _rows_of(
        self, source: Source, rows: Iterator[Row | Reject], in_folder: FolderFile | None
    ) -> Iterator[Row | Reject]:
        self.source = self._sources[source.path] = source
        if self._on_source and in_folder is None:
            self._on_source(source)
        first = next(rows, None)
        if first is None and in_folder is not None:
            self.left_out.add("empty", in_folder.file)
            return
        if first is None:
            raise CorpusError(f"{source.path}: {_why_empty(source)}")
        yield first
        yield from rows


def open_corpus(
    paths: Paths,
    options: CorpusOptions | None = None,
    on_source: Callable[[Source], None] | None = None,
    folders: FolderOptions | None = None,
) -> Corpus:
    """Open the files as one corpus, in their order.

    Args:
        paths: Names, patterns such as `part-*.jsonl.gz`, folders, addresses such as `s3://bucket/part-*.parquet`,
            collections such as `ir_datasets:NAME`, or "-" for stdin.
        options: Formats and fields; detected by default.
        on_source: Called with the format and fields of each file that is named, before its first row.
        folders: Which files of folders are read.

    Raises:
        CorpusError: A file is missing or cannot be read, or a folder has none that can be.
        ConfigError: The format has an unknown name.

    """
    options = options or CorpusOptions()
    if options.format is not None:
        find_format(options.format)
    names = names_of(paths)
    found = [Folder(name, folders or FolderOptions(), has_reader) for name in names if is_folder(name)]
    _refuse_same_names(found)
    left_out = LeftOut()
    unreadable: dict[str, str] = {}
    files: list[str | FolderFile] = []
    for name in names:
        if is_folder(name):
            folder = found.pop(0)
            files += folder.files()
            left_out.merge(folder.left_out)
            unreadable |= {os.path.join(folder.path, below): why for below, why in folder.unreadable.items()}
        else:
            files += expand_paths(name)
    if not files:
        expected = "expected an input file, got none; name at least one, or - for stdin"
        raise CorpusError(
            f"{', '.join(names)}: no file can be read; left out: {left_out or 'none'}" if names else expected
        )
    refuse_repeats([file.path if isinstance(file, FolderFile) else file for file in files])
    return Corpus(files, options, on_source, left_out=left_out, unreadable=unreadable)


def is_folder(name: str) -> bool:
    """Return whether this is a folder whose files are read, rather than one of the BEIR layout."""
    return os.path.isdir(name) and beir_corpus(name) is None


def read_documents(paths: Paths, options: CorpusOptions | None = None) -> Iterator[Document]:
    """Yield the documents of these files; raise CorpusError with file and line at the first bad row."""
    with open_corpus(paths, options) as corpus:
        for row in corpus:
            if isinstance(row, Reject):
                raise CorpusError(f"{row.location}: {row.reason}")
            yield row.document


def _file_reject(path: str, message: str) -> Reject:
    """Return the reject of a file, at the line that the message of an error names."""
    found = re.match(rf"{re.escape(path)}:(?:(\d+):)? ", message)
    line = int(found[1]) if found and found[1] else 1
    return Reject(SourceLocation(path, line), message[found.end() :] if found else message, (), is_file=True)


def _in_folder(row: Row | Reject, file: FolderFile) -> Row | Reject:
    """Return a row with metadata that name its file and folder."""
    if isinstance(row, Reject):
        return row
    document = row.document
    own = {"folder": file.folder, "folder_path": file.folder_path, "file": file.file}
    taken = [name for name in own if document.metadata.get(name, own[name]) != own[name]]
    if taken:
        reason = f'the field "{taken[0]}" names the file in a folder; rename it, or ingest the file by its name'
        return Reject(row.location, reason, (row.raw,))
    return replace(row, document=replace(document, metadata={**document.metadata, **own}))


def _why_empty(source: Source) -> str:
    if not source.text_field:
        return "has no text"
    return f"has no documents{', only a header' if source.header else ''}"


def _refuse_same_names(folders: Sequence[Folder]) -> None:
    paths: dict[str, str] = {}
    for folder in folders:
        if paths.setdefault(folder.name, folder.path) != folder.path:
            raise CorpusError(
                f"{folder.path}: has the name of {paths[folder.name]}, and ids begin with the folder's name; "
                "add them one by one with mvindex sync --name"
            )


def _log(reject: Reject) -> None:
    kind = "file" if reject.is_file else "row"
    place = reject.location if reject.location.line > 1 else reject.location.path
    logger.warning("%s: %s; %s rejected", place, reject.reason, kind)


def read_files(  # noqa: PLR0913 - each argument is a choice of the caller's
    paths: Paths,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    gitignore: bool = True,
    follow_links: bool = False,
    passage_words: int = PASSAGE_WORDS,
    on_reject: Callable[[Reject], None] = _log,
) -> Iterator[Document]:
    """Yield the documents of files and folders: passages of prose, and rows of tables and JSON Lines.

    Args:
        paths: Files, folders or patterns.
        include: Of folders: patterns as in .gitignore; where there are any, a file must match one.
        exclude: Of folders: patterns as in .gitignore of files and folders that are left out.
        gitignore: Of folders: whether .gitignore files are honoured.
        follow_links: Of folders: whether links to files outside are read.
        passage_words: Maximum number of words of a passage.
        on_reject: Called for each file of a folder that cannot be read, and each of its rows that is no document; by
            default a warning is logged.

    Raises:
        CorpusError: A file that is named cannot be read, or a row of it is no document.

    """
    folders = FolderOptions(include=include, exclude=exclude, gitignore=gitignore, follow_links=follow_links)
    with open_corpus(paths, CorpusOptions(passage_words=passage_words), folders=folders) as corpus:
        for row in corpus:
            if not isinstance(row, Reject):
                yield row.document
            elif row.is_file or corpus.is_of_folder(row.location):
                on_reject(row)
            else:
                raise CorpusError(f"{row.location}: {row.reason}")
