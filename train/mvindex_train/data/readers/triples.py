"""MS MARCO's triples: `query<TAB>positive<TAB>negative`, as texts or as ids with queries and collection beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mvindex.corpus.inputs import read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.records import Document
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import ReadContext, find_file, read_passage
from mvindex_train.data.records import Example


def read_triples(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line of three texts; a passage's id is the hash of its text."""
    for place, (query, *texts) in _rows(path):
        question_id = context.question_id(None)
        positive, negative = (context.visible([read_passage(Entry({"text": text}, place))]) for text in texts)
        if context.has_positive(positive):
            yield _example(place, Document(question_id, query), positive, negative)


def read_triple_ids(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line of three ids: the query's and those of two passages."""
    folder, options = os.path.dirname(path) or ".", context.options
    queries = context.corpus(options.queries or find_file(folder, "queries.train.tsv", "queries.tsv"))
    passages = context.corpus(options.passages or find_file(folder, "collection.tsv"))
    for place, (query_id, *ids) in _rows(path):
        positive, negative = (passages.get(doc_id, place) for doc_id in ids)
        yield _example(place, queries.get(query_id, place), (positive,), (negative,))


def _rows(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the three cells of each line that is not blank."""
    name = stream_name(path)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 3:
            raise CorpusError(
                f"{name}:{number}: expected 3 columns separated by tabs, `query<TAB>positive<TAB>negative`, got "
                f"{len(cells)}"
            )
        yield f"{name}:{number}", cells


def _example(place: str, query: Document, positives: tuple[Document, ...], negatives: tuple[Document, ...]) -> Example:
    with Entry({}, place).prefix_errors():
        return Example(query.id, query.text, positives, negatives)
