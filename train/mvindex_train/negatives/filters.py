"""Removal of candidates that are no negatives: positives, their copies, and documents that contain an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mvindex.measure.metrics import AnswerMatcher
from mvindex.records import Document
from mvindex_train.data.records import Example
from mvindex_train.negatives.candidates import Candidate

REMOVED_POSITIVE, REMOVED_ANSWER = "removed_positive", "removed_answer"


class CandidateFilter:
    """Removes candidates that are no negatives of a question, and counts them by reason.

    patterns: answers are regular expressions. Not thread-safe.
    """

    def __init__(self, patterns: bool = False) -> None:
        self._matcher = AnswerMatcher(patterns)

    def filter(self, example: Example, candidates: Iterable[Candidate], counts: Counter[str]) -> Iterator[Candidate]:
        """Yield the remaining candidates in order, lazily.

        Removed are positives by id, copies of positives, and documents whose text (not title) contains an answer by the
        match of DPR's accuracy; for a question without answers only positives and copies. counts: incremented by
        reason.
        """
        has_answer = self._matcher.prepare(example.question_id, example.answers)
        for candidate in candidates:
            if is_positive(candidate.document, example.positives):
                counts[REMOVED_POSITIVE] += 1
            elif example.answers and has_answer(candidate.document.text):
                counts[REMOVED_ANSWER] += 1
            else:
                yield candidate


def is_positive(document: Document, positives: Iterable[Document]) -> bool:
    """Return whether the document has the id of a positive, or its text and title.

    White space is ignored, and so is a title that only one of the two has.
    """
    return any(document.id == positive.id or _is_copy(document, positive) for positive in positives)


def _is_copy(one: Document, other: Document) -> bool:
    # Most pairs already differ in their first word.
    if one.text.split(None, 1)[:1] != other.text.split(None, 1)[:1]:
        return False
    titles = one.title.split(), other.title.split()
    has_equal_title = titles[0] == titles[1] or not (titles[0] and titles[1])
    return has_equal_title and one.text.split() == other.text.split()
