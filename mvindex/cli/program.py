"""The program: its commands, the commands of add-ons, and exit codes: 0 done, 1 error, 2 wrong usage, 3 refused."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Annotated

import typer

from mvindex import __version__
from mvindex.cli.flags import expand_flags
from mvindex.cli.help import HelpGroup, use_help
from mvindex.cli.options import in_flags, note, option
from mvindex.cli.terminal import escape_controls
from mvindex.errors import MvindexError, QueryError

# Commands, and the functions that they call. Only the one that is run is imported.
_COMMANDS = {
    "ingest": "ingest:ingest",
    "sync": "sync:sync",
    "query": "query:query",
    "grep": "grep:grep",
    "eval": "eval:evaluate",
    "compare": "compare:compare",
    "analyze": "analyze:analyze",
    "get": "documents:get",
    "delete": "documents:delete",
    "info": "documents:info",
    "build": "build:build",
    "tune": "tune:tune",
    "plan": "plan:plan",
    "assemble": "build:assemble",
    "compact": "maintenance:compact",
    "reembed": "reembed:reembed",
    "snapshot": "maintenance:snapshot",
    "restore": "maintenance:restore",
    "verify": "maintenance:verify",
    "migrate": "import_:migrate",
    "export": "import_:export",
    "families": "documents:families",
    "export-encoder": "import_:export_encoder",
    "import": "import_:import_app",
    "admin": "maintenance:admin_app",
}
_HIDDEN = {"add": "ingest:ingest", "search": "query:query"}
# The headings of the help, and each command in a few words.
_HEADINGS = {
    "Make and fill an index": {
        "ingest": "Add the documents of files; make the index if there is none.",
        "sync": "Bring an index in step with a folder.",
        "delete": "Delete documents by id or by a filter.",
        "import": "Make an index from vectors, or from an export.",
        "adopt": "Search a Milvus collection of others where it is.",
        "assemble": "Make one index of shards that were filled separately.",
    },
    "Search": {
        "query": "Search: documents, each with the sentence that answers best.",
        "grep": "Search the files of a folder, without an index.",
        "get": "Show documents by id.",
        "info": "Show what an index holds and how it searches.",
        "serve": "Serve indexes over gRPC and HTTP, with a search page.",
        "mcp": "Serve an index as tools of an agent.",
    },
    "Measure and speed up": {
        "eval": "Measure recall, answers and citations on your questions.",
        "compare": "Compare runs, and tell a difference from chance.",
        "analyze": "Measure whether several views per document pay.",
        "plan": "Compute memory, disk and commands before you build.",
        "build": "Build a search engine, and make it the active one.",
        "tune": "Choose search parameters by measured recall.",
    },
    "Keep and move": {
        "verify": "Check every byte, and save what is undamaged.",
        "snapshot": "Back up an index in use.",
        "restore": "Make an index from a snapshot.",
        "compact": "Give back the space of deleted documents.",
        "reembed": "Change the encoder of an index in place.",
        "migrate": "Copy an index between a directory and Milvus.",
        "export": "Write an index to Parquet, NumPy, JSON Lines or TREC.",
        "admin": "Create and drop indexes of a server; see its jobs.",
    },
    "Encoders": {
        "train": "Train an encoder on your questions.",
        "mine": "Find hard negatives to train with.",
        "families": "List the ways to make views of a document.",
        "export-encoder": "Save an encoder for sentence-transformers.",
    },
}

# The exit code of an error where it is not 1: of grep that means that nothing was found.
_ERROR_CODES = {"grep": 2}
# Of a message, which may quote a file.
_MAX_MESSAGE_CHARS = 4_000
_is_debug = False


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"mvindex {__version__}")
        raise typer.Exit


def root(
    debug: Annotated[bool, option("Show the traceback of an error.", names=("--debug",))] = False,
    allow_download: Annotated[
        bool, option("Take the base of an adapter from elsewhere, or the hub.", names=("--allow-download",))
    ] = False,
    version: Annotated[
        bool, option("Print the version and exit.", names=("--version",), is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Search documents by meaning and by terms: several vectors per document, distinct documents per query.

    Run a command with --help to see its options and an example.

    Example: mvindex ingest corpus.tsv

    Example: mvindex query "when did the oil crisis begin?"
    """
    global _is_debug
    _is_debug = debug
    if allow_download:
        from mvindex.encoder.checkpoint.hub import ALLOW_DOWNLOAD

        os.environ[ALLOW_DOWNLOAD] = "1"


def make_app(names: Iterable[str]) -> typer.Typer:
    """Return the program with these of its own commands."""
    app = typer.Typer(
        name="mvindex",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=HelpGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        module, _, function = (_COMMANDS | _HIDDEN)[name].partition(":")
        command = getattr(importlib.import_module(f"mvindex.cli.{module}"), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name=name, hidden=name in _HIDDEN)(expand_flags(command))
    use_help(app, _HEADINGS)
    return app


@cache
def full_app() -> typer.Typer:
    """Return the program with all of its own commands."""
    return make_app([*_COMMANDS, *_HIDDEN])


def main() -> None:
    """Run the program; our errors become one line on stderr and exit code 1, of grep 2."""
    # Files that everyone may write are nobody's intention.
    os.umask(os.umask(0o077) | 0o002)
    try:
        try:
            _chosen_app()()
        finally:
            sys.stdout.flush()
    except QueryError as err:
        _fail(err, in_flags(str(err)))
    except MvindexError as err:
        _fail(err, str(err))
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except UnicodeEncodeError as err:
        missing = err.object[err.start : err.end]
        _fail(
            err,
            f"output: expected an encoding that has {missing!a:.20}, got {err.encoding}. Set PYTHONIOENCODING=utf-8",
        )
    except OSError as err:
        _discard_output()
        _fail(err, f"{err.filename or 'cannot write the output'}: {err.strerror or err}")


def _fail(err: BaseException, message: str) -> None:
    """End the program with one line, or in debug mode with the traceback."""
    if _is_debug:
        raise err
    # What is wrong may be a whole file of one line.
    shown = message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}..."
    sys.stderr.write(escape_controls(f"mvindex: {shown}\n"))
    sys.exit(_ERROR_CODES.get(_command(), 1))


def _discard_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail again when it flushes at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command() -> str:
    """Return the command of this call; "" where none is named."""
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")


def _chosen_app() -> typer.Typer:
    """Return the program with the command of this call, or with all where it is not one of our own."""
    name = _command()
    if name in _COMMANDS or name in _HIDDEN:
        return make_app([name])
    _add_commands()
    return full_app()


@cache
def _add_commands() -> None:
    """Add the commands of add-ons: entry points `mvindex.commands`, each a typer app."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="mvindex.commands"):
        try:
            addon = entry.load()
        except ImportError as err:
            note(f"mvindex: the commands of {entry.value!r} are not available: {err}")
        else:
            full_app().registered_commands.extend(addon.registered_commands)
    use_help(full_app(), _HEADINGS)
