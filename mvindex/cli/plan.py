"""The command `mvindex plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import MACHINE, SEARCH, note, parse_choice
from mvindex.cli.output import JsonOption, Output, OutputOption, print_rows
from mvindex.cli.terminal import print_json

if TYPE_CHECKING:
    from mvindex.measure.planning import Collection, Plan
    from mvindex.measure.planning.rates import Rates


# Headings of options in the help.
_DOCUMENTS, _MACHINES = "Documents", "Machines"


def plan(  # noqa: PLR0913 - each option is a flag of the command
    documents: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Plan for so many documents, such as 21M, 1.5e6 or 21015324.",
            rich_help_panel=_DOCUMENTS,
        ),
    ],
    ram: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="Give a machine so much memory: 64G and 64GiB are 64 x 2^30 bytes, 64GB is 64 x 10^9.",
            rich_help_panel=_MACHINES,
        ),
    ],
    dim: Annotated[
        int, typer.Option(help="Plan for views of so many dimensions.", min=1, rich_help_panel=_DOCUMENTS)
    ] = 384,
    views: Annotated[
        float, typer.Option(help="Plan for so many views per document, on average.", rich_help_panel=_DOCUMENTS)
    ] = 8,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Give a machine so much disk, such as 2T (default: not checked).",
            rich_help_panel=_MACHINES,
        ),
    ] = None,
    gpu: Annotated[int, typer.Option(help="Give a machine so many GPUs.", min=0, rich_help_panel=_MACHINES)] = 0,
    gpu_ram: Annotated[
        str, typer.Option(metavar="BYTES", help="Give each GPU so much memory.", rich_help_panel=_MACHINES)
    ] = "80G",
    dtype: Annotated[
        str,
        typer.Option(metavar="fp16|fp32", help="Store views in this type.", rich_help_panel=_DOCUMENTS),
    ] = "fp16",
    text_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            help="Plan for so many bytes of title, text and metadata per document, on average.",
            min=0,
            rich_help_panel=_DOCUMENTS,
        ),
    ] = 600,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", help="Return so many documents.", min=1, rich_help_panel=SEARCH)
    ] = 10,
    target_recall: Annotated[
        float, typer.Option(help="Find this share of the exact top_k.", rich_help_panel=SEARCH)
    ] = 0.97,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure this machine, for at most a minute, and estimate times.",
            rich_help_panel=MACHINE,
        ),
    ] = False,
    folder: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Let --measure build its small indexes here; they are deleted again.",
            rich_help_panel=MACHINE,
        ),
    ] = Path(),
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Print the memory, disk, recall and commands of every layout of an index before it is built.

    Sizes are arithmetic. Build and query times are printed with --measure only.

    Example: mvindex plan --documents 21M --views 8 --dim 768 --ram 64G --disk 2T
    """
    from mvindex.engines import scan_name
    from mvindex.measure.planning import Collection, Machine, PlanRequest, make_plan
    from mvindex.measure.planning.report import plan_json
    from mvindex.measure.planning.units import parse_bytes, parse_count
    from mvindex.store.views import ViewType

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
        gpus=gpu,
        gpu_bytes=parse_bytes("--gpu-ram", gpu_ram),
    )
    request = PlanRequest(
        collection=collection, machine=machine, scan=scan_name(), top_k=top_k, target_recall=target_recall
    )
    made = make_plan(request, _measure(collection, folder) if measure else None)
    if output is Output.JSON:
        print_json(plan_json(made))
    else:
        _print_plan(made, output)


def _measure(collection: Collection, folder: Path) -> Rates:
    """Return the rates of this machine; progress goes to stderr."""
    from mvindex.cli.progress import show_step_progress
    from mvindex.measure.planning.calibrate import MAX_SECONDS, measure_rates

    note(f"measuring this machine in {folder.absolute()}: at most {MAX_SECONDS:.0f} s; Ctrl-C stops it")
    with show_step_progress() as on_progress:
        return measure_rates(collection, folder, on_progress)


def _print_plan(made: Plan, output: Output) -> None:
    from mvindex.measure.planning.report import header, notes, plan_rows, summary

    if output is Output.TSV:
        print_rows("", header(made), plan_rows(made), output)
        return
    typer.echo(summary(made) + "\n")
    print_rows("", header(made), plan_rows(made), output)
    for line in notes(made):
        typer.echo(line)
