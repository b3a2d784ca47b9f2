"""The help of commands: options and commands under headings, examples as lines to copy, in plain text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mvindex.cli.terminal import BOLD, has_colours, styled
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
