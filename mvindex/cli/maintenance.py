"""The commands that keep an index whole: `mvindex compact`, `snapshot` and `verify`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import IndexOption, JsonOption, chosen_path, is_address, note, open_chosen_local

if TYPE_CHECKING:
    from mvindex.maintenance import SalvageReport, VerifyReport

_SHOWN_PROBLEMS = 50


def compact(index: IndexOption = None, as_json: JsonOption = False) -> None:
    """Drop what was deleted or replaced, and give its bytes back. Readers go on; writers wait.

    Needs room for a second copy while it runs. Interrupted, it has changed nothing.

    Example: mvindex compact --index corpus.mvx
    """
    from mvindex.cli import render as display

    with open_chosen_local(index) as target, _progress("documents", len(target)) as advance:
        report = target.compact(advance)
    row = asdict(report)
    display.print_json(row) if as_json else display.print_table("compact", row)
    if report.is_old_in_use:
        note("a reader still holds the old files; they go with the first write after it has closed or refreshed")


def snapshot(
    directory: Annotated[Path, typer.Argument(help="A new directory, on any disk.")],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a live index, consistent and checked, beside its readers and writer: a backup.

    Example: mvindex snapshot backup/2026-11-22.mvx --index corpus.mvx
    """
    from mvindex.cli import render as display

    with open_chosen_local(index) as target, _progress("bytes", target.info().size_bytes) as advance:
        row = asdict(target.snapshot(directory, advance))
    display.print_json(row) if as_json else display.print_table("snapshot", row)


def verify(
    index: IndexOption = None,
    salvage: Annotated[
        Path | None, typer.Option(help="Write all sound documents to a new index in this new directory.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every byte against its checksum; name what is damaged, by file and document. Exit 1 if anything is.

    What is derived, `mvindex build` makes again; of the rest --salvage saves what is sound.

    Example: mvindex verify --index corpus.mvx --salvage saved.mvx
    """
    from mvindex import maintenance
    from mvindex.cli import render as display
    from mvindex.errors import ConfigError

    if salvage is not None and os.path.lexists(salvage):
        raise ConfigError(f"{salvage} exists already; what is saved is written to a new directory")
    if is_address(index):
        if salvage is not None:
            chosen_path(index)  # refuses it by name
        with open_chosen_local(index) as target, _progress("bytes", None) as advance:
            report = target.verify(advance)
    else:
        path = chosen_path(index)
        with _progress("bytes", _size_of(path)) as advance:
            report = maintenance.verify(path, advance)
    saved = None
    if salvage is not None:
        with _progress("documents", None) as advance:
            saved = maintenance.salvage(path, salvage, advance)
    if as_json:
        row: dict[str, Any] = {"is_sound": report.is_sound, **asdict(report)}
        display.print_json(row if saved is None else row | {"salvaged": asdict(saved)})
    else:
        _print_verified(report, saved)
    if not report.is_sound:
        raise typer.Exit(1)


def _print_verified(report: VerifyReport, saved: SalvageReport | None) -> None:
    from mvindex.cli import render as display

    row: dict[str, Any] = {
        "sound": _yes(report.is_sound),
        "documents": report.documents,
        "damaged documents": report.damaged_documents,
        "bytes read": report.size_bytes,
        "format version": report.format_version,
    }
    display.print_table(report.path, row)
    if report.problems:
        shown = report.problems[:_SHOWN_PROBLEMS]
        lines = [
            (_inside(report.path, problem.file), problem.document or "", problem.what, _yes(problem.is_derived))
            for problem in shown
        ]
        display.print_lines(("file", "document", "what", "build makes it again"), lines)
        if len(report.problems) > len(shown):
            note(f"... and {len(report.problems) - len(shown):,} more; --json names all")
        note(_way_out(report, saved))
    if saved is not None:
        num_lost = sum(problem.document is not None for problem in saved.lost)
        lost = f"{num_lost:,} documents are lost" if num_lost else "none is lost"
        note(f"{saved.documents:,} sound documents were written to {saved.target}; {lost}")
        for problem in saved.lost:
            if problem.document is None:
                note(f"{_inside(report.path, problem.file)}: {problem.what}")


def _inside(index: str, file: str) -> str:
    """Return the name of the file inside the index."""
    return file if is_address(index) else os.path.relpath(file, index)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _way_out(report: VerifyReport, saved: SalvageReport | None) -> str:
    if all(problem.is_derived for problem in report.problems):
        return f"all of it is derived: mvindex build --index {report.path} makes it again"
    if saved is not None:
        return "what is missing in the saved index must be ingested again"
    return f"mvindex verify --index {report.path} --salvage DIR writes what is sound to a new index"


def _size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@contextmanager
def _progress(unit: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts and shows progress on stderr."""
    from mvindex.cli import render as display

    done = 0
    with display.step_progress() as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell(unit, done, total)

        yield advance
