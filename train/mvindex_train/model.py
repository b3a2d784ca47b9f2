"""The encoder to train, from a base checkpoint: viewers, codes, LoRA adapters, separate question weights."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from mvindex.encoder.checkpoint import (
    Checkpoint,
    Parts,
    Pooling,
    Settings,
    Similarity,
    load_parts,
    parse_family,
    read_checkpoint,
    viewer_ids,
)
from mvindex.encoder.checkpoint.load import load_wrapped_tokenizer
from mvindex.encoder.checkpoint.settings import ClusterInit
from mvindex.errors import ConfigError
from mvindex.plugins import require
from mvindex_train.config import EncoderConfig
from mvindex_train.module import TrainableEncoder, ViewerEmbedding, ViewRows, add_viewer_tokens, init_viewers

__all__ = ["TrainableEncoder", "ViewRows", "build_encoder"]


def build_encoder(config: EncoderConfig, seed: int) -> TrainableEncoder:
    """Return the encoder to train: weights of the base, new ones (viewers, codes, LoRA) drawn from the seed.

    The state of torch's random numbers is restored. Raises ConfigError or CheckpointError when base and family are not
    compatible.
    """
    base = read_checkpoint(config.base)
    _check_base(base, config)
    tokenizer = load_wrapped_tokenizer(base)
    parts = load_parts(base, tokenizer.backend_tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        models = [parts.documents]
        if config.separate:
            models.append(copy.deepcopy(parts.documents) if parts.queries is parts.documents else parts.queries)
        if parse_family(config.family).has_viewers:
            _add_viewers(models, tokenizer, config)
        for model in models:
            _prepare(model, config)
        encoder = TrainableEncoder(base, _settings(config, base), tokenizer, Parts(models[0], models[-1], None))
        if config.family == "poly":
            encoder.codes = _codes(parts.codes, config.max_views, encoder.dim)
        if config.lora_rank is not None:
            _add_adapters(encoder, config)
    return encoder.train()


def _check_base(base: Checkpoint, config: EncoderConfig) -> None:
    if base.dense:
        raise ConfigError(
            f"encoder.base: expected a base without Dense modules, which cannot be trained yet, got {base.source!r}"
        )
    if base.settings.separate and not config.separate:
        raise ConfigError(
            f"encoder.separate: expected True for the base {base.source!r}, which has separate question weights, "
            f"got False"
        )
    if base.base is not None and config.lora_rank is not None:
        raise ConfigError(
            f"encoder.lora_rank: expected none for the base {base.source!r}, which is an adapter itself, got "
            f"{config.lora_rank}. Train all weights, or start from {base.base.source!r}"
        )


def _settings(config: EncoderConfig, base: Checkpoint) -> Settings:
    """Return the settings of the trained encoder: those of the base where the config has none."""
    old = base.settings
    normalise = old.normalise if config.normalise is None else config.normalise
    return Settings(
        family=parse_family(config.family),
        max_views=config.max_views,
        pooling=old.pooling if config.pooling is None else Pooling(config.pooling),
        normalise=normalise,
        similarity=Similarity.COSINE if normalise else Similarity.DOT,
        temperature=old.temperature if normalise == old.normalise else 1.0,
        document_length=config.document_length or old.document_length,
        query_length=config.query_length or old.query_length,
        document_prompt=old.document_prompt,
        query_prompt=old.query_prompt,
        document_share=old.document_share if config.document_share is None else config.document_share,
        residual=config.residual,
        own_snippet=config.own_snippet,
        cluster_init=ClusterInit(config.cluster_init),
        separate=config.separate,
        lower_case=old.lower_case,
    )


def _add_viewers(models: list[Any], tokenizer: Any, config: EncoderConfig) -> None:
    """Add viewers to tokenizer and models; viewers of the base keep their embeddings."""
    old = viewer_ids(tokenizer.backend_tokenizer)
    ids = add_viewer_tokens(tokenizer, max(config.max_views, len(old) - 1))
    cls_id = int(tokenizer.backend_tokenizer.encode("a").ids[0])
    for model in models:
        table = model.get_input_embeddings()
        rows = init_viewers(model, config.viewer_init, cls_id, len(ids))
        rows[: len(old)] = table.weight.detach()[old].float()
        model.set_input_embeddings(ViewerEmbedding(table, ids[0], rows))


def _prepare(model: Any, config: EncoderConfig) -> None:
    """Set the dropout of the model, and freeze its word embeddings if configured."""
    if config.dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = config.dropout
    model.requires_grad_(True)
    if config.freeze_word_embeddings:
        model.get_input_embeddings().weight.requires_grad_(False)


def _codes(old: torch.Tensor | None, count: int, dim: int) -> torch.nn.Parameter:
    """Return the codes of the Poly-encoder, (k, d); new ones are drawn from N(0, 1/d), of unit length on average."""
    codes = torch.randn(count, dim) * dim**-0.5
    if old is not None:
        codes[: len(old)] = old[:count]
    return torch.nn.Parameter(codes)


def _add_adapters(encoder: TrainableEncoder, config: EncoderConfig) -> None:
    """Add LoRA to all linear layers; only its matrices, the viewers and the codes are trained afterwards."""
    peft = require("peft", "train", "training a LoRA adapter")
    models = {"documents": encoder.documents} | ({"queries": encoder.queries} if config.separate else {})
    for name, model in models.items():
        lora = peft.LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha or 2 * (config.lora_rank or 0),
            target_modules="all-linear",
            lora_dropout=0.0,
            bias="none",
        )
        with warnings.catch_warnings():
            # peft reads an attribute of transformers by its former name.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            encoder.adapters[name] = peft.get_peft_model(model, lora)
        table = model.get_input_embeddings()
        if isinstance(table, ViewerEmbedding):
            table.viewers.requires_grad_(True)
