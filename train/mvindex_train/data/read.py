"""Training data in any format that is read -> one stream of Example, with the answers' places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from mvindex.corpus.streams import stream_name
from mvindex.errors import CorpusError
from mvindex.records import Document, has_visible
from mvindex_train.data.answers import with_span
from mvindex_train.data.detect import detect
from mvindex_train.data.options import ReadOptions, TrainingFormat
from mvindex_train.data.readers.beir import read_beir
from mvindex_train.data.readers.context import Reading
from mvindex_train.data.readers.dpr import read_dpr
from mvindex_train.data.readers.pairs import read_pairs
from mvindex_train.data.readers.questions import read_asked
from mvindex_train.data.readers.squad import read_squad
from mvindex_train.data.readers.tevatron import read_tevatron
from mvindex_train.data.readers.triples import read_triple_ids, read_triples
from mvindex_train.data.records import ARTICLE, Example, read_examples
from mvindex_train.data.report import Count, Report
from mvindex_train.data.splits import read_shared


def read_training(
    paths: Sequence[str], options: ReadOptions | None = None, report: Report | None = None
) -> Iterator[Example]:
    """The examples of the files, one after the other, each with its answer's place where there is one.

    report: filled while the stream is read. A question without an id takes its number among those that have none, so
    the same files in the same order give the same ids. CorpusError, with file and line or entry: a row that is wrong,
    a file that gives no example. ConfigError: ids without the passages that they name.
    """
    options, report = options or ReadOptions(), report or Report()
    with ExitStack() as resources:
        reading = Reading(options, report, resources)
        for path in paths:
            yield from _read_file(path, reading)


def _read_file(path: str, reading: Reading) -> Iterator[Example]:
    num_before = reading.report.counts[Count.EXAMPLES]
    for example in READERS[reading.options.format or detect(path)](path, reading):
        reading.report.add(Count.EXAMPLES)
        titled = example if reading.options.title else without_titles(example)
        yield with_span(titled, reading.report)
    if reading.report.counts[Count.EXAMPLES] == num_before:
        counted = "; ".join(reading.report.lines())
        raise CorpusError(f"{stream_name(path)}: gives no example{counted and f' ({counted})'}; wanted one or more")


def without_titles(example: Example) -> Example:
    """The example with titles left out of its documents, but for those that have no other text."""
    return replace(
        example,
        positives=tuple(without_title(document) for document in example.positives),
        negatives=tuple(without_title(document) for document in example.negatives),
    )


def without_title(document: Document) -> Document:
    """The document without its title, which stays known as its article; the same one where there is no other text."""
    if not document.title or not has_visible(document.text):
        return document
    return Document(document.id, document.text, "", {ARTICLE: document.title, **document.metadata})


def _read_own(path: str, _: Reading) -> Iterator[Example]:
    return read_examples(path)


READERS: Mapping[TrainingFormat, Callable[[str, Reading], Iterator[Example]]] = {
    TrainingFormat.DPR: read_dpr,
    TrainingFormat.SQUAD: read_squad,
    TrainingFormat.QUESTIONS: read_asked,
    TrainingFormat.BEIR: read_beir,
    TrainingFormat.TRIPLES: read_triples,
    TrainingFormat.TRIPLE_IDS: read_triple_ids,
    TrainingFormat.TEVATRON: read_tevatron,
    TrainingFormat.PAIRS: read_pairs,
    TrainingFormat.EXAMPLES: _read_own,
    TrainingFormat.SHARED: read_shared,
}
