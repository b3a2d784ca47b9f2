"""Shards by themselves: `mvindex assemble`, and `mvindex build` of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex.cli.options import JsonOption


def assemble(
    index: Annotated[Path, typer.Argument(help="The index directory, in which all the shards lie.")],
    as_json: JsonOption = False,
) -> None:
    """Make one index of shards that were filled apart, once all of them are there and belong together.

    Checks that they were made alike, have seen the same corpora to their ends, and hold no document twice. Shards from
    other machines are copied into the index directory first. To be run again after each corpus; nothing is rewritten.

    Example: mvindex ingest corpus.tsv --shard 3/16 (for each of 0/16 to 15/16), then: mvindex assemble corpus.mvx

    Example: mvindex assemble corpus.mvx
    """
    from mvindex import shards as sharding
    from mvindex.cli import render as display

    done = 0
    with display.step_progress() as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell("documents", done, None)

        row = asdict(sharding.assemble(index, advance))
    display.print_json(row) if as_json else display.print_table("assemble", row)


def build_part(path: Path, shard: int | None, chosen: Mapping[str, Any], as_json: bool) -> None:
    """Nothing; one shard's engine is built, or where that is None, what those of all shards share is learnt."""
    from mvindex.cli import render as display
    from mvindex.shards import open_sharded

    if chosen["kind"] is None:
        raise typer.BadParameter("--shard and --train-only build in several steps: say --kind in each of them")
    if shard is None and chosen["prune_views"] is not None:
        raise typer.BadParameter("--prune-views belongs to the steps with --shard: what is learnt is the same")
    row: dict[str, Any]
    index = open_sharded(path, None)
    with index, display.step_progress() as told:
        if shard is None:
            row = {"trained": str(index.train(chosen["kind"], lists=chosen["lists"], on_progress=told))}
        else:
            row = {"shard": shard, **asdict(index.build_shard(shard, **chosen, on_progress=told))}
    display.print_json(row) if as_json else display.print_table("build", row)
