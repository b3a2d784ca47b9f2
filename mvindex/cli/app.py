"""The program: its commands, those of add-ons, and how it ends. Exit 0 done, 1 error, 2 wrong usage."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Annotated

import typer

from mvindex import __version__
from mvindex.cli.analyze import analyze
from mvindex.cli.assemble import assemble
from mvindex.cli.documents import build, delete, get, info
from mvindex.cli.export_encoder import export_encoder
from mvindex.cli.import_ import importing
from mvindex.cli.ingest import ingest
from mvindex.cli.maintenance import compact, snapshot, verify
from mvindex.cli.migrate import export, migrate
from mvindex.cli.options import note
from mvindex.cli.plan import plan
from mvindex.cli.query import evaluate, query
from mvindex.cli.terminal import visible
from mvindex.cli.tune import tune
from mvindex.errors import MvindexError

app = typer.Typer(
    name="mvindex",
    help="Multi-view dense retrieval: several vectors a document, k distinct documents an answer.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_is_debug = False


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"mvindex {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Multi-view dense retrieval: several vectors a document, k distinct documents an answer.

    Example: mvindex ingest corpus.tsv && mvindex query "when did the oil crisis begin?"
    """
    global _is_debug
    _is_debug = debug


app.command()(ingest)
app.command()(query)
app.command(name="eval")(evaluate)
app.command()(analyze)
app.command()(get)
app.command()(delete)
app.command()(info)
app.command()(build)
app.command()(tune)
app.command()(plan)
app.command()(assemble)
app.command()(compact)
app.command()(snapshot)
app.command()(verify)
app.command()(migrate)
app.command()(export)
app.command(name="export-encoder")(export_encoder)
app.add_typer(importing)
app.command(name="add", hidden=True)(ingest)
app.command(name="search", hidden=True)(query)


def main() -> None:
    """Run the program; print an MvindexError as one line on stderr and exit 1."""
    try:
        try:
            _add_commands()
            app()
        finally:
            sys.stdout.flush()
    except MvindexError as err:
        _fail(err, str(err))
    except BrokenPipeError:
        _forget_output()
        sys.exit(1)
    except OSError as err:
        _forget_output()
        _fail(err, f"{err.filename or 'cannot write the output'}: {err.strerror or err}")


def _fail(err: BaseException, message: str) -> None:
    """End the program with one line, or in debug mode with the traceback."""
    if _is_debug:
        raise err
    sys.stderr.write(visible(f"mvindex: {message}\n"))
    sys.exit(1)


def _forget_output() -> None:
    """Drop output that could not be written (to `| head`, or a full disk); else Python tries again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@cache
def _add_commands() -> None:
    """Add the commands of add-ons (entry points `mvindex.commands`, each a typer app)."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="mvindex.commands"):
        try:
            addon = entry.load()
        except ImportError as err:
            note(f"mvindex: the commands of {entry.value!r} are left out: {err}")
        else:
            app.registered_commands.extend(addon.registered_commands)
