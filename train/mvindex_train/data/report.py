"""Counts of a read of training data: examples, what was left out and why, and which answers were located."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


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
