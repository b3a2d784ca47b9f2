"""The options of a sync, how folder and index are compared, and its report.

The cache of files is derived from the folder and no part of the index: where it is lost, all files are read again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import xxhash

from mvindex.cache import cache_folder
from mvindex.corpus import CorpusOptions, FolderFile, FolderOptions, LeftOut
from mvindex.corpus.passages.outline import SPLIT_VERSION
from mvindex.corpus.rows import MAX_FILE_BYTES, PASSAGE_WORDS
from mvindex.durable import replace_cached
from mvindex.errors import ConfigError
from mvindex.records import MAX_DOCUMENT_CHARS, Document, dump_metadata

_MODULUS = 1 << 128


@dataclass(slots=True)
class Digest:
    """The passages of one file: their number, and the sum of their hashes, in any order.

    whole: over id, title, text and metadata. content: over text and headings, which a moved file keeps.
    """

    passages: int = 0
    whole: int = 0
    content: int = 0

    def add(self, document: Document) -> None:
        """Add a passage."""
        whole, content = _hashes(document)
        self.passages += 1
        self.whole = (self.whole + whole) % _MODULUS
        self.content = (self.content + content) % _MODULUS

    def without(self, document: Document) -> Digest:
        """Return the digest of the other passages."""
        whole, content = _hashes(document)
        return Digest(self.passages - 1, (self.whole - whole) % _MODULUS, (self.content - content) % _MODULUS)


def add_to_digests(digests: dict[str, Digest], documents: Iterable[Document]) -> None:
    """Add documents to the digests of their files."""
    for document in documents:
        digests.setdefault(str(document.metadata.get("file")), Digest()).add(document)


def digest_of_files(digests: Mapping[str, Digest]) -> str:
    """Return one hash over the files and their passages: 32 hex digits."""
    total = xxhash.xxh3_128()
    for file in sorted(digests):
        digest = digests[file]
        total.update(f"{file}\0{digest.passages}\0{digest.whole:032x}\n".encode())
    return total.hexdigest()


def _hashes(document: Document) -> tuple[int, int]:
    """Return the two hashes of a passage."""
    metadata = dump_metadata(document.metadata, document.id)
    headings = str(document.metadata.get("headings"))
    return _hash(document.id, document.title, document.text, metadata), _hash(document.text, headings)


def _hash(*parts: str) -> int:
    digest = xxhash.xxh3_128()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.intdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """The options of a sync.

    Attributes:
        name: What ids begin with, and what tells the documents of this folder from others; the folder's own name by
            default.
        include: Patterns as in .gitignore; where there are any, a file must match one.
        exclude: Patterns as in .gitignore of files and folders that are left out.
        gitignore: Whether .gitignore files are honoured.
        follow_links: Whether links to files outside the folder are read.
        passage_words: Maximum number of words of a passage.
        max_file_bytes: A larger file is rejected if its format is read as a whole.
        max_document_chars: A row whose title and text have more characters is rejected.
        dry_run: Change nothing; the report says what would change.
        check: The same, and read every file again, whatever its time and size.
        force: Delete all documents of the folder, should none of their files be there.

    """

    name: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    gitignore: bool = True
    follow_links: bool = False
    passage_words: int = PASSAGE_WORDS
    max_file_bytes: int = MAX_FILE_BYTES
    max_document_chars: int = MAX_DOCUMENT_CHARS
    dry_run: bool = False
    check: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.check and (self.dry_run or self.force):
            raise ConfigError("check changes nothing; expected it without dry_run and force")
        _ = self.corpus, self.folders  # checks the values

    @property
    def is_writing(self) -> bool:
        """Return whether the index is changed."""
        return not (self.dry_run or self.check)

    @property
    def corpus(self) -> CorpusOptions:
        """Return how files are read."""
        return CorpusOptions(
            passage_words=self.passage_words,
            max_file_bytes=self.max_file_bytes,
            max_document_chars=self.max_document_chars,
        )

    @property
    def folders(self) -> FolderOptions:
        """Return which files are read."""
        return FolderOptions(
            include=self.include, exclude=self.exclude, gitignore=self.gitignore, follow_links=self.follow_links
        )


def _ignore(*_: object) -> None:
    """Ignore what is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncHooks:
    """Callbacks of a sync.

    Attributes:
        on_warning: Called with a message for each file or row that is rejected.
        on_progress: Called with the number of documents done, and of bytes of files, since the last call.
        should_stop: Returns whether to stop after the current batch.

    """

    on_warning: Callable[[str], None] = _ignore
    on_progress: Callable[[int, int], None] = _ignore
    should_stop: Callable[[], bool] = field(default=lambda: False)


_SHOWN_FILES = 20


