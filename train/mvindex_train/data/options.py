"""Options for reading training data: format, passages, split, and whether titles are kept."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
