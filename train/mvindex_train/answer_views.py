"""The view of a positive that contains the answer of a question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.records import Ints, Span

_NO_SPAN = (-1, -1)


def find_answer_rows(spans: Ints, starts: Ints, positives: Ints, answer_spans: Sequence[Span | None]) -> Ints:
    """Return the row of the view that contains each question's answer, (q,); -1 where it is unknown or in no view.

    CAMVR does not say which view contains an answer that spans two: here it is the one with most of its characters, the
    first of equals.

    Args:
        spans: (r, 2) spans of the views.
        starts: (n + 1,) as in Views.
        positives: (q,) the document of each question.
        answer_spans: One span for each question, in that document's text.

    """
    answers = np.array([span or _NO_SPAN for span in answer_spans], dtype=np.int64).reshape(-1, 2)
    counts = np.diff(starts)[positives]
    firsts = np.cumsum(counts) - counts
    # Every pair of a question and a view of its positive, in the order of the questions.
    rows = np.arange(counts.sum()) + np.repeat(starts[positives] - firsts, counts)
    ends = np.minimum(spans[rows, 1], np.repeat(answers[:, 1], counts))
    shared = np.maximum(ends - np.maximum(spans[rows, 0], np.repeat(answers[:, 0], counts)), 0)
    most = np.maximum.reduceat(shared, firsts)
    is_best = shared == np.repeat(most, counts)
    best = np.minimum.reduceat(np.where(is_best, rows, len(spans)), firsts)
    answer_rows: Ints = np.where(most > 0, best, -1)
    return answer_rows
