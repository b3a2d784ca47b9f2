"""Settings of the papers' methods and of our own, each value with its source.

A preset is a method, a budget the amount of training. Values that a paper does not state are marked as our choice. The
papers train BERT base or coCondenser. No package contains them, so every preset starts from the packaged "minilm",
which is stated wherever a preset is shown; set encoder.base to a hub id or a folder for the paper's base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from mvindex.errors import ConfigError
from mvindex_train.config import TrainConfig
from mvindex_train.fields import merge, nest

# "table.field" -> (value, source)
Values: TypeAlias = dict[str, tuple[Any, str]]


class Budget(Enum):
    """The amount of training of a preset."""

    FULL = "full"
    SMALL = "small"


@dataclass(frozen=True, slots=True)
class Preset:
    """The settings of a method. paper: their source, None for our own; base: the paper's base."""

    name: str
    paper: str | None
    base: str
    values: Values


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one setting by the small budget, and its reason."""

    name: str
    full: Any
    small: Any
    reason: str


_BERT = "google-bert/bert-base-uncased"
_COCONDENSER = "Luyu/co-condenser-wiki"

# Karpukhin et al. 2020, the recipe that MVR and, through it, CAMVR follow.
_DPR: Values = {
    "encoder.separate": (True, "DPR: one encoder for questions, one for passages"),
    "encoder.pooling": ("cls", "DPR: the [CLS] state"),
    "encoder.normalise": (False, "DPR: raw inner products, hence scale 1"),
    "encoder.document_length": (256, "our choice: left open; CAMVR's"),
    "encoder.query_length": (128, "our choice: left open; CAMVR's"),
    "encoder.dropout": (0.1, "DPR"),
    "data.batch_passages": (128, "DPR"),
    "data.hard_negatives": (1, "DPR: one BM25 negative a question beside the in-batch ones"),
    "loss.scale": (1.0, "DPR: raw inner products"),
    "loss.tau": (1.0, "DPR has none"),
    "optimiser.learning_rate": (1e-5, "DPR"),
    "optimiser.weight_decay": (0.0, "DPR: Adam"),
    "optimiser.warmup_share": (0.1, "our choice: DPR warms up, the share is left open"),
    "optimiser.schedule": ("linear", "DPR"),
    "optimiser.epochs": (40, "MVR, of its DPR as well"),
}
_ONE_ENCODER: Values = {"encoder.separate": (False, "our choice: MVR section 3.1 shares one encoder, eq. 3 has two")}

_SINGLE: Values = {"encoder.family": ("single", "DPR"), "encoder.max_views": (1, "DPR: one vector")}
_FIRST_K: Values = {
    "encoder.family": ("first-k", "Luan et al. 2021: states of the first k tokens"),
    "encoder.max_views": (8, "MVR, ablation: ME-BERT is best at 8"),
}
_POLY: Values = {
    "encoder.family": ("poly", "Humeau et al. 2020: learnt codes"),
    "encoder.max_views": (8, "our choice: as MVR's views"),
    "loss.aggregate": ("drpq", "Humeau et al. 2020: attention over the k vectors, DRPQ eq. 4-6"),
    "loss.drpq_temperature": (1.0, "DRPQ eq. 4: none"),
}
_KMEANS: Values = {
    "encoder.family": ("kmeans", "DRPQ eq. 1-2"),
    "encoder.max_views": (4, "DRPQ, passages; 8 for MS MARCO documents"),
    "encoder.cluster_init": ("interval", "DRPQ: better than random"),
    "encoder.document_length": (512, "DRPQ"),
    "encoder.separate": (False, "our choice: left open"),
    "encoder.dropout": (0.1, "our choice: left open; BERT's own"),
    "data.batch_passages": (16, "DRPQ"),
    "data.hard_negatives": (4, "DRPQ"),
    "loss.aggregate": ("drpq", "DRPQ eq. 4-6 and 8"),
    "loss.drpq_temperature": (1.0, "DRPQ eq. 4: none"),
    "optimiser.learning_rate": (2e-6, "DRPQ"),
    "optimiser.weight_decay": (0.01, "our choice: AdamW, its decay is left open; PyTorch's default"),
    "optimiser.epochs": (10, "our choice: left open"),
    "refresh_epochs": (1, "DRPQ: ANCE's refresh of negatives; how often is our choice"),
}
_VIEWERS: Values = {
    "encoder.family": ("viewers", "MVR eq. 3"),
    "encoder.max_views": (8, "MVR: best k"),
    "encoder.pooling": ("cls", "MVR: a question is the state of its own [VIE], in [CLS]'s place"),
    "encoder.viewer_init": ("random", "MVR"),
    "loss.aggregate": ("max", "MVR eq. 4"),
    "loss.tau": (1.0, "MVR eq. 8 at epoch 0"),
    "loss.tau_floor": (0.3, "MVR eq. 8"),
    "loss.tau_alpha": (0.1, "MVR eq. 8"),
    "loss.local_weight": (0.01, "MVR eq. 5: lambda"),
    "optimiser.epochs": (40, "MVR"),
}
_CONTEXT_VIEWERS: Values = {
    "encoder.family": ("context-viewers", "CAMVR alg. 1, eq. 10-12"),
    "encoder.max_views": (8, "CAMVR: n"),
    "encoder.residual": (0.0, "CAMVR: only the viewer's state"),
    "encoder.own_snippet": (False, "CAMVR: viewers attend to everything"),
    "encoder.document_length": (256, "CAMVR"),
    "encoder.query_length": (128, "CAMVR"),
    "encoder.dropout": (0.1, "CAMVR"),
    "data.batch_passages": (112, "CAMVR: 56 on each of 2 GPUs"),
    "data.hard_negatives": (1, "our choice: BM25 first, BM25 and mined after; how many is left open"),
    "loss.local_weight": (0.0, "CAMVR: no local loss"),
    "loss.answer_view": (True, "CAMVR eq. 13"),
    "optimiser.learning_rate": (1e-5, "CAMVR"),
    "optimiser.epochs": (40, "CAMVR: as MVR"),
    "optimiser.precision": ("auto", "CAMVR: mixed precision; bf16 for fp16, where the device has it, is our choice"),
    "optimiser.gradient_checkpointing": (True, "CAMVR"),
}
_SENTENCES: Values = {
    "encoder.family": ("sentences", "MVR, sentence-level retrieval"),
    "encoder.max_views": (32, "our choice: all sentences, but for texts of very many"),
}
_SPLITS: Values = {
    "encoder.family": ("splits", "MVR, equal splits"),
    "encoder.max_views": (4, "MVR: 4 is better than 8"),
}
# Our own: vectors of unit length, hence scale 20.
_SNIPPETS: Values = {
    "encoder.family": ("snippets", "ours"),
    "encoder.max_views": (8, "ours: CAMVR's n"),
    "encoder.normalise": (None, "ours: as the base, whose vectors have length 1"),
    "encoder.lora_rank": (16, "ours: as good as all weights, 2.6 MB"),
    "encoder.freeze_word_embeddings": (True, "ours"),
    "data.batch_passages": (32, "ours"),
    "data.questions_per_passage": (8, "ours: nearly all of a passage's, which are short"),
    "data.article_runs": (True, "ours: passages of one article are hard negatives of each other"),
    "loss.aggregate": ("max", "ours"),
    "loss.scale": (20.0, "ours: products of unit vectors lie in [-1, 1]"),
    "optimiser.learning_rate": (1e-3, "ours, of LoRA"),
    "optimiser.epochs": (2, "ours"),
}
# The first 1, 2, 4 and 8 views each work by themselves (MetaEmbed, arXiv 2509.18095).
_NESTED: Values = {
    "encoder.family": ("poly", "ours: each code makes its view without the others"),
    "loss.nested": (True, "MetaEmbed"),
}

_ALL = (
    Preset("dpr", "DPR", _BERT, _DPR | _SINGLE),
    Preset("me-bert", "ME-BERT", _BERT, _DPR | _FIRST_K),
    Preset("poly", "Poly-encoder", _BERT, _DPR | _POLY),
    Preset("drpq", "DRPQ", _BERT, _DPR | _KMEANS),
    Preset("mvr", "MVR", _BERT, _DPR | _ONE_ENCODER | _VIEWERS),
    Preset("camvr", "CAMVR", _COCONDENSER, _DPR | _ONE_ENCODER | _VIEWERS | _CONTEXT_VIEWERS),
    Preset("snippets", None, "minilm", _SNIPPETS),
    Preset("nested", None, "minilm", _SNIPPETS | _NESTED),
    Preset("sentences", "MVR", _BERT, _DPR | _SENTENCES),
    Preset("splits", "MVR", _BERT, _DPR | _SPLITS),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})


def find_preset(name: str) -> Preset:
    """Return the preset of this name; raise ConfigError with the known names."""
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(map(repr, PRESETS))}, got {name!r:.80}")
    return PRESETS[name]


def parse_budget(name: str) -> Budget:
    """Return the budget of this name; raise ConfigError for any other."""
    try:
        return Budget(name)
    except ValueError:
        raise ConfigError(f"budget: expected 'full' or 'small', got {name!r:.80}") from None


def preset(name: str, budget: Budget | str = Budget.FULL) -> TrainConfig:
    """Return the settings of a preset at a budget, without files to train on.

    Args:
        name: The method, as `mvindex train --preset`.
        budget: "full", or "small" for CPU minutes.

    Raises:
        ConfigError: The preset or the budget is unknown.

    """
    full = _full(find_preset(name))
    if (parse_budget(budget) if isinstance(budget, str) else budget) is Budget.FULL:
        return full
    changes = {change.name: change.small for change in small_budget(full)}
    return merge(full, nest({"budget": "small", **changes}), f"preset {name!r}")


def small_budget(full: TrainConfig) -> list[Change]:
    """Return the changes by which the small budget trains in CPU minutes instead of GPU days.

    Family, number of views, aggregate, losses and their weights stay. Changed are:
    - the amount: at most 2 epochs and 150 steps, 32 passages a batch, 256 tokens; an annealed tau reaches its floor
      after the same share of the epochs as in the paper; negatives are not refreshed;
    - the negatives: passages of one article in a batch replace BM25's, which cost as much encoding as positives;
    - the weights: a LoRA of rank 8 at 5e-4, one encoder for both sides, word embeddings frozen; viewers, which are new
      tokens, start from [CLS] with a 10 times higher rate;
    - viewers: each attends to its own part of the text only, and its state is added to the mean of that part: in the
      papers' form they stay equal in a few steps, or far behind (docs/how-to/training.md);
    - the vectors: pooled as the base was trained, of unit length, so that scores are scaled by 20. The papers' tau acts
      on raw inner products of states with norms of about 10; without a scale the softmax over a batch of products of
      unit vectors is nearly flat. DRPQ's temperature falls to .05 for the same reason: at 1 it is nearly the mean over
      a document's views.
    """
    small = _small_amount(full) | _small_weights(full) | _small_vectors(full)
    changes = [Change(name, value_at(full, name), value, reason) for name, (value, reason) in small.items()]
    return [change for change in changes if change.full != change.small]


def value_at(config: TrainConfig, name: str) -> Any:
    """Return the value of the setting "table.field" or "field"."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _full(chosen: Preset) -> TrainConfig:
    values = {name: value for name, (value, _) in chosen.values.items()}
    return merge(TrainConfig(), nest({"preset": chosen.name, **values}), f"preset {chosen.name!r}")


