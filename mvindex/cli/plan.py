"""The command `mvindex plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import (
    SEARCH,
    JsonOption,
    Output,
    OutputOption,
    option,
    parse_choice,
    parsing_flags,
    print_rows,
)
from mvindex.cli.terminal import print_json

if TYPE_CHECKING:
    from mvindex.measure.planning import Plan

# Headings of options in the help.
_DOCUMENTS, _MACHINES = "Documents", "Machines"


def plan(  # noqa: PLR0913 - each option is a flag of the command
    documents: Annotated[
        str, option("Plan for so many documents, such as 21M, 1.5e6 or 21015324.", _DOCUMENTS, "NUMBER")
    ],
    ram: Annotated[
        str,
        option(
            "Give a machine so much memory: 64G and 64GiB are 64 x 2^30 bytes, 64GB is 64 x 10^9.", _MACHINES, "BYTES"
        ),
    ],
    dim: Annotated[int, option("Plan for views of so many dimensions.", _DOCUMENTS, min=1)] = 384,
    views: Annotated[float, option("Plan for so many views per document, on average.", _DOCUMENTS)] = 8,
    disk: Annotated[
        str | None, option("Give a machine so much disk, such as 2T (default: not checked).", _MACHINES, "BYTES")
    ] = None,
    cores: Annotated[int, option("Build on so many cores of a machine.", _MACHINES, min=1)] = 2,
    gpu: Annotated[int, option("Give a machine so many GPUs.", _MACHINES, min=0)] = 0,
    gpu_ram: Annotated[str, option("Give each GPU so much memory.", _MACHINES, "BYTES")] = "80G",
    dtype: Annotated[str, option("Store views in this type.", _DOCUMENTS, "fp16|fp32")] = "fp16",
    text_bytes: Annotated[
        int,
        option(
            "Plan for so many bytes of title, text and metadata per document, on average.", _DOCUMENTS, "BYTES", min=0
        ),
    ] = 600,
    top_k: Annotated[int, option("Return so many documents.", SEARCH, names=("--top-k", "-k"), min=1)] = 10,
    target_recall: Annotated[float, option("Find this share of the exact top_k.", SEARCH)] = 0.98,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Print the memory, disk, recall, times and commands of every layout of an index before it is built.

    Sizes are arithmetic. Times are those of a reference machine.

    Example: mvindex plan --documents 21M --views 8 --dim 768 --ram 64G --disk 2T
    """
    from mvindex.engines import scan_name
    from mvindex.measure.planning import Collection, Machine, PlanRequest, make_plan
    from mvindex.measure.planning.report import plan_json
    from mvindex.measure.planning.units import parse_bytes, parse_count
    from mvindex.store.views import ViewType

    with parsing_flags():
        collection = Collection(
            documents=parse_count("--documents", documents),
            views=views,
            dim=dim,
            view_type=parse_choice("--dtype", dtype, ViewType),
            text_bytes=text_bytes,
        )
        machine = Machine(
            ram_bytes=parse_bytes("--ram", ram),
            disk_bytes=None if disk is None else parse_bytes("--disk", disk),
            cores=cores,
            gpus=gpu,
            gpu_bytes=parse_bytes("--gpu-ram", gpu_ram),
        )
        request = PlanRequest(
            collection=collection, machine=machine, scan=scan_name(), top_k=top_k, target_recall=target_recall
        )
        made = make_plan(request)
    if output is Output.JSON:
        print_json(plan_json(made))
    else:
        _print_plan(made, output)


def _print_plan(made: Plan, output: Output) -> None:
    from mvindex.measure.planning.report import HEADER, notes, plan_rows, summary

    if output is Output.TSV:
        print_rows("", HEADER, plan_rows(made), output)
        return
    typer.echo(summary(made) + "\n")
    print_rows("", HEADER, plan_rows(made), output)
    for line in notes(made):
        typer.echo(line)
