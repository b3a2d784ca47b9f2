"""The commands `mvindex get`, `delete` and `info`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import (
    FilterOption,
    IndexOption,
    JsonOption,
    PartialOption,
    note,
    open_chosen,
    open_chosen_local,
    parse_filter,
)
from mvindex.errors import QueryError

if TYPE_CHECKING:
    from mvindex.index import IndexProtocol
    from mvindex.store.filters import Filter


def get(
    ids: Annotated[list[str], typer.Argument(help="Document ids.")],
    index: IndexOption = None,
    allow_partial: PartialOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show documents by id; exit 1 when one does not exist.

    Example: mvindex get 17 --json
    """
    from mvindex.cli import render

    with open_chosen(index, None, allow_partial=allow_partial) as target:
        documents = {document.id: document for document in target.get(ids)}
        missing = [doc_id for doc_id in ids if doc_id not in documents]
        for document in documents.values():
            row = {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
            render.print_json(row) if as_json else render.print_table(document.id, row)
    if missing:
        raise QueryError(f"no such document: {', '.join(map(repr, missing))}")


def delete(  # noqa: PLR0913 - each option is a flag of the command
    ids: Annotated[list[str] | None, typer.Argument(help="Document ids.", show_default=False)] = None,
    index: IndexOption = None,
    filter_json: FilterOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete every document.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, as without a terminal.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete documents by id, by a filter, or all, in one step. On a terminal, say how many and ask before.

    Example: mvindex delete 17 18, or: mvindex delete --filter '{"lang": "de"}'
    """
    from mvindex.cli import render
    from mvindex.store.filters import check_deletion

    if [bool(ids), filter_json is not None, everything].count(True) != 1:
        raise typer.BadParameter("expected one of ids, --filter and --all")
    condition = None if filter_json is None else parse_filter(filter_json)
    check_deletion(ids or None, condition, everything)
    with open_chosen(index, None) as target:
        if not yes and sys.stdin.isatty():
            _confirm(target, ids, condition)
        count = target.delete(ids=ids or None, filter=condition, all=everything)
        row = {"deleted": count, "documents": len(target)}
    if ids and count < len(set(ids)):
        note(f"{len(set(ids)) - count} of the ids do not exist")
    render.print_json(row) if as_json else render.print_table("delete", row)


def _confirm(target: IndexProtocol, ids: list[str] | None, condition: Filter | None) -> None:
    """Ask whether to delete so many documents; end the command unless the answer is yes."""
    if ids:
        count = len(target.get(ids))
    else:
        count = len(target) if condition is None else sum(1 for _ in target.scan(condition))
    typer.confirm(f"{target.where}: delete {count:,} of {len(target):,} documents?", abort=True, err=True)


def info(
    index: IndexOption = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="For Milvus: also test the server's abilities, on temporary collections.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the settings, engine and sizes of an index, and the exact scan and the threads of this machine.

    Example: mvindex info --index corpus.mvx --json
    """
    from dataclasses import asdict

    from mvindex import engines
    from mvindex.cli import render
    from mvindex.encoder.registry import describe_queries
    from mvindex.engines.protocol import cache_bytes
    from mvindex.kernels.threads import choose_threads
    from mvindex.store.protocol import Operation

    with open_chosen(index, None) as target:
        unsupported = {operation.value: why for operation, why in target.capabilities.unsupported.items()}
        row = asdict(target.info()) | {"unsupported": unsupported}
        if probe:
            target.capabilities.check(Operation.PROBE, target.where)
    if probe:
        with open_chosen_local(index) as local:
            row["server"] = {**(row["server"] or {}), "probed": dict(local.probe())}
    row = {name: value for name, value in row.items() if name != "server" or value is not None}
    if "server" not in row:
        row["scan"] = engines.scan_name()
        row["queries"] = None if row["encoder"] is None else describe_queries(row["encoder"])
        row["copy_limit_bytes"] = cache_bytes()
        row["threads"], row["threads_why"] = choose_threads()
    render.print_json(row) if as_json else render.print_table(row["path"], row)
