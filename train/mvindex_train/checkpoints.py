"""Writing of a trained encoder as a checkpoint for `mvindex ingest --encoder`, with its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mvindex.durable import whole_folder
from mvindex.encoder.checkpoint import Base, write_settings
from mvindex.encoder.checkpoint.hub import PACKAGED, PACKAGED_HUB_ID
from mvindex.encoder.checkpoint.load import quiet
from mvindex.encoder.checkpoint.reader import QUERY_FOLDER, VIEW_WEIGHTS
from mvindex.plugins import require
from mvindex_train.config import TrainConfig
from mvindex_train.config_cli import describe, label
from mvindex_train.module import TrainableEncoder

_FIGURES = ("R@1", "R@5", "R@20", "R@100", "MRR", "local_variation", "view_cosine", "views")


def write_card(config: TrainConfig, report: Mapping[str, Any]) -> str:
    """Return README.md of a checkpoint: family, settings and figures on the dev questions."""
    return "\n".join(
        [
            f"# Encoder trained with mvindex: {label(config)}",
            "",
            f"Family `{config.encoder.family}`, up to {config.encoder.max_views} views a document, from the base "
            f"`{config.encoder.base}`; {report['steps']:,} steps. The licence of the base applies to these weights.",
            "",
            "```",
            "mvindex ingest corpus.tsv --encoder DIR",
            "```",
            "",
            *_dev_lines(report),
            "## Settings",
            "",
            "```toml",
            describe(config).rstrip(),
            "```",
            "",
        ]
    )


def _dev_lines(report: Mapping[str, Any]) -> list[str]:
    before, dev = report["before"], report["dev"]
    if dev is None:
        return ["Not evaluated: there were no dev questions. These are the weights after the last step.", ""]
    return [
        f"## Dev: {dev['questions']:,} questions over {dev['documents']:,} documents",
        "",
        f"| | before | after epoch {report['best_epoch']} |",
        "| --- | --- | --- |",
        *(f"| {name} | {_show(before, name)} | {_show(dev, name)} |" for name in _FIGURES),
        "",
        "local_variation: LV of MVR eq. 9; view_cosine: mean cosine of two views of a document, near 1 where views "
        "have collapsed; views: mean number a document. The epoch was chosen by these figures, which are thus slightly "
        "optimistic.",
        "",
    ]


def _show(figures: Mapping[str, Any] | None, name: str) -> str:
    value = None if figures is None else figures[name]
    return "" if value is None else f"{value:.4f}"


CARD = "README.md"
RECORD = "training.json"


def save_checkpoint(
    encoder: TrainableEncoder, folder: Path, card: str, *, label: str = "", record: Mapping[str, Any] | None = None
) -> None:
    """Write the encoder and its card to a new folder, atomically.

    With LoRA the folder contains the adapter, in peft's format, and the viewers; else full weights, in transformers'
    format.

    Args:
        encoder: The encoder to save.
        folder: A path that does not exist.
        card: The text of README.md.
        label: A remark on the training, shown wherever the encoder is named.
        record: JSON written to training.json.

    """
    with whole_folder(folder) as temporary:
        base = None
        if encoder.adapters:
            base = _write_adapter(encoder, temporary)
        else:
            _write_full(encoder, temporary)
        write_settings(temporary, replace(encoder.settings, label=label), base)
        (temporary / CARD).write_text(card, encoding="utf-8")
        if record is not None:
            text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            (temporary / RECORD).write_text(text, encoding="utf-8")
        _fix_modes(temporary)


def _fix_modes(folder: Path) -> None:
    """Give weights files the mode of plain new files: safetensors makes them readable by their owner only."""
    mode = (folder / CARD).stat().st_mode
    for path in folder.rglob("*.safetensors"):
        path.chmod(mode)


def _write_full(encoder: TrainableEncoder, folder: Path) -> None:
    parts = encoder.merged()
    with quiet():
        parts.documents.save_pretrained(folder)
        if encoder.settings.separate:
            parts.queries.save_pretrained(folder / QUERY_FOLDER)
        encoder.tokenizer.save_pretrained(folder)
    _write_tensors(folder, {"codes": parts.codes})


def _write_adapter(encoder: TrainableEncoder, folder: Path) -> Base:
    """Write the adapter, viewers and codes; return the base of the adapter."""
    query_viewers = None
    _save_peft(encoder, "documents", folder)
    if "queries" in encoder.adapters:
        _save_peft(encoder, "queries", folder / QUERY_FOLDER)
        query_viewers = encoder.viewers(encoder.queries)
    viewers = encoder.viewers(encoder.documents)
    if viewers is not None:
        encoder.tokenizer.save_pretrained(folder)
    _write_tensors(folder, {"codes": encoder.codes, "viewers": viewers, "query_viewers": query_viewers})
    return Base(encoder.base.source, dict(encoder.base.weights))


def _save_peft(encoder: TrainableEncoder, name: str, folder: Path) -> None:
    adapter, base = encoder.adapters[name], encoder.base.source
    # A name by which peft finds the base anywhere; by default it is the path on this machine.
    adapter.peft_config["default"].base_model_name_or_path = PACKAGED_HUB_ID if base == PACKAGED else base
    trained_alpha = adapter.peft_config["default"].lora_alpha
    adapter.peft_config["default"].lora_alpha = trained_alpha * encoder.scale
    adapter.save_pretrained(folder, save_embedding_layers=False)
    adapter.peft_config["default"].lora_alpha = trained_alpha
    (folder / CARD).unlink()  # peft's own card is an empty template


def _write_tensors(folder: Path, tensors: Mapping[str, Any]) -> None:
    present = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items() if tensor is not None}
    if present:
        require("safetensors.torch", "train", "saving weights").save_file(present, folder / VIEW_WEIGHTS)
