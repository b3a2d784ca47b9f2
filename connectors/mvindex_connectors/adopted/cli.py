"""The command `mvindex adopt`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mvindex.cli.flags import FieldFlags, expand_flags
from mvindex.cli.options import JsonOption, Output, OutputOption, option, print_report

app = typer.Typer()


@app.command()
@expand_flags
def adopt(  # noqa: PLR0913 - each option is a flag of the command
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The sidecar: made, or brought up to date.")],
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="ADDRESS",
            help="Of a new sidecar: milvus://HOST:PORT/COLLECTION or milvus-lite:PATH.db?collection=NAME.",
        ),
    ] = None,
    *,
    fields: FieldFlags,
    lexical: Annotated[
        str | None,
        option(
            "Search these terms: auto (the default), unicode, english, bigrams or none (docs/how-to/hybrid.md).",
            metavar="TERMS",
        ),
    ] = None,
    encoder: Annotated[
        str | None, option("Encode text queries by this, which made the vectors: minilm, a directory or a hub id.")
    ] = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Search a collection that others made in Milvus where it is: keep its texts and terms in a sidecar, not vectors.

    The collection is only read. Run it again after writes to the collection: documents that did not change stay as they
    are. Then `--index adopted:FOLDER` searches by views, terms and both, with filters (docs/how-to/milvus.md).

    Example: mvindex adopt theirs.side 'milvus-lite:theirs.db?collection=chunks' --encoder minilm

    Example: mvindex adopt theirs.side
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex_connectors.adopted.sidecar import sync_milvus

    with show_step_progress() as on_progress:
        report = sync_milvus(
            folder,
            address,
            **asdict(fields),
            lexical=lexical,
            encoder=encoder,
            on_progress=on_progress,
        )
    print_report("adopt", asdict(report), output)
