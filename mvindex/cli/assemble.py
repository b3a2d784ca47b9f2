"""The command `mvindex assemble`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import JsonOption


def assemble(
    index: Annotated[Path, typer.Argument(help="Index directory with all the shards.")],
    as_json: JsonOption = False,
) -> None:
    """Make one index of shards that were filled separately.

    Checks that all shards exist, have equal settings, have read the same corpora to the end, and have no document in
    common. Copy shards from other machines into the index directory first. Run the command again after each corpus;
    no data is rewritten.

    Example: mvindex ingest corpus.tsv --shard 3/16 (for each of 0/16 to 15/16), then: mvindex assemble corpus.mvx

    Example: mvindex assemble corpus.mvx
    """
    from mvindex.cli import render
    from mvindex.ingest.assemble import assemble as assemble_shards

    with render.show_count_progress("documents", None) as advance:
        row = asdict(assemble_shards(index, advance))
    render.print_json(row) if as_json else render.print_table("assemble", row)
