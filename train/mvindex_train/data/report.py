"""What reading training data counted: examples, what was left out and why, and the fate of the answers."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class Count(enum.Enum):
    """What is counted; the value is how a report calls it."""

    EXAMPLES = "examples"
    IMPOSSIBLE = "impossible questions, left out"
    NO_POSITIVE = "questions without a positive, left out"
    EMPTY_DOCUMENT = "documents that show no text, left out"
    MISPLACED = "answer_start values at which the answer does not stand, looked for instead"
    SPAN_GIVEN = "answers whose place is given"
    SPAN_FOUND = "answers found at one place"
    SPAN_UNFINDABLE = "answers not found in the passage"
    SPAN_AMBIGUOUS = "answers found at several places"
    NO_ANSWERS = "examples without answers"


@dataclass(slots=True)
class Report:
    """The counts of one reading, filled while it goes on."""

    counts: Counter[Count] = field(default_factory=Counter)

    def add(self, count: Count, number: int = 1) -> None:
        """Count so many more."""
        self.counts[count] += number

    def lines(self) -> list[str]:
        """The counts that are not 0, one line each, in the order of Count."""
        return [f"{self.counts[count]:,} {count.value}" for count in Count if self.counts[count]]
