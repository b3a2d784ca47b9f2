"""The commands `mvindex admin`, and jobs of a server for the commands that work on an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import FilterFieldOption, is_address, note, parse_field_types
from mvindex.cli.output import JsonOption, Output, OutputOption, option, print_report, print_rows
from mvindex.cli.terminal import print_json
from mvindex.errors import Unsupported

if TYPE_CHECKING:
    from mvindex.index.backends import JobAdmin, JobHandle

ServedOption = Annotated[
    str,
    option(
        "The index of a server: grpc://HOST:PORT/NAME.", metavar="URL", names=("--index", "-i"), envvar="MVINDEX_INDEX"
    ),
]

admin_app = typer.Typer(
    name="admin",
    help="""Administer the indexes of a server, with a token of role admin (docs/how-to/serving.md).

    Example: mvindex admin jobs --index grpc://127.0.0.1:7700/wiki""",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@admin_app.command()
def create(  # noqa: PLR0913 - each option is a flag of the command
    index: ServedOption,
    encoder: Annotated[str | None, option("A packaged encoder, such as minilm-views.")] = None,
    dim: Annotated[int | None, option("Instead: the dimensions of given vectors.")] = None,
    dtype: Annotated[str | None, option("Store views as fp16 (default) or fp32.")] = None,
    shards: Annotated[int | None, option("Spread the documents over so many stores.")] = None,
    lexical: Annotated[str | None, option("Terms of lexical search: unicode, english, auto, none.")] = None,
    filter_field: FilterFieldOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Create an empty index in the server's --admin-folder, which serves it from then on.

    Example: mvindex admin create --index grpc://127.0.0.1:7700/news --encoder minilm-views
    """
    fields = parse_field_types(filter_field or [])

    def start(admin: JobAdmin) -> JobHandle:
        return admin.create(encoder=encoder, dim=dim, dtype=dtype, shards=shards, lexical=lexical, filter_fields=fields)

    print_report("create", dict(run_job(index, start)), output)


@admin_app.command()
def drop(
    index: ServedOption,
    confirm: Annotated[str, option("The name of the index again.")],
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Remove an index that `mvindex admin create` made, with its documents.

    Example: mvindex admin drop --index grpc://127.0.0.1:7700/news --confirm news
    """
    print_report("drop", dict(run_job(index, lambda admin: admin.drop(confirm))), output)


@admin_app.command()
def jobs(index: ServedOption, output: OutputOption = Output.TABLE, as_json: JsonOption = False) -> None:
    """List the jobs of a server: those that run, and the latest that ended.

    Example: mvindex admin jobs --index grpc://127.0.0.1:7700/wiki
    """
    with _admin_of(index) as admin:
        found = [asdict(job) | {"state": job.state.value} for job in admin.jobs()]
    if output is Output.JSON:
        for job in found:
            print_json(job)
        return
    header = ("job", "index", "kind", "state", "step", "done", "message")
    rows = [(j["id"], j["index"], j["kind"], j["state"], j["step"], _share(j), j["message"]) for j in found]
    print_rows("jobs", header, rows, output)


@admin_app.command()
def cancel(
    job: Annotated[str, typer.Argument(help="The id of a job.")],
    index: ServedOption,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Ask a job to stop, which it does at its next step; the index is as it was before.

    Example: mvindex admin cancel 5f0c6a1b2c3d-4 --index grpc://127.0.0.1:7700/wiki
    """
    with _admin_of(index) as admin:
        status = admin.cancel(job)
    print_report("job", {"job": status.id, "index": status.index, "state": status.state.value}, output)


def is_served(place: str | None) -> bool:
    """Return whether the index is behind a server that administers it by jobs."""
    from mvindex.index.backends import find_backend

    if place is None or not is_address(place):
        return False
    backend = find_backend(place)
    return backend is not None and backend.is_served


def run_job(place: str, start: Callable[[JobAdmin], JobHandle]) -> Mapping[str, Any]:
    """Start a job and return its report; where this command is interrupted, the job goes on."""
    from mvindex.cli.progress import show_step_progress

    with _admin_of(place) as admin:
        job = start(admin)
        try:
            with show_step_progress() as on_progress:
                return job.wait(None, on_progress)
        except KeyboardInterrupt:
            note(f"job {job.id} goes on; mvindex admin cancel {job.id} --index {place} stops it")
            raise


def refuse_options(given: Mapping[str, object]) -> None:
    """Raise Unsupported for options that a job of a server does not have; None and [] stand for none."""
    for name, value in given.items():
        if value:
            raise Unsupported(f"{name}: expected an index in a directory, got one behind a server. Do it there")


def _admin_of(place: str) -> JobAdmin:
    from mvindex.index.backends import find_backend

    backend = find_backend(place)
    if backend is None or not backend.is_served:
        raise Unsupported(f"{place}: expected an index behind a server, such as grpc://HOST:PORT/NAME")
    return backend.administer(place)


def _share(job: Mapping[str, Any]) -> str:
    if job["total"] is None:
        return str(job["done"])
    return f"{job['done']}/{job['total']}"
