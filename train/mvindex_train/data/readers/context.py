"""The state that all readers of one run share, and helpers that make documents from fields."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document, has_visible
from mvindex_train.data.entries import Entry
from mvindex_train.data.lookup import DocumentLookup, open_documents
from mvindex_train.data.options import ReadOptions
from mvindex_train.data.records import content_id
from mvindex_train.data.report import ReadCount, ReadReport

COMPRESSIONS = ("", ".gz", ".zst")


@dataclass(slots=True)
class ReadContext:
    """State of one run over the files: options, counts, and the open corpora, each opened once."""

    options: ReadOptions
    report: ReadReport
    resources: ExitStack
    _corpora: dict[str, DocumentLookup] = field(default_factory=dict)
    _num_unnamed: int = 0

    def corpus(self, path: str) -> DocumentLookup:
        """Return the documents of a corpus file by id; opened at the first call, closed with the run."""
        if path not in self._corpora:
            self._corpora[path] = self.resources.enter_context(open_documents([path]))
        return self._corpora[path]

    def passages(self, path: str) -> DocumentLookup:
        """Return the corpus that the ids of a file refer to; raise ConfigError when no passages are given."""
        if self.options.passages is None:
            raise ConfigError(
                f"{path}: contains ids of passages without their texts. Name the corpus with --passages (passages= in "
                "Python)"
            )
        return self.corpus(self.options.passages)

    def question_id(self, own_id: str | None) -> str:
        """Return the question's own id, else its number, from 1, among all questions without one."""
        if own_id is not None:
            return own_id
        self._num_unnamed += 1
        return str(self._num_unnamed)

    def documents(self, entries: Iterable[Entry], *id_fields: str) -> tuple[Document, ...]:
        """Return the documents of these objects with visible text; id_fields: names of the id, the first match wins."""
        return self.visible(read_passage(entry, *id_fields) for entry in entries)

    def visible(self, documents: Iterable[Document]) -> tuple[Document, ...]:
        """Return the documents whose text or title is visible; count the others."""
        visible = []
        for document in documents:
            if has_visible(document.text) or has_visible(document.title):
                visible.append(document)
            else:
                self.report.add(ReadCount.EMPTY_DOCUMENT)
        return tuple(visible)

    def has_positive(self, positives: tuple[Document, ...]) -> bool:
        """Return whether there is a positive; count the question where there is none."""
        if not positives:
            self.report.add(ReadCount.NO_POSITIVE)
        return bool(positives)


def read_passage(entry: Entry, *id_fields: str) -> Document:
    """Return the document of an object with text and title; without an id it takes the hash of its content."""
    title, text = entry.text("title"), entry.text("text")
    with entry.prefix_errors():
        # Validated before it is hashed: a lone surrogate cannot be encoded as UTF-8.
        unnamed = Document("-", text, title)
        return Document(entry.optional_id(*id_fields) or content_id(title, text), unnamed.text, unnamed.title)


def find_file(folder: str | os.PathLike[str], *names: str) -> str:
    """Return the path of the first of the names in a folder, plain or compressed; raise CorpusError without one."""
    for name in names:
        for ending in COMPRESSIONS:
            if (path := Path(folder, name + ending)).is_file():
                return str(path)
    raise CorpusError(f"{folder}: expected {' or '.join(names)}, plain, .gz or .zst; got none")


def has_file(folder: str | os.PathLike[str], name: str) -> bool:
    """Return whether a folder contains the file, plain or compressed."""
    return any(Path(folder, name + ending).is_file() for ending in COMPRESSIONS)
