"""Which view of its positive holds a question's answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.records import Ints, Span

_NOWHERE = (-1, -1)


def find_answer_rows(spans: Ints, starts: Ints, positives: Ints, answer_spans: Sequence[Span | None]) -> Ints:
    """The row (q,) of the view that holds each question's answer; -1 where its place is unknown or in no view.

    spans: (r, 2) characters of the views' texts; starts: (n + 1,) as in Views; positives: (q,) the document of each
    question; answer_spans: q, characters of that document's text. CAMVR leaves open what holds an answer that lies
    across two views: here it is the view with most of its characters, the first of equals.
    """
    answers = np.array([span or _NOWHERE for span in answer_spans], dtype=np.int64).reshape(-1, 2)
    counts = np.diff(starts)[positives]
    firsts = np.cumsum(counts) - counts
    # Every pair of a question and a view of its positive, question after question.
    rows = np.arange(counts.sum()) + np.repeat(starts[positives] - firsts, counts)
    ends = np.minimum(spans[rows, 1], np.repeat(answers[:, 1], counts))
    shared = np.maximum(ends - np.maximum(spans[rows, 0], np.repeat(answers[:, 0], counts)), 0)
    most = np.maximum.reduceat(shared, firsts)
    is_best = shared == np.repeat(most, counts)
    best = np.minimum.reduceat(np.where(is_best, rows, len(spans)), firsts)
    found: Ints = np.where(most > 0, best, -1)
    return found
