"""Candidates for negatives of a question: the protocol of their sources, filters, and those of an earlier file."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Protocol

from mvindex.errors import CorpusError
from mvindex.measure.metrics import AnswerMatcher
from mvindex.records import Document
from mvindex_train.data.records import SOURCE, Example, load_example, read_numbered_examples, write_example

# Separates the names of several sources of one negative.
SOURCE_SEPARATOR = "+"
# Decimals of a written score: float32 has hardly more of a score near 1.
_SCORE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document ranked for a question: its score, its rank from 1, the names of its sources; None where unknown."""

    document: Document
    score: float | None = None
    rank: int | None = None
    source: str | None = None

    def to_document(self) -> Document:
        """Return the document with score, rank and source as metadata, as in a row of training data."""
        score = None if self.score is None else round(float(self.score), _SCORE_DIGITS)
        metadata = {"score": score, "rank": self.rank, SOURCE: self.source}
        known = {name: value for name, value in metadata.items() if value is not None}
        return replace(self.document, metadata={**self.document.metadata, **known})


def candidate_of(document: Document) -> Candidate:
    """Return the candidate of a document made by to_document()."""
    metadata = document.metadata
    return Candidate(document, metadata.get("score"), metadata.get("rank"), metadata.get(SOURCE))


class CandidateSource(Protocol):
    """A ranking of documents for questions."""

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """Return for each question at most depth distinct documents, best first."""
        ...


def interleave(lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Interleave the candidates of several sources, each document once with the names of all its sources."""
    in_turns = [candidate for turn in zip_longest(*lists) for candidate in turn if candidate is not None]
    return merge_duplicates(in_turns)


def merge_duplicates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Merge candidates of the same document into the first one, which keeps its score and rank and gets all sources."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        known = first.setdefault(candidate.document.id, candidate)
        if known is not candidate:
            first[candidate.document.id] = replace(known, source=_join(known.source, candidate.source))
    return list(first.values())


def _join(one: str | None, other: str | None) -> str | None:
    names = [name for sources in (one, other) if sources for name in sources.split(SOURCE_SEPARATOR)]
    return SOURCE_SEPARATOR.join(dict.fromkeys(names)) or None


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


class EarlierFile:
    """A file of `mvindex mine`, read by question id, with one offset in memory for each row; close it after use.

    Its rows are copied to a temporary file, as a compressed file has no random access. Raises CorpusError, with file
    and line, for an invalid row or one with the id of another question.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # By question id: line number and offset in the copy of each row.
        self._rows: dict[str, list[tuple[int, int]]] = {}
        self._copy = tempfile.TemporaryFile(prefix="mvindex-earlier-")
        try:
            self._write()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close and delete the copy."""
        self._copy.close()

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """Return the question's earlier negatives in order; none where the file does not contain the question."""
        negatives: list[Candidate] = []
        for number, begin in self._rows.get(example.question_id, []):
            place = f"{self._path}:{number}"
            self._copy.seek(begin)
            earlier = load_example(self._copy.readline().decode(), place)
            if earlier.question != example.question:
                raise CorpusError(
                    f"{place}: question {example.question_id!r}: expected {example.question[:60]!r}, got "
                    f"{earlier.question[:60]!r}. Merge a file of the same questions"
                )
            negatives += map(candidate_of, earlier.negatives)
        return negatives

    def _write(self) -> None:
        end = 0
        try:
            for number, example in read_numbered_examples(self._path):
                self._rows.setdefault(example.question_id, []).append((number, end))
                end += write_example(example, self._copy)
            self._copy.flush()
        except OSError as err:
            raise CorpusError(f"{self._path}: cannot be copied to {tempfile.gettempdir()}: {err.strerror}") from err
