"""`mvindex plan`: what an index will take, before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import JsonOption, note, parse_choice

if TYPE_CHECKING:
    from mvindex.planning import Collection, Plan
    from mvindex.planning.rates import Rates


def plan(  # noqa: PLR0913 - each option is a flag of the command
    documents: Annotated[str, typer.Option(help="How many documents, such as 21M, 1.5e6 or 21015324.")],
    ram: Annotated[str, typer.Option(help="Memory of a machine: 64G and 64GiB are 2^30, 64GB 10^9 bytes.")],
    dim: Annotated[int, typer.Option(help="Dimensions of a view.", min=1)] = 384,
    views: Annotated[float, typer.Option(help="Views of a document, on average.")] = 8,
    disk: Annotated[str | None, typer.Option(help="Disk of a machine, such as 2T; not looked at without it.")] = None,
    gpu: Annotated[int, typer.Option(help="GPUs of a machine.", min=0)] = 0,
    gpu_ram: Annotated[str, typer.Option(help="Memory of each GPU.")] = "80G",
    dtype: Annotated[str, typer.Option(help="fp16 or fp32, as views are stored.")] = "fp16",
    text_bytes: Annotated[
        int, typer.Option(help="Bytes of a document's title, text and metadata, on average.", min=0)
    ] = 600,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Documents of an answer.", min=1)] = 10,
    target_recall: Annotated[float, typer.Option(help="The share of the exact top_k that should be found.")] = 0.97,
    calibrate: Annotated[bool, typer.Option(help="Measure this machine for some seconds, to tell times.")] = True,
    calibration: Annotated[
        Path | None, typer.Option(help="Rates of a machine: read if the file is there, else measured and written.")
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Where the index will stand: its disk is measured. What is written is removed.")
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Tell the memory, disk, time and recall of every layout of an index before it is made, and what to run.

    Sizes are arithmetic of the formats. Times rest on rates measured here, or elsewhere (--calibration).

    Example: mvindex plan --documents 21M --views 8 --dim 768 --ram 64G --disk 2T
    """
    from mvindex.cli import render as display
    from mvindex.engines import scan_name
    from mvindex.planning import Asked, Collection, Machine, check_asked, make_plan
    from mvindex.planning.report import plan_json
    from mvindex.planning.units import parse_bytes, parse_count
    from mvindex.store.views import ViewType
    from mvindex.tuning import checked_target

    if not calibrate and calibration is not None:
        raise typer.BadParameter("--calibration gives times, --no-calibrate wants none; give one of them")
    held = Collection(
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
    target = checked_target(target_recall)
    check_asked(held, top_k)
    rates = _rates(held, calibration, folder) if calibrate else None
    scan = scan_name() if rates is None else rates.scan
    asked = Asked(held=held, machine=machine, scan=scan, top_k=top_k, target_recall=target)
    made = make_plan(asked, rates)
    if as_json:
        display.print_json(plan_json(made))
    else:
        _print_plan(made)


def _rates(held: Collection, file: Path | None, folder: Path) -> Rates:
    """The rates in the file, or of this machine, kept in the file if one is named."""
    from mvindex.cli import render as display
    from mvindex.planning.calibrate import measured
    from mvindex.planning.rates import read_rates, write_rates

    if file is not None and file.exists():
        return read_rates(file)
    with display.step_progress() as told:
        rates = measured(held, folder, told)
    if file is not None:
        write_rates(file, rates)
        note(f"the rates of this machine stand in {file}")
    return rates


def _print_plan(made: Plan) -> None:
    from mvindex.cli import render as display
    from mvindex.planning.report import HEADER, notes, plan_rows, summary

    display.print_grid(summary(made), HEADER, plan_rows(made))
    for line in notes(made):
        typer.echo(line)
