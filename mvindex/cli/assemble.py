"""Shards by themselves: `mvindex assemble`, and `mvindex build` of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
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
    from mvindex.cli import render as display
    from mvindex.ingest.assemble import assemble as assemble_shards

    done = 0
    with display.step_progress() as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell("documents", done, None)

        row = asdict(assemble_shards(index, advance))
    display.print_json(row) if as_json else display.print_table("assemble", row)


def build_part(path: Path, shard: int | None, chosen: Mapping[str, Any], as_json: bool) -> None:
    """Build the engine of one shard; without a number, train what the engines of all shards share."""
    from mvindex.cli import render as display
    from mvindex.engines import parse_kind
    from mvindex.engines.build import engine_choice
    from mvindex.engines.build_shards import build_one_shard, train_shards
    from mvindex.store.sharded import open_sharded_store

    if chosen["kind"] is None:
        raise typer.BadParameter("--shard and --train-only build in several steps: say --kind in each of them")
    row: dict[str, Any]
    choice = engine_choice(parse_kind(chosen["kind"]), chosen["nlist"], chosen.get("parameters"))
    with closing(open_sharded_store(path)) as store, display.step_progress() as on_progress:
        if shard is None:
            row = {"trained": str(train_shards(path, store.sharding.stores, choice, on_progress))}
        else:
            row = {"shard": shard, **asdict(build_one_shard(store, shard, choice, on_progress))}
    display.print_json(row) if as_json else display.print_table("build", row)
