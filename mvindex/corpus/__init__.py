"""Corpus files -> a stream of documents; each bad row is named with its file, its line and the reason."""

from mvindex.corpus.options import MAX_ROW_BYTES, CorpusFormat, CorpusOptions
from mvindex.corpus.reader import Corpus, open_corpus, read_documents
from mvindex.corpus.rejects import RejectsWriter
from mvindex.corpus.rows import Place, Reject, Row, Source

__all__ = [
    "MAX_ROW_BYTES",
    "Corpus",
    "CorpusFormat",
    "CorpusOptions",
    "Place",
    "Reject",
    "RejectsWriter",
    "Row",
    "Source",
    "open_corpus",
    "read_documents",
]
