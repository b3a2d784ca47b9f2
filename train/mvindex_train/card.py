"""The model card of a trained encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mvindex_train.config import TrainConfig
from mvindex_train.config_cli import describe, label

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
