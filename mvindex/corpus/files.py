"""Documents of files and folders, for Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from mvindex.corpus.folder import FolderOptions
from mvindex.corpus.options import PASSAGE_WORDS, CorpusOptions
from mvindex.corpus.paths import Paths
from mvindex.corpus.reader import open_corpus
from mvindex.corpus.rows import Reject
from mvindex.errors import CorpusError
from mvindex.records import Document

logger = logging.getLogger(__name__)


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
