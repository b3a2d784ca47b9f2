"""The command `mvindex export-encoder`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import explain_wait, note
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report


def export_encoder(
    checkpoint: Annotated[
        str, typer.Argument(help="Export this encoder: minilm-views, minilm, a directory or a hub id.")
    ],
    folder: Annotated[Path, typer.Argument(help="Write to this directory, which is new or empty.")],
    family: Annotated[
        str | None,
        typer.Option(help="Give single to export one vector per document of a checkpoint that makes several."),
    ] = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Save an encoder as a folder that sentence-transformers loads, with equal vectors (docs/how-to/checkpoints.md).

    An adapter is merged into full weights. Families that sentence-transformers has no modules for are refused.

    Example: mvindex export-encoder my-encoder my-encoder-st --family single
    """
    from mvindex.encoder.registry import leave_form, load_encoder
    from mvindex.encoder.sentence_transformers import save_sentence_transformer

    with explain_wait(f"loading and saving {checkpoint}"):
        exported = save_sentence_transformer(checkpoint, folder, family)
    row = asdict(exported)
    shown = row | {"licence": row["licence"] or "unknown"}
    print_report("export-encoder", shown if output is Output.TABLE else row, output)
    leave_form(load_encoder(exported.folder, family=exported.family, device="cpu"), note)
