"""The commands `mvindex get`, `delete`, `info` and `families`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import (
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    PartialOption,
    is_on_command_line,
    note,
    open_chosen,
    option,
    parse_filter,
    parsing_flags,
    print_report,
    print_rows,
    switch,
)
from mvindex.cli.terminal import print_json, print_tsv
from mvindex.errors import QueryError
from mvindex.plugins import install_command

if TYPE_CHECKING:
    from mvindex.index import IndexProtocol
    from mvindex.store.filters import Filter

_FIELDS = ("id", "title", "text", "metadata")
# Left out of a table where they are 0.
_MEMORY = ("copy_bytes", "mapped_bytes", "copies_file_bytes", "text_bytes", "term_bytes")
_COUNTS = ("num_deleted", "fresh_documents", *_MEMORY)


def get(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of documents.")],
    index: IndexOption = None,
    allow_partial: PartialOption = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show documents by id; exit 1 when one does not exist.

    Example: mvindex get 17 --json
    """
    with open_chosen(index, None, allow_partial=allow_partial) as target:
        documents = {document.id: document for document in target.get(ids)}
    missing = [doc_id for doc_id in ids if doc_id not in documents]
    rows = [{name: getattr(found, name) for name in _FIELDS} for found in documents.values()]
    if output is Output.TSV:
        print_tsv([_FIELDS, *(list(row.values()) for row in rows)])
    else:
        for row in rows:
            if output is Output.TABLE and row["metadata"]:
                row["metadata"] = json.dumps(row["metadata"], ensure_ascii=False)
            print_report("", row, output)
    if missing:
        raise QueryError(f"no such document: {', '.join(map(repr, missing))}")


