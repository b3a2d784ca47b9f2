"""Training data in any supported format -> one stream of examples with their answer spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from mvindex.corpus.inputs import stream_name
from mvindex.errors import CorpusError
from mvindex.records import Document, has_visible
from mvindex_train.data.answers import add_answer_span
from mvindex_train.data.detect import detect
from mvindex_train.data.options import ReadOptions, TrainingFormat
from mvindex_train.data.readers.beir import read_beir
from mvindex_train.data.readers.context import ReadContext
from mvindex_train.data.readers.dpr import read_dpr
from mvindex_train.data.readers.jsonl import read_pairs, read_question_file
from mvindex_train.data.readers.squad import read_squad
from mvindex_train.data.readers.tevatron import read_tevatron
from mvindex_train.data.readers.triples import read_triple_ids, read_triples
from mvindex_train.data.records import ARTICLE, Example, read_examples
from mvindex_train.data.report import ReadCount, ReadReport


def read_training(
    paths: Sequence[str], options: ReadOptions | None = None, report: ReadReport | None = None
) -> Iterator[Example]:
    """Yield the examples of the files in order, each with its answer span where one is found.

    A question without an id takes its number among those without one, so that the same files in the same order give
    the same ids.

    Args:
        paths: Files or folders of training data.
        options: How to read them; None takes the defaults.
        report: Filled while the examples are read.

    Raises:
        CorpusError: A row is invalid, or a file yields no example; the message names file and line or entry.
        ConfigError: A file contains ids, and the passages that they refer to are not given.

    """
    options, report = options or ReadOptions(), report or ReadReport()
    with ExitStack() as resources:
        context = ReadContext(options, report, resources)
        for path in paths:
            yield from _read_file(path, context)


def _read_file(path: str, context: ReadContext) -> Iterator[Example]:
    num_before = context.report.counts[ReadCount.EXAMPLES]
    for example in READERS[context.options.format or detect(path)](path, context):
        context.report.add(ReadCount.EXAMPLES)
        titled = example if context.options.title else _remove_titles(example)
        yield add_answer_span(titled, context.report)
    if context.report.counts[ReadCount.EXAMPLES] == num_before:
        counts = "; ".join(context.report.lines())
        raise CorpusError(f"{stream_name(path)}: expected one example or more, got none{counts and f' ({counts})'}")


def _remove_titles(example: Example) -> Example:
    return replace(
        example,
        positives=tuple(remove_title(document) for document in example.positives),
        negatives=tuple(remove_title(document) for document in example.negatives),
    )


def remove_title(document: Document) -> Document:
    """Return the document without its title, which becomes its article; unchanged where the title is its only text."""
    if not document.title or not has_visible(document.text):
        return document
    return Document(document.id, document.text, "", {ARTICLE: document.title, **document.metadata})


READERS: Mapping[TrainingFormat, Callable[[str, ReadContext], Iterator[Example]]] = {
    TrainingFormat.DPR: read_dpr,
    TrainingFormat.SQUAD: read_squad,
    TrainingFormat.QUESTIONS: read_question_file,
    TrainingFormat.BEIR: read_beir,
    TrainingFormat.TRIPLES: read_triples,
    TrainingFormat.TRIPLE_IDS: read_triple_ids,
    TrainingFormat.TEVATRON: read_tevatron,
    TrainingFormat.PAIRS: read_pairs,
    TrainingFormat.EXAMPLES: lambda path, _: read_examples(path),
}
