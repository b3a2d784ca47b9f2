"""A row's settings at a size, and the hash by which rows share a training run."""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum

from mvindex_train.config import TrainConfig
from mvindex_train.config_cli import label
from mvindex_train.presets import Budget, preset
from studies_parts.rows import Form, Row


class Size(Enum):
    SMALL = "small"
    FULL = "full"


# MVR's tau falls for 40 epochs and is at its floor after a third of them: here after the first of three.
EPOCHS = 3
PAPER_EPOCHS = 40
BATCH_PASSAGES = 8
QUESTIONS = 4
DEFAULT_STEPS = 12
# Negatives mined anew with the encoder in training are the only ones beside the batch's in small runs.
REFRESHED = "refresh_epochs=1"


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of training of each row. steps: of small runs, a multiple of EPOCHS; full runs use their presets."""

    size: Size = Size.SMALL
    steps: int = DEFAULT_STEPS
    seed: int = 0

    def num_passages(self) -> int | None:
        """Return the number of training passages; None: all."""
        return BATCH_PASSAGES * self.steps // EPOCHS if self.size is Size.SMALL else None


def config_of(row: Row, plan: Plan, train: str, negatives: str | None) -> TrainConfig:
    """Return the settings of the row's training run. negatives: a file of BM25's, for the full size."""
    budget = Budget.SMALL if row.form is Form.SMALL else Budget.FULL
    config = preset(row.preset, budget)
    start = _small(row, config) if plan.size is Size.SMALL else _full(config, negatives)
    given = [f"data.train={train}", f"optimiser.seed={plan.seed}"]
    return config.with_overrides([*start, *row.overrides, *given])


def settings_hash(config: TrainConfig) -> str:
    """Return 12 hex digits, equal for equal settings, whatever the folder of the training files."""
    values = config.as_dict() | {"preset": None, "budget": None}
    data = {**values["data"], "train": _names(config.data.train), "negatives": _names(config.data.negatives)}
    canonical = json.dumps(values | {"data": data}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def describe(config: TrainConfig) -> str:
    """Preset, budget and what is changed, in words."""
    return label(config)


def _small(row: Row, config: TrainConfig) -> list[str]:
    """CPU seconds of any preset: LoRA, few passages, three epochs; in-batch negatives of the same article."""
    values = [
        f"optimiser.epochs={EPOCHS}", "optimiser.max_steps=none", "optimiser.learning_rate=0.001",
        "optimiser.gradient_checkpointing=false", "encoder.lora_rank=16", "encoder.freeze_word_embeddings=true",
        "encoder.separate=false", "encoder.document_length=256", f"data.batch_passages={BATCH_PASSAGES}",
        f"data.questions_per_passage={QUESTIONS}", "data.article_runs=true",
        f"data.hard_negatives={int(REFRESHED in row.overrides)}",
    ]  # fmt: skip
    if config.loss.tau_alpha is not None:
        values.append(f"loss.tau_alpha={preset(row.preset).loss.tau_alpha * PAPER_EPOCHS / EPOCHS}")
    if config.encoder.family in ("viewers", "context-viewers"):
        values.append("optimiser.viewer_learning_rate=0.01")
        if row.form is Form.PAPER:
            values.append("encoder.pooling=cls")  # so that a question is the state of its [VIE], MVR section 3.2
    return values


def _full(config: TrainConfig, negatives: str | None) -> list[str]:
    """The preset, with BM25's negatives where it wants some; MVR's and CAMVR's ablations have no mined ones."""
    values = ["optimiser.max_steps=none"]
    if config.encoder.family in ("viewers", "context-viewers") and config.encoder.pooling is None:
        values.append("encoder.pooling=cls")  # as above
    if config.data.hard_negatives and negatives is not None:
        values.append(f"data.negatives={negatives}")
    return values


def _names(paths: tuple[str, ...]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
