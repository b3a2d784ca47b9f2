"""The commands `mvindex migrate` and `mvindex export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import IndexOption, JsonOption, open_chosen_local, parse_value

_QUERIES = 100


def migrate(
    source: Annotated[str, typer.Argument(help="The index to copy: a directory or an address.")],
    target: Annotated[str, typer.Argument(help="A new directory or address, or that of an interrupted run.")],
    verify: Annotated[
        bool,
        typer.Option("--verify", help=f"Search both with {_QUERIES} queries at the end; exit 1 if a result differs."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy an index between a directory and Milvus, either way, without encoding; results stay the same.

    The source is only read. After an interruption, the same command continues.

    Example: mvindex migrate corpus.mvx milvus://localhost:19530/corpus --verify
    """
    from mvindex.cli import render as display
    from mvindex.io.migrate import migrate as move

    with display.step_progress() as on_progress:
        row = asdict(move(source, target, queries=_QUERIES if verify else 0, on_progress=on_progress))
    display.print_json(row) if as_json else display.print_table("migrate", row)


def export(
    directory: Annotated[Path, typer.Argument(help="Directory of the files: new, or that of an interrupted run.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="parquet (a row a view), parquet-documents, npy, jsonl, trec (texts), or milvus-bulk."
        ),
    ],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an index to files of another format; after an interruption, the same command continues (docs/moving.md).

    All formats but trec have the vectors, and mvindex import makes an equal index from them.

    Example: mvindex export --to parquet corpus-parquet/ --index corpus.mvx
    """
    from mvindex.cli import render as display
    from mvindex.io.export import find_exporter

    parse_value("--to", to, find_exporter)
    exporter = find_exporter(to)
    with open_chosen_local(index) as source, display.step_progress() as on_progress:
        row = asdict(exporter(source, directory, on_progress))
    display.print_json(row) if as_json else display.print_table("export", row)
