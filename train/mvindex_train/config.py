"""Settings of a training run: frozen and validated, from TOML and flags. Imports no torch.

An absent value is None in Python and "none" in TOML, which has no null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from mvindex.encoder.checkpoint.families import BUILT_IN, family_names, parse_family
from mvindex.errors import ConfigError
from mvindex.paths import expand_home
from mvindex_train.fields import (
    Choice,
    Count,
    CountOrZero,
    Names,
    Positive,
    PositiveOrZero,
    Share,
    as_tables,
    check_fields,
    merge,
    nest,
    parse_overrides,
    write_toml,
)

FamilyName: TypeAlias = Annotated[str, Choice(family_names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The encoder to train. Lengths are in tokens, special tokens included; None takes the value of the base.

    base: "minilm", a folder or a hub id. family, max_views, pooling, normalise: as in a checkpoint's settings.
    document_share: how much of the mean of a document's views is added to each; None takes the value of the base.
    residual: factor of the mean of a viewer's snippet, which is added to its state. own_snippet: a viewer attends to
    its own snippet only (for `viewers`, to its own of k equal parts of the text). viewer_init: initial embeddings of
    the viewers. cluster_init: initial tokens of k-means, at equal intervals or random. separate: questions have a
    separate encoder. lora_rank: None trains all weights; lora_alpha: None takes twice the rank.
    """

    base: str = "minilm"
    family: FamilyName = "snippets"
    max_views: Count = 8
    pooling: Literal["mean", "cls"] | None = None
    document_share: PositiveOrZero | None = None
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
            raise ConfigError(f"encoder.max_views: expected 1 for the family 'single', got {self.max_views}")
        for name in ("residual", "own_snippet"):
            if getattr(self, name) and self.family not in ("viewers", "context-viewers"):
                raise ConfigError(
                    f"encoder.{name}: expected no value for the family {self.family!r}, which has no viewers, got "
                    f"{getattr(self, name)}"
                )
        if self.residual and self.family == "viewers" and not self.own_snippet:
            raise ConfigError(f"encoder.residual: expected 0 for 'viewers' without own_snippet, got {self.residual}")
        if self.cluster_init != "interval" and self.family != "kmeans":
            raise ConfigError(
                f"encoder.cluster_init: expected 'interval' for the family {self.family!r}, which is not 'kmeans', got "
                f"{self.cluster_init!r}"
            )
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ConfigError(f"encoder.lora_alpha: expected none without a lora_rank, got {self.lora_alpha}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The training data: paths, and how batches are cut.

    train, dev: files of questions. passages: the corpus that their ids refer to. format: None detects it. negatives:
    files of `mvindex mine`. article_runs: a batch has consecutive passages of articles, hence near negatives of each
    other. hard_negatives: number a question. title: whether titles are put before texts.
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
        for name in ("train", "dev", "negatives"):
            object.__setattr__(self, name, tuple(map(expand_home, getattr(self, name))))
        if self.passages is not None:
            object.__setattr__(self, "passages", expand_home(self.passages))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """The loss. Document scores are multiplied by `scale`, then divided by tau.

    The papers' tau acts on raw inner products of states with norms of about 10. Products of unit vectors are in
    [-1, 1]: without a scale of about 20 the softmax over a batch is nearly flat and gives hardly any gradient.
    drpq_temperature: divides view scores inside DRPQ's softmax, before any scale, as in search.
    tau_floor, tau_alpha: both or neither; tau is annealed with them (MVR eq. 8). local_weight: lambda of MVR eq. 5.
    answer_view: CAMVR eq. 13. in_sequence_weight: of the loss that tells a document's answer view from its other views
    (InSeNT). nested: the first 1, 2, 4, ... views of a document are trained to be enough by themselves.
    distillation_weight: of the KL divergence from a teacher's scores.
    """

    aggregate: Literal["max", "drpq"] = "max"
    drpq_temperature: Positive = 1.0
    scale: Positive = 1.0
    tau: Positive = 1.0
    tau_floor: Positive | None = None
    tau_alpha: Positive | None = None
    local_weight: PositiveOrZero = 0.0
    answer_view: bool = False
    in_sequence_weight: PositiveOrZero = 0.0
    nested: bool = False
    distillation_weight: PositiveOrZero = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "loss.")
        if (self.tau_floor is None) != (self.tau_alpha is None):
            raise ConfigError(
                f"loss: expected both tau_floor and tau_alpha or neither, got {self.tau_floor} and {self.tau_alpha}"
            )
        if self.tau_floor is not None and self.tau_floor > self.tau:
            raise ConfigError(f"loss.tau_floor: expected at most {self.tau}, the initial tau, got {self.tau_floor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """Optimiser and schedule. epochs, max_steps: whichever ends first. warmup_share: of all steps.

    viewer_learning_rate: None takes learning_rate. chunk_documents: None encodes a batch at once; a number computes
    the same gradients in chunks of that many documents (GradCache), for batches that do not fit into memory.
    precision: "auto" is bf16 on devices with native bf16, else fp32.
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
    """Evaluation on dev questions.

    cutoff: the best checkpoint is chosen by R@cutoff. patience: number of evaluations without a better one after which
    training stops; None: never. scale: factor of what LoRA learnt, from 0, the base, to 1, as trained; None chooses it
    by R@cutoff. keep: BEIR folders of judged questions whose nDCG@10 that choice must not lower.
    """

    every_epochs: Count = 1
    patience: Count | None = None
    cutoff: Count = 1
    scale: Positive | None = 1.0
    keep: Names = ()

    def __post_init__(self) -> None:
        check_fields(self, "evaluation.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """All settings of a training run. preset and budget name their source and have no effect of their own.

    Attributes:
        preset, budget: Those that the values are from.
        refresh_epochs: Epochs between refreshes of the hard negatives (ANCE); None for no refresh.
        warm_up_epochs: Epochs of warm-up, without questions.
        encoder, data, loss, optimiser, evaluation: The tables of settings; `mvindex train --show-config` prints them.

    Raises ConfigError, which names the setting, for a value that is out of range or contradicts another.
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
        family = parse_family(self.encoder.family)
        spans = {"answer_view": self.loss.answer_view, "in_sequence_weight": self.loss.in_sequence_weight}
        for name, value in spans.items():
            if value and not family.has_spans:
                having = ", ".join(each.name for each in BUILT_IN if each.has_spans)
                raise ConfigError(
                    f"loss.{name}: expected {False if value is True else 0} for the family {family.name!r}, whose "
                    f"views have no spans, got {value}. The views of {having} have"
                )
        if self.loss.nested and not family.is_nested:
            nested = " and ".join(each.name for each in BUILT_IN if each.is_nested)
            raise ConfigError(
                f"loss.nested: expected False for the family {family.name!r}, got True. Of {nested} the first views "
                "are the same, however many follow"
            )

    def with_settings(self, values: Mapping[str, Any]) -> TrainConfig:
        """Return these settings with some replaced.

        Args:
            values: By name, such as {"data.train": ["questions.jsonl"], "optimiser.epochs": 3}.

        Raises:
            ConfigError: A name is unknown or a value invalid; the message names it.

        """
        return merge(self, nest(values), "settings")

    def with_overrides(self, overrides: Sequence[str]) -> TrainConfig:
        """Return these settings with overrides such as "optimiser.epochs=3"; the last one of a name wins.

        Lists are separated by commas; "none" is None. preset and budget determine other values and cannot be
        overridden. Raises ConfigError with the text or the setting.
        """
        for text in overrides:
            if text.partition("=")[0] in ("preset", "budget"):
                raise ConfigError(f"--set: expected --{text.replace('=', ' ')}, got {text!r:.80}")
        return merge(self, parse_overrides(TrainConfig, overrides), "--set")

    def as_dict(self) -> dict[str, Any]:
        """Return all values by name, each table as a dict; the inverse of from_dict()."""
        return as_tables(self)

    @staticmethod
    def from_dict(values: dict[str, Any], place: str = "settings") -> TrainConfig:
        """Return settings with the values, and defaults for the others; presets are not applied.

        place: the source of the values, for messages. Raises ConfigError.
        """
        return merge(TrainConfig(), values, place)

    def to_toml(self) -> str:
        """Return all values as TOML, which reads back as the same settings."""
        return write_toml(self.as_dict())

    def fingerprint(self) -> str:
        """Return the hex SHA-256 of all values but preset and budget; files are included by path, not by content."""
        values = {name: value for name, value in self.as_dict().items() if name not in ("preset", "budget")}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def check_can_train(config: TrainConfig) -> None:
    """Raise ConfigError when a file that the settings need, and presets do not set, is missing."""
    if not config.data.train:
        raise ConfigError("data.train: expected at least one file of questions to train on, got none")
    scale = config.evaluation.scale
    if scale != 1 and config.encoder.lora_rank is None:
        raise ConfigError(f"evaluation.scale: expected 1 without encoder.lora_rank, got {scale or 'auto'}")
    if scale is None and not config.data.dev:
        raise ConfigError("evaluation.scale: expected dev questions (--dev) to choose it by, got none")
    if scale is not None and config.evaluation.keep:
        raise ConfigError(
            f"evaluation.keep: expected --scale auto, which chooses a factor by these sets, got {scale:g}"
        )
