"""The command `mvindex export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import IndexOption, check_value, explain_wait, note, open_chosen_local
from mvindex.cli.output import JsonOption, Output, OutputOption, option, print_report


def export(
    directory: Annotated[
        Path, typer.Argument(help="Write to this directory: a new one, or that of an interrupted run.")
    ],
    to: Annotated[
        str,
        option(
            "Write parquet (one row per view), parquet-documents, npy, jsonl, trec (texts) or milvus-bulk.",
            names=("--to",),
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


def export_encoder(
    checkpoint: Annotated[
        str, typer.Argument(help="Export this encoder: minilm-views, minilm, a directory or a hub id.")
    ],
    folder: Annotated[Path, typer.Argument(help="Write to this directory, which is new or empty.")],
    family: Annotated[
        str | None, option("Give single to export one vector per document of a checkpoint that makes several.")
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


_QUERIES = 200


def migrate(
    source: Annotated[str, typer.Argument(help="The index to copy: a directory or an address.")],
    target: Annotated[str, typer.Argument(help="A new directory or address, or that of an interrupted run.")],
    verify: Annotated[
        bool,
        option(f"Search both with {_QUERIES} queries at the end; exit 1 if a result differs.", names=("--verify",)),
    ] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Copy an index between a directory and Milvus, either way, without encoding; results stay the same.

    The source is only read. After an interruption, the same command continues.

    Example: mvindex migrate corpus.mvx milvus://localhost:19530/corpus --verify
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.migrate import migrate as move

    with show_step_progress() as on_progress:
        row = asdict(move(source, target, queries=_QUERIES if verify else 0, on_progress=on_progress))
    print_report("migrate", row, output)