def delete(  # noqa: PLR0913 - each option is a flag of the command
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of documents.", show_default=False)] = None,
    index: IndexOption = None,
    filter_json: Annotated[
        str | None,
        option(
            "Delete the documents whose metadata meet conditions: 'year < 1990', or JSON, "
            '\'{"year": {"lt": 1990}}\'.',
            metavar="CONDITIONS",
            names=("--filter",),
        ),
    ] = None,
    everything: Annotated[bool, switch("--all", "Delete every document.")] = False,
    yes: Annotated[bool, switch("--yes", "Do not ask, as without a terminal.")] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Delete documents by id, by a filter, or all, in one step. On a terminal, say how many and ask before.

    Example: mvindex delete 17 18

    Example: mvindex delete --filter 'lang = de'
    """
    from mvindex.store.filters import check_deletion

    if [bool(ids), filter_json is not None, everything].count(True) != 1:
        raise typer.BadParameter("expected one of ids, --filter and --all")
    with parsing_flags():
        condition = parse_filter(filter_json)
        check_deletion(ids or None, condition, everything)
    with open_chosen(index, None) as target:
        if not yes and sys.stdin.isatty():
            _confirm(target, ids, condition)
        count = target.delete(ids=ids or None, filter=condition, all=everything)
        row = {"deleted": count, "documents": len(target)}
    if ids and count < len(set(ids)):
        note(f"ids that do not exist: {len(set(ids)) - count:,}")
    print_report("delete", row, output)


def _confirm(target: IndexProtocol, ids: list[str] | None, condition: Filter | None) -> None:
    """Ask whether to delete so many documents; end the command unless the answer is yes."""
    if ids:
        count = len(target.get(ids))
    else:
        count = len(target) if condition is None else sum(1 for _ in target.scan(condition))
    typer.confirm(f"{target.where}: delete {count:,} of {len(target):,} documents?", abort=True, err=True)


def info(
    ctx: typer.Context,
    index: IndexOption = None,
    devices: Annotated[
        bool, switch("--devices", "Show the GPUs of this machine instead, or why there is none.")
    ] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show the settings, engine and sizes of an index, and the exact scan and the threads of this machine.

    Example: mvindex info --index corpus.mvx --json

    Example: mvindex info --devices
    """
    from dataclasses import asdict

    from mvindex import engines
    from mvindex.encoder.registry import describe_queries
    from mvindex.engines.protocol import cache_bytes
    from mvindex.kernels.threads import choose_threads

    if devices:
        # $MVINDEX_INDEX gives way to --devices.
        if is_on_command_line(ctx, "index"):
            raise typer.BadParameter("expected one of --index and --devices")
        print_report("", *_devices(output))
        return
    with open_chosen(index, None) as target:
        unsupported = {operation.value: why for operation, why in target.capabilities.unsupported.items()}
        row = asdict(target.info()) | {"unsupported": unsupported}
    row = {name: value for name, value in row.items() if name != "server" or value is not None}
    summary = _summary(row)
    if "server" not in row:
        row["scan"] = engines.scan_name()
        row["queries"] = None if row["encoder"] is None else describe_queries(row["encoder"])
        row["copy_limit_bytes"] = cache_bytes()
        row["threads"], row["threads_why"] = choose_threads()
    print_report("", _shown(row) if output is Output.TABLE else row, output, summary)


def _devices(output: Output) -> tuple[Mapping[str, Any], Output, list[str]]:
    """Return the report of the devices, its form, and sentences about them."""
    from mvindex.encoder.device import describe_devices
    from mvindex.engines.auto import kinds_on_gpus

    report = describe_devices()
    report["faiss_kinds_on_gpus"] = sorted(kinds_on_gpus(report["packages"]))
    return report, output, _said_of_devices(report)


def _said_of_devices(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each GPU, and one of what Faiss leaves to the CPU; why there is no GPU otherwise."""
    from mvindex.engines.auto import CUVS_KINDS
    from mvindex.measure.planning.units import format_bytes

    if not report["gpus"]:
        return [f"No GPU: {report['why_no_gpu']}."]
    said = []
    for gpu in report["gpus"]:
        free, total = format_bytes(gpu["free_bytes"]), format_bytes(gpu["memory_bytes"])
        said.append(f"{gpu['device']}: {gpu['name']}, {free} of {total} free.")
    missing = sorted(CUVS_KINDS - {*report["faiss_kinds_on_gpus"]})
    if not report["faiss_kinds_on_gpus"]:
        said.append(f"Faiss: all kinds are searched on the CPU; for some on GPUs: {install_command('gpu')}.")
    elif missing:
        said.append(f"Faiss: {' and '.join(missing)} are searched on the CPU; the package faiss-gpu-cuvs has them.")
    return said


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what people want to see: no counts of nothing."""
    return {name: value for name, value in row.items() if value or name not in _COUNTS}


def _takes_in_documents(kind: str) -> bool:
    """Return whether compaction adds new documents to an engine of this kind; False for one that is not installed."""
    from mvindex import engines
    from mvindex.engines.protocol import EXACT

    return kind != EXACT and kind in engines.kind_names() and engines.find_kind(kind).extends


def _summary(row: Mapping[str, Any]) -> list[str]:
    """Return what an index holds, how it searches, and what its owner may want to do, in sentences."""
    from mvindex.measure.planning.units import format_bytes

    documents, views, encoder = row["documents"], row["views"], row["encoder"]
    each = f" ({views / documents:.1f} per document)" if documents else ""
    dims = f" of {row['dim']} dimensions" if row["dim"] else ""
    size = f"; {format_bytes(row['size_bytes'])} on disk" if "server" not in row else ""
    said = [f"{documents:,} documents with {views:,} views{each}{dims}{size}."]
    if encoder is None:
        said.append("It has no encoder: it is searched by vectors.")
    else:
        family = f" ({encoder['family']})" if encoder.get("family") else ""
        said.append(f"Texts are encoded by {encoder.get('source') or encoder.get('name')}{family}.")
    modes = "views only" if row["lexical"] is None else f"views and terms ({row['lexical']}), fused"
    said.append(f"A text is searched by {modes}; the engine is {row['kind']}.")
    if row["missing_shards"]:
        said.append(f"WITHOUT shards {', '.join(map(str, row['missing_shards']))}.")
    if row["fresh_documents"]:
        command = "compact" if _takes_in_documents(row["kind"]) else "build"
        said.append(
            f"{row['fresh_documents']:,} documents are newer than the engine: mvindex {command} adds them to it."
        )
    if row["num_deleted"]:
        said.append(f"{row['num_deleted']:,} deleted or replaced rows take space: mvindex compact gives it back.")
    return said


def families(output: OutputOption = Output.TABLE, as_json: JsonOption = False) -> None:
    """List the families of encoders: the ways to make views of a document.

    A family with weights of its own needs an encoder trained so; the others fit any encoder, by `--family NAME`.

    Example: mvindex families
    """
    from mvindex.encoder.checkpoint.families import families as known

    rows = [
        {
            "family": family.name,
            "max_views": family.default_max_views,
            "weights": "its own" if family.is_trained else "any",
            "spans": family.has_spans,
            "a_view_is": family.summary,
        }
        for family in known()
    ]
    if output is Output.JSON:
        for row in rows:
            print_json(row)
        return
    header = [name.replace("_", " ") for name in rows[0]]
    print_rows("families", header, [list(map(str, row.values())) for row in rows], output, is_text=True)
