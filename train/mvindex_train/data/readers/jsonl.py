"""JSONL of one question a line: with a `passage_id` in a corpus, or with the `passage` itself."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.measure.questions import QuestionFormat, read_questions
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import ReadContext, read_passage
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example


def read_question_file(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the questions that have a passage_id, each with that passage."""
    passages = context.passages(path)
    for question in read_questions([path], QuestionFormat.JSONL):
        ids = () if question.passage_id is None else (question.passage_id,)
        place = f"{path}: question {question.id!r}"
        positives = tuple(passages.get(passage_id, place) for passage_id in ids)
        if context.has_positive(positives):
            yield Example(question.id, question.text, positives, answers=question.answers or ())


def read_pairs(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each pair of `passage` and `question`; optional are id, passage_id, title and answers."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("id"))
        passage = Entry({**entry.fields, "text": entry.string("passage")}, entry.place)
        positives = context.visible([read_passage(passage, "passage_id")])
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(question_id, entry.string("question"), positives, answers=entry.strings("answers"))