_SMALL_EPOCHS = 2
_SMALL_RESIDUAL = 10.0
# Passages of 100 words fit, and minilm was trained with it.
_SMALL_LENGTH = 256
_SMALL_LEARNING_RATE = 5e-4


def _small_amount(full: TrainConfig) -> Values:
    epochs = min(full.optimiser.epochs, _SMALL_EPOCHS)
    values: Values = {
        "optimiser.epochs": (epochs, "minutes"),
        "optimiser.max_steps": (150, "minutes"),
        "encoder.document_length": (_small_length(full.encoder.document_length), "minutes"),
        "data.batch_passages": (min(full.data.batch_passages, 32), "memory"),
        "data.questions_per_passage": (3, "questions are short, and more of them cost little"),
        "data.article_runs": (True, "hard negatives that cost nothing"),
        "data.hard_negatives": (0, "each is encoded like a positive"),
        "refresh_epochs": (None, "minutes"),
    }
    if full.loss.tau_alpha is not None:
        alpha = full.loss.tau_alpha * full.optimiser.epochs / epochs
        values["loss.tau_alpha"] = (alpha, "the floor after the same share of the epochs")
    return values


def _small_length(full: int | None) -> int | None:
    return None if full is None else min(full, _SMALL_LENGTH)


def _small_weights(full: TrainConfig) -> Values:
    values: Values = {
        "encoder.lora_rank": (8, "trains few weights fast, .66 MB of minilm"),
        "encoder.separate": (False, "one encoder sees every text"),
        "encoder.freeze_word_embeddings": (True, "a few steps touch few words"),
        "optimiser.learning_rate": (_SMALL_LEARNING_RATE, "few steps, of LoRA"),
        "optimiser.gradient_checkpointing": (False, "it saves memory for time"),
    }
    if full.encoder.family in ("viewers", "context-viewers"):
        values["encoder.viewer_init"] = ("cls", "an embedding that the base was trained with")
        values["encoder.own_snippet"] = (True, "a few steps do not teach viewers where to attend")
        values["encoder.residual"] = (_SMALL_RESIDUAL, "starts close to the means of snippets")
        values["optimiser.viewer_learning_rate"] = (10 * _SMALL_LEARNING_RATE, "new tokens start untrained")
    return values


def _small_vectors(full: TrainConfig) -> Values:
    values: Values = {
        "encoder.pooling": (None, "as the base was trained"),
        "encoder.normalise": (True, "unit vectors, as minilm was trained"),
        "loss.scale": (20.0, "products of unit vectors lie in [-1, 1]"),
    }
    if full.loss.aggregate == "drpq":
        values["loss.drpq_temperature"] = (0.05, "at 1 the mean of unit vectors' scores")
    return values
