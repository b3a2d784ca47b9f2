"""The commands of a block that is not run, read as they would be, up to where they would begin to do something."""

import argparse
import re
import runpy
import shlex
import sys

import pytest
import typer.main
from docs_pages import ROOT

from mvindex.cli import app
from mvindex.cli.program import _add_commands

# Programs that are no part of the project, whose arguments are theirs.
FOREIGN = {"cd", "curl", "export", "grpcurl", "ray", "schemathesis"}
OPERATORS = re.compile(r"[|&;]+")


class Parsed(Exception):
    """A program has read its arguments."""


def check_block(code):
    """Check that every command of this code exists and takes its arguments."""
    for words in commands_of(code):
        check_command(words)


def commands_of(code):
    """The words of each simple command, without the settings before it and what leads its output elsewhere."""
    for line in code.replace("\\\n", " ").splitlines():
        words = []
        for word in [*split(line), ";"]:
            if not OPERATORS.fullmatch(word):
                words.append(word)
                continue
            words = words[: words.index(">")] if ">" in words else words
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []


def split(line):
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    words.whitespace_split = True
    return list(words)


def check_command(words):
    name, *rest = words
    if name == "mvindex":
        read_mvindex(rest)
    elif name == "python":
        read_python(rest)
    elif name == "pip":
        read_pip(rest)
    elif name == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(rest) <= set(targets), words
    elif name in ("sh", "bash") or "/" in name:
        assert (ROOT / (rest[0] if name in ("sh", "bash") else name)).is_file(), words
    else:
        assert name in FOREIGN, f"{name}: no command that is known here"


def read_mvindex(args):
    """Check that the command exists and takes these arguments (typer ends with an error otherwise)."""
    _add_commands()
    command = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        name, *args = args
        command = command.get_command(None, name)
        assert command is not None, f"{name}: no such command"
    command.make_context(name, args)


def read_python(args):
    if args[:2] == ["-m", "pytest"]:
        assert all((ROOT / path).exists() for path in args[2:]), args
        return
    if args[:2] == ["-m", "mvindex"]:
        read_mvindex(args[2:])
        return
    if args[0] == "-m":
        args = [args[1].replace(".", "/") + ".py", *args[2:]]
    script = next((root / args[0] for root in (ROOT, ROOT / "train") if (root / args[0]).is_file()), None)
    assert script is not None, args
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop_when_parsed(argparse.ArgumentParser.parse_args))
        patch.setattr(sys, "argv", [str(script), *args[1:]])
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Parsed:
            return
        except SystemExit as end:
            raise AssertionError(f"python {' '.join(args)}: exit {end.code}") from end
    raise AssertionError(f"python {' '.join(args)}: reads no arguments")


def stop_when_parsed(parse_args):
    def parse(*given, **named):
        parse_args(*given, **named)
        raise Parsed

    return parse


def read_pip(args):
    """Check that the extras and the constraints file exist in the project."""
    assert args[0] in ("install", "wheel", "uninstall"), args
    args = [word for word in args if word != "--no-index"]
    for option in ("-w", "--find-links"):
        if option in args:
            del args[args.index(option) : args.index(option) + 2]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(re.findall(r"^([\w-]+) = \[", text.split("[project.optional-dependencies]")[1].split("\n[")[0], re.M))
    for word in args[1:]:
        asked = re.fullmatch(r"(?:mvindex|\.)\[(.+)\]", word)
        assert asked or word == "-c" or (ROOT / word).is_file() or word in ("mvindex", "."), f"pip install {word}"
        assert not asked or set(asked[1].split(",")) <= extras, f"{word}: no such extra"