@dataclass(slots=True, kw_only=True)
class SyncReport:
    """The result of a sync.

    Attributes:
        folder: The folder, absolute.
        name: What ids begin with.
        added, changed, unchanged, deleted: Numbers of files.
        renamed: Of the files added, those that had another path before, by their new one.
        encoded: Number of documents that were encoded, or took vectors of others. In a dry run or check all numbers are
            of what would be done.
        views_encoded, views_reused: Of their views, those that were encoded, and those whose vectors were taken from
            the passages that they replace; 0 in a dry run.
        updated: Number of documents of which only metadata changed.
        removed: Number of documents deleted.
        rejected: The files that cannot be read, with the reason. Their old passages stay.
        stale: The files with old passages in the index: those rejected, and those with bad rows.
        rejected_rows: Number of rows of otherwise good files that are no documents, or whose id another row has.
        warnings: Number of things that are wrong in files that were read all the same.
        left_out: The files that are not read, counted by reason.
        in_folder, in_index: The passages of each file, computed from the folder's files and from the index's documents.
        is_dry: Whether nothing was to be changed.
        stopped: Whether the run was stopped before the end.
        seconds: Duration.

    """

    folder: str
    name: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    encoded: int = 0
    views_encoded: int = 0
    views_reused: int = 0
    updated: int = 0
    removed: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    rejected_rows: int = 0
    warnings: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    in_folder: Mapping[str, Digest] = field(default_factory=dict)
    in_index: Mapping[str, Digest] = field(default_factory=dict)
    is_dry: bool = False
    stopped: bool = False
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Return whether the index holds the passages of the folder's readable files, all of them and no others.

        False after a run that was stopped: it has not read every file.
        """
        return not self.stopped and self.in_folder == self.in_index

    @property
    def is_complete(self) -> bool:
        """Return whether the index equals the folder, and nothing of the folder was rejected."""
        return self.equal and not (self.rejected or self.rejected_rows)

    @property
    def differing(self) -> list[str]:
        """Return the files whose passages in the index are not those of the folder; when stopped, of those read."""
        files = self.in_folder.keys() | (set() if self.stopped else self.in_index.keys())
        return sorted(file for file in files if self.in_folder.get(file) != self.in_index.get(file))

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        differing = self.differing
        return {
            "folder": self.folder,
            "name": self.name,
            "files_added": self.added,
            "files_changed": self.changed,
            "files_unchanged": self.unchanged,
            "files_deleted": self.deleted,
            "files_renamed": self.renamed,
            "documents_encoded": self.encoded,
            "views_encoded": self.views_encoded,
            "views_reused": self.views_reused,
            "documents_updated": self.updated,
            "documents_deleted": self.removed,
            "left_out": dict(self.left_out.counts),
            "rejected": self.rejected,
            "rejected_rows": self.rejected_rows,
            "warnings": self.warnings,
            "stale": self.stale,
            "dry_run": self.is_dry,
            "stopped": self.stopped,
            "in_folder": _side(self.in_folder),
            "in_index": _side(self.in_index),
            "equal": self.equal,
            "differing": len(differing),
            "differing_files": differing[:_SHOWN_FILES],
            "seconds": round(self.seconds, 2),
        }


def _side(digests: Mapping[str, Digest]) -> dict[str, Any]:
    return {
        "files": len(digests),
        "passages": sum(digest.passages for digest in digests.values()),
        "hash": digest_of_files(digests),
    }


# A file may change again within the resolution of its times (2 s on FAT): only an older state is remembered.
SETTLED_NS = 2_000_000_000
_PARSERS = ("mvindex", "pypdfium2", "markitdown", "charset-normalizer")


class FileCache:
    """The digest of each file, valid while its size, times and inode are the same.

    The time of change (ctime) is among them: tools that restore the time of modification cannot restore that.
    """

    def __init__(self, folder: str, name: str, options: SyncOptions) -> None:
        # What decides how a file is read: another value of it is another cache.
        key = json.dumps(
            [
                folder,
                name,
                options.passage_words,
                options.max_file_bytes,
                options.max_document_chars,
                SPLIT_VERSION,
                reader_versions(),
            ]
        )
        self._path = _folder() / f"{xxhash.xxh3_128_hexdigest(key.encode())}.jsonl"
        self._known = {} if options.check else _load(self._path)
        self._kept: dict[str, tuple[list[int], Digest]] = {}

    def find(self, file: FolderFile) -> Digest | None:
        """Return the digest of a file; None where it is not known, or the file may have changed."""
        known = self._known.get(file.file)
        if known is None or known[0] != state_of(file):
            return None
        self._kept[file.file] = known
        return known[1]

    def remember(self, file: FolderFile, state: list[int], read_at_ns: int, digest: Digest) -> None:
        """Remember the digest of a file whose state was `state` before it was read, at read_at_ns."""
        if max(state[1:3]) + SETTLED_NS < read_at_ns and state == state_of(file):
            self._kept[file.file] = (state, digest)

    def state(self, file: FolderFile) -> tuple[list[int], int]:
        """Return the state of a file, to be taken before it is read, and the time now."""
        return state_of(file), time.time_ns()

    def save(self, on_warning: Callable[[str], None]) -> None:
        """Write what was found and remembered in this run; warn where it cannot be written, and the index is right."""
        rows = (
            [file, state, digest.passages, f"{digest.whole:x}", f"{digest.content:x}"]
            for file, (state, digest) in self._kept.items()
        )
        try:
            replace_cached(self._path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        except OSError as err:
            on_warning(
                f"{self._path.parent}: cannot be written: {err.strerror or err}; the next sync reads every file again"
            )


def _folder() -> Path:
    try:
        return cache_folder() / "sync"
    except OSError:  # a user without a home directory
        return Path(os.devnull) / "no-cache-directory"


def state_of(file: FolderFile) -> list[int]:
    """Return size, times and inode of a file; zeros where it is gone."""
    try:
        status = os.stat(file.path)
    except OSError:
        return [0, 0, 0, 0]
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _load(path: Path) -> dict[str, tuple[list[int], Digest]]:
    try:
        with path.open(encoding="utf-8") as rows:
            return {
                file: (state, Digest(passages, int(whole, 16), int(content, 16)))
                for file, state, passages, whole, content in map(json.loads, rows)
            }
    except (OSError, ValueError, TypeError):
        return {}


def reader_versions() -> list[str]:
    """Return the versions of the packages that read files; "" where one is missing."""
    found = []
    for package in _PARSERS:
        try:
            found.append(version(package))
        except PackageNotFoundError:
            found.append("")
    return found
