"""The commands `mvindex compact`, `snapshot`, `restore` and `verify`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.admin import is_served, refuse_options, run_job
from mvindex.cli.options import IndexOption, index_directory, is_address, note, open_chosen_local
from mvindex.cli.output import JsonOption, Output, OutputOption, option, print_report
from mvindex.store.files import size_of

if TYPE_CHECKING:
    from mvindex.maintenance import SalvageReport, VerifyReport

_SHOWN_PROBLEMS = 50


def compact(index: IndexOption = None, output: OutputOption = Output.TABLE, as_json: JsonOption = False) -> None:
    """Give back the disk space of deleted and replaced documents. Readers continue; writers wait.

    Needs disk space for a second copy while it runs. If interrupted, it changes nothing. A graph takes in the documents
    that it lacks.

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
    place: Annotated[str, typer.Argument(help="New directory, on any disk; or an address such as s3://bucket/corpus.")],
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
    with open_chosen_local(index) as target, show_count_progress("bytes", target.info().size_bytes) as advance:
        if keep is None:
            row = asdict(target.admin.snapshot(place, advance))
        else:
            row = asdict(take_backup(target.admin.snapshot, place, keep, advance))
    print_report("snapshot", row, output)


def restore(
    snapshot: Annotated[
        str, typer.Argument(help="A snapshot, or a place of dated ones, of which the newest is taken.")
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
                _yes_or_no(problem.is_derived),
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


def _yes_or_no(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _way_out(report: VerifyReport, saved: SalvageReport | None) -> str:
    if all(problem.is_derived for problem in report.problems):
        return f"all of it is derived: mvindex build --index {report.path} rebuilds it"
    if saved is not None:
        return "ingest the lost documents again into the saved index"
    return f"mvindex verify --index {report.path} --salvage DIR writes the undamaged documents to a new index"
