"""Question files whose `passage_id` names a row of a passages file."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.eval.questions import QuestionFormat, read_questions
from mvindex_train.data.readers.context import Reading
from mvindex_train.data.records import Example


def read_asked(path: str, reading: Reading) -> Iterator[Example]:
    """The questions whose passage is named, each with that passage."""
    passages = reading.passages(path)
    for question in read_questions([path], QuestionFormat.JSONL):
        found = () if question.passage_id is None else (question.passage_id,)
        place = f"{path}: question {question.id!r}"
        positives = tuple(passages.get(passage_id, place) for passage_id in found)
        if reading.has_positive(positives):
            yield Example(question.id, question.text, positives, answers=question.answers or ())
