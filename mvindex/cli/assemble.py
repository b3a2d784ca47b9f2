"""The command `mvindex assemble`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mvindex.cli.options import IndexOption, index_directory, one_place
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report


def assemble(
    ctx: typer.Context,
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="The directory with all the shards, as --index.", show_default=False),
    ] = None,
    index: IndexOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Make one index of shards that were filled separately.

    Checks that all shards exist, have equal settings, have read the same corpora to the end, and have no document in
    common. Copy shards from other machines into the index directory first. Run the command again after each corpus;
    no data is rewritten.

    Fill the shards first by mvindex ingest corpus.tsv --shard 0/16, and so on to 15/16.

    Example: mvindex assemble corpus.mvx
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.ingest.assemble import assemble as assemble_shards

    path = index_directory(one_place(ctx, directory, index))
    with show_count_progress("documents", None) as advance:
        row = asdict(assemble_shards(path, advance))
    print_report("assemble", row, output)
