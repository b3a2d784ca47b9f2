"""Joining of mined negatives to the examples that they were mined for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mvindex_train.data.records import Example, content_key, unique_documents
from mvindex_train.data.store import ExampleStore


@dataclass(slots=True)
class JoinReport:
    """Numbers of examples with and without a row of mined negatives."""

    joined: int = 0
    unmatched: int = 0


def join_negatives(examples: Iterable[Example], mined: ExampleStore, report: JoinReport) -> Iterator[Example]:
    """Yield the examples, with the negatives of the mined row of the same question (id and text) appended.

    mined: a store of the files of `mvindex mine`, which finds rows by question in bounded memory.
    """
    for example in examples:
        row = mined.row_of(example.question_id, example.question)
        report.joined += row is not None
        report.unmatched += row is None
        yield example if row is None else merge_negatives(example, mined[row])


def merge_negatives(example: Example, mined: Example) -> Example:
    """Append the mined negatives to the example's own.

    Documents of the example and positives of the mined row are left out. Teacher scores of both are used, the example's
    own first; NaN where neither has one.
    """
    known = {content_key(document) for document in (*example.documents, *mined.positives)}
    added = [document for content, document in unique_documents(mined.negatives).items() if content not in known]
    merged = replace(example, negatives=(*example.negatives, *added), teacher=None)
    scores = {**mined.scores(), **example.scores()}
    if not scores:
        return merged
    return replace(merged, teacher=tuple(scores.get(content_key(document), math.nan) for document in merged.documents))
