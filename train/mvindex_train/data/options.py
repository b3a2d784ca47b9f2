"""What a caller may say about training data: format, passages, part, and whether titles are kept."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class TrainingFormat(enum.Enum):
    """The formats of training data that are read; all but SHARED are told by their content."""

    DPR = "dpr"
    SQUAD = "squad"
    QUESTIONS = "questions"
    BEIR = "beir"
    TRIPLES = "triples"
    TRIPLE_IDS = "triple-ids"
    TEVATRON = "tevatron"
    PAIRS = "pairs"
    EXAMPLES = "examples"
    SHARED = "shared"


class Part(enum.Enum):
    """A part of a split collection."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read training data.

    format: None detects each file's. passages: the corpus that ids name (QUESTIONS, TRIPLE_IDS). queries: the questions
    of TRIPLE_IDS; None takes queries.train.tsv or queries.tsv beside the triples. part: which judgements of a BEIR
    folder, which part of the shared collections. title: False leaves titles out of the passages; they still tell
    which passages are of one article.
    """

    format: TrainingFormat | None = None
    passages: str | None = None
    queries: str | None = None
    part: Part = Part.TRAIN
    title: bool = True
