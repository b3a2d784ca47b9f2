"""Reports in each form: tables for people, JSON, tab-separated values."""

import json
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from mvindex import __main__, cli
from mvindex.cli import terminal
from mvindex.cli.options import JsonOption, Output, OutputOption, explain_wait, print_report, print_rows

REPORT = {"documents": 2067, "size_bytes": 2048, "share": 0.25, "engine": {"kind": "hnsw", "M": 32}, "shards": None,
          "files": ["a.tsv", "b c"], "stopped": False}  # fmt: skip


def command(output: OutputOption = Output.TABLE, as_json: JsonOption = False):
    print_report("", REPORT, output, ["There are 2,067 documents."])


app = typer.Typer(rich_markup_mode=None)
app.command()(command)


def printed(*arguments):
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_a_table_is_for_people():
    code, text = printed()
    rows = dict(line.strip().split("  ", 1) for line in text.splitlines()[2:])
    assert code == 0 and text.startswith("There are 2,067 documents.\n\n")
    assert {name: value.strip() for name, value in rows.items()} == {
        "documents": "2,067",
        "size bytes": "2.0 KiB",
        "share": "0.25",
        "engine": "kind hnsw, M 32",
        "files": "a.tsv, b c",
        "stopped": "no",
    }


@pytest.mark.parametrize("arguments", [["--json"], ["--output", "json"], ["--output", "json", "--json"]])
def test_json_has_the_report_only(arguments):
    code, text = printed(*arguments)
    assert code == 0 and json.loads(text) == REPORT


def test_tab_separated_names_and_values_are_flat():
    code, text = printed("--output", "tsv")
    assert code == 0 and [line.split("\t") for line in text.splitlines()] == [
        ["documents", "2067"],
        ["size_bytes", "2048"],
        ["share", "0.25"],
        ["engine.kind", "hnsw"],
        ["engine.M", "32"],
        ["shards", ""],
        ["files", '["a.tsv", "b c"]'],
        ["stopped", "false"],
    ]


def test_two_forms_at_once_are_refused():
    code, text = printed("--json", "--output", "tsv")
    assert code == 2 and "--json is short for --output json" in " ".join(text.split())


def test_a_grid_fits_the_terminal_and_wraps_its_widest_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    terminal.print_grid("title", ("name", "value"), [("one two three four five six seven", "1"), ("b", "22")])
    assert capsys.readouterr().out.splitlines() == [
        "title",
        "name                     value",
        "-----------------------  -----",
        "one two three four five      1",
        "six seven",
        "b                           22",
    ]


def test_rows_have_no_tab_or_line_break_of_their_own(capsys):
    print_rows("title", ("a", "b"), [("x\ty", "1\n2")], Output.TSV)
    assert capsys.readouterr().out == "a\tb\nx y\t1 2\n"


def test_long_values_hang_under_the_first_line_and_controls_are_shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    terminal.print_table("", {"id": "one two three four five", "text": "\x1b[2J"})
    assert capsys.readouterr().out.splitlines() == [
        "  id    one two",
        "        three four",
        "        five",
        "  text  \u241b[2J",
    ]


def test_a_wait_is_explained_only_when_it_is_long(capsys):
    with explain_wait("quick", after_s=5):
        pass
    with explain_wait("slow", after_s=0.01):
        time.sleep(0.2)
    assert capsys.readouterr().err == "slow\n"


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError("damaged")], ids=repr)
def test_a_ctrl_c_that_a_compiled_module_took_for_a_failed_import_ends_as_any_other(monkeypatch, cause):
    def run():
        raise ImportError("initialization failed") from cause

    monkeypatch.setattr(cli, "main", run)
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    is_interrupted = isinstance(cause, KeyboardInterrupt)
    with pytest.raises(SystemExit if is_interrupted else ImportError) as ended:
        __main__.main()
    assert not is_interrupted or ended.value.code == 130


FREED_WHILE_INTERRUPTED = """
import signal, time
from mvindex import __main__, cli

class Freed:
    def __del__(self):
        raise {error}

def work():
    Freed()
    time.sleep(30 if {waits} else 0)
    print("done")

cli.main = work
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a test run in the background ignores
__main__.main()
"""


def test_a_ctrl_c_that_comes_while_an_object_is_freed_ends_the_command():
    program = FREED_WHILE_INTERRUPTED.format(error="KeyboardInterrupt", waits=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_another_error_while_an_object_is_freed_is_shown():
    program = FREED_WHILE_INTERRUPTED.format(error="ValueError('lost')", waits=False)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n") and "ValueError: lost" in done.stderr
