"""The command `mvindex adopt`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from mvindex.cli.options import JsonOption, Output, OutputOption, print_report

app = typer.Typer()
_FIELDS = "Fields of a new sidecar"


def _field_option(purpose: str) -> Any:
    return typer.Option(
        metavar="FIELD", help=f"Read {purpose} from this field (default: by its name).", rich_help_panel=_FIELDS
    )


@app.command()
def adopt(  # noqa: PLR0913 - each option is a flag of the command
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The sidecar: made, or brought up to date.")],
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="ADDRESS",
            help="Of a new sidecar: milvus://HOST:PORT/COLLECTION or milvus-lite:PATH.db?collection=NAME.",
        ),
    ] = None,
    vector_field: Annotated[str | None, _field_option("vectors")] = None,
    id_field: Annotated[str | None, _field_option("the document's id")] = None,
    text_field: Annotated[str | None, _field_option("the text of a row")] = None,
    order_field: Annotated[str | None, _field_option("the order of a document's rows")] = None,
    title_field: Annotated[str | None, _field_option("the document's title")] = None,
    lexical: Annotated[
        str | None,
        typer.Option(
            metavar="TERMS",
            help="Search these terms: auto (the default), unicode, english, bigrams or none (docs/how-to/hybrid.md).",
            rich_help_panel=_FIELDS,
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encode text queries by this, which made the vectors: minilm, a directory or a hub id."),
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
            vector_field=vector_field,
            id_field=id_field,
            text_field=text_field,
            order_field=order_field,
            title_field=title_field,
            lexical=lexical,
            encoder=encoder,
            on_progress=on_progress,
        )
    print_report("adopt", asdict(report), output)
