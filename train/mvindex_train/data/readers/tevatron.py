"""Tevatron's JSONL: {query_id, query, positive_passages, negative_passages}, with answers and teacher_scores or not."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.records import has_visible
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import Reading
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example

PASSAGE_IDS = ("docid", "id")


def read_tevatron(path: str, reading: Reading) -> Iterator[Example]:
    """The examples of an object a line; teacher_scores are of the positives, then of the negatives."""
    for entry in read_objects(path):
        question_id = reading.question_id(entry.optional_id("query_id"))
        given = [*entry.entries("positive_passages"), *entry.entries("negative_passages", optional=True)]
        teacher = _shown_scores(entry, given)
        positives = reading.documents(entry.entries("positive_passages"), *PASSAGE_IDS)
        negatives = reading.documents(entry.entries("negative_passages", optional=True), *PASSAGE_IDS)
        if reading.has_positive(positives):
            with entry.located():
                yield Example(
                    question_id,
                    entry.string("query"),
                    positives,
                    negatives,
                    answers=entry.strings("answers"),
                    teacher=teacher,
                )


def _shown_scores(entry: Entry, given: list[Entry]) -> tuple[float, ...] | None:
    """The teacher's scores of the passages that show a text, as only those are kept; None where there are no scores."""
    scores = entry.numbers("teacher_scores")
    if scores is None:
        return None
    if len(scores) != len(given):
        raise entry.error(
            f'"teacher_scores" holds {len(scores)} scores; wanted {len(given)}, one for each positive and each negative'
        )
    return tuple(score for score, passage in zip(scores, given, strict=True) if _shows(passage))


def _shows(passage: Entry) -> bool:
    return has_visible(passage.text("text")) or has_visible(passage.text("title"))
