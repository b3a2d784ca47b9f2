"""The program: its commands, those of add-ons, its help, and exit codes: 0 done, 1 error, 2 wrong usage, 3 refused."""

from __future__ import annotations

import importlib
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mvindex import __version__
from mvindex.cli.flags import expand_flags
from mvindex.cli.options import in_flags, note, option, switch
from mvindex.cli.terminal import BOLD, escape_controls, has_colours, styled
from mvindex.errors import MvindexError, QueryError
from mvindex.paths import user_path

_EXAMPLE = "Example:"
_BRACES = re.compile(r"^\{(.+)\}")
_ARGUMENT_TYPE = re.compile(r" <[^<>]*>$")
# Typer names types as Python does.
_TYPES = (
    (re.compile(r"<(?:list\[)?(?:int|float)(?: range)?\]?>"), "NUMBER"),
    (re.compile(r"<(?:list\[)?(?:path|file|directory)\]?>"), "PATH"),
    (re.compile(r"<(?:list\[)?str\]?>"), "TEXT"),
    (re.compile(r"<([^<>]*\|[^<>]*)>"), r"\1"),
)


class HelpCommand(TyperCommand):
    """A command whose help has its options under the headings of `rich_help_panel`."""

    # Refused below, with the way out.
    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; wrong usage for more of them than the command takes."""
        further = super().parse_args(ctx, args)
        if further and not ctx.resilient_parsing:
            takes_index = any("--index" in each.opts for each in self.params)
            places = [word for word in further if os.path.isdir(word)]
            way_out = f". An index is given by --index {places[0]}" if takes_index and places else ""
            if not way_out and any(each.param_type_name == "argument" for each in self.params):
                way_out = ". A text with spaces is given in quotes"
            ctx.fail(f"expected no further arguments, got {escape_controls(' '.join(further) + way_out)}")
        return further

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the `~` of a path is the home directory, also behind `--out=`, where shells leave it."""
        ctx.params = {name: user_path(each) if isinstance(each, Path) else each for name, each in ctx.params.items()}
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line; required arguments are without braces."""
        return [_BRACES.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does, without its examples."""
        _write_description(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options by heading, and examples."""
        _write_parameters(self, ctx, formatter)
        _write_examples(self.help or "", formatter)


class HelpGroup(TyperGroup):
    """A program whose help has its commands under the headings of `rich_help_panel`."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the program does, without its examples."""
        _write_description(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write commands by heading, options, and examples."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, command) for name, command in commands if command is not None and not command.hidden]
        widest = max((len(name) for name, _ in shown), default=0)
        for heading, group in _by_heading(shown, "Commands", is_last=True):
            with formatter.section(_heading(heading)):
                formatter.write_dl(
                    [(name.ljust(widest), command.get_short_help_str(200)) for name, command in group], col_spacing=2
                )
        _write_parameters(self, ctx, formatter)
        _write_examples(self.help or "", formatter)


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    parameters = [(each, each.get_help_record(ctx)) for each in command.get_params(ctx)]
    named = [(each, record) for each, record in parameters if record is not None]
    arguments = [record for each, record in named if each.param_type_name == "argument"]
    if arguments:
        with formatter.section(_heading("Arguments")):
            formatter.write_dl([(_ARGUMENT_TYPE.sub("", name), text) for name, text in arguments])
    options = [(record, each) for each, record in named if each.param_type_name != "argument"]
    for heading, group in _by_heading(options, "Options"):
        with formatter.section(_heading(heading)):
            formatter.write_dl([_plain_types(record) for record, _ in group])


def _by_heading(
    items: Iterable[tuple[Any, Any]], default: str, *, is_last: bool = False
) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """Yield each heading with its items, in the order in which headings appear; the default one is first or last."""
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for item in items:
        heading = getattr(item[1], "rich_help_panel", None)
        groups.setdefault(heading if isinstance(heading, str) else default, []).append(item)
    yield from sorted(groups.items(), key=lambda group: (group[0] == default) == is_last)


def _plain_types(record: tuple[str, str]) -> tuple[str, str]:
    name, text = record
    for pattern, word in _TYPES:
        name = pattern.sub(word, name)
    return name, text


def _heading(text: str) -> str:
    return styled(text, BOLD, is_coloured=has_colours())


def _write_description(text: str, formatter: Any) -> None:
    for paragraph in _paragraphs(text):
        if not paragraph.startswith(_EXAMPLE):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(paragraph)


def _write_examples(text: str, formatter: Any) -> None:
    examples = [each.removeprefix(_EXAMPLE).strip() for each in _paragraphs(text) if each.startswith(_EXAMPLE)]
    if not examples:
        return
    with formatter.section(_heading("Examples" if len(examples) > 1 else "Example")):
        for example in examples:
            formatter.write("".join(f"  {line}\n" for line in _command_lines(example, formatter.width - 2)))


def _paragraphs(text: str) -> list[str]:
    return [" ".join(each.split()) for each in textwrap.dedent(text).strip().split("\n\n")]


def _command_lines(command: str, width: int) -> list[str]:
    """Return the command in lines that a shell reads as one: each but the last ends in a backslash."""
    lines = textwrap.wrap(command, width - 2, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def use_help(app: typer.Typer, headings: Mapping[str, Mapping[str, str]]) -> None:
    """Give the commands of a program this help.

    Args:
        app: The program.
        headings: By heading, the names of its commands with a line about each. The help has their order.

    """
    place = {name: (heading, line) for heading, lines in headings.items() for name, line in lines.items()}
    for each in app.registered_commands:
        name = each.name or (each.callback.__name__ if each.callback is not None else "")
        each.cls = HelpCommand
        each.rich_help_panel, each.short_help = place.get(name.replace("_", "-"), (None, None))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.cls = HelpGroup
            group.rich_help_panel, group.short_help = place.get(str(group.typer_instance.info.name), (None, None))
            use_help(group.typer_instance, {})


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
    debug: Annotated[bool, switch("--debug", "Show the traceback of an error.")] = False,
    allow_download: Annotated[
        bool, switch("--allow-download", "Take the base of an adapter from elsewhere, or the hub.")
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
