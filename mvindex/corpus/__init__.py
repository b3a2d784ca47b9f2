"""Reads corpus files as a stream of documents; each bad row is reported with its file, line and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex.corpus.folder import Folder, FolderFile, FolderOptions, LeftOut
    from mvindex.corpus.formats import BinaryFormat, TextFormat
    from mvindex.corpus.reader import Corpus, RejectsWriter, is_folder, open_corpus, read_documents
    from mvindex.corpus.registry import find_format
    from mvindex.corpus.rows import MAX_ROW_BYTES, CorpusOptions, Reject, Row, Source, SourceLocation

__all__ = [
    "MAX_ROW_BYTES",
    "BinaryFormat",
    "Corpus",
    "CorpusOptions",
    "Folder",
    "FolderFile",
    "FolderOptions",
    "LeftOut",
    "Reject",
    "RejectsWriter",
    "Row",
    "Source",
    "SourceLocation",
    "TextFormat",
    "find_format",
    "is_folder",
    "open_corpus",
    "read_documents",
]

# Loaded on first use: a search needs the texts below, and no reader.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BinaryFormat": "formats",
        "Corpus": "reader",
        "CorpusOptions": "rows",
        "Folder": "folder",
        "FolderFile": "folder",
        "FolderOptions": "folder",
        "LeftOut": "folder",
        "MAX_ROW_BYTES": "rows",
        "Reject": "rows",
        "RejectsWriter": "reader",
        "Row": "rows",
        "Source": "rows",
        "SourceLocation": "rows",
        "TextFormat": "formats",
        "find_format": "registry",
        "is_folder": "reader",
        "open_corpus": "reader",
        "read_documents": "reader",
    },
)
