"""Options for reading training data, and the counts of a read: examples, what was left out and why."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class TrainingFormat(enum.Enum):
    """Formats of training data; each is detected from the content where none is named."""

    DPR = "dpr"
    SQUAD = "squad"
    QUESTIONS = "questions"
    BEIR = "beir"
    TRIPLES = "triples"
    TRIPLE_IDS = "triple-ids"
    TEVATRON = "tevatron"
    PAIRS = "pairs"
    EXAMPLES = "examples"


class Split(enum.Enum):
    """A split of a collection."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read training data.

    format: None detects each file's. passages: the corpus that ids refer to (QUESTIONS, TRIPLE_IDS). queries: the
    questions of TRIPLE_IDS; None takes queries.train.tsv or queries.tsv beside the triples. split: which qrels of a
    BEIR folder. title: False removes titles from passages; passages of one article are still recognised by them.
    """

    format: TrainingFormat | None = None
    passages: str | None = None
    queries: str | None = None
    split: Split = Split.TRAIN
    title: bool = True


class ReadCount(enum.Enum):
    """Kinds of events that are counted; the value is the label in a report."""

    EXAMPLES = "examples"
    IMPOSSIBLE = "impossible questions, left out"
    NO_POSITIVE = "questions without a positive, left out"
    EMPTY_DOCUMENT = "documents without visible text, left out"
    MISPLACED = "wrong answer_start values; the answer was searched for instead"
    SPAN_GIVEN = "answers with a given span"
    SPAN_FOUND = "answers found once in their passage"
    SPAN_UNFINDABLE = "answers not found in their passage"
    SPAN_AMBIGUOUS = "answers found several times in their passage"
    NO_ANSWERS = "examples without answers"


@dataclass(slots=True)
class ReadReport:
    """Counts of one read, updated while the examples are read."""

    counts: Counter[ReadCount] = field(default_factory=Counter)

    def add(self, count: ReadCount, number: int = 1) -> None:
        """Increase a count."""
        self.counts[count] += number

    def lines(self) -> list[str]:
        """Return one line for each count that is not 0, in the order of ReadCount."""
        return [f"{self.counts[count]:,} {count.value}" for count in ReadCount if self.counts[count]]
