"""DPR's biencoder files: one JSON array of {question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs}."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex_train.data.readers.context import ReadContext
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example

PASSAGE_IDS = ("passage_id", "psg_id", "id")


def read_dpr(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the examples of an array, or of one object a line; hard negatives come before the other negatives."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("question_id", "id", "_id"))
        positives = context.documents(entry.entries("positive_ctxs"), *PASSAGE_IDS)
        negatives = [
            document
            for name in ("hard_negative_ctxs", "negative_ctxs")
            for document in context.documents(entry.entries(name, optional=True), *PASSAGE_IDS)
        ]
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(
                    question_id, entry.string("question"), positives, tuple(negatives), entry.strings("answers")
                )
