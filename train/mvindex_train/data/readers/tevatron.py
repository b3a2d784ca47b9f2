"""Tevatron's JSONL: {query_id, query, positive_passages, negative_passages}, optionally answers and teacher_scores."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.records import has_visible
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import ReadContext
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example

PASSAGE_IDS = ("docid", "id")


def read_tevatron(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line; teacher_scores belong to the positives, then to the negatives."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("query_id"))
        passages = [*entry.entries("positive_passages"), *entry.entries("negative_passages", optional=True)]
        teacher = _visible_scores(entry, passages)
        positives = context.documents(entry.entries("positive_passages"), *PASSAGE_IDS)
        negatives = context.documents(entry.entries("negative_passages", optional=True), *PASSAGE_IDS)
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(
                    question_id,
                    entry.string("query"),
                    positives,
                    negatives,
                    answers=entry.strings("answers"),
                    teacher=teacher,
                )


def _visible_scores(entry: Entry, passages: list[Entry]) -> tuple[float, ...] | None:
    """Return the teacher's scores of the passages with visible text, as the others are dropped; None without scores."""
    scores = entry.numbers("teacher_scores")
    if scores is None:
        return None
    if len(scores) != len(passages):
        raise entry.error(
            f'"teacher_scores": expected {len(passages)} scores, one for each positive and negative, got {len(scores)}'
        )
    return tuple(score for score, passage in zip(scores, passages, strict=True) if _is_visible(passage))


def _is_visible(passage: Entry) -> bool:
    return has_visible(passage.text("text")) or has_visible(passage.text("title"))
