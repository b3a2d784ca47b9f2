"""Files of prose as documents: each is split into passages at its headings and paragraphs."""

from mvindex.corpus.passages.documents import passage_format
from mvindex.corpus.passages.outline import Block, Outline, Section

__all__ = ["Block", "Outline", "Section", "passage_format"]
