"""Reads corpus files as a stream of documents; each bad row is reported with its file, line and reason."""

from mvindex.corpus.folder import Folder, FolderFile, FolderOptions, LeftOut
from mvindex.corpus.formats import BinaryFormat, TextFormat
from mvindex.corpus.options import MAX_ROW_BYTES, CorpusOptions
from mvindex.corpus.reader import Corpus, is_folder, open_corpus, read_documents
from mvindex.corpus.registry import find_format
from mvindex.corpus.rejects import RejectsWriter
from mvindex.corpus.rows import Reject, Row, Source, SourceLocation

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
