"""Reading: what the readers share of one run, and the documents and examples that their fields make."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document, has_visible
from mvindex_train.data.entries import Entry
from mvindex_train.data.lookup import DocumentFile, open_documents
from mvindex_train.data.options import ReadOptions
from mvindex_train.data.records import content_id
from mvindex_train.data.report import Count, Report

COMPRESSIONS = ("", ".gz", ".zst")


@dataclass(slots=True)
class Reading:
    """One run over the files: its options, its counts, and the corpora that are open, each once."""

    options: ReadOptions
    report: Report
    resources: ExitStack
    _corpora: dict[str, DocumentFile] = field(default_factory=dict)
    _num_unnamed: int = 0

    def corpus(self, path: str) -> DocumentFile:
        """The documents of a corpus file by id; opened at the first call, closed with the run."""
        if path not in self._corpora:
            self._corpora[path] = self.resources.enter_context(open_documents([path]))
        return self._corpora[path]

    def passages(self, path: str) -> DocumentFile:
        """The corpus that the ids of a file name; ConfigError when no passages are given."""
        if self.options.passages is None:
            raise ConfigError(
                f"{path}: holds the ids of passages, not their texts; name the corpus with --passages "
                "(passages= in Python)"
            )
        return self.corpus(self.options.passages)

    def question_id(self, given: str | None) -> str:
        """The id given, else the number of the question among all that have none, from 1."""
        if given is not None:
            return given
        self._num_unnamed += 1
        return str(self._num_unnamed)

    def documents(self, entries: Iterable[Entry], *id_fields: str) -> tuple[Document, ...]:
        """The documents of these objects that show a text; id_fields: where an id may stand, the first there wins."""
        return self.shown(read_passage(entry, *id_fields) for entry in entries)

    def shown(self, documents: Iterable[Document]) -> tuple[Document, ...]:
        """The documents whose text or title shows something; the others are counted."""
        kept = []
        for document in documents:
            if has_visible(document.text) or has_visible(document.title):
                kept.append(document)
            else:
                self.report.add(Count.EMPTY_DOCUMENT)
        return tuple(kept)

    def has_positive(self, positives: tuple[Document, ...]) -> bool:
        """Whether there is one; counted where there is none."""
        if not positives:
            self.report.add(Count.NO_POSITIVE)
        return bool(positives)


def read_passage(entry: Entry, *id_fields: str) -> Document:
    """The document of an object with text and title; one without id takes the hash of its content."""
    title, text = entry.text("title"), entry.text("text")
    with entry.located():
        # Checked before it is hashed: a lone surrogate has no UTF-8.
        unnamed = Document("-", text, title)
        return Document(entry.optional_id(*id_fields) or content_id(title, text), unnamed.text, unnamed.title)


def beside(path: str | os.PathLike[str], *names: str) -> str:
    """The first of the names that a folder holds, plain or compressed; CorpusError when it holds none."""
    for name in names:
        for ending in COMPRESSIONS:
            if (found := Path(path, name + ending)).is_file():
                return str(found)
    raise CorpusError(f"{path}: has no {' and no '.join(names)}, plain, .gz or .zst; wanted one")


def is_beside(path: str | os.PathLike[str], name: str) -> bool:
    """Whether a folder holds the file, plain or compressed."""
    return any(Path(path, name + ending).is_file() for ending in COMPRESSIONS)
