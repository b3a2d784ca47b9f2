"""Settings of mining: number, sources and selection of negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mvindex.errors import ConfigError
from mvindex_train.data.options import TrainingFormat


class SourceKind(Enum):
    """Sources of negatives."""

    BM25 = "bm25"
    DENSE = "dense"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """How negatives are mined for each question.

    per_question: number of negatives. depth: ranks read from each source. skip_top: first ranks to skip, for noisy
    labels. sample: draw uniformly from the ranks by the seed instead of taking the best. exact: certified dense
    rankings. patterns: answers are regular expressions. keep_below: candidates that the cross-encoder scores higher are
    dropped. teacher: write the cross-encoder's scores. batch_questions: questions in memory at once. work_folder:
    parent of the index of mine_dense() (None: the system's temporary folder).
    """

    per_question: int = 30
    depth: int = 200
    skip_top: int = 0
    sample: bool = False
    seed: int = 0
    exact: bool = False
    patterns: bool = False
    keep_below: float | None = None
    teacher: bool = False
    batch_questions: int = 256
    work_folder: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("per_question", 1), ("depth", 1), ("skip_top", 0), ("seed", 0), ("batch_questions", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: expected {least} or more, got {getattr(self, name)}")
        if self.depth - self.skip_top < self.per_question:
            raise ConfigError(
                f"depth: expected at least {self.per_question} candidates (per_question) after the first "
                f"{self.skip_top} "
                f"ranks, got {self.depth - self.skip_top} at depth {self.depth}"
            )
        if self.keep_below is not None and not math.isfinite(self.keep_below):
            raise ConfigError(f"keep_below: expected a finite score, got {self.keep_below}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningJob:
    """One run of `mvindex mine`.

    questions: files of training data; format: None detects it; passages: the corpus that their ids refer to. The
    documents to mine are those of the index or, without one, of passages. encoder: ranks them for dense negatives
    (None: the index's own). cross_encoder: for config.keep_below and config.teacher. merge: a file of earlier
    negatives.
    """

    questions: tuple[str, ...]
    out: Path
    index: Path | None = None
    passages: str | None = None
    format: TrainingFormat | None = None
    source: SourceKind = SourceKind.BM25
    encoder: str | None = None
    cross_encoder: str | None = None
    merge: str | None = None
    device: str | None = None
    force: bool = False
    config: MiningConfig = MiningConfig()

    def __post_init__(self) -> None:
        if self.index is None and self.passages is None:
            raise ConfigError("expected documents to mine: --index DIR, or --bm25 --passages FILE")
        if self.index is None and self.encoder is None and self.source is not SourceKind.BM25:
            raise ConfigError(f"--source {self.source.value}: expected --encoder without an index, got none")
        if self.encoder is not None and self.source is SourceKind.BM25:
            raise ConfigError(
                f"--encoder: expected --source dense or both, got bm25, which does not use {self.encoder}"
            )
        needs_cross_encoder = self.config.teacher or self.config.keep_below is not None
        if needs_cross_encoder != (self.cross_encoder is not None):
            raise ConfigError(
                "expected --cross-encoder together with --keep-below SCORE or --teacher, got only one of them"
            )
