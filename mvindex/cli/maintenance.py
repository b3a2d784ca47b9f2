"""The commands `compact`, `snapshot`, `restore`, `verify` and `admin`, and jobs of a server in their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import (
    FilterFieldOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    index_directory,
    is_address,
    note,
    open_chosen_local,
    option,
    parse_field_types,
    print_report,
    print_rows,
)
from mvindex.cli.terminal import print_json
from mvindex.errors import Unsupported

if TYPE_CHECKING:
    from mvindex.index.factory import JobAdmin, JobHandle
    from mvindex.maintenance import SalvageReport, VerifyReport

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
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.")],
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
    from mvindex.index.factory import find_backend

    if place is None or not is_address(place):
        return False
    backend = find_backend(place)
    return backend is not None and backend.administer is not None


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
    from mvindex.index.factory import find_backend

    backend = find_backend(place)
    if backend is None or backend.administer is None:
        raise Unsupported(f"{place}: expected an index behind a server, such as grpc://HOST:PORT/NAME")
    return backend.administer(place)


def _share(job: Mapping[str, Any]) -> str:
    if job["total"] is None:
        return str(job["done"])
    return f"{job['done']}/{job['total']}"


_SHOWN_PROBLEMS = 50


def compact(index: IndexOption = None, output: OutputOption = Output.TABLE, as_json: JsonOption = False) -> None:
    """Give back the disk space of deleted and replaced documents. Readers continue; writers wait.

    Needs disk space for a second copy while it runs. If interrupted, it changes nothing. A graph and
    inverted lists take in the documents that they lack.

    Example: mvindex compact --index corpus.mvx
    """
    from mvindex.cli.progress import show_count_progress

    if index is not None and is_served(index):
        row = dict(run_job(index, lambda admin: admin.compact()))
    else:
        with open_chosen_local(index) as target, show_count_progress("documents", len(target)) as advance:
            row = asdict(target.admin.compact(advance))
    print_report("compact", row, output)
    if row["is_old_in_use"]:
        note("a reader still uses the old files; they are deleted by the first write after it has closed or refreshed")


def snapshot(
    place: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="New directory, on any disk; or an address such as s3://bucket/corpus."),
    ],
    keep: Annotated[
        int | None,
        option("Add a snapshot named by the time to PLACE, a folder or an address, and keep this many there.", min=1),
    ] = None,
    index: IndexOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Back up an index in use: copy its latest committed state, checked, without stopping readers or the writer.

    Of an index behind a server PLACE is a name: the copy goes into the folder of its --admin-folder.

    A snapshot for an address is first made in the temporary directory (TMPDIR). `mvindex restore` makes an index of it.

    Example: mvindex snapshot backup/2026-11-22.mvx --index corpus.mvx

    Example: mvindex snapshot backups/ --keep 7 --index corpus.mvx
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.maintenance.backups import take_backup

    if index is not None and is_served(index):
        refuse_options({"--keep": keep})
        print_report("snapshot", dict(run_job(index, lambda admin: admin.snapshot(place))), output)
        return
    with open_chosen_local(index) as target:
        info = target.info()
        with show_count_progress("bytes", info.size_bytes) as advance:
            if keep is None:
                row = asdict(target.admin.snapshot(place, advance))
            else:
                row = asdict(take_backup(target.admin.snapshot, place, keep, advance, index_id=info.index_id))
    print_report("snapshot", row, output)


def restore(
    snapshot: Annotated[
        str,
        typer.Argument(metavar="SNAPSHOT", help="A snapshot, or a place of dated ones, of which the newest is taken."),
    ],
    index: Annotated[Path, option("The new index: a directory that does not exist.", names=("--index", "-i"))],
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Make an index from a snapshot, a directory or an address, with every byte checked.

    If interrupted, nothing is there, and the same command starts again.

    Example: mvindex restore backups/ --index restored.mvx
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.maintenance.backups import restore as restore_index

    with show_count_progress("bytes", None) as advance:
        row = asdict(restore_index(snapshot, index, advance))
    print_report("restore", row, output)


def verify(
    index: IndexOption = None,
    salvage: Annotated[
        Path | None, option("Write all undamaged documents to a new index in this new directory.")
    ] = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Check every byte against its checksum and list damaged files and documents; exit 1 for any damage.

    Damaged derived files are rebuilt by mvindex build; from other damage, --salvage saves all undamaged documents.

    Example: mvindex verify --index corpus.mvx --salvage saved.mvx
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.errors import ConfigError
    from mvindex.maintenance import dispatch
    from mvindex.store.files import size_of

    if salvage is not None and os.path.lexists(salvage):
        raise ConfigError(f"--salvage: expected a new directory, but {salvage} exists already")
    if is_address(index):
        if salvage is not None:
            index_directory(index)  # raises Unsupported
        with open_chosen_local(index) as target, show_count_progress("bytes", None) as advance:
            report = target.admin.verify(advance)
    else:
        path = index_directory(index)
        with show_count_progress("bytes", size_of(path)) as advance:
            report = dispatch.verify(path, advance)
    saved = None
    if salvage is not None:
        with show_count_progress("documents", None) as advance:
            saved = dispatch.salvage(path, salvage, advance)
    if output is not Output.TABLE:
        row: dict[str, Any] = {"is_sound": report.is_sound, **asdict(report)}
        print_report("", row if saved is None else row | {"salvaged": asdict(saved)}, output)
    else:
        _print_verify_report(report, saved)
    if not report.is_sound:
        raise typer.Exit(1)


def _print_verify_report(report: VerifyReport, saved: SalvageReport | None) -> None:
    from mvindex.cli import terminal

    row: dict[str, Any] = {
        "sound": report.is_sound,
        "documents": report.documents,
        "damaged documents": report.damaged_documents,
        "bytes read": report.size_bytes,
        "format version": report.format_version,
    }
    terminal.print_table(report.path, row)
    if report.problems:
        shown = report.problems[:_SHOWN_PROBLEMS]
        lines = [
            (
                _relative_path(report.path, problem.file),
                problem.document or "",
                problem.what,
                "yes" if problem.is_derived else "no",
            )
            for problem in shown
        ]
        header = ("file", "document", "problem", "rebuilt by mvindex build")
        terminal.print_grid("", header, lines, is_text=True)
        if len(report.problems) > len(shown):
            note(f"... and {len(report.problems) - len(shown):,} more; --json lists all")
        note(_way_out(report, saved))
    if saved is not None:
        num_lost = sum(problem.document is not None for problem in saved.lost)
        lost = f"{num_lost:,} documents are lost" if num_lost else "no document is lost"
        note(f"{saved.documents:,} undamaged documents were written to {saved.target}; {lost}")
        for problem in saved.lost:
            if problem.document is None:
                note(f"{_relative_path(report.path, problem.file)}: {problem.what}")


def _relative_path(index: str, file: str) -> str:
    """Return the path of the file relative to the index."""
    return file if is_address(index) else os.path.relpath(file, index)


def _way_out(report: VerifyReport, saved: SalvageReport | None) -> str:
    if all(problem.is_derived for problem in report.problems):
        return f"all of it is derived: mvindex build --index {report.path} rebuilds it"
    if saved is not None:
        return "ingest the lost documents again into the saved index"
    return f"mvindex verify --index {report.path} --salvage DIR writes the undamaged documents to a new index"
