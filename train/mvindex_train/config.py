"""How an encoder is trained: frozen settings, checked when made, from TOML and flags. Imports no torch.

A setting that is absent is None in Python and "none" in TOML, which has no null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mvindex.errors import ConfigError
from mvindex_train.fields import Count, CountOrZero, Names, Positive, PositiveOrZero, Share, check_fields
from mvindex_train.tables import as_tables, merge, parse_overrides, write_toml

Family: TypeAlias = Literal[
    "snippets", "single", "first-k", "poly", "kmeans", "viewers", "context-viewers", "sentences", "splits"
]
# Families whose views stand for a stretch of the text, so that an answer lies in one of them.
SPAN_FAMILIES = ("snippets", "context-viewers", "sentences")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """What is trained. Lengths are tokens, special tokens included; None: as the base has it.

    base: "minilm", a folder or a hub id. family, max_views, pooling, normalise: as in a checkpoint's settings.
    residual: the mean of a viewer's snippet is added to its state so many times. own_snippet: a viewer reads its own
    snippet only (of `viewers`, its own of k equal stretches). viewer_init: where the viewers' embeddings start.
    cluster_init: which tokens k-means starts at, those at equal intervals or random ones.
    separate: questions have an encoder of their own.
    lora_rank: None trains all weights; lora_alpha: None takes twice the rank. dropout: None keeps
    the base's own.
    """

    base: str = "minilm"
    family: Family = "snippets"
    max_views: Count = 8
    pooling: Literal["mean", "cls"] | None = None
    residual: PositiveOrZero = 0.0
    own_snippet: bool = False
    viewer_init: Literal["random", "cls", "pooled"] = "random"
    cluster_init: Literal["interval", "random"] = "interval"
    separate: bool = False
    normalise: bool | None = None
    lora_rank: Count | None = None
    lora_alpha: Positive | None = None
    freeze_word_embeddings: bool = False
    document_length: Count | None = None
    query_length: Count | None = None
    dropout: Share | None = None

    def __post_init__(self) -> None:
        check_fields(self, "encoder.")
        if self.family == "single" and self.max_views != 1:
            raise ConfigError(f"encoder.max_views is {self.max_views}; the family 'single' makes exactly 1")
        for name in ("residual", "own_snippet"):
            if getattr(self, name) and self.family not in ("viewers", "context-viewers"):
                raise ConfigError(
                    f"encoder.{name} is {getattr(self, name)}; it belongs to viewers, and the family is {self.family!r}"
                )
        if self.residual and self.family == "viewers" and not self.own_snippet:
            raise ConfigError(f"encoder.residual is {self.residual}; in the family 'viewers' it needs own_snippet")
        if self.cluster_init != "interval" and self.family != "kmeans":
            raise ConfigError(
                f"encoder.cluster_init is {self.cluster_init!r}; it belongs to 'kmeans', and the family is "
                f"{self.family!r}"
            )
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ConfigError(f"encoder.lora_alpha is {self.lora_alpha}; wanted none, or a lora_rank beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What it is trained on: paths, and how batches are cut.

    train, dev: files of questions; passages: the corpus that their ids name, if they hold no texts; format: None
    detects it. negatives: files of `mvindex mine`. article_runs: a batch's passages are consecutive passages, hence
    near negatives of each other. hard_negatives: a question. title: whether titles are put before texts.
    """

    train: Names = ()
    passages: str | None = None
    format: str | None = None
    dev: Names = ()
    negatives: Names = ()
    batch_passages: Count = 32
    questions_per_passage: Count = 1
    article_runs: bool = False
    hard_negatives: CountOrZero = 0
    title: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "data.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """The loss. Document scores are multiplied by `scale`, then divided by tau.

    The papers' tau acts on raw inner products of states with norms of some 10. Products of unit vectors lie in
    [-1, 1]: without a scale of about 20 the softmax over a batch is nearly flat and teaches little.
    drpq_temperature: divides view scores inside DRPQ's softmax, before any scale, as it does in search.
    tau_floor, tau_alpha: both or neither; with them tau falls from epoch to epoch (MVR eq. 8). local_weight: lambda
    of MVR eq. 5. answer_view: CAMVR eq. 13. distillation_weight: of the KL divergence from a teacher's scores.
    """

    aggregate: Literal["max", "drpq"] = "max"
    drpq_temperature: Positive = 1.0
    scale: Positive = 1.0
    tau: Positive = 1.0
    tau_floor: Positive | None = None
    tau_alpha: Positive | None = None
    local_weight: PositiveOrZero = 0.0
    answer_view: bool = False
    distillation_weight: PositiveOrZero = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "loss.")
        if (self.tau_floor is None) != (self.tau_alpha is None):
            raise ConfigError(
                f"loss.tau_floor is {self.tau_floor} and loss.tau_alpha is {self.tau_alpha}; wanted both or neither"
            )
        if self.tau_floor is not None and self.tau_floor > self.tau:
            raise ConfigError(f"loss.tau_floor is {self.tau_floor}; wanted up to {self.tau}, the tau it falls from")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """The steps. epochs and max_steps: whichever ends first; warmup_share: of all steps.

    viewer_learning_rate: None takes learning_rate. chunk_documents: None encodes a batch at once; a number makes
    the same gradients in chunks of as many documents (GradCache), for batches that do not fit into memory. precision:
    "auto" is bf16 where the device computes in it natively, else fp32.
    """

    learning_rate: Positive = 1e-5
    viewer_learning_rate: Positive | None = None
    weight_decay: PositiveOrZero = 0.0
    warmup_share: Share = 0.1
    schedule: Literal["linear", "constant", "cosine"] = "linear"
    epochs: Count = 40
    max_steps: Count | None = None
    chunk_documents: Count | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    gradient_checkpointing: bool = False
    max_gradient_norm: Positive = 1.0
    seed: CountOrZero = 0

    def __post_init__(self) -> None:
        check_fields(self, "optimiser.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """When and how dev questions are asked. cutoff: dev R@cutoff chooses the best checkpoint; patience: how many
    evaluations without a better one end the training, None never.
    """  # noqa: D205 - the fields are one list

    every_epochs: Count = 1
    patience: Count | None = None
    cutoff: Count = 1

    def __post_init__(self) -> None:
        check_fields(self, "evaluation.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """All settings of a training run; preset and budget name where they come from and change nothing by themselves.

    refresh_epochs: hard negatives are mined anew after as many epochs (ANCE); warm_up_epochs: of warming up before.
    """

    preset: str | None = None
    budget: Literal["full", "small"] = "full"
    refresh_epochs: Count | None = None
    warm_up_epochs: CountOrZero = 0
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        check_fields(self, "")
        if self.loss.answer_view and self.encoder.family not in SPAN_FAMILIES:
            raise ConfigError(
                f"loss.answer_view is True; wanted False: the views of {self.encoder.family!r} stand for no stretch of "
                f"the text; those of {', '.join(SPAN_FAMILIES)} do"
            )

    def with_overrides(self, overrides: Sequence[str]) -> TrainConfig:
        """These settings with values given as texts such as "optimiser.epochs=3"; the last of a name counts.

        Lists are cut at commas, "none" is no value. preset and budget decide other values, so they are not given
        here. Raises ConfigError naming the text or the setting.
        """
        for text in overrides:
            if text.partition("=")[0] in ("preset", "budget"):
                raise ConfigError(f"--set {text!r:.80}; wanted --{text.replace('=', ' ')}")
        return merge(self, parse_overrides(TrainConfig, overrides), "--set")

    def as_dict(self) -> dict[str, Any]:
        """All values by name, each part a dict of its own; what TrainConfig.from_dict takes."""
        return as_tables(self)

    @staticmethod
    def from_dict(values: dict[str, Any], place: str = "settings") -> TrainConfig:
        """The settings that hold the values and defaults for the rest; presets are not looked up.

        place: what gave the values, for messages. Raises ConfigError.
        """
        return merge(TrainConfig(), values, place)

    def to_toml(self) -> str:
        """All values as TOML, which reads back as the same settings, whatever its preset."""
        return write_toml(self.as_dict())

    def fingerprint(self) -> str:
        """Hex SHA-256 of all that training depends on: equal for equal values, whichever preset gave them.

        Files count by their paths, not by what they hold.
        """
        values = {name: value for name, value in self.as_dict().items() if name not in ("preset", "budget")}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def check_has_train(config: TrainConfig) -> None:
    """Nothing; ConfigError when no file to train on is named, which presets leave open."""
    if not config.data.train:
        raise ConfigError("data.train is empty; wanted at least one file of questions to train on")
