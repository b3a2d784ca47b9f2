"""The command `mvindex sync`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.flags import FileFlags
from mvindex.cli.ingest import default_path, open_for_ingest, stop_on_interrupt
from mvindex.cli.options import (
    NEW_INDEX,
    DeviceOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    ThreadsOption,
    note,
    open_chosen,
    option,
    parsing_flags,
    prepare_queries,
    print_report,
    switch,
)
from mvindex.paths import expand_home

if TYPE_CHECKING:
    from mvindex.index import IndexProtocol
    from mvindex.io.sync import SyncOptions, SyncReport

_WAY_ON = {False: "the same command continues from here", True: "nothing was changed"}


def sync(  # noqa: PLR0913 - each option is a flag of the command
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder.")],
    index: IndexOption = None,
    name: Annotated[
        str | None, option("Begin ids with this, which tells its documents from others (default: the folder's name).")
    ] = None,
    *,
    files: FileFlags,
    dry_run: Annotated[bool, switch("--dry-run", "Change nothing; show what would change.")] = False,
    check: Annotated[
        bool, switch("--check", "Change nothing; read all files, and exit 1 unless the index equals them.")
    ] = False,
    watch: Annotated[bool, switch("--watch", "Continue, and sync again when files change.")] = False,
    force: Annotated[
        bool, switch("--force", "Delete all documents of the folder, should none of its files be there.")
    ] = False,
    encoder: Annotated[
        str | None,
        option("Encode texts by this: minilm-views (default), e5-views, minilm, a directory, a hub id.", NEW_INDEX),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Bring an index in step with a folder: add and replace what changed, delete what is gone (docs/how-to/files.md).

    Unchanged files are not encoded, and documents from elsewhere are not touched. The report compares folder and
    index by the number and hash of all passages. Exit 1 unless they are equal and every file could be read.

    Example: mvindex sync notes/ --index notes.mvx
    """
    from mvindex.io.sync import SyncOptions

    if watch and (dry_run or check):
        raise typer.BadParameter("--watch: expected without --dry-run and --check, which change nothing")
    if check and (dry_run or force):
        raise typer.BadParameter("--check: changes nothing; expected it without --dry-run and --force")
    with parsing_flags():
        options = SyncOptions(
            name=name,
            **files.choice(),
            **files.limits(),
            dry_run=dry_run,
            check=check,
            force=force,
        )
    path = expand_home(index or default_path([expand_home(folder)]))
    if check:
        with open_chosen(path, device) as target, stop_on_interrupt(is_writing=False) as should_stop:
            report = _run(target, folder, options, output, should_stop)
        _finish(report)
        return
    if dry_run:
        if _dry_run(path, device, folder, options, output).stopped:
            raise typer.Exit(1)
        return
    with open_for_ingest(path, {"encoder": encoder}, device, None) as target:
        with stop_on_interrupt() as should_stop:
            report = _run(target, folder, options, output, should_stop)
            if watch and not report.stopped:
                _watch(target, folder, options, output, should_stop)
                return
        if report.encoded:
            prepare_queries(target)
    _finish(report)


def _dry_run(path: str, device: str | None, folder: str, options: SyncOptions, output: Output) -> SyncReport:
    from mvindex.index.factory import index_exists

    with stop_on_interrupt(is_writing=False) as should_stop:
        if not index_exists(path):
            return _run(None, folder, options, output, should_stop)
        with open_chosen(path, device) as target:
            return _run(target, folder, options, output, should_stop)


def _run(  # noqa: PLR0913 - what one sync takes
    index: IndexProtocol | None,
    folder: str,
    options: SyncOptions,
    output: Output,
    should_stop: Callable[[], bool],
    *,
    is_quiet: bool = False,
) -> SyncReport:
    """Sync once and print the report; is_quiet: only where something changed, or is wrong."""
    from mvindex.cli.progress import DocumentProgress
    from mvindex.io.sync import SyncHooks, sync_folder

    with DocumentProgress(None) as progress:
        hooks = SyncHooks(
            on_warning=note,
            on_progress=_counting(progress.advance),
            should_stop=should_stop,
        )
        report = sync_folder(index, folder, options, hooks)
    if not (is_quiet and report.is_complete and not (report.added or report.changed or report.deleted)):
        _print(report, output)
    return report


def _print(report: SyncReport, output: Output) -> None:
    row = report.as_json()
    if report.left_out:
        note(f"left out: {report.left_out}")
    if output is not Output.TABLE:
        print_report("sync", row, output)
    else:
        for side in ("in_folder", "in_index"):
            row[side] = "{files} files, {passages} passages, hash {hash}".format_map(row[side])
        shown = {field: value for field, value in row.items() if value not in ({}, []) and value is not False}
        print_report("sync", shown | {"equal": report.equal}, output)
    if report.stale:
        note(f"{len(report.stale)} files cannot be read, or not all of their rows; their old passages stay")
    if report.stopped:
        note("stopped before the end, so that folder and index are not compared; " + _WAY_ON[report.is_dry])


def _counting(advance: Callable[[int, int], None]) -> Callable[[int, int], None]:
    total = 0

    def count(documents: int, size_bytes: int) -> None:
        nonlocal total
        total += size_bytes
        advance(documents, total)

    return count


def _watch(
    index: IndexProtocol, folder: str, options: SyncOptions, output: Output, should_stop: Callable[[], bool]
) -> None:
    import os

    from mvindex.io.sync.run import changes

    path = os.path.realpath(folder)
    note(f"watching {path}; press Ctrl-C to end")
    for count in changes(path, should_stop):
        if _run(index, folder, options, output, should_stop, is_quiet=count == 0).stopped:
            return


def _finish(report: SyncReport) -> None:
    """Exit 1 unless the index equals the folder and every file could be read."""
    if not report.is_complete:
        raise typer.Exit(1)
