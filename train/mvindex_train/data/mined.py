"""Mined negatives joined to the examples that they were mined for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mvindex_train.data.records import Example, content_of, distinct
from mvindex_train.data.store import ExampleStore


@dataclass(slots=True)
class JoinReport:
    """How many examples got negatives, and how many found none mined for them."""

    joined: int = 0
    without: int = 0


def join_negatives(examples: Iterable[Example], mined: ExampleStore, report: JoinReport) -> Iterator[Example]:
    """The examples, each with the negatives of the mined row that has its question (id and text) behind its own.

    Write the files of `mvindex mine` to a store first: it finds rows by question in bounded memory.
    """
    for example in examples:
        row = mined.row_of(example.question_id, example.question)
        report.joined += row is not None
        report.without += row is None
        yield example if row is None else merge_negatives(example, mined[row])


def merge_negatives(example: Example, mined: Example) -> Example:
    """The example with the mined negatives behind its own.

    Left out are those that are among its documents already, or a positive of the mined row. Teacher scores of both are
    kept, the example's own first; NaN where neither has one.
    """
    taken = {content_of(document) for document in (*example.documents, *mined.positives)}
    added = [document for content, document in distinct(mined.negatives).items() if content not in taken]
    merged = replace(example, negatives=(*example.negatives, *added), teacher=None)
    scores = {**mined.scores(), **example.scores()}
    if not scores:
        return merged
    return replace(merged, teacher=tuple(scores.get(content_of(document), math.nan) for document in merged.documents))
