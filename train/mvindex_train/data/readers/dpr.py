"""DPR's biencoder files: one JSON array of {question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs}."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex_train.data.readers.context import Reading
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example

PASSAGE_IDS = ("passage_id", "psg_id", "id")


def read_dpr(path: str, reading: Reading) -> Iterator[Example]:
    """The examples of an array, or of an object a line; hard negatives come before the other negatives."""
    for entry in read_objects(path):
        question_id = reading.question_id(entry.optional_id("question_id", "id", "_id"))
        positives = reading.documents(entry.entries("positive_ctxs"), *PASSAGE_IDS)
        negatives = [
            document
            for name in ("hard_negative_ctxs", "negative_ctxs")
            for document in reading.documents(entry.entries(name, optional=True), *PASSAGE_IDS)
        ]
        if reading.has_positive(positives):
            with entry.located():
                yield Example(
                    question_id, entry.string("question"), positives, tuple(negatives), entry.strings("answers")
                )
