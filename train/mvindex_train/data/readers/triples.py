"""MS MARCO's triples: `query<TAB>positive<TAB>negative`, as texts or as ids beside queries and collection."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mvindex.corpus.streams import read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.records import Document
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import Reading, beside, read_passage
from mvindex_train.data.records import Example


def read_triples(path: str, reading: Reading) -> Iterator[Example]:
    """An example for each line of three texts; a passage's id is the hash of its text."""
    for place, (query, *texts) in _rows(path):
        question_id = reading.question_id(None)
        positive, negative = (reading.shown([read_passage(Entry({"text": text}, place))]) for text in texts)
        if reading.has_positive(positive):
            yield _example(place, (question_id, query), positive, negative)


def read_triple_ids(path: str, reading: Reading) -> Iterator[Example]:
    """An example for each line of three ids, the query's and the two passages'."""
    folder, options = os.path.dirname(path) or ".", reading.options
    queries = reading.corpus(options.queries or beside(folder, "queries.train.tsv", "queries.tsv"))
    passages = reading.corpus(options.passages or beside(folder, "collection.tsv"))
    for place, (query_id, *ids) in _rows(path):
        positive, negative = (passages.get(doc_id, place) for doc_id in ids)
        yield _example(place, (query_id, queries.get(query_id, place).text), (positive,), (negative,))


def _rows(path: str) -> Iterator[tuple[str, list[str]]]:
    """The place and the three cells of each line that is not blank."""
    name = stream_name(path)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 3:
            raise CorpusError(
                f"{name}:{number}: {len(cells)} columns parted by tabs; wanted 3, `query<TAB>positive<TAB>negative`"
            )
        yield f"{name}:{number}", cells


def _example(
    place: str, question: tuple[str, str], positives: tuple[Document, ...], negatives: tuple[Document, ...]
) -> Example:
    with Entry({}, place).located():
        return Example(*question, positives, negatives)
