"""The options and callbacks of a sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mvindex.corpus import CorpusOptions, FolderOptions
from mvindex.corpus.rows import MAX_FILE_BYTES, PASSAGE_WORDS
from mvindex.errors import ConfigError
from mvindex.records import MAX_DOCUMENT_CHARS


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
