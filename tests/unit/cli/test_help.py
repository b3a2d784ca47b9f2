"""The help: commands and options under headings, examples to copy, and completion."""

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from mvindex.cli.program import _HEADINGS, _add_commands, full_app

NAMES = [name for lines in _HEADINGS.values() for name in lines]


def shown(*words):
    _add_commands()
    done = CliRunner().invoke(full_app(), [*words, "-h"], env={"COLUMNS": "80"}, prog_name="mvindex")
    assert done.exit_code == 0, done.output
    return done.output


def test_every_command_is_under_a_heading_in_one_line():
    lines = shown().splitlines()
    for heading, commands in _HEADINGS.items():
        first = lines.index(f"{heading}:") + 1
        group = lines[first : first + len(commands)]
        assert {line.split()[0]: " ".join(line.split()[1:]) for line in group} == commands
    assert "Commands:" not in lines


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_80_columns_and_ends_in_examples_that_a_shell_reads_as_one_command(name):
    text = shown(name)
    assert max(map(len, text.splitlines())) <= 80
    head, _, examples = re.split(r"\n(Examples?):\n", text)
    assert "Options:" in head and "Example:" not in head
    commands = [line for line in examples.replace("\\\n", " ").splitlines() if line.strip()]
    assert commands and all(line.startswith(f"  mvindex {name}") for line in commands)
    assert all(shlex.split(line)[0] == "mvindex" for line in commands)


def commands_of(command, words=()):
    """Yield the words and the command of each command that runs."""
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from commands_of(each, (*words, name))
    else:
        yield words, command


def test_options_are_described_in_sentences_and_grouped_where_they_are_many():
    _add_commands()
    for words, command in commands_of(typer.main.get_command(full_app())):
        ungrouped = []
        for each in command.params:
            assert re.fullmatch(r"[A-Z].*[.)]", each.help), (words, each.name, each.help)
            if each.param_type_name == "option" and each.rich_help_panel is None:
                ungrouped.append(each.name)
            if each.param_type_name == "argument":
                assert each.metavar and each.metavar.isupper(), (words, each.name)
        assert len(ungrouped) <= 10, (words, ungrouped)


def test_options_are_under_headings_and_types_are_words():
    text = shown("query")
    headings = [line for line in text.splitlines() if re.fullmatch(r"[A-Z][^.]*:", line)]
    assert headings == [
        *("Arguments:", "Options:", "Questions:", "Search:", "Hybrid search:", "Reranking:", "Output:"),
        *("This machine:", "Examples:"),
    ]
    assert "--output table|json|tsv|trec" in text and not re.search(r"<\w", text)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell):
    environ = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run(["--show-completion", shell], environ)
    assert "_MVINDEX_COMPLETE" in done


def test_completion_names_the_values_of_an_option():
    words = {"_MVINDEX_COMPLETE": "complete_bash", "COMP_WORDS": "mvindex query --mode ", "COMP_CWORD": "3"}
    assert run([], os.environ | words).split() == ["auto", "dense", "lexical", "hybrid"]


def run(arguments, environ):
    # Named as the program is installed.
    code = "import sys; sys.argv[0] = 'mvindex'; from mvindex.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
