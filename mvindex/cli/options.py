"""Options that commands share: how they are declared and parsed, how reports are printed and indexes opened."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mvindex.cli.terminal import escape_controls, print_json, print_tsv
from mvindex.errors import ConfigError, QueryError, Unsupported
from mvindex.paths import user_path
from mvindex.search.flags import SEARCH_FLAGS

if TYPE_CHECKING:
    from mvindex.index import Index, IndexProtocol
    from mvindex.measure.questions import QuestionFormat

OUTPUT_PANEL = "Output"


def option(
    help: str, heading: str | None = None, metavar: str | None = None, *, names: Sequence[str] = (), **others: Any
) -> Any:
    """Return an option with this help under a heading of the command's help; its names are made of the parameter's."""
    return typer.Option(*names, help=help, rich_help_panel=heading, metavar=metavar, **others)


def switch(name: str, help: str, heading: str | None = None) -> Any:
    """Return an option without a value, which is set by its name and has no other name that unsets it."""
    return option(help, heading, names=(name,))


class Output(Enum):
    """The form of the output of most commands."""

    TABLE = "table"
    JSON = "json"
    TSV = "tsv"


class ResultOutput(Enum):
    """The form of the output of `mvindex query`."""

    TABLE = "table"
    JSON = "json"
    TSV = "tsv"
    TREC = "trec"


_JSON = "mvindex.json"


def _remember_json(ctx: typer.Context, is_set: bool) -> None:
    ctx.meta[_JSON] = is_set


def _with_json(ctx: typer.Context, value: Any) -> Any:
    """Return the form of --output; JSON where --json is set."""
    kind = type(value)
    if not ctx.meta.get(_JSON):
        return value
    if value not in (kind.TABLE, kind.JSON):
        raise typer.BadParameter(f"--json is short for --output json; got --output {value.value} too")
    return kind.JSON


# Parsed before --output.
JsonOption = Annotated[
    bool,
    option(
        "Short for --output json: one line for each result.",
        OUTPUT_PANEL,
        names=("--json",),
        is_eager=True,
        expose_value=False,
        callback=_remember_json,
    ),
]
OutputOption = Annotated[
    Output,
    option(
        "Print a table for people, JSON, or tab-separated values.",
        OUTPUT_PANEL,
        names=("--output",),
        callback=_with_json,
    ),
]
ResultOutputOption = Annotated[
    ResultOutput,
    option(
        "Print text for people, JSON, tab-separated values, or a TREC run.",
        OUTPUT_PANEL,
        names=("--output",),
        callback=_with_json,
    ),
]


def print_report(title: str, report: Mapping[str, Any], output: Output, summary: Sequence[str] = ()) -> None:
    """Print a report to stdout.

    Args:
        title: Title of the table; "" for none.
        report: Names and values.
        output: Its form. A table leaves out what is not set. Tab-separated, each line is a name and a value; names in
            an object are joined by a dot.
        summary: Sentences for people, printed above the table.

    """
    if output is Output.JSON:
        print_json(report)
    elif output is Output.TSV:
        print_tsv(_flat(report))
    else:
        from mvindex.cli import terminal

        terminal.print_summary(summary)
        terminal.print_table(
            title, {name: value for name, value in report.items() if value not in (None, "", (), [], {})}
        )


def print_rows(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], output: Output, *, is_text: bool = False
) -> None:
    """Print rows of a report under a header to stdout, as a table or tab-separated; is_text: no cell is a number."""
    if output is Output.TSV:
        print_tsv([header, *rows])
    else:
        from mvindex.cli import terminal

        terminal.print_grid(title, header, rows, is_text=is_text)
        typer.echo()


def _flat(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


Choice = TypeVar("Choice", bound=Enum)


def _use_threads(count: int | None) -> None:
    from mvindex.kernels.threads import set_threads

    set_threads(count)


# Headings of options in the help of a command.
SEARCH, HYBRID = SEARCH_FLAGS["top_k"].heading, SEARCH_FLAGS["fusion"].heading
QUESTIONS, CORPUS, FOLDERS, NEW_INDEX = "Questions", "Corpus", "Folders", "A new index"
MACHINE = "This machine"


def _choices(*names: str) -> Callable[[], list[str]]:
    """Return what completes an option that takes one of these names."""
    return lambda: list(names)


# Options of a search in Python that the command line does not have.
_WITHOUT_FLAG = ("fields", "text")


def search_option(name: str, *declared: str, metavar: str | None = None) -> Any:
    """Return an option of a search, as SEARCH_FLAGS describes it."""
    flag = SEARCH_FLAGS[name]
    return typer.Option(
        *declared,
        metavar=metavar,
        help=flag.help,
        rich_help_panel=flag.heading,
        autocompletion=_choices(*flag.choices) if flag.choices else None,
    )


IndexOption = Annotated[
    str | None,
    option(
        "Use this index: a directory, or an address such as milvus://HOST:PORT/NAME (default: the only *.mvx "
        "here). Addresses of served shards have commas between.",
        metavar="DIR",
        names=("--index", "-i"),
        envvar="MVINDEX_INDEX",
    ),
]
FilterFieldOption = Annotated[
    list[str] | None,
    option(
        "Declare a metadata field that filters compare often, with its type: int, float, text or date; may be "
        "repeated.",
        metavar="NAME:TYPE",
        names=("--filter-field",),
    ),
]
DeviceOption = Annotated[
    str | None,
    option("Encode on cpu or cuda (default: the fastest available).", MACHINE, autocompletion=_choices("cpu", "cuda")),
]
ThreadsOption = Annotated[
    int | None,
    option(
        "Compute in so many threads (default: OMP_NUM_THREADS, else as many as the machine leaves).",
        MACHINE,
        min=1,
        callback=_use_threads,
        expose_value=False,
    ),
]
PartialOption = Annotated[
    bool, switch("--allow-partial", "Search without missing or damaged shards, and report which.", SEARCH)
]
SplitOption = Annotated[
    str | None, option("Use these judgements of a BEIR folder (default: test, or the only ones).", QUESTIONS)
]
QuestionFormatOption = Annotated[
    str | None,
    option(
        "Read the questions as jsonl, dpr, tsv or text (one per line). All but text are detected.",
        QUESTIONS,
        autocompletion=_choices("jsonl", "dpr", "tsv", "text"),
    ),
]
TrecOption = Annotated[str | None, option("Also write a TREC run file; - is stdout.", OUTPUT_PANEL, "FILE")]
ForceRunOption = Annotated[bool, switch("--force", "Overwrite the run file.", OUTPUT_PANEL)]

QUESTION_BATCH = 256


def note(text: str) -> None:
    """Write a line to stderr, with control characters, such as those of file names, escaped."""
    sys.stderr.write(escape_controls(text) + "\n")


@contextmanager
def explain_wait(text: str, after_s: float = 2.0) -> Iterator[None]:
    """Write the note if what is done inside takes longer than so many seconds."""
    timer = threading.Timer(after_s, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def open_chosen(place: str | None, device: str | None, *, allow_partial: bool = False) -> IndexProtocol:
    """Open the index at this place, or the only one in the current directory."""
    from mvindex.index.factory import open_index

    return open_index(place or _find_only_index(), device=device, allow_partial=allow_partial)


def open_chosen_local(place: str | None, device: str | None = None) -> Index:
    """Open an index that this process works on itself; raise Unsupported for one behind a server."""
    from mvindex.index.factory import open_local

    return open_local(place or _find_only_index(), device=device)


def prepare_queries(index: IndexProtocol) -> None:
    """Make the ONNX form of the encoder that this process has loaded, where it lacks one; what fails is a note."""
    from mvindex.encoder.registry import leave_form

    # An index behind a server encodes there.
    leave_form(getattr(index, "loaded_encoder", None), note)


def index_directory(place: str | None) -> Path:
    """Return the directory of the chosen index; raise Unsupported for an address."""
    from mvindex.index.factory import find_backend

    backend = None if place is None else find_backend(place)
    if place is not None and backend is not None:
        raise Unsupported(
            f"{backend.shown(place)}: expected an index in a directory, got an address. Run the command on the machine "
            "that has the directory, or copy the index into one with mvindex migrate"
        )
    return user_path(place) if place else _find_only_index()


def is_on_command_line(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter was given on the command line, not by the environment."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def one_place(ctx: typer.Context, given: str | None, index: str | None) -> str | None:
    """Return the index that is given as an argument or by --index; wrong usage for both."""
    # $MVINDEX_INDEX gives way to the argument.
    if given is not None and is_on_command_line(ctx, "index"):
        raise typer.BadParameter(f"expected one index, got {given} and --index {index}")
    return given or index


def is_address(place: str | None) -> bool:
    """Return whether the index is behind an address rather than in a directory."""
    from mvindex.index.factory import find_backend

    return place is not None and find_backend(place) is not None


def _find_only_index() -> Path:
    """Return the one index in the current directory; raise ConfigError for none or several."""
    found = sorted(entry for entry in Path.cwd().glob("*.mvx") if entry.is_dir())
    if len(found) == 1:
        return Path(found[0].name)
    if not found:
        raise ConfigError(
            "--index: expected the directory of an index, as this one holds no *.mvx; mvindex ingest makes one"
        )
    raise ConfigError(f"--index: expected one of {', '.join(entry.name for entry in found)}, as there are several here")


def parse_choice(option: str, value: str, choices: type[Choice]) -> Choice:
    """Return the member of this value; wrong usage for another one."""
    names = [item.value for item in choices]
    if value not in names:
        raise typer.BadParameter(f"{option}: expected {', '.join(names[:-1])} or {names[-1]}, got {value!r}")
    return choices(value)


def find_judged_files(questions: list[str], qrels: str | None, split: str | None) -> tuple[list[str], str | None]:
    """Return the files of questions and of judgements, where the questions may be one folder of the BEIR layout."""
    from mvindex.corpus.paths import beir_qrels, beir_queries, folder_of

    questions = [folder_of(name) for name in questions]
    if len(questions) == 1 and Path(questions[0]).is_dir():
        return [beir_queries(questions[0])], qrels or beir_qrels(questions[0], split)
    if split is not None:
        raise typer.BadParameter(f"--split {split}: belongs to --questions FOLDER")
    return questions, qrels


def parse_question_format(name: str | None) -> QuestionFormat | None:
    """Return the format of this name; None stands for detection."""
    from mvindex.measure.questions import QuestionFormat

    return None if name is None else parse_choice("--format", name, QuestionFormat)


def check_value(option: str, value: str | None, parse: Callable[[str], object]) -> None:
    """Raise wrong usage for a value that a parser of the library refuses; None is not checked."""
    if value is None:
        return
    try:
        parse(value)
    except ConfigError as err:
        reason = str(err).removeprefix(f"{option.lstrip('-')}: ")
        raise typer.BadParameter(f"{option}: {reason}") from err


@contextmanager
def parsing_flags() -> Iterator[None]:
    """Turn what the library finds wrong in the values of flags into wrong usage."""
    try:
        yield
    except (ConfigError, QueryError) as err:
        raise typer.BadParameter(in_flags(str(err))) from err


def in_flags(message: str) -> str:
    """Return a message about a search with its options as flags: --top-k for `top_k=`, and for `top_k:` in front."""
    names = "|".join(name for name in SEARCH_FLAGS if name not in _WITHOUT_FLAG)
    option = re.compile(rf"(?:^|(?<=: ))({names})(?=: )|(?<![\w'\"`.])({names})=(True\b|'(\w+)'|(?=[^\s,;:)]))?")

    def shown(found: re.Match[str]) -> str:
        flag = "--" + (found[1] or found[2]).replace("_", "-")
        return f"{flag} {found[4] or ''}" if found[3] == "" or found[4] else flag

    return option.sub(shown, message)


def parse_filter(text: str | None) -> Any:
    """Return the filter of --filter, JSON or conditions; raise QueryError when it is neither."""
    if text is None:
        return None
    if not text.lstrip().startswith("{"):
        from mvindex.cli.conditions import parse_conditions

        return parse_conditions(text)
    try:
        return json.loads(text)
    except ValueError as err:
        raise QueryError(
            f'--filter: expected JSON such as {{"year": {{"gte": 1990}}}}, got {text!r:.60}: {err}'
        ) from err


def parse_field_types(texts: Iterable[str]) -> dict[str, str]:
    """Return the declared filter fields of --filter-field NAME:TYPE, name to type."""
    from mvindex.store.fields import parse_filter_fields

    found = {}
    for text in texts:
        name, colon, kind = text.rpartition(":")
        if not colon:
            raise typer.BadParameter(f"--filter-field: expected NAME:TYPE, such as year:int, got {text!r}")
        found[name] = kind
    try:
        return parse_filter_fields(found)
    except ConfigError as err:
        raise typer.BadParameter(f"--filter-field: {err}") from err


def parse_cutoffs(text: str) -> tuple[int, ...]:
    """Return the cut-offs of --at."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"--at: expected whole numbers from 1, such as 1,5,20,100, got {text!r}")
    return tuple(map(int, parts))
