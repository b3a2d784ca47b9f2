"""`mvindex export-encoder`: a checkpoint as a folder of sentence-transformers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import JsonOption


def export_encoder(
    checkpoint: Annotated[str, typer.Argument(help="minilm, minilm-snippets, a checkpoint's folder or a hub id.")],
    folder: Annotated[Path, typer.Argument(help="A new or an empty folder.")],
    family: Annotated[
        str | None, typer.Option(help="single: one vector a document, of a checkpoint that makes several.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an encoder as a folder that sentence-transformers loads, with the same vectors; see docs/checkpoints.md.

    An adapter is merged into full weights. A family that no modules of sentence-transformers express is refused.

    Example: mvindex export-encoder my-encoder my-encoder-st --family single
    """
    from mvindex.cli import render as display
    from mvindex.encoder import export_encoder as export

    row = asdict(export(checkpoint, folder, family))
    shown = row | {"modules": ", ".join(row["modules"]), "licence": row["licence"] or "not known"}
    display.print_json(row) if as_json else display.print_table("export-encoder", shown)
