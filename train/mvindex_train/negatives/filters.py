"""Which candidates are no negatives: the positives, their copies, and documents that hold an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mvindex.eval.answers import AnswerMatcher
from mvindex.records import Document
from mvindex_train.data.records import Example
from mvindex_train.negatives.candidates import Candidate

REMOVED_POSITIVE, REMOVED_ANSWER = "removed_positive", "removed_answer"


class CandidateFilter:
    """Leaves out what is no negative of a question, and counts it by reason.

    patterns: answers are regular expressions. Not for several threads at once.
    """

    def __init__(self, patterns: bool = False) -> None:
        self._matcher = AnswerMatcher(patterns)

    def sift(self, example: Example, candidates: Iterable[Candidate], counts: Counter[str]) -> Iterator[Candidate]:
        """The candidates that stay, in their order, each looked at only when it is asked for.

        Removed: a positive by its id, a copy of one, and any text (the title apart) in which an answer stands as DPR's
        accuracy would count it. A question without answers loses its positives only. counts: what was removed so far.
        """
        holds_answer = self._matcher.prepare(example.question_id, example.answers)
        for candidate in candidates:
            if is_positive(candidate.document, example.positives):
                counts[REMOVED_POSITIVE] += 1
            elif example.answers and holds_answer(candidate.document.text):
                counts[REMOVED_ANSWER] += 1
            else:
                yield candidate


def is_positive(document: Document, positives: Iterable[Document]) -> bool:
    """True for a document with the id of a positive, or with its text and title.

    White space does not count, and a title that only one of the two has does not tell them apart.
    """
    return any(document.id == positive.id or _is_copy(document, positive) for positive in positives)


def _is_copy(one: Document, other: Document) -> bool:
    # Most pairs differ in their first word already.
    if one.text.split(None, 1)[:1] != other.text.split(None, 1)[:1]:
        return False
    titles = one.title.split(), other.title.split()
    has_equal_title = titles[0] == titles[1] or not (titles[0] and titles[1])
    return has_equal_title and one.text.split() == other.text.split()
