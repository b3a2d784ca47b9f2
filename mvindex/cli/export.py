"""The command `mvindex export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import IndexOption, check_value, open_chosen_local
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report


def export(
    directory: Annotated[
        Path, typer.Argument(help="Write to this directory: a new one, or that of an interrupted run.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Write parquet (one row per view), parquet-documents, npy, jsonl, trec (texts) or milvus-bulk."
        ),
    ],
    index: IndexOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Write an index to files of another format; after an interruption, the same command continues.

    All formats but trec have the vectors, and mvindex import makes an equal index from them.

    Example: mvindex export --to parquet corpus-parquet/ --index corpus.mvx
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.export import find_exporter

    check_value("--to", to, find_exporter)
    with open_chosen_local(index) as source, show_step_progress() as on_progress:
        row = asdict(find_exporter(to)(source, directory, on_progress))
    print_report("export", row, output)
