"""Plain pairs: one object a line with a `passage` and a `question` asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import Reading, read_passage
from mvindex_train.data.readers.objects import read_objects
from mvindex_train.data.records import Example


def read_pairs(path: str, reading: Reading) -> Iterator[Example]:
    """An example for each pair; optional are id, passage_id, title and answers."""
    for entry in read_objects(path):
        question_id = reading.question_id(entry.optional_id("id"))
        passage = {**entry.fields, "text": entry.string("passage")}
        positives = reading.shown([read_passage(Entry(passage, entry.place), "passage_id")])
        if reading.has_positive(positives):
            with entry.located():
                yield Example(question_id, entry.string("question"), positives, answers=entry.strings("answers"))
