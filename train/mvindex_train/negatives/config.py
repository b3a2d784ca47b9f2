"""What a caller may say about mining: how many negatives, from where, chosen how."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mvindex.errors import ConfigError
from mvindex_train.data.options import TrainingFormat


class SourceKind(Enum):
    """What proposes negatives."""

    BM25 = "bm25"
    DENSE = "dense"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """What is mined for each question.

    per_question: negatives wanted. depth: ranks looked at, from each source. skip_top: first ranks left out, where
    labels are noisy. sample: drawn uniformly from those ranks by the seed, not the best of them. exact: certified dense
    rankings. patterns: answers are regular expressions. keep_below: a candidate that the cross-encoder scores higher is
    left out. teacher: the cross-encoder's scores are kept. batch_questions: questions in memory at once. work_folder:
    where mine_dense() puts its index (None: the system's temporary folder).
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
                raise ConfigError(f"{name} is {getattr(self, name)}; wanted {least} or more")
        if self.depth - self.skip_top < self.per_question:
            raise ConfigError(
                f"depth {self.depth} without the first {self.skip_top} ranks leaves {self.depth - self.skip_top} "
                f"candidates; wanted at least per_question, {self.per_question}"
            )
        if self.keep_below is not None and not math.isfinite(self.keep_below):
            raise ConfigError(f"keep_below is {self.keep_below}; wanted a finite score")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningJob:
    """One run of `mvindex mine`.

    questions: files of training data, read as format (None: found) with the passages that their ids name. The documents
    to mine are those of the index or, without one, of passages. encoder: ranks them for dense negatives (None: the
    index's own). cross_encoder: for config.keep_below and config.teacher. merge: a file of earlier negatives.
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
            raise ConfigError("say which documents to mine: --index DIR, or --bm25 --passages FILE")
        if self.index is None and self.encoder is None and self.source is not SourceKind.BM25:
            raise ConfigError(
                f"--source {self.source.value} without an index needs --encoder, which ranks the passages"
            )
        if self.encoder is not None and self.source is SourceKind.BM25:
            raise ConfigError(f"--encoder {self.encoder} ranks dense negatives; give --source dense or both")
        needs_judge = self.config.teacher or self.config.keep_below is not None
        if needs_judge != (self.cross_encoder is not None):
            raise ConfigError("--cross-encoder goes with --keep-below SCORE or --teacher, and each of them with it")
