"""The commands that look after an index: `mvindex get`, `delete`, `info` and `build`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from mvindex.cli.options import FilterOption, IndexOption, JsonOption, note, open_chosen, parse_filter
from mvindex.errors import QueryError


def get(
    ids: Annotated[list[str], typer.Argument(help="Document ids.")],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show documents by id. Exit 1 when one is not there.

    Example: mvindex get 17 --json
    """
    from mvindex import display

    missing = []
    with open_chosen(index, None) as target:
        for doc_id in ids:
            document = target.get(doc_id)
            if document is None:
                missing.append(doc_id)
                continue
            row = {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
            display.print_json(row) if as_json else display.print_table(document.id, row)
    if missing:
        raise QueryError(f"there is no document {', '.join(map(repr, missing))}")


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Document ids.", show_default=False)] = None,
    index: IndexOption = None,
    filter_json: FilterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete documents by id or by a filter, all in one step.

    Example: mvindex delete 17 18, or: mvindex delete --filter '{"lang": "de"}'
    """
    from mvindex import display

    if bool(ids) == (filter_json is not None):
        raise typer.BadParameter("give either ids or --filter")
    with open_chosen(index, None) as target:
        count = target.delete(filter=parse_filter(filter_json)) if filter_json is not None else target.delete(ids=ids)
        row = {"deleted": count, "documents": len(target)}
    if ids and count < len(set(ids)):
        note(f"{len(set(ids)) - count} of the ids were not in the index")
    display.print_json(row) if as_json else display.print_table("delete", row)


def info(index: IndexOption = None, as_json: JsonOption = False) -> None:
    """Show what an index is: encoder, dims, engine, sizes; and which exact scan this machine has for it.

    Example: mvindex info --index corpus.mvx --json
    """
    from dataclasses import asdict

    from mvindex import display, engines

    with open_chosen(index, None) as target:
        row = asdict(target.info()) | {"scan": engines.scan_name()}
    display.print_json(row) if as_json else display.print_table(row["path"], row)


def build(
    kind: Annotated[str, typer.Option(help="exact (scan), flat (Faiss, exact) or hnsw (Faiss, approximate).")],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a search engine over all documents and make it the active one; exact needs none and undoes a build.

    Example: mvindex build --kind hnsw
    """
    from mvindex import display

    started = time.monotonic()
    with open_chosen(index, None) as target:
        target.build(kind=kind)
        row = {"kind": kind, "documents": len(target), "seconds": round(time.monotonic() - started, 2)}
    display.print_json(row) if as_json else display.print_table("build", row)
